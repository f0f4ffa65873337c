#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Wrong arguments of `paceline` and its subcommands: the first line names the argument, what was found and what is expected, the exit status is 2, and no
request is sent and no credentials are read before. And output that cannot be written. The same for examples/quickstart.sh."""
import json
import os
import pathlib
import pty
import re
import shutil
import subprocess
import sys
import tempfile

FAKES = pathlib.Path(os.environ["PACELINE_SOURCE"]) / "tests/fakes"
PACELINE = pathlib.Path(os.environ["PACELINE_BUILD"]) / "entrypoint/paceline"

# The arguments of `paceline`, and the whole output; FOLDER is an empty directory, FILE a file.
WRONG = {
    "nonsense": "paceline: error: unknown command 'nonsense'; `paceline help` lists the commands",
    "help nonsense": "paceline: error: unknown command 'nonsense'; `paceline help` lists the commands",
    "tran": "paceline: error: unknown command 'tran' (did you mean 'train'?); `paceline help` lists the commands",
    "plan nonsense": "paceline: error: plan: expected --json, or -- COMMAND..., found 'nonsense'",
    "env nonsense": "paceline: error: env: expected nothing, found 'nonsense'",
    "sweep": "paceline: error: sweep: expected --dry-run [FILE], found nothing",
    "sweep nonsense": "paceline: error: sweep: expected --dry-run [FILE], found 'nonsense'",
    "sweep --dry-run a b": "paceline: error: sweep: expected --dry-run [FILE], found 'b'",
    "info nonsense": "paceline info: error: expected nothing, found 'nonsense'; --help tells more",
    "s3 nonsense": "paceline s3: error: expected ls, cat or cp, found 'nonsense'; --help tells more",
    "s3 --nonsense ls s3://bucket/": "paceline s3: error: there is no option --nonsense; --help lists the options",
    "s3 --re ls s3://bucket/": "paceline s3: error: option --re is ambiguous: it can be --recursive or --region or --requester-pays",
    "s3 --recusive ls s3://bucket/": "paceline s3: error: there is no option --recusive (did you mean '--recursive'?); --help lists the options",
    "s3 -x ls s3://bucket/": "paceline s3: error: there is no option -x; --help lists the options",
    "s3 --quiet=3 ls s3://bucket/": "paceline s3: error: --quiet takes no value, found '3'",
    "s3 ls s3://bucket/ --region": "paceline s3: error: --region needs a value; --help lists the options",
    "s3 --connections 0 ls s3://bucket/": "paceline s3: error: --connections is '0', expected a whole number from 1 to 1024",
    "s3 --budget x ls s3://bucket/": "paceline s3: error: --budget is 'x', expected a whole number from 1 to 1048576",
    "s3 --part -1 ls s3://bucket/": "paceline s3: error: --part is '-1', expected a whole number from 1 to 4096",
    "s3 --stall 1.5 ls s3://bucket/": "paceline s3: error: --stall is '1.5', expected a whole number from 1 to 3600",
    "s3 --timeout 5s ls s3://bucket/": "paceline s3: error: --timeout is '5s', expected a whole number from 1 to 1000000",
    "s3 ls": "paceline s3: error: ls: expected one s3://BUCKET/PREFIX",
    "s3 ls s3:/x": "paceline s3: error: ls: 's3:/x' is not an s3://BUCKET/KEY address",
    "s3 ls s3://": "paceline s3: error: ls: '' is not a bucket name (in 's3://'): expected 3 to 63 lower-case letters, digits, dots and hyphens",
    "s3 cat": "paceline s3: error: cat: expected s3://BUCKET/KEY...",
    "s3 cat s3://bucket": "paceline s3: error: cat: 's3://bucket' is a bucket: expected an object",
    "s3 cp FILE": "paceline s3: error: cp: expected FROM and TO",
    "s3 cp a b": "paceline s3: error: cp: neither 'a' nor 'b' is an s3://BUCKET/KEY address",
    "s3 cp s3://bucket FILE": "paceline s3: error: cp: 's3://bucket' is not an object; use --recursive for the objects below it",
    "s3 cp s3://bucket s3://bucket/key": "paceline s3: error: cp: 's3://bucket' is a bucket: expected an object",
    "s3 cp FOLDER s3://bucket/key": "paceline s3: error: cp: 'FOLDER' is a directory; use --recursive for its files",
    "s3 cp - s3://bucket/folder/": "paceline s3: error: cp: standard input has no file name to add to 's3://bucket/folder/'; give the whole key",
    "s3 cp --recursive FILE s3://bucket/key": "paceline s3: error: cp: 'FILE' is not a directory; --recursive needs one",
    "s3 cp --recursive s3://bucket/a/ s3://bucket/b/": "paceline s3: error: cp: 's3://bucket/a/' is not a directory; --recursive needs one",
    "s3 cp --recursive s3://bucket/a/ -": "paceline s3: error: cp: '-' is not a directory; --recursive needs one",
    "demo nonsense": "paceline demo: error: expected only options, found 'nonsense'; --help tells more",
    "demo --epochs 0": "paceline demo: error: --epochs is '0', expected a whole number from 1 to 1000",
    "demo --processes two": "paceline demo: error: --processes is 'two', expected a whole number from 1 to 64",
    "horovod --nonsense": "paceline horovod: error: there is no option --nonsense; --help lists the options",
    "horovod word": "paceline horovod: error: expected install, check or remove, found 'word'; --help tells more",
    "horovod check remove": "paceline horovod: error: expected install, check or remove, found 'remove'; --help tells more",
    "feed FOLDER": "paceline feed: error: expected FROM and PATH, found 1 arguments; --help tells more",
    "feed --epochs x FOLDER FILE": "paceline feed: error: --epochs is 'x', expected a whole number from 0 to 4294967295",
    "feed --first -1 FOLDER FILE": "paceline feed: error: --first is '-1', expected a whole number from 0 to 4294967295",
    "feed --shuffle x FOLDER FILE": "paceline feed: error: --shuffle is 'x', expected a whole number from 0 to 18446744073709551615",
    "feed --shard 2/2 FOLDER FILE": "paceline feed: error: --shard is '2/2', expected R/N with R below N",
    "feed --timeout 1s FOLDER FILE": "paceline feed: error: --timeout is '1s', expected a whole number from 0 to 1000000",
    "feed --cut x FOLDER FILE": "paceline feed: error: --cut is 'x', expected a whole number from 0 to 18446744073709551615",
    "feed --nonsense FOLDER FILE": "paceline feed: error: there is no option --nonsense; --help lists the options",
    "feed --augmented a --recordio s3://bucket/m FILE": "paceline feed: error: --augmented goes with neither --manifest, --recordio nor --decompress",
    "feed --manifest FOLDER FILE": "paceline feed: error: 'FOLDER': a manifest is an object on S3, s3://BUCKET/KEY",
    "feed s3:///x FILE": "paceline feed: error: '' is not a bucket name (in 's3:///x'): expected 3 to 63 lower-case letters, digits, dots and hyphens",
    "sync FOLDER": "paceline sync: error: expected DIRECTORY and s3://BUCKET/PREFIX, found 1 arguments; --help tells more",
    "sync --finish soon FOLDER s3://bucket/": "paceline sync: error: --finish is 'soon', expected a number from 0.001 to 86400",
    "sync FILE s3://bucket/": "paceline sync: error: 'FILE' to 's3://bucket/': 'FILE' is not a directory",
    "sync FOLDER FILE": "paceline sync: error: 'FOLDER' to 'FILE': 'FILE' is not an s3://BUCKET/KEY address",
    "trace --nonsense FILE": "paceline trace: error: there is no option --nonsense; --help lists the options",
    "bench nonsense": "paceline bench: error: expected one operation, allreduce, allgather or broadcast, found 'nonsense'; --help lists the options",
    "bench allgather --bound": "paceline bench: error: --wire, --reproducible, --bound, --peer mpi-best and device buffers are for allreduce, not for allgather",
    "bench allreduce --max-bytes 1MB": "paceline bench: error: --max-bytes is '1MB', expected a number from 1 up; KiB, MiB or GiB may follow",
    "bench allreduce --factor 1": "paceline bench: error: --factor is '1', expected a number from 2 up; KiB, MiB or GiB may follow",
    "bench allreduce --type float": "paceline bench: error: --type is 'float', expected one of float32, float64, float16, bfloat16, int8, int16, int32, "
                                    "int64, uint8, bool",
    "bench allreduce --buffers heap": "paceline bench: error: --buffers is 'heap', expected arena, private or device",
    "bench allreduce --peer nccl": "paceline bench: error: --peer is 'nccl', expected mpi or mpi-best",
    "bench allreduce --wire int8": "paceline bench: error: --wire is 'int8', expected float16 or bfloat16",
    "bench allreduce --pairs x": "paceline bench: error: --pairs is 'x', expected a whole number from 1 to 999",
    "bench allreduce --loop-ms 0": "paceline bench: error: --loop-ms is '0', expected a number from 0.001 to 1e+06",
    "bench allreduce --threads 65": "paceline bench: error: --threads is '65', expected a whole number from 1 to 64",
    "bench allreduce --threads 2 --peer mpi": "paceline bench: error: --peer needs mpirun, not --threads",
}


def run(*words, keys=None, **keywords):
    """Without a home and, by default, without credentials: code that reads them would report them instead of the wrong argument."""
    environment = {"PATH": os.environ["PATH"], "AWS_EC2_METADATA_DISABLED": "true", **(keys or {})}
    return subprocess.run([PACELINE, *words], env=environment, stdin=subprocess.DEVNULL, stdout=keywords.pop("stdout", subprocess.PIPE),
                          stderr=subprocess.PIPE, text=True, timeout=60, **keywords)


def outputs(scratch):
    """Output that cannot be written, and a path at which no file can exist."""
    (scratch / "objects").mkdir()
    (scratch / "objects/key").write_text("data")
    os.mkfifo(scratch / "fifo")
    server = subprocess.Popen([sys.executable, FAKES / "fake_s3.py", scratch / "objects"], stdout=subprocess.PIPE, text=True)
    try:
        keys = {"AWS_ENDPOINT_URL_S3": f"http://127.0.0.1:{server.stdout.readline().split()[1]}", "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}
        reader, gone = os.pipe()
        os.close(reader)
        for words, keywords, code, wanted in (
                (("s3", "ls", "s3://bkt/"), {"stdout": gone}, 0, ""),
                (("s3", "ls", "s3://bkt/"), {"preexec_fn": lambda: os.close(1)}, 1, "paceline s3: error: ls: cannot write standard output: Bad file descriptor"),
                (("s3", "ls", "--json", "s3://bkt/none"), {}, 1, "paceline s3: error: ls: nothing under 's3://bkt/none'"),
                (("s3", "cat", "s3://bkt/key"), {"preexec_fn": lambda: os.close(1)}, 1,
                 "paceline s3: error: cat: cannot write 'standard output': Bad file descriptor"),
                (("s3", "cat", "s3://bkt/key"), {"stdout": gone}, 1, "paceline s3: error: cat: cannot write 'standard output': Broken pipe"),
                (("s3", "cp", "s3://bkt/k", scratch / "k"), {}, 1, "paceline s3: error: cp: HTTP 404 (request id none) (HEAD s3://bkt/k; "
                 "no such object; use --recursive for the objects below such a name)"),
                (("s3", "cp", "s3://bkt/key", scratch / "fifo"), {}, 2, f"paceline s3: error: cp: '{scratch}/fifo' exists already and is not a file"),
                (("info",), {"preexec_fn": lambda: os.close(1)}, 1, "paceline info: error: standard output cannot be written"),
                # after 4 bytes there is no other size: 4 times the factor is 0 in 64 bits
                (("bench", "allreduce", "--max-bytes", "4", "--factor", "4611686018427387904", "--pairs", "1"), {"preexec_fn": lambda: os.close(1)}, 1,
                 "paceline bench: error: standard output cannot be written")):
            done = run(*words, keys=keys, **keywords)
            if (done.returncode, done.stderr.strip()) != (code, wanted):
                yield f"paceline {' '.join(map(str, words))}: status {done.returncode}, {done.stderr.strip()}\n  wanted {code}, {wanted}"
        os.close(gone)
        entries = [json.loads(line) for line in run("s3", "ls", "--json", "s3://bkt/", keys=keys).stdout.splitlines()]
        if [(entry["key"], entry["bytes"]) for entry in entries] != [("key", 4)]:
            yield f"s3 ls --json: {entries}"
    finally:
        server.kill()
        server.wait()


def quickstart(scratch):
    """Wrong arguments end the script before it installs, builds or writes anything; here it finds no program to do so."""
    for name in ("dirname", "realpath"):
        os.symlink(shutil.which(name), scratch / name)
    script = FAKES.parents[1] / "examples/quickstart.sh"
    for words, code, wanted in ((["--tree"], 2, "quickstart: --tree needs a value; --help lists the options"),
                                (["--epochs", "1", "--data"], 2, "quickstart: --data needs a value; --help lists the options"),
                                (["--data", f"{scratch}/none"], 1, f"realpath: {scratch}/none: No such file or directory"),
                                (["--trees", "x"], 2, "quickstart: there is no option --trees; --help lists them")):
        done = subprocess.run([shutil.which("bash"), script, *words], env={"PATH": str(scratch)}, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
        if done.returncode != code or done.stderr.strip() != wanted:
            yield f"quickstart.sh {' '.join(words)}: status {done.returncode}, {done.stderr.strip()}\n  wanted {code}, {wanted}"


def on_a_terminal(*words, base):
    """Returns the exit code, and the text on a terminal."""
    primary, secondary = pty.openpty()
    environment = {"PATH": os.environ["PATH"], "SAGEMAKER_BASE_DIR": str(base)}
    process = subprocess.Popen([PACELINE, *words], env=environment, stdin=subprocess.DEVNULL, stdout=secondary, stderr=secondary)
    os.close(secondary)
    shown = b""
    try:
        while part := os.read(primary, 65536):
            shown += part
    except OSError:
        pass  # the last process has closed it
    os.close(primary)
    return process.wait(timeout=60), shown.decode().replace("\r\n", "\n")


def words_after_train(base):
    """train takes no arguments, whether there is a job or not."""
    done = run("train", "--epochs", "9", keys={"SAGEMAKER_BASE_DIR": str(base)})
    if done.returncode != 2 or not done.stderr.startswith("paceline: error: train takes no arguments, found '--epochs'; ") or any(base.iterdir()):
        yield f"train with words: {done.returncode} {done.stderr}"


def plan_for_people(base):
    """`plan` prints lines to a terminal, JSON to a pipe, and the JSON has the members and types of docs/plan.schema.json."""
    (base / "input/config").mkdir(parents=True)
    (base / "input/config/resourceconfig.json").write_text('{"current_host": "algo-1", "hosts": ["algo-1"]}')
    (base / "input/config/hyperparameters.json").write_text('{"name": "two words\\u001b[31m"}')
    words = ("plan", "--", "/bin/echo", "it's")
    code, shown = on_a_terminal(*words, base=base)
    if code != 0 or "\ncommand      /bin/echo 'it'\\''s'\n" not in shown or "SM_HP_NAME=two words?[31m\n" not in shown or "\x1b" in shown or not shown.startswith("launcher     "):
        yield f"plan on a terminal: {code} {shown}"
    code, shown = on_a_terminal("plan", "--json", *words[1:], base=base)
    if code != 0 or json.loads(shown)["version"] != 1:
        yield f"plan --json on a terminal: {code} {shown}"
    done = run(*words, keys={"SAGEMAKER_BASE_DIR": str(base)})
    yield from mismatches(json.loads(done.stdout), json.loads((FAKES.parents[1] / "docs/plan.schema.json").read_text()), "plan")


TYPES = {"object": dict, "array": list, "string": str, "integer": int, "boolean": bool, "null": type(None)}


def mismatches(value, schema, where, root=None):
    """What JSON Schema's type, enum, required, properties, additionalProperties, items and $ref ask for and `value` has not."""
    root = root or schema
    if "$ref" in schema:
        schema = root["$defs"][schema["$ref"].rsplit("/", 1)[1]]
    kinds = schema.get("type", [])
    if kinds and type(value) not in [TYPES[kind] for kind in ([kinds] if isinstance(kinds, str) else kinds)]:
        yield f"{where}: {value!r} is no {kinds}"
    if "enum" in schema and value not in schema["enum"]:
        yield f"{where}: {value!r} is none of {schema['enum']}"
    if isinstance(value, dict):
        properties, others = schema.get("properties", {}), schema.get("additionalProperties", True)
        yield from (f"{where}: no member '{name}'" for name in schema.get("required", []) if name not in value)
        for name, member in value.items():
            if name not in properties and others is False:
                yield f"{where}: the member '{name}' is not in the schema"
            below = properties.get(name, others)
            if isinstance(below, dict):
                yield from mismatches(member, below, f"{where}.{name}", root)
    if isinstance(value, list):
        for number, item in enumerate(value):
            yield from mismatches(item, schema.get("items", {}), f"{where}[{number}]", root)


