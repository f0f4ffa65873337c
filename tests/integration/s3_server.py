#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The client against a real S3 server that checks every signature, plain and over TLS.

  s3_server.py PACELINE_S3 S3_PROBE       exits 77 with a reason if no server can be started
"""
import datetime
import hashlib
import json
import os
import pathlib
import random
import socket
import socketserver
import struct
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
FAKES = HERE.parent / "fakes"
sys.path.insert(0, str(HERE.parent / "support"))
from waiting import wait_until  # noqa: E402
import s3_request  # noqa: E402

TOOL, PROBE = sys.argv[1:3]
MEMORY_KIB = 100 * 1024  # with a budget of 64 MiB
LIMIT_S = 120
START_S = 900  # a far deadline: packages may have to be installed, after those of other tests


class Server:
    def __init__(self, directory, tls):
        self.directory = directory
        words = [str(FAKES / "s3_server.sh"), "start", directory] + (["tls"] if tls else [])
        # A process of its own session keeps no pipe of ours open.
        with tempfile.TemporaryFile("w+") as out:
            done = subprocess.run(words, stdout=out, stdin=subprocess.DEVNULL, timeout=START_S, check=False)
            out.seek(0)
            text = out.read()
        if done.returncode == 77:
            print(text.strip())
            sys.exit(77)
        if done.returncode != 0:
            raise SystemExit(f"the server did not start: {text}")
        for line in text.splitlines():
            name, _, value = line.removeprefix("export ").partition("=")
            os.environ[name] = value
        os.environ["NO_PROXY"] = "*"

    def stop(self):
        subprocess.run([str(FAKES / "s3_server.sh"), "stop", self.directory], check=False)
        os.environ.pop("AWS_CA_BUNDLE", None)

    def signal_gateway(self, name):
        pid = pathlib.Path(self.directory, "gateway.pid").read_text().strip()
        subprocess.run(["kill", name, pid], check=True)


def tool(*words, code=0, data=None, environment=None, program=TOOL):
    """Run the client; its standard output, or its message when `code` is not 0."""
    done = subprocess.run([program, *map(str, words)], input=data, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=LIMIT_S, check=False,
                          env={**os.environ, **(environment or {})})
    message = done.stderr.decode(errors="replace")
    assert done.returncode == code, f"{words}: exit {done.returncode}, not {code}: {message}"
    return message if code else done.stdout


def digest(path):
    return hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()


def check_objects(folder):
    draw = random.Random(1)
    for size in (0, 1, 4095, 5 << 20, (5 << 20) + 1, 33_333_333):
        source = folder / f"source{size}"
        source.write_bytes(draw.randbytes(size))
        tool("--part", "5", "cp", source, f"s3://bkt/sizes/{size}")
        assert tool("--part", "1", "cat", f"s3://bkt/sizes/{size}") == source.read_bytes(), size
        tool("cp", f"s3://bkt/sizes/{size}", folder / "copy")
        assert digest(folder / "copy") == digest(source), size
    # Several objects are one stream; an object goes to another through a stream.
    whole = tool("cat", "s3://bkt/sizes/4095", "s3://bkt/sizes/0", "s3://bkt/sizes/5242880", "s3://bkt/sizes/1")
    assert whole == b"".join((folder / f"source{size}").read_bytes() for size in (4095, 0, 5 << 20, 1))
    tool("cp", "-", "s3://bkt/streamed", data=whole)
    tool("--part", "5", "cp", "s3://bkt/sizes/33333333", "s3://bkt/again")
    assert tool("cat", "s3://bkt/streamed") == whole
    assert tool("cp", "s3://bkt/again", "-") == (folder / "source33333333").read_bytes()


def check_keys(folder):
    """Keys with every kind of byte that may go wrong in a path, a query or a signature."""
    keys = ["plain", "a b", "a+b", "a%20b", "a&b=c", "\u1234\u00e9", "dir//double", "x/./y", "semi;colon", "q?mark", "hash#mark", "~tilde_-.", "'\"<>",
            "colon:at@", "star*", "[brackets]", "$dollar,comma", "bell\a"]
    for key in keys:
        tool("cp", "-", f"s3://bkt/keys/{key}", data=key.encode())
        assert tool("cat", f"s3://bkt/keys/{key}") == key.encode(), key
    lines = tool("-r", "ls", "s3://bkt/keys/").decode().splitlines()
    assert [line.split(None, 2)[2] for line in lines] == sorted((f"keys/{key}" for key in keys), key=lambda key: key.encode()), lines
    entries = [json.loads(line) for line in tool("-r", "--json", "ls", "s3://bkt/keys/").splitlines()]
    assert [(entry["key"], entry["bytes"]) for entry in entries] == [(f"keys/{key}", len(key.encode())) for key in sorted(keys, key=str.encode)], entries
    assert [json.loads(line) for line in tool("--json", "ls", "s3://bkt/keys/dir").splitlines()] == [{"prefix": "keys/dir/"}]
    for data in (b"", b"bytes"):
        status, answer = s3_request.request("PUT", "/bkt/keys/folder/", data)
        assert status == 200, answer
        message = tool("-r", "cp", "s3://bkt/keys/folder/", folder / "slash", code=2 if data else 0)
    assert "keys/folder/" in message, message
    assert "nothing under" in tool("-r", "ls", "s3://bkt/none/", code=1)


def check_pages(folder):
    """More keys than a page has, put by the test's own signer."""
    names = [f"pages/{index:04}" for index in range(1203)]

    def put(part):
        for name in part:
            status, data = s3_request.request("PUT", f"/bkt/{name}", name.encode())
            assert status == 200, data

    threads = [threading.Thread(target=put, args=(names[start::4],)) for start in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines = tool("--recursive", "ls", "s3://bkt/pages/").decode().splitlines()
    assert [line.split(None, 2)[2] for line in lines] == names
    tool("--recursive", "cp", "s3://bkt/pages/", folder / "pages")
    assert all((folder / name).read_text() == name for name in names)
    # A tree goes up as it came down, and what is there already is left alone.
    tool("--recursive", "cp", folder / "pages", "s3://bkt/up")
    begun = time.monotonic()
    tool("--recursive", "cp", folder / "pages", "s3://bkt/up")
    assert len(tool("-r", "ls", "s3://bkt/up/").splitlines()) == len(names)
    print(f"  a tree of {len(names)} that is there already: {time.monotonic() - begun:.2f} s")
    # A file that changed within the second in which it went up, and kept its size, goes up again.
    [entry] = [json.loads(line) for line in tool("-r", "--json", "ls", "s3://bkt/up/").splitlines() if b"/0000" in line]
    [file] = (folder / "pages").rglob("0000")
    file.write_text("PAGES/0000")
    second = int(datetime.datetime.fromisoformat(entry["modified"].replace("Z", "+00:00")).timestamp())
    os.utime(file, ns=(second * 10**9 + 5 * 10**8,) * 2)
    tool("--recursive", "cp", folder / "pages", "s3://bkt/up")
    assert tool("cat", f"s3://bkt/{entry['key']}") == b"PAGES/0000"


def check_encryption(folder):
    """A server that encrypts by a KMS key: what was put in one request and in parts is read whole; a key that it does not have is refused by name."""
    for size in (4095, 33_333_333):
        source = folder / f"source{size}"
        words = ["--part", "5", "--sse", "aws:kms", "--sse-kms-key-id"]
        tool(*words, "test-key", "cp", source, f"s3://bkt/sealed/{size}")
        tool(*words, "test-key", "cp", f"s3://bkt/sealed/{size}", f"s3://bkt/sealed/{size}-copy")
        for key in (f"sealed/{size}", f"sealed/{size}-copy"):
            assert tool("--part", "1", "cat", f"s3://bkt/{key}") == source.read_bytes(), f"the bytes of {key} differ"
        message = tool(*words, "no-such-key", "cp", source, "s3://bkt/sealed/refused", code=1)
        assert "403" in message and "no-such-key" in message, message


def check_errors():
    assert "NoSuchKey" in tool("cat", "s3://bkt/none", code=1)
    assert "NoSuchBucket" in tool("ls", "s3://no-such-bucket", code=1)
    assert "SignatureDoesNotMatch" in tool("ls", "s3://bkt", code=1, environment={"AWS_SECRET_ACCESS_KEY": "wrong"})
    assert "InvalidAccessKeyId" in tool("ls", "s3://bkt", code=1, environment={"AWS_ACCESS_KEY_ID": "AKIAWRONG"})
    assert "AccessDenied" in tool("--no-sign-request", "ls", "s3://bkt", code=1)
    assert "no AWS credentials" in tool("ls", "s3://bkt", code=1, environment={"AWS_ACCESS_KEY_ID": "", "HOME": "/nonexistent"})


def probe(*words, code=0):
    return tool(*words, code=code, program=PROBE)


def records(stream):
    """The payloads of a RecordIO stream."""
    found, at = [], 0
    while at < len(stream):
        magic, size = struct.unpack_from("<II", stream, at)
        assert magic == 0xCED7230A and size < 1 << 29
        found.append(stream[at + 8:at + 8 + size])
        at += 8 + (size + 3) // 4 * 4
    assert at == len(stream)
    return found


def fed(*words):
    """Two epochs as a program in Pipe Mode would read them."""
    with tempfile.TemporaryDirectory(prefix="paceline-feed-") as folder:
        path = pathlib.Path(folder, "channel")
        feeder = subprocess.Popen([pathlib.Path(TOOL).with_name("paceline-feed"), "--quiet", "--epochs", "2", *words, path], stderr=subprocess.PIPE, text=True)
        epochs = []
        for epoch in (0, 1):
            fifo = pathlib.Path(f"{path}_{epoch}")
            wait_until(fifo.exists, f"epoch {epoch}")
            epochs.append(fifo.read_bytes())
        _, message = feeder.communicate(timeout=LIMIT_S)
        assert feeder.returncode == 0, message
        return epochs


def check_manifests():
    """Prefix, manifest and augmented manifest, and that all ranks together read everything once."""
    # The names differ in the later bytes of a character: what they share ends before it.
    for name in "\u00e4.txt", "\u00f6.txt":
        tool("cp", "-", f"s3://bkt/umlauts/{name}", data=name.encode())
    tool("cp", "-", "s3://bkt/m.json", data=json.dumps([{"prefix": "s3://bkt/umlauts/"}, "\u00e4.txt", "\u00f6.txt"]).encode())
    assert fed("--manifest", "s3://bkt/m.json") == ["\u00e4.txt\u00f6.txt".encode()] * 2
    draw = random.Random(2)
    objects = {f"shard-{index:02}": draw.randbytes(draw.choice([0, 1, 1000, 300_000])) for index in range(20)}
    for name, data in objects.items():
        tool("cp", "-", f"s3://bkt/data/{name}", data=data)
    lines = probe("prefix", "s3://bkt/data/sha").decode().splitlines()
    assert [line.split("\t")[:2] for line in lines] == [[name, str(len(data))] for name, data in objects.items()]
    named = ["ard-03", "ard-11", "ard-00", "ard-11"]
    tool("cp", "-", "s3://bkt/m.json", data=json.dumps([{"prefix": "s3://bkt/data/sh"}, *named]).encode())
    lines = probe("manifest", "s3://bkt/m.json").decode().splitlines()
    assert [line.split("\t")[:2] for line in lines] == [[name, str(len(objects["sh" + name]))] for name in sorted(named)]
    tool("cp", "-", "s3://bkt/m.json", data=json.dumps([{"prefix": "s3://bkt/data/"}, "shard-00", "absent"]).encode())
    assert "absent, which does not exist" in probe("manifest", "s3://bkt/m.json", code=1)

    lines = [json.dumps({"source-ref": f"s3://bkt/data/{name}", "class": index, "unused": [1]}) for index, name in enumerate(objects)]
    tool("cp", "-", "s3://bkt/augmented", data="\n".join(lines).encode())
    want = [item for index, data in enumerate(objects.values()) for item in (data, str(index).encode())]
    assert records(probe("augmented", "s3://bkt/augmented", 0, 1, -1, "source-ref", "class")) == want
    orders = set()
    for epoch in (0, 1):
        parts = [records(probe("augmented", "s3://bkt/augmented", rank, 3, epoch, "class", "source-ref")) for rank in range(3)]
        pairs = [(part[at], part[at + 1]) for part in parts for at in range(0, len(part), 2)]
        assert sorted(pairs) == sorted((str(index).encode(), data) for index, data in enumerate(objects.values()))
        orders.add(tuple(label for label, _ in pairs))
    assert len(orders) == 2
    assert records(probe("augmented", "s3://bkt/augmented", 0, 1, -1, "class")) == [str(index).encode() for index in range(20)]

    tool("cp", "-", "s3://bkt/m.json", data=json.dumps([{"prefix": "s3://bkt/data/sh"}, *named]).encode())
    with tempfile.TemporaryDirectory() as copies:
        tool("cp", "--quiet", "--manifest", "s3://bkt/m.json", copies)
        assert {path.name: path.read_bytes() for path in pathlib.Path(copies).iterdir()} == {name: objects["sh" + name] for name in named}
        words = ["local", "--folder", copies, "--channel", "data=:manifest=s3://bkt/m.json", "--", "sh", "-c"]
        seen = tool(*words, 'ls "$SM_CHANNEL_DATA" && chmod +x "$SM_CHANNEL_DATA/ard-03"', program=os.environ["PACELINE_BUILD"] + "/entrypoint/paceline").decode()
        assert [line.split()[1] for line in seen.splitlines() if line.startswith("[algo-1] ard-")] == sorted(set(named)), seen
        tool("cp", "-", "s3://bkt/wrong.json", data=json.dumps([{"prefix": "s3://bkt/data/"}, "absent"]).encode())
        assert "s3://bkt/data/absent, which the manifest names" in tool("cp", "--manifest", "s3://bkt/wrong.json", copies, code=1)
    assert fed("--manifest", "s3://bkt/m.json") == [b"".join(objects["sh" + name] for name in sorted(named))] * 2
    assert [records(epoch) for epoch in fed("--augmented", "source-ref,class", "s3://bkt/augmented")] == [want, want]
    shards = [[records(epoch) for epoch in fed("--augmented", "class", "--shuffle", "7", "--shard", f"{rank}/3", "s3://bkt/augmented")] for rank in range(3)]
    for epoch in (0, 1):
        assert sorted(int(label) for shard in shards for label in shard[epoch]) == list(range(20))
    assert shards[0][0] != shards[0][1]


def check_memory(folder):
    """An object of several times the budget passes through a bounded process."""
    source = folder / "large"
    source.write_bytes(random.Random(3).randbytes(1_000_000) * 300)
    tool("--part", "16", "cp", source, "s3://bkt/large")
    size, _, peak_kib = probe("drain", 64, "s3://bkt/large").decode().split()
    assert int(size) == 300_000_000
    assert int(peak_kib) < MEMORY_KIB, peak_kib
    print(f"  peak memory with a budget of 64 MiB: {int(peak_kib) // 1024} MiB")
    # All files of a tree together do not take more either.
    (folder / "tree").mkdir()
    for index in range(5):
        with open(folder / f"tree/{index}", "wb") as file:
            file.write(random.Random(index).randbytes(1_000_000) * 40)
    process = subprocess.Popen([TOOL, "-r", "cp", folder / "tree", "s3://bkt/tree"])
    peak_kib = 0
    while process.poll() is None:
        status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
        peak_kib = int(status.split("VmHWM:")[1].split()[0]) if "VmHWM:" in status else peak_kib
        time.sleep(0.01)
    assert process.returncode == 0 and 0 < peak_kib < MEMORY_KIB, peak_kib
    print(f"  the same for a tree: {peak_kib // 1024} MiB")


def check_stopped_gateway(server, folder):
    """A server that freezes and comes back costs time, not bytes."""
    process = subprocess.Popen([TOOL, "--part", "1", "--connections", "4", "--stall", "1", "cat", "s3://bkt/sizes/33333333"], stdout=subprocess.PIPE)
    first = process.stdout.read(1 << 20)
    server.signal_gateway("-STOP")
    time.sleep(2.5)
    server.signal_gateway("-CONT")
    rest, _ = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0 and first + rest == (folder / "source33333333").read_bytes()


def check_sync(folder):
    """Files of a directory are uploaded when they are closed, also in parts; files that were never closed are uploaded at the end."""
    watched = folder / "watched"
    (watched / "old").mkdir(parents=True)
    (watched / "old/before").write_text("before")
    names = lambda: {line.split()[-1].removeprefix("sync/") for line in tool("ls", "--recursive", "s3://bkt/").decode().splitlines() if " sync/" in line}
    read = lambda name: tool("cat", f"s3://bkt/sync/{name}")
    process = subprocess.Popen([pathlib.Path(TOOL).with_name("paceline-sync"), watched, "s3://bkt/sync"], stderr=subprocess.PIPE, text=True)
    try:
        wait_until(lambda: names() == {"old/before"}, "a file from before")
        large = random.Random(4).randbytes(40 << 20)
        (watched / "new").mkdir()
        (watched / "new/large").write_bytes(large)
        (folder / "moved").write_text("moved")
        (folder / "moved").rename(watched / "moved")
        wait_until(lambda: {"new/large", "moved"} <= names(), "a file in a new directory, one moved in")
        assert read("new/large") == large and read("moved") == b"moved"
        (watched / "moved").write_text("again")
        wait_until(lambda: read("moved") == b"again", "a changed file")
        with open(watched / "open", "w", encoding="ascii") as file:
            file.write("never closed")
            file.flush()
            process.terminate()
            _, message = process.communicate(timeout=LIMIT_S)
        assert process.returncode == 0, message
        assert read("open") == b"never closed" and names() == {"old/before", "new/large", "moved", "open"}
    finally:
        process.kill()


def check_virtual_host():
    """The bucket as a part of the host's name; the resolver knows *.localhost."""
    port = os.environ["AWS_ENDPOINT_URL_S3"].rsplit(":", 1)[1]
    scheme = os.environ["AWS_ENDPOINT_URL_S3"].split(":")[0]
    there = {"AWS_ENDPOINT_URL_S3": f"{scheme}://s3.localhost:{port}"}
    assert tool("--virtual-style", "cat", "s3://bkt/sizes/4095", environment=there) == tool("cat", "s3://bkt/sizes/4095")


class Proxy(socketserver.BaseRequestHandler):
    """Answers CONNECT like a proxy, with additional header lines, or refuses it."""
    connects, refuses = 0, False

    def handle(self):
        head = b""
        while b"\r\n\r\n" not in head:
            data = self.request.recv(1)
            if not data:
                return
            head += data
        word, place, _ = head.split(None, 2)
        assert word == b"CONNECT", head
        Proxy.connects += 1
        if Proxy.refuses:
            self.request.sendall(b"HTTP/1.1 407 Who are you\r\nContent-Length: 0\r\n\r\n")
            return
        host, port = place.decode().rsplit(":", 1)
        with socket.create_connection((host, int(port))) as server:
            self.request.sendall(b"HTTP/1.1 200 Connection established\r\nVia: 1.1 proxy\r\n\r\n")
            back = threading.Thread(target=self.move, args=(server, self.request))
            back.start()
            self.move(self.request, server)
            back.join()

    @staticmethod
    def move(source, target):
        try:
            while data := source.recv(1 << 16):
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # the other side has left


def check_proxy(folder):
    """Through a proxy everything works as without one; a proxy that refuses is named at once."""
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Proxy) as proxy:
        proxy.daemon_threads = True
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        through = {"HTTPS_PROXY": f"http://127.0.0.1:{proxy.server_address[1]}", "NO_PROXY": ""}
        assert tool("--part", "1", "cat", "s3://bkt/sizes/33333333", environment=through) == (folder / "source33333333").read_bytes()
        tool("cp", "-", "s3://bkt/proxied", data=b"proxied", environment=through)
        assert tool("cat", "s3://bkt/proxied", environment=through) == b"proxied"
        assert Proxy.connects >= 3
        Proxy.refuses = True
        message = tool("cat", "s3://bkt/proxied", environment=through, code=1)
        assert "407" in message and "stopped after" not in message, message
        assert tool("cat", "s3://bkt/proxied", environment={**through, "NO_PROXY": "127.0.0.1"}) == b"proxied"
        proxy.shutdown()


