# SPDX-License-Identifier: Apache-2.0
"""An HTTP/1.1 proxy that breaks answers by rule, between an S3 client and a server that it believes to be talking to.

Requests are passed on as they came, Host included, so signatures stay valid. The rules are a list; the first one whose
`request` (a regular expression over "METHOD TARGET RANGE") matches and whose `times` are not used up decides:

  {"request": "^GET /bkt/obj bytes=0-", "skip": 0, "times": 1, "each_range": false, "fault": NAME, ...}

`skip` lets that many matches pass first, `times` -1 means always, `each_range` counts per Range value. Faults:

  answer     status, code (of an S3 error document), body, headers, seconds   answer here after that many seconds (0), without passing on; "{n}"
             in the body is a number that is unique per request
  close      close the connection without passing on
  lose       pass on, drop the server's answer and close the connection
  delay      seconds                       wait before passing on
  hold       wait until the test sets `released` before passing on
  slow_read  rate                          read the request's body at `rate` bytes per second, with small socket buffers
  garbage    answer with bytes that are not HTTP
  long_head  answer with a head without end
  unrange    pass on without Range
  head       set {name: value}, drop [name]    change the answer's head
  reset      at     that many body bytes, then a TCP reset
  truncate   at     that many body bytes, then an orderly end
  stall      at, seconds    that many body bytes, then silence
  drip       at, rate       that many body bytes, then `rate` bytes per second
  flip       at     one body byte is inverted
  pieces     size   the body in pieces of that many bytes
  chunked    end, extra   the body in chunked coding, without a length, and a chunk of `extra` after it; with end false the connection ends
                          instead of the coding
  hang_up    the whole answer, then an unannounced end of the connection
  call       name, seconds   call a function of the test, and that many seconds (0) later pass the request on
  call_late  name, seconds   the same, but after the server has handled the request and before its answer
"""
import asyncio
import re
import socket
import struct

from fake_s3 import MAX_HEAD, Listener

PIECE = 65536


class Broken(Exception):
    """Ends the client's connection; `reset` ends it with a TCP reset."""

    def __init__(self, reset=False):
        super().__init__()
        self.reset = reset


class Rules:
    def __init__(self, rules):
        self.rules = rules
        self.seen = {}

    def pick(self, line, range_value):
        for index, rule in enumerate(self.rules):
            if not re.search(rule["request"], line):
                continue
            key = (index, range_value if rule.get("each_range") else "")
            count = self.seen[key] = self.seen.get(key, 0) + 1
            first, times = rule.get("skip", 0), rule.get("times", 1)
            if count > first and (times < 0 or count <= first + times):
                return rule
        return None


class Head:
    """First line and fields of a request or an answer."""

    def __init__(self, first, fields):
        self.first = first
        self.fields = fields

    @staticmethod
    async def read(reader):
        raw = await reader.readuntil(b"\r\n\r\n")
        lines = raw[:-4].decode("latin-1").split("\r\n")
        return Head(lines[0], [line.split(":", 1) for line in lines[1:]])

    def get(self, name, default=None):
        for field, value in self.fields:
            if field.strip().lower() == name:
                return value.strip()
        return default

    def drop(self, *names):
        self.fields = [field for field in self.fields if field[0].strip().lower() not in names]

    def render(self):
        return (self.first + "\r\n" + "".join(f"{name}:{value}\r\n" for name, value in self.fields) + "\r\n").encode("latin-1")


