#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every scenario of tests/integration/s3_faults: the client between it and its bytes a server that fails as the file says.

  s3_faults.py PACELINE_S3 [SCENARIO...]

Not one byte may be lost or wrong: where the scenario expects success the bytes are compared, where it expects an error what came
out before it has to be a beginning of the right bytes. Each scenario has to end within its own deadline. Time in which client or
server were ready to run but the machine ran others, or its processors were lent to other machines, does not count, up to nine times the
deadline: a client that waits for nothing is found all the same.
"""
import asyncio
import json
import os
import pathlib
import random
import re
import signal
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "fakes"))
from fake_s3 import FakeS3  # noqa: E402
from fault_proxy import FaultProxy, Rules  # noqa: E402

AT_A_TIME = 4


class Wrong(Exception):
    pass


def check(condition, text):
    if not condition:
        raise Wrong(text)


def stolen_s():
    """How long a virtual machine's processors have had work and did not run; 0 where the kernel does not say."""
    try:
        return int(pathlib.Path("/proc/stat").read_text(encoding="ascii").splitlines()[0].split()[8]) / os.sysconf("SC_CLK_TCK")
    except (OSError, IndexError):
        return 0


def held_up_s(*pids):
    """How long the threads of these processes have waited for a CPU, and it for the machine's."""
    delay_ns = 0
    for pid in pids:
        try:
            threads = os.listdir(f"/proc/{pid}/task")
        except OSError:
            continue  # the process has ended
        for thread in threads:
            try:
                delay_ns += int(pathlib.Path(f"/proc/{pid}/task/{thread}/schedstat").read_text(encoding="ascii").split()[1])
            except (OSError, IndexError):
                pass  # the thread has ended
    return delay_ns / 1e9 + stolen_s()


def ignore_interrupts():
    """As a shell without job control does for a program that it starts with "&"."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


async def talk(process, deadline_s):
    """Returns the process's output up to its end, which must be within the deadline."""
    answer = asyncio.ensure_future(process.communicate())
    begun, held_before_s, held_s = time.monotonic(), held_up_s(os.getpid()), 0
    while not answer.done():
        held_s = max(held_s, held_up_s(os.getpid(), process.pid) - held_before_s)
        if time.monotonic() - begun - min(held_s, 9 * deadline_s) > deadline_s:
            process.kill()
            answer.cancel()
            await process.wait()
            raise Wrong(f"not done after {deadline_s} s")
        await asyncio.wait([answer], timeout=0.2)
    return answer.result()


def make_objects(scenario):
    """The objects of a scenario, the same in every run."""
    draw = random.Random(scenario["name"])
    objects = {}
    if scenario["do"] in ("list", "tree"):
        for index in range(scenario["objects"]):
            size = draw.choice([0, 1, 999, 5000, 70000, 200000])
            objects[f"tree/{index % 5}/key {index:03}"] = draw.randbytes(size)
    elif scenario["do"] == "remove":
        objects.update((key, key.encode()) for key in scenario["keys"])
    elif "there" in scenario:
        objects[scenario["there"]] = draw.randbytes(scenario["object_bytes"])
    elif scenario["do"] not in ("upload", "upload_tree"):
        objects["obj"] = draw.randbytes(scenario["object_bytes"])
    return objects


