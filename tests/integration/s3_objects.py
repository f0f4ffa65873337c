#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Thousands of objects and their properties, with a server that checks every request.

  s3_objects.py PACELINE_S3 S3_PROBE
"""
import asyncio
import os
import pathlib
import random
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "fakes"))
from fake_s3 import FakeS3, crc32c  # noqa: E402

TOOL, PROBE = sys.argv[1:3]
FEED, SYNC = (pathlib.Path(TOOL).with_name(name) for name in ("paceline-feed", "paceline-sync"))
LIMIT_S = 120
AT_ONCE = 12  # of the client's 16 connections


class Gate(FakeS3):
    """Answers no GET of an object before so many others, or all that are left, have come too."""

    def __init__(self, objects):
        super().__init__(objects)
        self.arrived, self.let_in = set(), set()
        self.changed = asyncio.Condition()

    def begin(self):
        self.arrived.clear()
        self.let_in.clear()

    async def before_answer(self, method, target):
        if method != "GET" or not target.startswith("/bkt/"):
            return
        async with self.changed:
            self.arrived.add(target)
            waiting = self.arrived - self.let_in
            if len(waiting) >= min(AT_ONCE, len(self.objects) - len(self.let_in)):
                self.let_in |= waiting
                self.changed.notify_all()
            await self.changed.wait_for(lambda: target in self.let_in)


async def run(server, program, *words, code=0):
    """The client's output, or its message if it must fail."""
    environment = {**os.environ, "AWS_ENDPOINT_URL_S3": f"http://127.0.0.1:{server.port}", "AWS_REGION": "us-east-1", "NO_PROXY": "*",
                   "AWS_ACCESS_KEY_ID": "AKIDTEST", "AWS_SECRET_ACCESS_KEY": "secret"}
    process = await asyncio.create_subprocess_exec(program, *map(str, words), env=environment, stdin=asyncio.subprocess.DEVNULL,
                                                   stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE)
    server.running = [process]
    try:
        out, err = await asyncio.wait_for(process.communicate(), LIMIT_S)
    except asyncio.TimeoutError:
        process.kill()
        raise SystemExit(f"{words}: not done after {LIMIT_S} s") from None
    message = err.decode(errors="replace")
    assert process.returncode == code, f"{words}: exit {process.returncode}, not {code}: {message}"
    return message if code else out


async def fed(server, folder, *words):
    """The bytes of an epoch, read like a program in Pipe Mode."""
    feeder = asyncio.ensure_future(run(server, FEED, "--quiet", "--epochs", "1", *words, folder / "channel"))
    fifo = folder / "channel_0"
    while not fifo.exists() and not feeder.done():
        await asyncio.sleep(0.02)
    data = await asyncio.to_thread(fifo.read_bytes) if fifo.exists() else b""
    await feeder
    return data


def lines_of(datas):
    return [f"{index}\t{len(data)}\t{crc32c(data):08x}" for index, data in enumerate(datas)]


async def check_many(folder):
    """Feeder and stream have as many small objects under way as a download of the tree, and keep their order."""
    draw = random.Random(3)
    objects = {f"data/{index:03}": draw.randbytes(draw.choice([1, 999, 70_000])) for index in range(5 * AT_ONCE + 3)}
    server = Gate(objects)
    server.port = await server.start()
    in_order = [objects[key] for key in sorted(objects)]
    await run(server, TOOL, "--quiet", "--recursive", "cp", "s3://bkt/data/", folder / "tree")
    server.begin()
    assert await fed(server, folder, "s3://bkt/data/") == b"".join(in_order), "what was fed differs"
    server.begin()
    assert (await run(server, PROBE, "stream", "s3://bkt/data/", -1, 1)).decode().splitlines() == lines_of(in_order), "the stream's records differ"
    server.begin()
    shuffled = (await run(server, PROBE, "stream", "s3://bkt/data/", 7, 1)).decode().splitlines()
    server.begin()
    by_crc = {f"{len(data)}\t{crc32c(data):08x}": data for data in in_order}
    order = [by_crc[line.split("\t", 1)[1]] for line in shuffled]
    assert sorted(order) == sorted(in_order) and order != in_order, "the shuffled stream has other records"
    assert await fed(server, folder, "--shuffle", "7", "s3://bkt/data/") == b"".join(order), "feeder and stream differ in the order of one seed"
    await server.stop()


async def check_odd_sizes(folder):
    """Empty objects, objects of many parts, a reader that leaves early, epochs, and an object that is gone."""
    draw = random.Random(4)
    objects = {f"data/{index:03}": draw.randbytes(size) for index, size in enumerate([0, 5, 0, 9_000_000, 0, 4 << 20, 70_000, 0])}
    server = FakeS3(objects)
    server.port = await server.start()
    in_order = [objects[key] for key in sorted(objects)]
    assert await fed(server, folder, "s3://bkt/data/") == b"".join(in_order), "what was fed differs"
    assert await fed(server, folder, "--shard", "1/3", "s3://bkt/data/") == b"".join(in_order[1::3]), "the shard that was fed differs"
    assert await fed(server, folder, "--cut", "5000000", "s3://bkt/data/") == b"".join(in_order)[:5_000_000], "the epoch that was cut differs"
    got = (await run(server, PROBE, "stream", "s3://bkt/data/", -1, 2)).decode().splitlines()
    assert got == 2 * lines_of(in_order), "the stream's records differ"

    async def take_away(method, target):
        if target == "/bkt/data/003":
            server.objects.pop("data/003", None)
    server.before_answer = take_away
    message = await run(server, PROBE, "stream", "s3://bkt/data/", -1, 1, code=1)
    assert "s3://bkt/data/003" in message and "404" in message, message
    await server.stop()


