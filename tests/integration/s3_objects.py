#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Objects by the thousand and what they carry, against a server that looks at every request.

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
FEED = pathlib.Path(TOOL).with_name("paceline-feed")
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
    """What a client prints, or its message where it is to fail."""
    environment = {**os.environ, "AWS_ENDPOINT_URL_S3": f"http://127.0.0.1:{server.port}", "AWS_REGION": "us-east-1", "NO_PROXY": "*",
                   "AWS_ACCESS_KEY_ID": "AKIDTEST", "AWS_SECRET_ACCESS_KEY": "secret"}
    process = await asyncio.create_subprocess_exec(program, *map(str, words), env=environment, stdin=asyncio.subprocess.DEVNULL,
                                                   stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE)
    try:
        out, err = await asyncio.wait_for(process.communicate(), LIMIT_S)
    except asyncio.TimeoutError:
        process.kill()
        raise SystemExit(f"{words}: not done after {LIMIT_S} s") from None
    message = err.decode(errors="replace")
    assert process.returncode == code, f"{words}: exit {process.returncode}, not {code}: {message}"
    return message if code else out


async def fed(server, folder, *words):
    """The bytes of an epoch as a program in Pipe Mode reads them."""
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


async def main():
    for check in (check_many, check_odd_sizes):
        with tempfile.TemporaryDirectory(prefix="paceline-objects-") as folder:
            await check(pathlib.Path(folder))
        print(f"ok: {check.__doc__}", flush=True)


if __name__ == "__main__":
    asyncio.run(main())
