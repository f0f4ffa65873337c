#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares paceline.data with what else reads records for training: tf.data, torch's DataLoader, tfrecord, webdataset, litdata, mosaicml-streaming, s3torchconnector.

  data_readers.py CIFAR10_FOLDER [--build build] [--cases uint8,floats,tar,s3,epochs] [--readers ours,...] [--rounds 3] [--seconds 1]

CIFAR10_FOLDER has TFRecord shards of tf.Example with "image" (3 x 32 x 32 bytes) and "label". 50,000 of its pictures, repeated if there are fewer, are written to 20
shards of each kind; reading is to batches of uint8 that torch (or TensorFlow) can use, pages in cache. A reader is a process of its own that reads epoch after epoch;
what it does in its first 0.3 s is not counted. Readers take turns. One JSON line for each reader of a case, with medians: samples/s, CPU microseconds a sample with those of
its workers, and the median of the ratios to the first reader's rate in the same round. A reader whose package is not installed is left out with a word on standard
error; packages: torch, tensorflow, tfrecord, webdataset, litdata, mosaicml-streaming, s3torchconnector, in this Python.

The case s3 uploads the shards to the tests' S3 server. The case epochs: microseconds of Python's own thread a batch, and
milliseconds from the beginning of a second epoch to its first batch, with no work and 2 ms of work between batches.
"""
import argparse
import contextlib
import glob
import io
import itertools
import json
import os
import pathlib
import random
import signal
import statistics
import struct
import subprocess
import sys
import tarfile
import tempfile
import time

SOURCE = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(SOURCE / "tests/support"))
SHAPE, PIXELS, SHARDS, FLOATS, WARM_S = (3, 32, 32), 3072, 20, 128, 0.3
FOLDER = os.environ.get("PACELINE_BENCH_FOLDER", "")


# Each reader gives the number of samples of one batch after the other, epoch after epoch.

def ours(batch, kind="tfrecord", threads=0, shuffle=0, copy=False, source=None):
    from paceline.data import Dataset, Field
    fields = {"tfrecord": {"image": ("uint8", SHAPE), "label": "int64"}, "floats": {"values": ("float32", (FLOATS,)), "label": "int64"},
              "tar": {"image": Field("uint8", SHAPE, name="bin"), "label": Field("int64", name="cls")}}[kind]
    dataset = Dataset(source or f"{FOLDER}/{kind}", fields, batch, shuffle, epochs=1 << 40, rank=0, size=1, decode_threads=threads, format="tar" if kind == "tar" else "tfrecord")
    dataset = dataset if copy else dataset.torch()
    for _ in itertools.count():
        for found in dataset:
            label = found["label"].copy() if copy else found["label"]
            if copy:
                found["values" if kind == "floats" else "image"].copy()
            yield len(label)


def tf_data(batch, kind="tfrecord", shuffle=0):
    import tensorflow as tf
    image = {"image": tf.io.FixedLenFeature([], tf.string)} if kind == "tfrecord" else {"values": tf.io.FixedLenFeature([FLOATS], tf.float32)}

    def parse(messages):
        found = tf.io.parse_example(messages, {**image, "label": tf.io.FixedLenFeature([], tf.int64)})
        if kind == "tfrecord":
            found["image"] = tf.reshape(tf.io.decode_raw(found["image"], tf.uint8), (-1, *SHAPE))
        return found
    dataset = tf.data.TFRecordDataset(sorted(glob.glob(f"{FOLDER}/{kind}/*"))).repeat()
    dataset = (dataset.shuffle(shuffle) if shuffle else dataset).batch(batch).map(parse, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)
    for found in dataset:
        yield found["label"].shape[0]


def _loader(dataset, batch, workers, **options):
    import torch
    loader = torch.utils.data.DataLoader(dataset, batch, num_workers=workers, persistent_workers=workers > 0, **options)
    for _ in itertools.count():
        for found in loader:
            yield len(found["label"] if isinstance(found, dict) else found[1])


def memory_map(batch, workers=0):
    import numpy
    import torch

    class Pictures(torch.utils.data.Dataset):
        images, labels = (numpy.load(f"{FOLDER}/numpy/{name}.npy", mmap_mode="c") for name in ("image", "label"))

        def __len__(self):
            return len(self.labels)

        def __getitem__(self, i):
            return torch.from_numpy(self.images[i]), int(self.labels[i])
    return _loader(Pictures(), batch, workers)


def gathered(batch):
    import numpy
    import torch
    images, labels = (torch.from_numpy(numpy.load(f"{FOLDER}/numpy/{name}.npy")) for name in ("image", "label"))
    for _ in itertools.count():
        for chosen in torch.randperm(len(labels)).split(batch):
            _, label = images[chosen], labels[chosen]
            yield len(label)


def tfrecord(batch, kind="tfrecord", workers=0):
    import torch
    from tfrecord.torch.dataset import TFRecordDataset
    names = {"image": "byte", "label": "int"} if kind == "tfrecord" else {"values": "float", "label": "int"}
    datasets = [TFRecordDataset(path, None, names) for path in sorted(glob.glob(f"{FOLDER}/{kind}/*"))]
    if workers == 0:
        return _loader(torch.utils.data.ChainDataset(datasets), batch, 0)

    class Mine(torch.utils.data.IterableDataset):  # TFRecordDataset needs an index to be divided: shards are
        def __iter__(self):
            worker = torch.utils.data.get_worker_info()
            for path in sorted(glob.glob(f"{FOLDER}/{kind}/*"))[worker.id::worker.num_workers]:
                from tfrecord.reader import tfrecord_loader
                yield from tfrecord_loader(path, None, names)
    return _loader(Mine(), batch, workers)


def webdataset(batch, workers=0):
    import numpy
    import webdataset as wds
    dataset = wds.WebDataset(sorted(glob.glob(f"{FOLDER}/tar/*")), shardshuffle=False).to_tuple("bin", "cls").map_tuple(
        lambda data: numpy.frombuffer(data, numpy.uint8).reshape(SHAPE), int).batched(batch)
    loader = wds.WebLoader(dataset, batch_size=None, num_workers=workers, persistent_workers=workers > 0)
    for _ in itertools.count():
        for found in loader:
            yield len(found[1])


def litdata(batch, workers=0):
    import litdata as package
    loader = package.StreamingDataLoader(package.StreamingDataset(f"{FOLDER}/litdata", shuffle=False), batch_size=batch, num_workers=workers)
    for _ in itertools.count():
        for found in loader:
            yield len(found["label"])


def mosaicml(batch, workers=0):
    from streaming import StreamingDataset
    return _loader(StreamingDataset(local=f"{FOLDER}/mosaicml", batch_size=batch, shuffle=False), batch, workers)


def s3torch(batch, workers=0):
    """The records of whole objects by s3torchconnector, each decoded with protobuf as the package tfrecord does."""
    import torch
    from s3torchconnector import S3ClientConfig, S3IterableDataset
    from tfrecord import example_pb2
    dataset = S3IterableDataset.from_prefix(os.environ["PACELINE_BENCH_S3"], region="us-east-1", endpoint=os.environ["AWS_ENDPOINT_URL_S3"],
                                            s3client_config=S3ClientConfig(force_path_style=True), enable_sharding=True)

    class Records(torch.utils.data.IterableDataset):
        def __iter__(self):
            for item in dataset:
                data, at = item.read(), 0
                while at < len(data):
                    size, = struct.unpack_from("<Q", data, at)
                    features = example_pb2.Example.FromString(data[at + 12:at + 12 + size]).features.feature
                    yield torch.frombuffer(bytearray(features["image"].bytes_list.value[0]), dtype=torch.uint8).view(SHAPE), features["label"].int64_list.value[0]
                    at += size + 16
    return _loader(Records(), batch, workers)


def _ours_s3(batch, **options):
    return ours(batch, source=os.environ["PACELINE_BENCH_S3"], **options)


PICTURES = {"ours": (ours, {"threads": 1}, "torch"), "ours, 2 threads": (ours, {"threads": 2}, "torch"), "ours, copied": (ours, {"threads": 1, "copy": True}, "torch"),
            "ours, shuffle 2,000": (ours, {"threads": 1, "shuffle": 2000}, "torch"),
            "tf.data": (tf_data, {}, "tensorflow"), "tf.data, shuffle 2,000": (tf_data, {"shuffle": 2000}, "tensorflow"),
            "DataLoader over a memory map": (memory_map, {}, "torch"), "gathered by torch from memory": (gathered, {}, "torch")}
CASES = {  # case: batch size, unit, readers by name: function, options, package
    "uint8, 256": (256, PICTURES),
    "uint8, 64": (64, {name: PICTURES[name] for name in ("ours", "ours, 2 threads", "tf.data")}),
    "others, 256": (256, {"ours": PICTURES["ours"], **{f"{name}{workers and f', {workers} workers' or ''}": (function, {"workers": workers}, package) for name, function, package in (
        ("tfrecord", tfrecord, "tfrecord"), ("litdata", litdata, "litdata"), ("webdataset", webdataset, "webdataset"), ("mosaicml-streaming", mosaicml, "streaming"))
        for workers in (0, 2)}}),
    "floats, 256": (256, {"ours": (ours, {"threads": 1, "kind": "floats"}, "torch"), "ours, 2 threads": (ours, {"threads": 2, "kind": "floats"}, "torch"),
                          "tf.data": (tf_data, {"kind": "floats"}, "tensorflow"), "tfrecord": (tfrecord, {"kind": "floats"}, "tfrecord")}),
    "tar, 256": (256, {"ours": (ours, {"threads": 1, "kind": "tar"}, "torch"), "ours, 2 threads": (ours, {"threads": 2, "kind": "tar"}, "torch"),
                       "webdataset": (webdataset, {}, "webdataset"), "webdataset, 2 workers": (webdataset, {"workers": 2}, "webdataset")}),
    "s3, 256": (256, {"ours": (_ours_s3, {"threads": 1}, "torch"), "s3torchconnector": (s3torch, {}, "s3torchconnector"),
                      "s3torchconnector, 2 workers": (s3torch, {"workers": 2}, "s3torchconnector")}),
}


def cpu_s():
    """CPU seconds of this process, those of its children that ended, and of those that run."""
    total = sum(os.times()[:4])
    for path in glob.glob("/proc/self/task/*/children"):
        for pid in pathlib.Path(path).read_text(encoding="ascii").split():
            with contextlib.suppress(OSError):
                total += sum(map(int, pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[11:13])) / os.sysconf("SC_CLK_TCK")
    return total


def read(case, name, seconds):
    """Runs one reader, and prints its rate and CPU."""
    batch, readers = CASES[case]
    function, options, _ = readers[name]
    with contextlib.suppress(ImportError):
        import torch
        torch.set_num_threads(1)
    sizes = function(batch, **options)
    next(sizes)
    for until in (WARM_S, seconds):
        began, cpu, count = time.perf_counter(), cpu_s(), 0
        while time.perf_counter() - began < until:
            count += next(sizes)
        took, cpu = time.perf_counter() - began, cpu_s() - cpu
    print(json.dumps({"rate": count / took, "cpu_us": cpu / count * 1e6}), flush=True)
    os._exit(0)  # workers and threads of the package end with us


def epochs():
    """What a batch costs in Python's thread, and how long a second epoch's first batch takes."""
    from paceline.data import Dataset
    for shuffle, work_s in ((0, 0), (2000, 0), (2000, 0.002)):
        dataset = Dataset(f"{FOLDER}/tfrecord", {"image": ("uint8", SHAPE), "label": "int64"}, 256, shuffle, epochs=1 << 40, rank=0, size=1, decode_threads=1).torch()
        firsts, cpu, count = [], 0.0, 0
        for _ in range(8):
            began, cpu = time.perf_counter(), cpu - time.thread_time()
            for number, _ in enumerate(dataset):
                if number == 0:
                    firsts.append(time.perf_counter() - began)
                count += 1
                if work_s:
                    time.sleep(work_s)
            cpu += time.thread_time()
        print(json.dumps({"case": "epochs", "shuffle": shuffle, "work_ms": work_s * 1e3, "first_batch_ms": [round(first * 1e3, 2) for first in firsts[:1] + [statistics.median(firsts[1:])]],
                          "python_us_a_batch": round(cpu / count * 1e6, 1)}), flush=True)


def frames(path):
    """The records of a TFRecord file, framed."""
    data, at = pathlib.Path(path).read_bytes(), 0
    while at < len(data):
        end = at + 16 + struct.unpack_from("<Q", data, at)[0]
        yield data[at:end]
        at = end


def write(folder, pictures, data, wanted):
    """The shards of each kind that the cases need."""
    import numpy
    import records
    found = [frame for path in sorted(glob.glob(f"{data}/train*")) for frame in frames(path)]
    found = (found * (pictures // len(found) + 1))[:pictures]
    images, labels = numpy.empty((pictures, *SHAPE), numpy.uint8), numpy.empty(pictures, numpy.int64)
    for i, frame in enumerate(found):
        at = frame.index(b"\x0a\x80\x18", frame.index(b"image")) + 3  # the length of the bytes, which follow
        images[i] = numpy.frombuffer(frame[at:at + PIXELS], numpy.uint8).reshape(SHAPE)
        before = b"label\x12\x05\x1a\x03\x0a\x01"
        labels[i] = frame[frame.rindex(before) + len(before)]
    draw = random.Random(1)
    floats = [records.tfrecord(records.example({"values": [draw.random() for _ in range(FLOATS)], "label": [i % 10]})) for i in range(1000)]
    for kind in ("tfrecord", "floats", "tar", "numpy"):
        (folder / kind).mkdir()
    for shard in range(SHARDS):
        mine = range(shard * pictures // SHARDS, (shard + 1) * pictures // SHARDS)
        (folder / f"tfrecord/{shard:02}").write_bytes(b"".join(found[i] for i in mine))
        (folder / f"floats/{shard:02}").write_bytes(b"".join(floats) * (pictures * 4 // SHARDS // 1000))
        with tarfile.open(folder / f"tar/{shard:02}.tar", "w") as archive:
            for i in mine if any(case.startswith(("tar", "others")) for case in wanted) else ():
                for extension, content in (("bin", images[i].tobytes()), ("cls", str(labels[i]).encode())):
                    member = tarfile.TarInfo(f"{i:06}.{extension}")
                    member.size = len(content)
                    archive.addfile(member, io.BytesIO(content))
    numpy.save(folder / "numpy/image.npy", images)
    numpy.save(folder / "numpy/label.npy", labels)
    if any(case.startswith("others") for case in wanted):
        for script in (f"""