def main():
    found = []
    with tempfile.TemporaryDirectory(prefix="paceline-words-") as scratch:
        places = {"FOLDER": f"{scratch}/folder", "FILE": f"{scratch}/file"}
        os.mkdir(places["FOLDER"])
        pathlib.Path(places["FILE"]).touch()
        for typed, wanted in WRONG.items():
            for name, place in places.items():
                wanted = wanted.replace(f"'{name}'", f"'{place}'")
            done = run(*(places.get(word, word) for word in typed.split()), cwd=scratch)
            if (done.returncode, done.stdout, done.stderr) != (2, "", wanted + "\n"):
                found.append(f"paceline {typed}: status {done.returncode}, {done.stdout}{done.stderr.strip()}\n  wanted {wanted}")
        done = run("s3", "cp", f"{scratch}/none", "s3://bucket/key")
        if done.returncode != 1 or done.stderr != f"paceline s3: error: cp: cannot find '{scratch}/none': No such file or directory\n":
            found.append(f"paceline s3 cp of a file that is not there: status {done.returncode}, {done.stderr}")
        found.extend(outputs(pathlib.Path(scratch)))
        found.extend(quickstart(pathlib.Path(scratch)))
    for verb in ("s3", "feed", "sync", "bench", "info", "server", "trace", "sweep"):
        for words in ((verb, "--help"), ("help", verb), (verb, *(() if verb in ("info", "server", "sweep") else ("FILE",)), "--help")):
            done = run(*words)
            if done.returncode != 0 or not done.stdout.startswith(f"usage: paceline {verb}") or done.stderr:
                found.append(f"paceline {' '.join(words)}: status {done.returncode}, {done.stdout}{done.stderr}")
    for verb in ("train", "plan", "env"):
        for words in ((verb, "--help"), ("help", verb)):
            done = run(*words, keys={"SAGEMAKER_BASE_DIR": "/nonexistent"})
            if done.returncode != 0 or not done.stdout.startswith(f"usage: paceline {verb}") or done.stderr:
                found.append(f"paceline {' '.join(words)}: status {done.returncode}, {done.stdout}{done.stderr}")
    for words in (("s3",), ("feed",), ("sync",), ("bench",), ("server",), ("trace",), ("trace", "--")):
        done = run(*words)
        if done.returncode != 2 or not done.stderr.startswith(f"usage: paceline {words[0]}") or done.stdout:
            found.append(f"paceline {' '.join(words)}: status {done.returncode}, {done.stdout}{done.stderr}")
    for words in (("--version",), ("s3", "--version"), ("plan", "--version"), ("stacks", "--version")):
        done = run(*words)
        if done.returncode != 0 or not re.fullmatch(r"paceline \d+\.\d+\.\d+ \(commit ([0-9a-f]{7}( and changes)?|unknown: built outside git)\)\n", done.stdout):
            found.append(f"paceline {' '.join(words)}: status {done.returncode}, {done.stdout}{done.stderr}")
    with tempfile.TemporaryDirectory() as base:
        found.extend(words_after_train(pathlib.Path(base)))
        found.extend(plan_for_people(pathlib.Path(base)))
    print("\n".join(found) or f"{len(WRONG)} mistakes are reported as they should")
    sys.exit(1 if found else 0)


main()