async def check_encryption(folder):
    """What a bucket demands of uploads, in one request and in parts, of cp, of a tree and of sync; wrong options are refused by name."""
    key = "arn:aws:kms:us-east-1:123456789012:key/1-2"
    demands = {"x-amz-server-side-encryption": "aws:kms", "x-amz-server-side-encryption-aws-kms-key-id": key,
               "x-amz-server-side-encryption-bucket-key-enabled": "true"}
    server = FakeS3(demands=demands)
    server.port = await server.start()
    options = ["--sse", "aws:kms", "--sse-kms-key-id", key, "--bucket-key-enabled"]
    tree = folder / "tree"
    tree.mkdir()
    (tree / "small").write_bytes(b"small")
    (tree / "large").write_bytes(bytes(6 << 20))
    assert "403 AccessDenied" in await run(server, TOOL, "cp", tree / "small", "s3://bkt/small", code=1)
    for name in ("small", "large"):
        await run(server, TOOL, "--part", "5", *options, "cp", tree / name, f"s3://bkt/{name}")
    await run(server, TOOL, *options, "cp", "s3://bkt/large", "s3://bkt/copy")
    await run(server, TOOL, *options, "--recursive", "cp", tree, "s3://bkt/tree/")
    await run_sync(server, tree, "s3://bkt/sync", *options)
    names = ["copy", "large", "small", "sync/large", "sync/small", "tree/large", "tree/small"]
    assert sorted(server.carried) == names, server.carried
    for name in names:
        kept = server.carried[name]
        assert {header: kept.get(header) for header in demands} == demands, (name, kept)
        assert server.objects[name] == (tree / ("small" if name.endswith("small") else "large")).read_bytes(), name
    assert server.parts.keys() >= {"large"} and "small" not in server.parts
    for algorithm in ("AES256", "aws:kms:dsse"):
        server.demands = {"x-amz-server-side-encryption": algorithm}
        await run(server, TOOL, "--sse", algorithm, "cp", tree / "small", "s3://bkt/other")
        assert set(server.carried["other"]) == {"x-amz-server-side-encryption"}, server.carried["other"]
    for words, why in ((["--sse", "kms"], "--sse is 'kms': expected AES256, aws:kms or aws:kms:dsse"),
                       (["--sse-kms-key-id", "k"], "--sse-kms-key-id needs --sse aws:kms or aws:kms:dsse, found none"),
                       (["--sse", "AES256", "--sse-kms-key-id", "k"], "found AES256"),
                       (["--sse", "aws:kms", "--sse-kms-key-id", "a\nb"], "expected the id, alias or ARN of a KMS key"),
                       (["--sse", "aws:kms:dsse", "--bucket-key-enabled"], "--bucket-key-enabled needs --sse aws:kms, found aws:kms:dsse")):
        assert why in await run(server, TOOL, *words, "cp", tree / "small", "s3://bkt/x", code=2), why
        assert why in await run(server, SYNC, *words, tree, "s3://bkt/x", code=2), why
    await server.stop()


async def check_copy(folder):
    """A copy keeps what the object carries, in one request and in parts, except tags and encryption."""
    properties = {"content-type": "text/x-odd; charset=utf-8", "content-encoding": "gzip", "content-language": "de", "cache-control": "max-age=5",
                  "content-disposition": 'attachment; filename="a b"', "expires": "Wed, 21 Oct 2026 07:28:00 GMT", "x-amz-meta-who": "me: and  you"}
    tags = {"x-amz-tagging": "a%20b=1%262&c="}
    sealed = {"x-amz-server-side-encryption": "AES256"}
    server = FakeS3({"small": b"small", "large": bytes(11 << 20)})
    server.port = await server.start()
    for name in ("small", "large"):
        server.carried[name] = {**properties, **tags, **sealed}
        for words, wanted in (([], properties), (["--sse", "AES256"], {**properties, **sealed})):
            await run(server, TOOL, "--part", "5", *words, "cp", f"s3://bkt/{name}", "s3://bkt/copy")
            assert server.carried["copy"] == wanted, (name, words, server.carried["copy"])
            assert server.objects["copy"] == server.objects[name] and ("copy" in server.parts) == (name == "large"), (name, words)
    await server.stop()


async def check_parts_checksum(folder):
    """Of an object in parts a checksum counts that is said to be the whole's, and no other."""
    data = random.Random(6).randbytes(9_000_000)
    server = FakeS3({"large": data})
    server.port = await server.start()
    server.parts["large"], server.checksums["large"] = 2, "AAAAAA=="  # as of the parts' checksums
    await run(server, TOOL, "cp", "s3://bkt/large", folder / "down")
    assert (folder / "down").read_bytes() == data, "what came down differs"
    server.carried["large"] = {"x-amz-checksum-type": "FULL_OBJECT"}
    message = await run(server, TOOL, "--again", "cp", "s3://bkt/large", folder / "down", code=1)
    assert "CRC32C of the whole" in message, message
    await server.stop()


async def run_sync(server, directory, uri, *options):
    """The files that sync uploads from a directory that does not change any more."""
    sync = asyncio.ensure_future(run(server, SYNC, *options, directory, uri))
    wanted = {f"{uri.removeprefix('s3://bkt/')}/{path.name}" for path in directory.iterdir()}
    while not sync.done() and not wanted <= set(server.objects):
        await asyncio.sleep(0.05)
    for process in server.running:
        process.terminate()
    await sync


async def main():
    for check in (check_many, check_odd_sizes, check_encryption, check_copy, check_parts_checksum):
        with tempfile.TemporaryDirectory(prefix="paceline-objects-") as folder:
            await check(pathlib.Path(folder))
        print(f"ok: {check.__doc__}", flush=True)


if __name__ == "__main__":
    asyncio.run(main())
