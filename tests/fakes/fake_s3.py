#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A part of an S3 server, for fault injection: objects in memory, ranges, ETags, checksums, lists, multipart uploads,
and optionally a region, a clock offset and a token that the client has to find out; in addition a container's endpoint for credentials
(/credentials) and an STS (/sts/). It does not check signatures: the tests against a real server do.

  fake_s3.py [--keep] [--latency MS] [--stall BYTES] [--demand NAME=VALUE]... DIRECTORY

serves the files below DIRECTORY as bucket "bkt" and prints "port N". --keep: an object that is put becomes a file there; --latency: each answer comes that much
later; --stall: of a longer answer only so many bytes come, and the line "stalls TARGET" is printed; --demand: a header that each write must have.
"""
import argparse
import asyncio
import base64
import datetime
import email.utils
import functools
import hashlib
import itertools
import json
import os
import re
import time
import urllib.parse
import zlib
from xml.sax.saxutils import escape

MAX_HEAD = 1 << 20
PAGE_KEYS = 1000
CARRIED = ("content-type", "content-encoding", "content-language", "content-disposition", "cache-control", "expires", "x-amz-tagging")
ENCRYPTION = "x-amz-server-side-encryption"


def crc_table(polynomial):
    table = []
    for value in range(256):
        for _ in range(8):
            value = (value >> 1) ^ (polynomial if value & 1 else 0)
        table.append(value)
    return table


TABLE, TABLE_64 = crc_table(0x82F63B78), crc_table(0x9A6C9329AC4BC9B5)


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def crc_text(data):
    return base64.b64encode(crc32c(data).to_bytes(4, "big")).decode()


def crc64_text(data):
    """CRC-64/NVME, which S3 computes for every object."""
    crc = (1 << 64) - 1
    for byte in data:
        crc = TABLE_64[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return base64.b64encode((crc ^ (1 << 64) - 1).to_bytes(8, "big")).decode()


class Failure(Exception):
    def __init__(self, status, code, headers=None):
        super().__init__(code)
        self.status, self.code, self.headers = status, code, headers or {}


class Listener:
    """A server on loopback; talk() of the derived class serves one connection."""

    def __init__(self):
        self.server = None
        self.tasks = set()

    async def start(self):
        self.server = await asyncio.start_server(self.serve, "127.0.0.1", 0, limit=MAX_HEAD)
        return self.server.sockets[0].getsockname()[1]

    async def stop(self):
        self.server.close()
        for task in list(self.tasks):
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    async def serve(self, reader, writer):
        task = asyncio.current_task()
        self.tasks.add(task)
        try:
            await self.talk(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()
            self.tasks.discard(task)


class FakeS3(Listener):
    def __init__(self, objects=None, region=None, malformed=False, clock_offset_s=0, tokens=None, page_keys=PAGE_KEYS, checksums=(), checksums_32=(), checksums_64=(), part_bytes=None, needs_if_match=False, refuses_checksums=False, keep=None, latency_s=0, stall_bytes=None, demands=None):
        super().__init__()
        self.objects = dict(objects or {})  # key -> bytes
        self.region = region                # requests signed for a different region get a redirect
        self.malformed = malformed          # or 400 instead of 301
        self.clock_offset_s = clock_offset_s
        self.tokens = list(tokens or [])    # session tokens of the credential endpoints, in this order
        self.good_token = self.tokens[-1] if self.tokens else None
        self.identity = "secret-token"      # secret that these endpoints require
        self.handed = 0
        self.life_s = 3600
        self.page_keys = page_keys
        self.checksums = {key: crc_text(self.objects[key]) for key in checksums}
        self.checksums_32 = {key: base64.b64encode(zlib.crc32(self.objects[key]).to_bytes(4, "big")).decode() for key in checksums_32}
        self.checksums_64 = {key: crc64_text(self.objects[key]) for key in checksums_64}
        self.uploads, self.upload_numbers = {}, itertools.count()
        self.begun = {}     # upload -> headers of the request that began it
        self.modified = {}  # key -> time at which its parts were joined
        self.part_bytes = part_bytes or {}  # key -> length of a part, for objects that were uploaded in parts and have a checksum per part, as in S3
        # key -> number of parts of these objects
        self.parts = {key: -(-len(self.objects[key]) // length) for key, length in self.part_bytes.items()}
        self.needs_if_match = needs_if_match  # If-Match is required unless a request begins at the first byte
        self.refuses_checksums = refuses_checksums  # uploads with checksums fail, as on servers that do not know them
        self.keep_below = keep  # a directory
        self.latency_s = latency_s
        self.stall_bytes = stall_bytes  # of a longer answer only so much comes
        self.demands = demands or {}  # headers that each write must have, as by a bucket's policy
        self.carried = {}             # key -> headers of the request that wrote it
        self.etags = {}  # key -> the bytes and their ETag

    async def talk(self, reader, writer):
        while True:
            raw = await reader.readuntil(b"\r\n\r\n")
            lines = raw[:-4].decode("latin-1").split("\r\n")
            method, target, _ = lines[0].split(" ", 2)
            fields = {name.strip().lower(): value.strip() for name, value in (line.split(":", 1) for line in lines[1:])}
            body = await reader.readexactly(int(fields.get("content-length", "0")))
            await self.before_answer(method, target)
            status, headers, data = self.answer(method, target, fields, body)
            headers.setdefault("Content-Length", str(len(data)))
            headers["Date"] = email.utils.formatdate(time.time() + self.clock_offset_s, usegmt=True)
            head = f"HTTP/1.1 {status} Fake\r\n" + "".join(f"{name}: {value}\r\n" for name, value in headers.items()) + "\r\n"
            sent = b"" if method == "HEAD" else data[:self.stall_bytes]
            writer.write(head.encode("latin-1") + sent)
            await writer.drain()
            if method != "HEAD" and len(sent) < len(data):
                print("stalls", target, flush=True)
                await asyncio.Event().wait()

    async def before_answer(self, method, target):
        if self.latency_s:
            await asyncio.sleep(self.latency_s)

    def answer(self, method, target, fields, body):
        path, _, query = target.partition("?")
        items = dict(urllib.parse.parse_qsl(query, keep_blank_values=True))
        if path == "/credentials":
            return self.credentials(fields)
        if (method, path) == ("POST", "/sts/"):
            return self.assume_role(fields, body)
        if path.startswith("/latest/"):
            return self.metadata(method, path, fields)
        try:
            self.admit(fields)
            return self.operate(method, urllib.parse.unquote(path), items, fields, body)
        except Failure as failure:
            document = f"<Error><Code>{failure.code}</Code><Message>fake</Message></Error>".encode()
            return failure.status, dict(failure.headers), document

    def credentials(self, fields):
        if fields.get("authorization") != self.identity:
            return 401, {}, b'{"code":"Unauthorized","message":"wrong token"}'
        token, end = self.hand_out()
        reply = {"AccessKeyId": "AKIDFAKE", "SecretAccessKey": "secret", "Token": token, "Expiration": end}
        return 200, {}, json.dumps(reply).encode()

    def metadata(self, method, path, fields):
        """A machine's metadata service, version 2: every request needs the token that a PUT returns."""
        role_path = "/latest/meta-data/iam/security-credentials/"
        if (method, path) == ("PUT", "/latest/api/token") and "x-aws-ec2-metadata-token-ttl-seconds" in fields:
            return 200, {}, self.identity.encode()
        if method != "GET" or fields.get("x-aws-ec2-metadata-token") != self.identity:
            return 401, {}, b""
        if path == role_path:
            return 200, {}, b"a-role"
        if path != role_path + "a-role":
            return 404, {}, b""
        token, end = self.hand_out()
        reply = {"Code": "Success", "Type": "AWS-HMAC", "AccessKeyId": "AKIDFAKE", "SecretAccessKey": "secret", "Token": token, "Expiration": end}
        return 200, {}, json.dumps(reply).encode()

    def assume_role(self, fields, body):
        form = dict(urllib.parse.parse_qsl(body.decode(), strict_parsing=True))
        wanted = {"Action": "AssumeRoleWithWebIdentity", "Version": "2011-06-15", "RoleArn": "arn:aws:iam::123456789012:role/a+b/c",
                  "RoleSessionName": "paceline", "WebIdentityToken": self.identity}
        if form != wanted or fields.get("content-type") != "application/x-www-form-urlencoded" or "authorization" in fields:
            return 400, {}, (b'<ErrorResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><Error><Type>Sender</Type>'
                             b"<Code>InvalidIdentityToken</Code><Message>not this one</Message></Error><RequestId>1</RequestId></ErrorResponse>")
        token, end = self.hand_out()
        return 200, {}, ('<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleWithWebIdentityResult>'
                         f"<Credentials><SessionToken>{escape(token)}</SessionToken><SecretAccessKey>secret</SecretAccessKey>"
                         f"<Expiration>{end}</Expiration><AccessKeyId>AKIDFAKE</AccessKeyId></Credentials></AssumeRoleWithWebIdentityResult>"
                         "<ResponseMetadata><RequestId>1</RequestId></ResponseMetadata></AssumeRoleWithWebIdentityResponse>").encode()

    def hand_out(self):
        """A session token and its end time."""
        token = self.tokens[min(self.handed, len(self.tokens) - 1)]
        self.handed += 1
        end = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=self.life_s + self.clock_offset_s)
        return token, end.strftime("%Y-%m-%dT%H:%M:%SZ")

    def admit(self, fields):
        """Check region, clock and token of a request."""
        signed = re.search(r"Credential=[^/]*/\d{8}/([^/]*)/s3/", fields.get("authorization", ""))
        if not signed:
            raise Failure(403, "AccessDenied")
        if self.region and signed.group(1) != self.region:
            if self.malformed:
                raise Failure(400, "AuthorizationHeaderMalformed", {"x-amz-bucket-region": self.region})
            raise Failure(301, "PermanentRedirect", {"x-amz-bucket-region": self.region})
        date = datetime.datetime.strptime(fields["x-amz-date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=datetime.timezone.utc)
        if abs(date.timestamp() - time.time() - self.clock_offset_s) > 900:
            raise Failure(403, "RequestTimeTooSkewed")
        if self.good_token and fields.get("x-amz-security-token") != self.good_token:
            raise Failure(400, "ExpiredToken")
        if self.refuses_checksums and {"x-amz-checksum-crc32c", "x-amz-checksum-algorithm"} & fields.keys():
            raise Failure(501, "NotImplemented")

    def operate(self, method, path, items, fields, body):
        match = re.fullmatch(r"/bkt(?:/(.*))?", path, re.S)
        if not match:
            raise Failure(404, "NoSuchBucket")
        key = match.group(1) or ""
        if not key:
            return self.list(items)
        if method == "POST" and "uploads" in items:
            upload = f"upload/{next(self.upload_numbers)}+x"
            self.uploads[upload] = {}
            self.begun[upload] = self.written_with(fields)
            return 200, {}, f"<InitiateMultipartUploadResult><UploadId>{upload}</UploadId></InitiateMultipartUploadResult>".encode()
        if "uploadId" in items:
            return self.multipart(method, key, items, fields, body)
        if method == "PUT":
            self.check_sum(fields, body)
            self.carried[key] = self.written_with(fields)
            self.objects[key] = body
            self.keep(key)
            self.parts.pop(key, None)
            self.checksums[key] = crc_text(body) if len(body) < 1 << 20 else None
            return 200, {"ETag": self.etag(key)}, b""
        if method == "DELETE":
            self.objects.pop(key, None)
            return 204, {}, b""
        return self.get(method, key, fields)

    def written_with(self, fields):
        """The headers that an object keeps; all of them have to be signed."""
        kept = {name: value for name, value in fields.items() if name in CARRIED or name.startswith(("x-amz-meta-", ENCRYPTION))}
        signed = re.search(r"SignedHeaders=([^,]*)", fields["authorization"]).group(1).split(";")
        if set(kept) - set(signed):
            raise Failure(403, "AccessDenied")
        if any(fields.get(name) != value for name, value in self.demands.items()):
            raise Failure(403, "AccessDenied")
        return kept

    def keep(self, key):
        if self.keep_below:
            path = os.path.join(self.keep_below, key)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path + "~", "wb") as file:
                file.write(self.objects[key])
            os.replace(path + "~", path)

    def check_sum(self, fields, body):
        if hashlib.sha256(body).hexdigest() != fields.get("x-amz-content-sha256"):
            raise Failure(400, "XAmzContentSHA256Mismatch")
        wanted = fields.get("x-amz-checksum-crc32c")
        if wanted and len(body) < 1 << 20 and wanted != crc_text(body):
            raise Failure(400, "BadDigest")

    def etag(self, key):
        tail = f"-{self.parts[key]}" if key in self.parts else ""
        data = self.objects[key]
        if self.etags.get(key, (None,))[0] is not data:
            self.etags[key] = data, hashlib.md5(data).hexdigest()
        return f'"{self.etags[key][1]}{tail}"'

    def get(self, method, key, fields):
        if key not in self.objects:
            raise Failure(404, "NoSuchKey")
        data, etag = self.objects[key], self.etag(key)
        if fields.get("if-match", etag) != etag:
            raise Failure(412, "PreconditionFailed")
        modified_s = self.modified.get(key, datetime.datetime(2013, 5, 24, tzinfo=datetime.timezone.utc).timestamp())
        headers = {"ETag": etag, "Last-Modified": email.utils.formatdate(modified_s, usegmt=True)}
        headers.update((name, value) for name, value in self.carried.get(key, {}).items() if name != "x-amz-tagging")
        if self.checksums.get(key):
            headers["x-amz-checksum-crc32c"] = self.checksums[key]
        if key in self.checksums_32:
            headers["x-amz-checksum-crc32"] = self.checksums_32[key]
        if key in self.checksums_64:
            headers["x-amz-checksum-crc64nvme"] = self.checksums_64[key]
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", fields.get("range", ""))
        if not wanted:
            headers["Content-Length"] = str(len(data))
            return 200, headers, data
        first = int(wanted.group(1))
        if self.needs_if_match and first > 0 and "if-match" not in fields:
            raise Failure(400, "InvalidRequest")
        last = min(int(wanted.group(2) or len(data) - 1), len(data) - 1)
        if first >= len(data):
            raise Failure(416, "InvalidRange", {"Content-Range": f"bytes */{len(data)}"})
        headers["Content-Range"] = f"bytes {first}-{last}/{len(data)}"
        length = self.part_bytes.get(key, 0)
        if length and first % length == 0 and last == min(first + length, len(data)) - 1:
            headers["x-amz-checksum-crc32c"] = crc_text(data[first:last + 1])
        return 206, headers, data[first:last + 1]

    def list(self, items):
        prefix, token = items.get("prefix", ""), items.get("continuation-token", "")
        keys = [key for key in sorted(self.objects) if key.startswith(prefix) and key > token]
        page, more = keys[:self.page_keys], len(keys) > self.page_keys
        encoded = items.get("encoding-type") == "url"
        spell = functools.partial(urllib.parse.quote_plus, safe="/") if encoded else escape
        parts = [f"<Contents><Key>{spell(key)}</Key><LastModified>2013-05-24T00:00:00.000Z</LastModified>"
                 f"<ETag>{escape(self.etag(key))}</ETag><Size>{len(self.objects[key])}</Size></Contents>" for key in page]
        tail = f"<IsTruncated>true</IsTruncated><NextContinuationToken>{escape(page[-1])}</NextContinuationToken>" if more else ""
        tail += "<EncodingType>url</EncodingType>" if encoded else ""
        return 200, {}, f"<ListBucketResult>{''.join(parts)}{tail}</ListBucketResult>".encode()

    def multipart(self, method, key, items, fields, body):
        upload = self.uploads.get(items["uploadId"])
        if upload is None:
            raise Failure(404, "NoSuchUpload")
        if method == "PUT":
            if any(name.startswith(ENCRYPTION) for name in fields):
                raise Failure(400, "InvalidArgument")  # only the request that begins an upload has them
            self.check_sum(fields, body)
            upload[int(items["partNumber"])] = body
            return 200, {"ETag": '"' + hashlib.md5(body).hexdigest() + '"'}, b""
        if method == "DELETE":
            del self.uploads[items["uploadId"]]
            return 204, {}, b""
        numbers = [int(number) for number in re.findall(r"<PartNumber>(\d+)</PartNumber>", body.decode())]
        if numbers != sorted(upload):
            raise Failure(400, "InvalidPart")
        self.objects[key] = b"".join(upload[number] for number in numbers)
        self.keep(key)
        self.carried[key] = self.begun[items["uploadId"]]
        del self.uploads[items["uploadId"]]
        self.parts[key] = len(numbers)
        self.modified[key] = time.time() + self.clock_offset_s
        self.checksums.pop(key, None)
        return 200, {}, b"<CompleteMultipartUploadResult></CompleteMultipartUploadResult>"


async def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--latency", type=float, default=0)
    parser.add_argument("--stall", type=int)
    parser.add_argument("--demand", action="append", default=[])
    parser.add_argument("directory")
    arguments = parser.parse_args()
    objects = {}
    below = arguments.directory
    for directory, _, names in os.walk(below, followlinks=True):
        for name in names:
            path = os.path.join(directory, name)
            with open(path, "rb") as file:
                objects[os.path.relpath(path, below)] = file.read()
    fake = FakeS3(objects, keep=below if arguments.keep else None, latency_s=arguments.latency / 1000, stall_bytes=arguments.stall,
                  demands=dict(demand.split("=", 1) for demand in arguments.demand))
    print("port", await fake.start(), flush=True)
    await fake.server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