class Run:
    """One scenario: a fake server, a proxy before it, and the client."""

    def __init__(self, tool, scenario, directory):
        self.tool, self.scenario, self.directory = tool, scenario, pathlib.Path(directory)
        self.objects = make_objects(scenario)
        self.fake = self.proxy = self.process = None
        self.started = asyncio.Event()  # the process may ask the proxy before we have it
        self.port = 0
        self.token_file = self.directory / "token"
        self.token_file.write_text("secret-token\n")

    def replace(self):
        self.fake.objects["obj"] = bytes(len(self.fake.objects["obj"]))

    def new_token(self):
        self.fake.tokens.append("new")
        self.fake.good_token = "new"

    def new_identity(self):
        self.fake.identity = "another-token"
        self.token_file.write_text("another-token\n")

    def grow(self):
        with open(self.directory / "file", "ab") as file:
            file.write(b"more")

    async def stop(self):
        await self.started.wait()
        self.process.terminate()

    async def interrupt(self):
        await self.started.wait()
        self.process.send_signal(signal.SIGINT)

    async def client(self, *words, stdout=asyncio.subprocess.PIPE):
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.directory), "AWS_ENDPOINT_URL_S3": f"http://127.0.0.1:{self.port}",
                       "AWS_REGION": "us-east-1", "NO_PROXY": "*", "AWS_EC2_METADATA_DISABLED": "true"}
        for name in ("ASAN_OPTIONS", "LSAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS"):
            if name in os.environ:
                environment[name] = os.environ[name]
        extra = self.scenario.get("environment", {})
        if not {"AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_EC2_METADATA_SERVICE_ENDPOINT"} & extra.keys():
            environment.update(AWS_ACCESS_KEY_ID="AKIDTEST", AWS_SECRET_ACCESS_KEY="secret")
        environment.update((name, value.format(port=self.port, token_file=self.token_file)) for name, value in extra.items())
        process = self.process = await asyncio.create_subprocess_exec(
            self.tool, *self.scenario["options"], *words, env=environment, stdin=asyncio.subprocess.DEVNULL,
            stdout=stdout, stderr=asyncio.subprocess.PIPE, preexec_fn=ignore_interrupts if self.scenario.get("in_background") else None)
        self.started.set()
        out, err = await talk(process, self.scenario["deadline_s"])
        return process.returncode, out, err.decode(errors="replace")

    async def run(self):
        server = dict(self.scenario.get("server", {}))
        life_s = server.pop("life_s", 3600)
        self.fake = await asyncio.to_thread(FakeS3, self.objects, **server)  # it may compute checksums for so long that others would time out
        self.fake.life_s = life_s
        upstream = await self.fake.start()
        self.proxy = FaultProxy("127.0.0.1", upstream, self.scenario["rules"], {"replace": self.replace, "new_token": self.new_token,
                                                                                "new_identity": self.new_identity, "stop": self.stop,
                                                                                "grow": self.grow, "interrupt": self.interrupt})
        self.port = await self.proxy.start()
        try:
            begun = time.monotonic()
            await getattr(self, "do_" + self.scenario["do"])()
            took = time.monotonic() - begun
            check(took >= self.scenario.get("least_s", 0), f"took {took:.2f} s only")
            check(len(self.fake.uploads) <= max(self.begun() - 1, self.scenario.get("uploads_left", 0)), "an unfinished upload is left on the server")
            check(self.scenario.get("key_fetches_at_least", 0) <= self.fake.handed <= self.scenario.get("key_fetches_at_most", 99),
                  f"keys were fetched {self.fake.handed} times")
            fired = any(entry[1] for entry in self.proxy.log)
            check(fired or not self.scenario["rules"], "no rule was ever used: the scenario tests nothing")
        finally:
            await self.proxy.stop()
            await self.fake.stop()

    def begun(self):
        """How often the server was asked to begin an upload: of those whose answer a slow machine did not bring in time the client cannot know."""
        return sum(line.startswith("POST ") and "uploads=" in line and fault != "answer" for line, fault, _ in self.proxy.log)

    def check_end(self, code, err):
        """True when the client succeeded as expected, False when it failed as expected."""
        if self.scenario["expect"] == "same":
            check(code == 0, f"exit {code}: {err.strip()}")
            return True
        check(code > 0, f"exit {code} where an error was expected")
        check(re.search(self.scenario["expect"], err, re.S), f"the message does not say why: {err.strip()}")
        return False

    async def do_cat(self):
        whole = self.objects["obj"]
        code, out, err = await self.client("cat", "s3://bkt/obj")
        if self.check_end(code, err):
            check(out == whole, f"{len(out)} bytes came, {len(whole)} are right, or they differ")
        else:
            check(whole.startswith(out), "wrong bytes before the error")

    async def do_download(self):
        target = self.directory / "file"
        code, _, err = await self.client("cp", "s3://bkt/obj", str(target))
        if self.check_end(code, err):
            check(target.read_bytes() == self.objects["obj"], "the file differs")
            check(not list(self.directory.glob("file.*")), "a temporary file is left")
        else:
            check(not target.exists(), "a wrong file was put in place")
            check(not list(self.directory.glob("file.*")), "wrong bytes are left for the next run")
            self.proxy.rules = Rules([])
            code, _, err = await self.client("cp", "s3://bkt/obj", str(target))
            check(code == 0, err)
            check(target.read_bytes() == self.objects["obj"], "the same command again: the file differs")

    async def do_download_twice(self):
        target = self.directory / "file"
        first = asyncio.ensure_future(self.client("cp", "s3://bkt/obj", str(target)))
        while not first.done() and not any(path.stat().st_size for path in self.directory.glob("file.*.part")):
            await asyncio.sleep(0.05)
        code, _, err = await self.client("cp", "s3://bkt/obj", str(target))
        check(code > 0 and "is being written by another download" in err, f"the second: exit {code}: {err.strip()}")
        self.proxy.released.set()
        code, _, err = await first
        check(code == 0, err)
        check(target.read_bytes() == self.objects["obj"], "the file differs")

    async def do_resume(self):
        target = self.directory / "down" / "obj"
        words = ("cp", "s3://bkt/obj", f"{target.parent}/")  # also a tree of one object
        code, _, _ = await self.client(*words)
        check(code > 0 and not target.exists(), "the first run was to fail")
        part, = target.parent.iterdir()
        if self.scenario.get("fill"):  # as of a run that was killed when it had found the checksum wrong
            os.truncate(part, self.scenario["object_bytes"])
        if self.scenario.get("replace"):
            self.replace()
        self.proxy.rules = Rules([])
        self.proxy.log.clear()
        code, _, err = await self.client(*words)
        check(code == 0, err)
        check(target.read_bytes() == self.fake.objects["obj"], "the file differs")
        over = any(" bytes=0-" in entry[0] for entry in self.proxy.log)
        check(over == self.scenario.get("starts_over", False), f"the second run {'started' if over else 'did not start'} from the beginning")
        check(part.exists() == self.scenario.get("replace", False), "what is left differs from what belongs to another version")
        self.proxy.log.append(["", "used", 0])
        before = len(self.proxy.log)
        code, _, err = await self.client(*words)
        check(code == 0 and len(self.proxy.log) == before + 1, "a file that is there was fetched again")

    async def do_upload(self):
        data = random.Random(self.scenario["name"]).randbytes(self.scenario["object_bytes"])
        source = self.directory / "file"
        source.write_bytes(data)
        before = self.fake.objects.get("up")
        code, _, err = await self.client("cp", str(source), "s3://bkt/up")
        if self.check_end(code, err):
            check(self.fake.objects.get("up") == data, "the object differs")
        else:
            check(self.fake.objects.get("up") == before, "a wrong object was made")

    async def do_upload_stopped(self):
        source = self.directory / "file"
        source.write_bytes(bytes(self.scenario["object_bytes"]))
        code, _, err = await self.client("cp", str(source), "s3://bkt/up")
        check(code == -signal.SIGTERM, f"exit {code}: {err.strip()}")
        check(re.search(self.scenario["expect"], err, re.S), f"the message does not say why: {err.strip()}")
        check("up" not in self.fake.objects, "an object was made")

    async def do_copy(self):
        code, _, err = await self.client("cp", "s3://bkt/obj", "s3://bkt/copy")
        if self.check_end(code, err):
            check(self.fake.objects.get("copy") == self.objects["obj"], "the object differs")
        else:
            check("copy" not in self.fake.objects, "a wrong object was made")

    async def do_copy_stopped(self):
        code, _, err = await self.client("cp", "s3://bkt/obj", "s3://bkt/copy")
        check(code == -signal.SIGTERM, f"exit {code}: {err.strip()}")
        check("copy" not in self.fake.objects, "an object was made")

    async def do_upload_tree(self):
        for name in self.scenario["files"]:
            path = self.directory / "tree" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(name)
        code, _, err = await self.client("--recursive", "cp", str(self.directory / "tree"), "s3://bkt/up")
        self.check_end(code, err)
        check(self.fake.objects == {"up/" + name: name.encode() for name in self.scenario["files"]}, f"what came is wrong: {sorted(self.fake.objects)}")

    async def do_list(self):
        with open(self.directory / "list", "w+b") as out:
            list_ends = asyncio.ensure_future(self.client("--recursive", "ls", "s3://bkt/tree/", stdout=out))
            while not list_ends.done() and not os.fstat(out.fileno()).st_size:
                await asyncio.sleep(0.02)
            self.proxy.released.set()  # what holds a later page until the first is printed
            code, _, err = await list_ends
            out.seek(0)
            lines = [line.split(None, 2) for line in out.read().decode().splitlines()]
        if self.check_end(code, err):
            check([(line[2], int(line[1])) for line in lines] == [(key, len(self.objects[key])) for key in sorted(self.objects)], "the list differs")

    async def do_remove(self):
        code, _, err = await self.client(*self.scenario["remove"])
        self.check_end(code, err)
        check(sorted(self.fake.objects) == self.scenario["stay"], f"what stays is wrong: {sorted(self.fake.objects)}")

    async def do_tree(self):
        target = self.directory / "copy"
        code, _, err = await self.client("--recursive", "cp", "s3://bkt/tree/", str(target))
        self.check_end(code, err)
        for key, data in self.objects.items():
            check((target / key[len("tree/"):]).read_bytes() == data, f"{key} differs")


def load(path):
    scenario = json.loads(path.read_text(encoding="utf-8"))
    scenario["name"] = path.stem
    return scenario


async def run_one(tool, scenario, gate):
    async with gate:
        begun = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="paceline-faults-") as directory:
            try:
                await Run(tool, scenario, directory).run()
                problem = None
            except Wrong as wrong:
                problem = str(wrong)
        print(f"{'FAIL' if problem else 'ok  '} {time.monotonic() - begun:5.1f} s  {scenario['name']}: {problem or scenario['promise']}", flush=True)
        return problem is None


async def main():
    names = sys.argv[2:]
    scenarios = [load(path) for path in sorted((HERE / "s3_faults").glob("*.json")) if not names or path.stem in names]
    gate = asyncio.Semaphore(AT_A_TIME)
    results = await asyncio.gather(*(run_one(sys.argv[1], scenario, gate) for scenario in scenarios))
    print(f"{sum(results)} of {len(results)} scenarios kept their promise")
    return 0 if all(results) and results else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