class FaultProxy(Listener):
    def __init__(self, host, port, rules, calls=None):
        super().__init__()
        self.upstream = (host, port)
        self.rules = Rules(rules)
        self.calls = calls or {}
        self.log = []  # items: (request line with range, fault or None, status)
        self.released = asyncio.Event()

    async def talk(self, reader, writer):
        upstream = []
        try:
            while await self.exchange(reader, writer, upstream):
                pass
        except Broken as broken:
            if broken.reset:
                sock = writer.get_extra_info("socket")
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                writer.transport.abort()
        finally:
            for connection in upstream:
                connection[1].close()

    async def exchange(self, reader, writer, upstream):
        request = await Head.read(reader)
        method, target, _ = request.first.split(" ", 2)
        length = int(request.get("content-length", "0"))
        range_value = request.get("range", "")
        line = f"{method} {target} {range_value}".strip()
        rule = self.rules.pick(line, range_value) or {}
        fault = rule.get("fault")
        entry = [line, fault, 0]
        self.log.append(entry)
        body = await read_slowly(reader, writer, length, rule["rate"]) if fault == "slow_read" else await reader.readexactly(length)
        if fault == "close":
            raise Broken
        if fault == "answer":
            entry[2] = rule["status"]
            await asyncio.sleep(rule.get("seconds", 0))
            writer.write(made_answer(rule, method, len(self.log)))
            await writer.drain()
            return True
        if fault == "garbage":
            writer.write(b"\x16\x03\x01 this is not HTTP\r\n" * 3)
            await writer.drain()
            raise Broken
        if fault == "long_head":
            writer.write(b"HTTP/1.1 200 OK\r\n")
            for index in range(20000):
                writer.write(b"X-Filler-%d: %s\r\n" % (index, b"y" * 100))
                await writer.drain()
            raise Broken
        if fault == "delay":
            await asyncio.sleep(rule["seconds"])
        if fault == "hold":
            await self.released.wait()
        if fault == "unrange":
            request.drop("range")
        if fault == "call":
            await self.call(rule)
        if not upstream:
            upstream.append(await asyncio.open_connection(*self.upstream, limit=MAX_HEAD))
        up_reader, up_writer = upstream[0]
        up_writer.write(request.render() + body)
        await up_writer.drain()
        answer = await Head.read(up_reader)
        entry[2] = int(answer.first.split()[1])
        await self.pass_answer(method, answer, up_reader, writer, rule)
        return answer.get("connection", "").lower() != "close"

    async def call(self, rule):
        outcome = self.calls[rule["name"]]()
        if asyncio.iscoroutine(outcome):
            await outcome
        await asyncio.sleep(rule.get("seconds", 0))

    async def pass_answer(self, method, answer, up_reader, writer, rule):
        fault = rule.get("fault")
        size = 0 if method == "HEAD" or answer.first.split()[1] in ("204", "304") else int(answer.get("content-length", "0"))
        if answer.get("transfer-encoding", "").lower() == "chunked":
            data = await read_chunked(up_reader)
            answer.drop("transfer-encoding", "content-length")
            answer.fields.append(["Content-Length", f" {len(data)}"])
        else:
            data = await up_reader.readexactly(size)
        if fault == "lose":
            raise Broken
        if fault == "call_late":
            await self.call(rule)
        if fault == "head":
            answer.drop(*(name.lower() for name in rule.get("drop", [])), *(name.lower() for name in rule.get("set", {})))
            answer.fields += [[name, " " + value] for name, value in rule.get("set", {}).items()]
        if fault == "chunked":
            answer.drop("content-length")
            answer.fields.append(["Transfer-Encoding", " chunked"])
        writer.write(answer.render())
        await writer.drain()
        await self.pass_body(data, writer, rule)
        if fault == "hang_up" or not rule.get("end", True):
            raise Broken

    async def pass_body(self, data, writer, rule):
        fault = rule.get("fault")
        at = min(rule.get("at", 0), len(data))
        if fault == "flip" and data:
            data = data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1:]
        step = rule.get("size", PIECE) if fault == "pieces" else PIECE
        limit = at if fault in ("reset", "truncate", "stall", "drip") else len(data)
        for start in range(0, limit, step):
            piece = data[start:min(start + step, limit)]
            if fault == "chunked":
                piece = b"%x\r\n%s\r\n" % (len(piece), piece)
            writer.write(piece)
            await writer.drain()
        if fault == "chunked":
            extra = rule.get("extra", "").encode()
            writer.write(b"%x\r\n%s\r\n" % (len(extra), extra) if extra else b"")
            writer.write(b"0\r\n\r\n" if rule.get("end", True) else b"")
        if fault in ("reset", "truncate"):
            await asyncio.sleep(0.05)  # a reset discards data that the other side has not read yet
            raise Broken(reset=fault == "reset")
        if fault == "stall":
            await asyncio.sleep(rule.get("seconds", 3600))
            raise Broken
        if fault == "drip":
            for start in range(limit, len(data), max(1, rule["rate"] // 10)):
                writer.write(data[start:start + max(1, rule["rate"] // 10)])
                await writer.drain()
                await asyncio.sleep(0.1)
        await writer.drain()


def made_answer(rule, method, number):
    """The answer that the rule describes."""
    body = rule.get("body", "").replace("{n}", str(number))
    if "body" not in rule and "code" in rule:
        body = f"<?xml version=\"1.0\"?><Error><Code>{rule['code']}</Code><Message>made by a rule</Message></Error>"
    data = b"" if method == "HEAD" else body.encode()
    fields = "".join(f"{name}: {value}\r\n" for name, value in rule.get("headers", {}).items())
    return f"HTTP/1.1 {rule['status']} Rule\r\nContent-Length: {len(data)}\r\n{fields}\r\n".encode() + data


async def read_slowly(reader, writer, length, rate):
    """Sets a small receive buffer, so that unread data stays with the sender."""
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, PIECE)
    parts = []
    while length:
        writer.transport.resume_reading()
        parts.append(await reader.read(min(length, PIECE)))
        writer.transport.pause_reading()
        if not parts[-1]:
            raise Broken
        length -= len(parts[-1])
        await asyncio.sleep(len(parts[-1]) / rate)
    writer.transport.resume_reading()
    return b"".join(parts)


async def read_chunked(reader):
    parts = []
    while True:
        size = int((await reader.readline()).split(b";")[0], 16)
        data = await reader.readexactly(size + 2)
        if size == 0:
            return b"".join(parts)
        parts.append(data[:-2])