def run(tls):
    with tempfile.TemporaryDirectory(prefix="paceline-s3-") as folder:
        folder = pathlib.Path(folder)
        server = Server(str(folder / "server"), tls)
        try:
            status, data = s3_request.request("PUT", "/bkt")
            assert status == 200, data
            steps = [("objects", lambda: check_objects(folder)), ("keys", lambda: check_keys(folder)), ("encryption", lambda: check_encryption(folder)),
                     ("errors", check_errors),
                     ("virtual host", check_virtual_host), ("manifests", check_manifests)]
            if tls:
                steps.append(("proxy", lambda: check_proxy(folder)))
                steps.append(("unknown certificate", lambda: tool("ls", "s3://bkt", code=1, environment={"AWS_CA_BUNDLE": "", "AWS_MAX_ATTEMPTS": "1"})))
            else:
                steps += [("pages", lambda: check_pages(folder)), ("sync", lambda: check_sync(folder)), ("memory", lambda: check_memory(folder)), ("frozen gateway", lambda: check_stopped_gateway(server, folder))]
            for name, step in steps:
                begun = time.monotonic()
                step()
                print(f"ok   {time.monotonic() - begun:5.1f} s  {'https' if tls else 'http'}: {name}", flush=True)
        finally:
            server.stop()


if __name__ == "__main__":
    run(tls=False)
    run(tls=True)