import numpy, streaming
images, labels = (numpy.load("{folder}/numpy/" + name + ".npy", mmap_mode="r") for name in ("image", "label"))
with streaming.MDSWriter(out="{folder}/mosaicml", columns={{"image": "ndarray:uint8:3,32,32", "label": "int"}}) as to:
    for image, label in zip(images, labels):
        to.write({{"image": image, "label": int(label)}})
""", f"""
import numpy, torch, litdata
images, labels = (numpy.load("{folder}/numpy/" + name + ".npy", mmap_mode="r") for name in ("image", "label"))
def one(i):
    return {{"image": torch.from_numpy(images[i].copy()), "label": int(labels[i])}}
if __name__ == "__main__":
    litdata.optimize(one, list(range(len(labels))), "{folder}/litdata", chunk_bytes="8MB", num_workers=1)
"""):
            path = folder / "prepare.py"
            path.write_text(script)
            if subprocess.run([sys.executable, path], stdin=subprocess.DEVNULL, stdout=sys.stderr, check=False).returncode:
                print(f"# left out: {'mosaicml-streaming' if 'MDSWriter' in script else 'litdata'} could not write its shards", file=sys.stderr)


def has(package, missing):
    """Whether `package` is there; says once that it is not."""
    if package not in missing:
        missing[package] = subprocess.run([sys.executable, "-c", f"import {package}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode != 0
        if missing[package]:
            print(f"# left out: {package} is not installed", file=sys.stderr)
    return not missing[package]


def run(environment, *words):
    with tempfile.TemporaryFile("w+") as out:  # not a pipe, which workers of a package that outlive their reader would keep open
        with subprocess.Popen([sys.executable, __file__, *map(str, words)], env=environment, stdin=subprocess.DEVNULL, stdout=out, start_new_session=True) as reader:
            try:
                code = reader.wait(300)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(reader.pid, signal.SIGKILL)
        out.seek(0)
        lines = [line for line in out.read().splitlines() if line.startswith("{")]
    if code or not lines:
        print(f"# {words}: exit {code}", file=sys.stderr)
        return None
    return lines


def take_turns(case, environment, words, missing):
    names = [name for name, (_, _, package) in CASES[case][1].items() if (not words.readers or name.split(",")[0] in words.readers) and has(package, missing)]
    found = {name: [] for name in names}
    for _ in range(words.rounds):
        for name in names:
            lines = run(environment, "--read", case, name, words.seconds) if found[name] is not None else None
            found[name] = found[name] + [json.loads(lines[-1])] if lines else None
    first = found[names[0]]
    for name in names:
        if found[name]:
            print(json.dumps({"case": case, "reader": name, "samples_per_s": round(statistics.median(one["rate"] for one in found[name])),
                              "cpu_us": round(statistics.median(one["cpu_us"] for one in found[name]), 2),
                              "of_first": round(statistics.median(one["rate"] / mine["rate"] for one, mine in zip(found[name], first)), 4)}), flush=True)


@contextlib.contextmanager
def s3_server(folder, environment):
    """The shards in S3; sets the variables that clients need. False if no server can be started."""
    program, directory = SOURCE / "tests/fakes/s3_server.sh", folder / "server"
    with tempfile.TemporaryFile("w+") as out:  # not a pipe, which the server would keep open
        code = subprocess.run([program, "start", directory], stdin=subprocess.DEVNULL, stdout=out, check=False).returncode
        out.seek(0)
        text = out.read()
    if code:
        print(f"# left out: s3: {text.strip()}", file=sys.stderr)
        yield False
        return
    try:
        for line in text.splitlines():
            name, _, value = line.removeprefix("export ").partition("=")
            os.environ[name] = environment[name] = value
        environment.update(NO_PROXY="*", no_proxy="*", PACELINE_BENCH_S3="s3://bench/tfrecord/")
        import s3_request
        for path in ["/bench", *sorted((folder / "tfrecord").iterdir())]:
            status, answer = s3_request.request("PUT", path, b"") if isinstance(path, str) else s3_request.request("PUT", f"/bench/tfrecord/{path.name}", path.read_bytes())
            assert status == 200, (path, status, answer)
        yield True
    finally:
        subprocess.run([program, "stop", directory], stdin=subprocess.DEVNULL, check=False)


def main():
    if sys.argv[1:2] == ["--read"]:
        return read(sys.argv[2], sys.argv[3], float(sys.argv[4]))
    if sys.argv[1:2] == ["--epochs"]:
        return epochs()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--build", default="build")
    parser.add_argument("--cases", default="uint8,others,floats,tar,s3,epochs")
    parser.add_argument("--readers", default="")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1)
    parser.add_argument("--pictures", type=int, default=50000)
    parser.add_argument("--folder", help="keeps the shards here; if they are there, they are read")
    words = parser.parse_args()
    build, wanted = pathlib.Path(words.build).resolve(), words.cases.split(",")
    words.readers = [name.strip() for name in words.readers.split(",") if name]
    cases = [case for case in CASES if case.split(",")[0] in wanted]
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(words.folder or stack.enter_context(tempfile.TemporaryDirectory(prefix="paceline-readers-")))
        folder.mkdir(exist_ok=True)
        if not (folder / "tfrecord").exists():
            write(folder, words.pictures, words.data, cases)
        environment = dict(os.environ, PACELINE_BENCH_FOLDER=str(folder), PYTHONPATH=str(SOURCE / "python"), PACELINE_DATA_LIBRARY=f"{build}/runtime/libpaceline-data.so",
                           OMP_NUM_THREADS="1", TF_CPP_MIN_LOG_LEVEL="3")
        missing = {}
        for case in cases:
            with s3_server(folder, environment) if case.startswith("s3") else contextlib.nullcontext(True) as ready:
                if ready:
                    take_turns(case, environment, words, missing)
        if "epochs" in wanted:
            for line in run(environment, "--epochs") or []:
                print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
