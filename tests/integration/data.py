#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""paceline.data: batches are what Python wrote into TFRecord, RecordIO, CSV, text and tar files, each record once an epoch over ranks and a DataLoader's workers;
errors name object, record and byte; what fork, pickle, Control-C and kept arrays do. Needs numpy; without torch its part is left out with a message.

Each case is a function, which runs in a Python of its own: data.py CASE.
"""
import contextlib
import csv
import gzip
import io
import json
import os
import pathlib
import pickle
import random
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
import time

SOURCE, BUILD = os.environ["PACELINE_SOURCE"], os.environ["PACELINE_BUILD"]
sys.path.insert(0, f"{SOURCE}/tests/support")
import records  # noqa: E402
from python_with import python_with  # noqa: E402

SKIP, LIMIT_S, COUNT = 77, 300, 1000
FOLDER = pathlib.Path(os.environ.get("PACELINE_DATA_FOLDER", ""))


def sample(i):
    return {"id": [i], "image": bytes((i + k) % 256 for k in range(12)), "weight": [i / 4, -i / 8], "text": f"record {i}".encode() * (i % 3), "list": [i] * (i % 4)}


def write(folder):
    """1,000 records in seven files of different lengths, and the same as RecordIO, CSV and lines."""
    cuts = [0, 1, 130, 131, 400, 650, 651, COUNT]
    for kind in ("tfrecord", "recordio", "csv", "lines"):
        (folder / kind).mkdir()
    for number, (begin, end) in enumerate(zip(cuts, cuts[1:])):
        mine = range(begin, end)
        (folder / f"tfrecord/part-{number}").write_bytes(b"".join(records.tfrecord(records.example(sample(i))) for i in mine))
        (folder / f"recordio/part-{number}").write_bytes(b"".join(records.recordio(records.protobuf([i, i / 2, -i], i % 10)) for i in mine))
        (folder / f"csv/part-{number}").write_text("".join(f"{i},{i / 4},{-i},\"a, {i}\"\n" for i in mine))
        (folder / f"lines/part-{number}").write_text("".join(f"line {i}\n" for i in mine))


FIELDS = {"id": "int64", "image": ("uint8", (3, 2, 2)), "weight": ("float32", (2,)), "text": bytes, "list": ("int64", None)}


def expect_error(kind, words, call):
    try:
        call()
    except kind as error:
        assert all(word in str(error) for word in words), f"'{error}' has not all of {words}"
        return error
    raise AssertionError(f"no error with {words}")


def formats():
    import numpy
    from paceline.data import Dataset, Field
    at, sizes = 0, []
    for batch in Dataset(FOLDER / "tfrecord", FIELDS, batch=64):
        sizes.append(len(batch["id"]))
        for row in range(len(batch["id"])):
            wanted = sample(at)
            assert batch["id"][row] == at and batch["image"][row].tobytes() == wanted["image"] and batch["image"].shape[1:] == (3, 2, 2), at
            assert list(batch["weight"][row]) == wanted["weight"] and batch["weight"].dtype == numpy.float32, at
            assert batch["text"].sample(row).tobytes() == wanted["text"] and list(batch["list"].sample(row)) == wanted["list"], at
            at += 1
    assert at == COUNT and sizes == [64] * 15 + [40], sizes
    assert [len(batch["id"]) for batch in Dataset(FOLDER / "tfrecord", {"id": "int64"}, batch=64, drop_last=True)] == [64] * 15
    rows = numpy.concatenate([batch["values"] for batch in Dataset(FOLDER / "recordio", {"values": ("float32", (3,)), "label": "float32"}, 100, format="recordio")])
    assert (rows == numpy.array([[i, i / 2, -i] for i in range(COUNT)], numpy.float32)).all()
    fields = {"id": Field("int32", name=0), "pair": Field("float64", (2,), name=1), "text": Field("uint8", None, name=3)}
    columns = list(Dataset(FOLDER / "csv", fields, 300, format="csv"))
    assert (numpy.concatenate([batch["id"] for batch in columns]) == numpy.arange(COUNT)).all()
    assert (numpy.concatenate([batch["pair"] for batch in columns]) == numpy.array([[i / 4, -i] for i in range(COUNT)])).all()
    assert columns[1]["text"].sample(5).tobytes().strip(b'"') == b"a, 305", columns[1]["text"].sample(5).tobytes()
    (FOLDER / "other").write_text("1;2\n\n3;4\n")
    assert [list(batch["b"]) for batch in Dataset(FOLDER / "other", {"b": Field("int64", name=1)}, 9, format="csv", delimiter=";")] == [[2, 4]]
    (lines,) = Dataset(FOLDER / "other", {"line": bytes}, 9, format="lines", keep_empty_lines=True)
    assert [lines["line"].sample(i).tobytes() for i in range(3)] == [b"1;2", b"", b"3;4"]
    text = [batch["line"].sample(i).tobytes() for batch in Dataset(FOLDER / "lines", {"line": bytes}, 99, format="lines") for i in range(len(batch["line"].offsets) - 1)]
    assert text == [f"line {i}".encode() for i in range(COUNT)]
    (FOLDER / "semicolons").write_text("1,5;2\n\n3;4\n")
    pairs = list(Dataset(FOLDER / "semicolons", {"text": Field("uint8", None, name=0), "last": Field("int64", (), -1, 1)}, 9, format="csv", delimiter=";"))
    assert pairs[0]["text"].sample(0).tobytes() == b"1,5" and list(pairs[0]["last"]) == [2, 4], pairs
    for keep, lines in (False, 2), (True, 3):
        found = list(Dataset(FOLDER / "semicolons", {"line": bytes}, 9, format="lines", keep_empty_lines=keep))
        assert len(found[0]["line"].offsets) - 1 == lines, (keep, found)
    absent = {"id": "int64", "absent": Field("float32", (2,), default=0.5)}
    assert all((batch["absent"] == 0.5).all() for batch in Dataset(FOLDER / "tfrecord", absent, 256))


def make_archive(path, draw):
    """An archive by tarfile: samples of one to four files, and what belongs to none, in one of the three formats."""
    style = draw.choice([tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
    short = style == tarfile.USTAR_FORMAT
    comment = {"comment": "of no use"} if style == tarfile.PAX_FORMAT and draw.random() < 0.5 else {}
    with tarfile.open(path, "w", format=style, pax_headers=comment) as archive:
        def add(name, data, kind=tarfile.REGTYPE):
            info = tarfile.TarInfo(name)
            info.size, info.type, info.mtime = len(data), kind, draw.choice([0, 1700000000] if short else [0, 1700000000.5, 2**36])
            archive.addfile(info, io.BytesIO(data))
        for number in range(draw.randrange(len(comment), 12)):
            folder = draw.choice(["", "", "./", "train/", "v1.2/", "folder/" * draw.randrange(1, 30), "f\u00f6lder/"])
            name = folder + draw.choice([f"{number % 3}", f"{number:06}", "n" * draw.choice([20, 80, 90] if short else [99, 100, 101, 512, 600])])
            for extension in draw.sample(["txt", "cls", "seg.png", "bin", "json"], draw.randrange(1, 5)):
                data = draw.randbytes(8 if extension == "bin" else draw.choice([0, 5, 511, 512, 513, 9000]))
                if extension == "cls":
                    data = str(draw.randrange(-9, 99)).encode() + draw.choice([b"", b"\n"])
                if draw.random() < 0.2:
                    add(*draw.choice([("some/", b"", tarfile.DIRTYPE), (folder + "README", b"no sample"), (folder + ".hidden.txt", b"no sample")]))
                with contextlib.suppress(ValueError):  # a name too long for ustar
                    for _ in range(1 + (draw.random() < 0.01)):
                        add(f"{name}.{extension}", data)


def samples_of(path):
    """What tarfile finds in an archive, grouped as WebDataset does; None if a name comes twice in a sample."""
    found = []
    with tarfile.open(path) as archive:
        for member in archive:
            folder, slash, base = member.name.rpartition("/")
            stem, dot, extension = base.partition(".")
            if member.isfile() and stem and dot:
                key = folder + slash + stem
                if not found or found[-1]["__key__"] != key.encode():
                    found.append({"__key__": key.encode()})
                if extension in found[-1]:
                    return None
                found[-1][extension] = archive.extractfile(member).read()
    return found


def tar():
    from paceline.data import DataValueError, Dataset, Field
    absent, folder, draw = b"<none>", FOLDER / "tar", random.Random(7)
    fields = {"key": Field("uint8", None, name="__key__"), "txt": Field("uint8", None, absent), "seg.png": Field("uint8", None, absent),
              "cls": Field("int64", (), -100), "bin": Field("float32", (2,), 0.0)}

    def expected(sample):
        return (sample["__key__"], sample.get("txt", absent), sample.get("seg.png", absent), int(sample.get("cls", -100)), sample.get("bin", bytes(8)))

    def read(path, **options):
        return [(batch["key"].sample(row).tobytes(), batch["txt"].sample(row).tobytes(), batch["seg.png"].sample(row).tobytes(), int(batch["cls"][row]),
                 batch["bin"][row].tobytes()) for batch in Dataset(path, fields, 7, format="tar", **options) for row in range(len(batch["cls"]))]
    folder.mkdir()
    wanted, repeated = [], 0
    for number in range(200):
        path = folder / f"{number:03}.tar"
        make_archive(path, draw)
        found = samples_of(path)
        if found is None:
            expect_error(DataValueError, [path.name, "two members"], lambda: read(path))
            path.unlink()
            repeated += 1
            continue
        wanted += map(expected, found)
        for threads in (1, 4):
            assert read(path, decode_threads=threads) == list(map(expected, found)), f"{path.name}, {threads} threads: the samples differ"
    assert len(wanted) > 500 and 0 < repeated < 100, (len(wanted), repeated)
    assert read(folder, decode_threads=4) == wanted
    shares = [read(folder, shuffle=50, shuffle_objects=True, rank=rank, size=2) for rank in range(2)]
    assert sorted(sum(shares, [])) == sorted(wanted) and abs(len(shares[0]) - len(shares[1])) <= 1
    os.mkfifo(FOLDER / "tar_0")
    os.environ.update(SM_CHANNEL_TAR=str(FOLDER / "tar"), SM_INPUT_DATA_CONFIG=json.dumps({"tar": {"TrainingInputMode": "Pipe"}}))
    archives = gzip.compress(b"".join(path.read_bytes() for path in sorted(folder.iterdir())))
    writer = threading.Thread(target=(FOLDER / "tar_0").write_bytes, args=(archives,))
    writer.start()
    assert read("tar", compression="gzip") == wanted  # one archive after the other
    writer.join()
    path = next(path for path in sorted(folder.iterdir()) if len(samples_of(path)) > 1)
    data = path.read_bytes()
    path.write_bytes(data[:-(-len(data.rstrip(b"\0")) // 512) * 512 - 1])  # a byte of the last block is missing
    expect_error(DataValueError, [path.name, "record ", "at byte ", "the input ends inside"], lambda: read(path))
    with tarfile.open(path, "w") as archive:
        link = tarfile.TarInfo("a.txt")
        link.type, link.linkname = tarfile.SYMTYPE, "b.txt"
        archive.addfile(link)
    expect_error(DataValueError, [path.name, "record 0", "'a.txt' at byte 0 is a symbolic link"], lambda: read(path))
    path.write_bytes(b"no archive" * 100)
    expect_error(DataValueError, [path.name, "record 0", "byte 0", "not a tar archive"], lambda: read(path))
    path = next(path for path in sorted(folder.iterdir()) if path.read_bytes()[:2] != b"no" and samples_of(path))
    expect_error(DataValueError, [path.name, "record 0 at byte ", "field 'none' is missing"], lambda: list(Dataset(path, {"none": bytes}, 7, format="tar")))


def records_of(kind, path):
    """What a reader of the test's own, or Python's, finds in a file: the records' bytes; None if it is damaged, or of several parts."""
    data, at, found = path.read_bytes(), 0, []
    if kind == "csv":
        lines = io.StringIO(data.decode("latin-1"), newline="\n").readlines()
        rows, begin = csv.reader(lines, strict=True), 0
        with contextlib.suppress(csv.Error):
            for _ in rows:
                found.append("".join(lines[begin:rows.line_num]).removesuffix("\n").removesuffix("\r").encode("latin-1"))
                begin = rows.line_num
            return [record for record in found if record]
        return None
    while at < len(data):
        length = int.from_bytes(data[at:at + 8], "little") if kind == "tfrecord" else int.from_bytes(data[at + 4:at + 8], "little")
        record = data[at + 12:at + 12 + length] if kind == "tfrecord" else data[at + 8:at + 8 + length]
        frame = getattr(records, kind)(record)
        if len(record) != length or data[at:at + len(frame) - 3] != frame[:-3] or at + len(frame) > len(data):  # RecordIO's padding may be anything
            return None
        found.append(record)
        at += len(frame)
    return found


def mutated():
    """Files with bytes that are flipped, missing or added: an error, or what another reader finds; the same with one thread and four."""
    from paceline.data import DataError, Dataset, Field
    draw, outcomes, path = random.Random(11), {}, FOLDER / "mutated"
    whole = {"record": bytes}
    tar_fields = {"key": Field("uint8", None, name="__key__"), "txt": Field("uint8", None, b"<none>"), "cls": Field("int64", (), -1), "bin": Field("float32", (2,), 0.0)}
    csv_fields = {"id": Field("int32", name=0), "pair": Field("float64", (2,), name=1), "text": Field("uint8", None, name=3)}
    readings = {"tfrecord": [(whole, "record"), (FIELDS, "example")], "csv": [(whole, "record"), (csv_fields, "csv")], "tar": [(tar_fields, "tar")],
                "recordio": [(whole, "record"), ({"values": ("float32", (3,)), "label": "float32"}, "protobuf")]}

    def read(kind, fields, decode, threads):
        """The samples of the whole batches, and the error or None."""
        found = []
        try:
            for batch in Dataset(path, fields, 3, rank=0, size=1, format=kind, decode=decode, decode_threads=threads):
                columns = [[value.sample(i).tobytes() for i in range(len(value.offsets) - 1)] if hasattr(value, "offsets") else [row.tobytes() for row in value]
                           for value in batch.values()]
                found += zip(*columns)
        except DataError as error:
            return found, str(error)
        return found, None
    for number in range(int(os.environ["PACELINE_DATA_FILES"])):
        kind = list(readings)[number % 4]
        if kind == "tar":
            make_archive(path, draw)
            data = bytearray(path.read_bytes().rstrip(b"\0") + bytes(1024))
            data += bytes(-len(data) % 512)
        else:
            begin = draw.randrange(COUNT - 40)
            mine = range(begin, begin + draw.randrange(1, 40))
            data = bytearray(b"".join({"tfrecord": lambda i: records.tfrecord(records.example(sample(i))), "csv": lambda i: f'{i},{i / 4},{-i},"a, {i}"\n'.encode(),
                                       "recordio": lambda i: records.recordio(records.protobuf([i, i / 2, -i], i % 10))}[kind](i) for i in mine))
        for _ in range(draw.choice([1, 1, 1, 5])):
            at, kinds = draw.randrange(len(data) + 1), ("flip", "flip", "cut", "remove", "add")
            if (what := draw.choice(kinds)) == "flip" and at < len(data):
                data[at] ^= 1 << draw.randrange(8)
            elif what == "cut":
                del data[at:]
            elif what == "remove":
                del data[at:at + draw.randrange(1, 30)]
            else:
                data[at:at] = draw.choice([draw.randbytes(draw.randrange(1, 30)), bytes(draw.choice([4, 512])), data[:draw.randrange(len(data) + 1)]])
        path.write_bytes(data)
        for fields, decode in readings[kind]:
            one, four = read(kind, fields, decode, 1), read(kind, fields, decode, 4)
            assert one == four, f"file {number}, {kind} as {decode}: four threads differ from one: {four}, not {one}"
            if decode in ("record", "tar") and one[1] is None:
                if kind == "tar":
                    with contextlib.suppress(tarfile.TarError, ValueError):
                        wanted = [(sample["__key__"], sample.get("txt", b"<none>")) for sample in samples_of(path)]
                        assert [row[:2] for row in one[0]] == wanted, f"file {number}: the samples differ from tarfile's"
                elif (wanted := records_of(kind, path)) is not None:
                    assert [row[0] for row in one[0]] == wanted, f"file {number}, {kind}: the records differ"
                else:
                    assert kind != "tfrecord", f"file {number}: no error, and another reader finds one"
            outcomes[one[1] is None] = outcomes.get(one[1] is None, 0) + 1
    assert min(outcomes[True], outcomes[False]) > 10, outcomes  # both happen


def ids(batches):
    return [int(i) for batch in batches for i in batch["id"]]


def order():
    """Epochs follow each other by themselves; the order depends on the seed and the epoch, and not on threads."""
    from paceline.data import Dataset

    def dataset(**options):
        return Dataset(FOLDER / "tfrecord", {"id": "int64"}, batch=32, shuffle=300, **options)
    first = dataset(seed=3)
    epochs = [ids(first) for _ in range(3)]
    assert all(sorted(epoch) == list(range(COUNT)) for epoch in epochs) and len({tuple(epoch) for epoch in epochs}) == 3
    first.set_epoch(1)
    assert ids(first) == epochs[1]
    for options in ({"decode_threads": 1}, {"decode_threads": 3}, {"epochs": 3}):
        again = dataset(seed=3, **options)
        assert [ids(again) for _ in range(3)] == epochs, f"{options}: the order differs"
    assert ids(dataset(seed=4)) != epochs[0]
    shares = [ids(dataset(seed=3, rank=rank, size=3)) for rank in range(3)]
    assert sorted(sum(shares, [])) == list(range(COUNT)) and max(map(len, shares)) - min(map(len, shares)) <= 1
    shares = [ids(dataset(split="objects", rank=rank, size=3)) for rank in range(3)]
    assert sorted(sum(shares, [])) == list(range(COUNT))


def mapping():
    from paceline.data import Dataset
    threads = set()

    def double(batch):
        threads.add(threading.get_ident())
        time.sleep(0.001 * (batch["id"][0] % 7))  # the order must not be that of the ends
        return {"id": 2 * batch["id"]}
    doubled = Dataset(FOLDER / "tfrecord", {"id": "int64"}, batch=10).map(double, threads=3)
    assert ids(doubled) == list(range(0, 2 * COUNT, 2)) and threading.get_ident() not in threads and len(threads) <= 3
    assert ids(Dataset(FOLDER / "tfrecord", {"id": "int64"}, batch=5).map(lambda batch: time.sleep(0.01) or {"id": batch["id"].copy()}, threads=70)) == list(range(COUNT))
    broken = Dataset(FOLDER / "tfrecord", {"id": "int64"}, batch=10).map(lambda batch: 1 // 0, threads=2)
    expect_error(ZeroDivisionError, [], lambda: list(broken))


def keeping():
    """Arrays live as long as the program has them, also when the dataset is closed."""
    from paceline.data import DataError, Dataset
    dataset = Dataset(FOLDER / "tfrecord", FIELDS, batch=50, max_batches=30)
    kept = list(dataset)
    dataset.close()
    assert ids(kept) == list(range(COUNT)) and kept[3]["text"].sample(1).tobytes() == sample(151)["text"]
    images = kept[7]["image"][3:5]
    del kept
    assert images[1].tobytes() == sample(354)["image"]
    few = Dataset(FOLDER / "tfrecord", {"id": "int64"}, batch=10, max_batches=8)
    expect_error(DataError, ["8"], lambda: list(few))
    assert dataset.progress().samples == 0 and len(ids(dataset)) == COUNT and dataset.progress().samples == COUNT


def interrupted():
    """No batch is lost if a signal's handler raises right after the library's call; close() ends the wait of another thread."""
    from paceline import data
    original, calls, got = data._Reader.next, [], []

    def interrupted_next(reader, lease):
        found = original(reader, lease)
        calls.append(found)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return found
    data._Reader.next = interrupted_next
    first, again = (data.Dataset(FOLDER / "tfrecord", {"id": "int64"}, batch=32, shuffle=300) for _ in range(2))
    try:
        for batch in first:
            got += ids([batch])
    except KeyboardInterrupt:
        again.load_state_dict(first.state_dict())
    data._Reader.next = original
    assert len(got) == 96 and sorted(got + ids(again)) == list(range(COUNT)), len(got)
    os.mkfifo(FOLDER / "slow_0")
    writer = os.open(FOLDER / "slow_0", os.O_RDWR)
    os.environ.update(SM_CHANNEL_SLOW=str(FOLDER / "slow"), SM_INPUT_DATA_CONFIG=json.dumps({"slow": {"TrainingInputMode": "Pipe"}}))
    dataset, ends = data.Dataset("slow", {"id": "int64"}, 4), []
    thread = threading.Thread(target=lambda: ends.append(expect_error(data.DataError, ["this iteration has ended: close()"], lambda: list(dataset))))
    thread.start()
    while not dataset._turn:
        time.sleep(0.01)
    dataset.close()
    thread.join(LIMIT_S / 2)
    os.close(writer)
    assert ends and not thread.is_alive()


def processes():
    """fork, pickle, threads and libraries."""
    before = len(os.listdir("/proc/self/task"))
    from paceline.data import DataError, Dataset
    dataset = Dataset(FOLDER / "tfrecord", {"id": "int64"}, batch=10, rank=0, size=1)
    copy = pickle.loads(pickle.dumps(dataset))
    loaded = {line.split("/")[-1].strip() for line in open("/proc/self/maps") if ".so" in line}
    assert not [name for name in loaded if "libmpi" in name or "libpaceline" in name], loaded
    assert len(os.listdir("/proc/self/task")) == before + 0 or "OPENBLAS_NUM_THREADS" not in os.environ
    under_way = iter(dataset)
    first = [int(next(under_way)["id"][0]) for _ in range(3)]
    loaded = {line.split("/")[-1].strip() for line in open("/proc/self/maps") if ".so" in line}
    assert not [name for name in loaded if "libmpi" in name or name.startswith("libpaceline.so")], loaded
    expect_error(DataError, ["middle of an epoch"], lambda: pickle.dumps(dataset))
    child = os.fork()
    if child == 0:
        try:
            expect_error(DataError, ["parent process"], lambda: next(under_way))
            dataset.set_epoch(0)
            os._exit(0 if ids(dataset) == list(range(COUNT)) else 3)
        finally:
            os._exit(4)
    assert os.waitpid(child, 0)[1] == 0, "the child of fork()"
    assert ids(under_way) == list(range(30, COUNT)) and first == [0, 10, 20]
    assert ids(pickle.loads(pickle.dumps(dataset))) == ids(copy) == list(range(COUNT))


ENDING = """import atexit, sys
from paceline.data import DataError, Dataset
class Loader:
    def __init__(self): self.dataset = Dataset(sys.argv[1], {"id": "int64"}, batch=10)
    def __del__(self): self.dataset.close()
def late():
    try:
        print(loader.dataset.progress().samples, loader.dataset.state_dict())
    except DataError as error:
        print("the end of the program" in str(error))
atexit.register(late)
loader = Loader()
for batch in loader.dataset: break"""


def ending():
    """A dataset that is used when its program ends: an error, not a crash."""
    done = subprocess.run([sys.executable, "-c", ENDING, FOLDER / "tfrecord"], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stdout == "True\n", f"{done.returncode}: {done.stdout}{done.stderr}"


def errors():
    from paceline.data import DataError, DataTimeoutError, DataValueError, Dataset, Field
    bad = FOLDER / "bad"
    bad.mkdir()
    data = b"".join(records.tfrecord(records.example(sample(i))) for i in range(20))
    offset = len(b"".join(records.tfrecord(records.example(sample(i))) for i in range(5)))
    (bad / "flipped").write_bytes(data[:offset + 20] + bytes([data[offset + 20] ^ 1]) + data[offset + 21:])
    got = []

    def read(path, fields, **options):
        dataset = Dataset(path, fields, options.pop("batch", 2), **options)
        got[:] = []
        for batch in dataset:
            got.extend(batch["id"] if "id" in batch else [])
        return dataset
    expect_error(DataValueError, ["flipped", "record 5", str(offset)], lambda: read(bad, {"id": "int64"}))
    assert got == [0, 1, 2, 3], got
    dataset = read(bad, {"id": "int64"}, skip_corrupt=True)
    assert got == [i for i in range(20) if i != 5] and dataset.progress().skipped == 1, (got, dataset.progress().skipped)
    (bad / "flipped").write_bytes(data[:-7])
    expect_error(DataValueError, ["flipped"], lambda: read(bad, {"id": "int64"}))
    expect_error(DataValueError, ["absent", "part-0", "record 0"], lambda: read(FOLDER / "tfrecord", {"absent": "int64"}))
    expect_error(DataValueError, ["image", "12"], lambda: read(FOLDER / "tfrecord", {"image": ("uint8", (3, 5))}))
    expect_error(DataValueError, ["weight"], lambda: read(FOLDER / "tfrecord", {"weight": ("int64", (2,))}))
    expect_error(DataValueError, ["nowhere"], lambda: read(FOLDER / "nowhere", {"id": "int64"}))
    (bad / "flipped").unlink()
    expect_error(DataValueError, ["bad"], lambda: read(bad, {"id": "int64"}))
    expect_error(DataValueError, ["tfrecord, recordio"], lambda: read(bad, {"id": "int64"}, format="parquet"))
    expect_error(DataValueError, ["field 'id'", "int65"], lambda: read(bad, {"id": "int65"}))
    expect_error(DataValueError, ["rank 2 of size 2"], lambda: read(bad, {"id": "int64"}, rank=2, size=2))
    expect_error(DataValueError, ["batch 0"], lambda: read(bad, {"id": "int64"}, batch=0))
    os.mkfifo(FOLDER / "pipe_0")
    os.environ.update(SM_CHANNEL_PIPE=str(FOLDER / "pipe"), SM_INPUT_DATA_CONFIG=json.dumps({"pipe": {"TrainingInputMode": "Pipe"}}))
    expect_error(DataTimeoutError, ["pipe"], lambda: read("pipe", {"id": "int64"}, timeout=0.5))
    expect_error(DataValueError, ["field 'id'", "300", "uint8"], lambda: read(bad, {"id": Field("uint8", (), 300)}))
    texts = next(iter(Dataset(FOLDER / "tfrecord", {"text": bytes}, 12)))["text"]
    assert texts.sample(-1).tobytes() == texts.sample(11).tobytes() == sample(11)["text"]
    expect_error(IndexError, [], lambda: texts.sample(12))
    dataset = Dataset(FOLDER / "tfrecord", {"id": "int64"}, batch=16)
    batches = iter(dataset)
    next(batches)
    dataset.close()
    expect_error(DataError, ["this iteration has ended: close()"], lambda: next(batches))
    (bad / "array.idx").write_bytes(bytes([0, 0, 8, 2, 0, 0, 0, 2, 0, 0, 0, 4]) + bytes(range(8)))
    assert next(iter(Dataset(bad / "array.idx", {"x": ("uint8", (4,))}, 2, format="idx")))["x"].tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    for kind in ("float32", ("int16", (2,))):
        expect_error(DataValueError, ["field 'x'", "IDX", "uint8"], lambda: read(bad / "array.idx", {"x": kind}, format="idx"))
    for field in (Field("uint8", (), "7"), Field("int64", (), b"12345678")):
        expect_error(DataValueError, ["field 'x'", "text"], lambda: Dataset(bad, {"x": field}, 1))
    code = "from paceline.data import Dataset; next(iter(Dataset('x', {'id': 'int64'}, batch=1)))"
    lost = subprocess.run([sys.executable, "-c", code], env={**os.environ, "PACELINE_DATA_LIBRARY": "/nowhere.so"}, capture_output=True, text=True)
    assert lost.returncode == 1 and lost.stderr.splitlines()[-1].startswith("OSError: /nowhere.so"), lost.stderr


@contextlib.contextmanager
def fake_s3(*words):
    """A server with the files of a folder as s3://bkt, and the variables that name it."""
    server = subprocess.Popen([sys.executable, f"{SOURCE}/tests/fakes/fake_s3.py", *map(str, words)], stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        port = server.stdout.readline().split()[1]
        os.environ.update(AWS_ENDPOINT_URL_S3=f"http://127.0.0.1:{port}", AWS_REGION="us-east-1", AWS_ACCESS_KEY_ID="AKIDTEST", AWS_SECRET_ACCESS_KEY="secret", NO_PROXY="*")
        yield
    finally:
        server.kill()
        server.wait()


def until_interrupted(source):
    from paceline.data import Dataset
    try:
        print("waits", flush=True)
        list(Dataset(source, {"id": "int64"}, 4))
    except KeyboardInterrupt:
        print("interrupted", flush=True)


def waits():
    """Waits for a FIFO without a writer, until Control-C."""
    os.mkfifo(FOLDER / "silent_0")
    os.environ.update(SM_CHANNEL_SILENT=str(FOLDER / "silent"), SM_INPUT_DATA_CONFIG=json.dumps({"silent": {"TrainingInputMode": "Pipe"}}))
    until_interrupted("silent")


def waits_s3():
    """Waits for the list of a server that does not answer, until Control-C."""
    with fake_s3("--latency", LIMIT_S * 1000, FOLDER / "tfrecord"):
        until_interrupted("s3://bkt/")


def channel():
    """A channel by its name, and ranks by the variables of a launcher."""
    from paceline.data import Dataset
    os.environ.update(SM_CHANNEL_TRAINING=str(FOLDER / "tfrecord"), SM_INPUT_DATA_CONFIG=json.dumps({"training": {"TrainingInputMode": "File"}}))
    shares = []
    for rank in range(2):
        os.environ.update(RANK=str(rank), WORLD_SIZE="2", LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE="2")
        shares.append(ids(Dataset("training", {"id": "int64"}, batch=64)))
    assert shares == [list(range(0, COUNT, 2)), list(range(1, COUNT, 2))]


def torch():
    """Each record once in each of two epochs, over two ranks and the workers of a DataLoader."""
    import torch
    from paceline.data import Dataset, Field
    for start, workers, ranks in (("fork", 0, 2), ("fork", 1, 2), ("fork", 4, 2), ("spawn", 1, 1)):
        datasets = [Dataset(FOLDER / "tfrecord", FIELDS, batch=16, shuffle=100, rank=rank, size=ranks).torch() for rank in range(ranks)]
        loaders = [torch.utils.data.DataLoader(dataset, batch_size=None, num_workers=workers, multiprocessing_context=start if workers else None)
                   for dataset in datasets]
        for epoch in range(ranks):
            seen = []
            for dataset, loader in zip(datasets, loaders):
                dataset.set_epoch(epoch)
                for batch in loader:
                    assert batch["id"].dtype is torch.int64 and batch["image"].shape[1:] == (3, 2, 2) and batch["image"].dtype is torch.uint8
                    for row, i in enumerate(batch["id"].tolist()):
                        assert bytes(batch["image"][row].flatten().tolist()) == sample(i)["image"], i
                        assert batch["list"].sample(row).tolist() == sample(i)["list"], i
                    seen += batch["id"].tolist()
            assert sorted(seen) == list(range(COUNT)), f"{start}, {workers} workers, epoch {epoch}: records came {len(seen)} times"
    datasets[0].load_state_dict({"version": 1, "epoch": 0, "place": None})
    for batch in datasets[0]:
        place = datasets[0].state_dict()
        break
    datasets[0].load_state_dict(place)
    loader = torch.utils.data.DataLoader(datasets[0], batch_size=None, num_workers=1)
    assert len(ids(loader)) == COUNT - 16
    expect_error(RuntimeError, ["call set_epoch()"], lambda: ids(loader))
    datasets[0].set_epoch(1)
    assert len(ids(loader)) == COUNT
    rounded = torch.tensor([0.1, -0.3, 3e38, float("inf"), float("nan")], dtype=torch.bfloat16)
    half = next(iter(Dataset(FOLDER / "tfrecord", {"weight": Field("bfloat16", (5,), default=[0.1, -0.3, 3e38, float("inf"), float("nan")], name="absent")}, 8).torch()))
    assert torch.equal(half["weight"].nan_to_num(7), rounded.nan_to_num(7).expand(8, 5)), half
    half = Dataset(FOLDER / "tfrecord", {"weight": Field("bfloat16", (2,), default=1.5, name="absent")}, 8).torch()
    assert all(batch["weight"].dtype is torch.bfloat16 and (batch["weight"] == 1.5).all() for batch in half)
    assert ids(Dataset(FOLDER / "tfrecord", {"id": "int64"}, 8).map(lambda batch: {"id": batch["id"] + 1}).torch()) == list(range(1, COUNT + 1))


def example():
    """examples/python/data_torch.py learns which of ten pictures a noisy one is; by itself and with two workers."""
    draw = random.Random(1)
    pictures = [bytes(draw.randrange(256) for _ in range(192)) for _ in range(10)]
    (FOLDER / "digits").mkdir()
    for part in range(4):
        found = [(label, bytes(min(255, max(0, byte + draw.randrange(-60, 60))) for byte in pictures[label])) for label in draw.choices(range(10), k=250)]
        (FOLDER / f"digits/{part}").write_bytes(b"".join(records.tfrecord(records.example({"image": image, "label": [label]})) for label, image in found))
    for workers in ("0", "2"):
        done = subprocess.run([sys.executable, f"{SOURCE}/examples/python/data_torch.py", "--data", str(FOLDER / "digits"), "--workers", workers], capture_output=True,
                              text=True, check=True)
        assert done.stderr.count("paceline.data: rank ") == 1, done.stderr  # of all workers and epochs
        output = done.stdout.splitlines()
        assert len(output) == 5 and all("samples=1000" in line for line in output), output
        assert float(output[-1].split("accuracy=")[1]) > 0.9, output


def example_tar_s3():
    """examples/python/data_tar_s3.py learns the same from tar archives in S3."""
    draw = random.Random(1)
    pictures = [bytes(draw.randrange(256) for _ in range(192)) for _ in range(10)]
    (FOLDER / "bucket/digits").mkdir(parents=True)
    for part in range(4):
        with tarfile.open(FOLDER / f"bucket/digits/{part}.tar", "w") as archive:
            for number, label in enumerate(draw.choices(range(10), k=250)):
                image = bytes(min(255, max(0, byte + draw.randrange(-60, 60))) for byte in pictures[label])
                for extension, data in (("bin", image), ("cls", f"{label}\n".encode())):
                    member = tarfile.TarInfo(f"{number:06}.{extension}")
                    member.size = len(data)
                    archive.addfile(member, io.BytesIO(data))
    with fake_s3(FOLDER / "bucket"):
        output = subprocess.run([sys.executable, f"{SOURCE}/examples/python/data_tar_s3.py", "--data", "s3://bkt/digits/"], stdout=subprocess.PIPE, text=True,
                                check=True).stdout.splitlines()
    assert len(output) == 5 and all("samples=1000" in line for line in output), output
    assert float(output[-1].split("accuracy=")[1]) > 0.9, output


CASES = [formats, tar, mutated, order, mapping, keeping, interrupted, processes, ending, errors, channel]


def main():
    full = sys.argv[1:] == ["full"]
    if sys.argv[1:] and not full:
        return globals()[sys.argv[1]]()
    python = python_with("numpy", "torch") or python_with("numpy")
    if not python:
        print("skipped: no Python here has numpy (python3-numpy)")
        sys.exit(SKIP)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("SM_", "OMPI_", "PMI"))}
    environment.update(PYTHONPATH=f"{SOURCE}/python", PACELINE_DATA_LIBRARY=f"{BUILD}/runtime/libpaceline-data.so", OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1")
    environment["PACELINE_DATA_FILES"] = "1000" if full else "50"
    with_torch = python_with("numpy", "torch")
    for case in [mutated] if full else CASES + [torch, example, example_tar_s3] * bool(with_torch):
        with tempfile.TemporaryDirectory() as folder:
            write(pathlib.Path(folder))
            done = subprocess.run([python, __file__, case.__name__], env=dict(environment, PACELINE_DATA_FOLDER=folder), stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT_S)
            assert done.returncode == 0, f"{case.__name__}: exit {done.returncode}\n{done.stdout}"
        print(f"ok: {case.__name__}", flush=True)
    if full:
        return
    for case in ("waits", "waits_s3"):
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "tfrecord").mkdir()
            waiting = subprocess.Popen([python, __file__, case], env=dict(environment, PACELINE_DATA_FOLDER=folder), stdout=subprocess.PIPE, text=True)
            assert waiting.stdout.readline() == "waits\n"
            time.sleep(0.3)  # whichever call it is in then
            waiting.send_signal(signal.SIGINT)
            began = time.monotonic()
            assert waiting.communicate(timeout=LIMIT_S / 2)[0] == "interrupted\n" and waiting.returncode == 0, waiting.returncode
            print(f"ok: {case}: Control-C, after {time.monotonic() - began:.2f} s")
    if not with_torch:
        print("not shown: torch, which no Python here has (python3-torch)")


if __name__ == "__main__":  # a worker that is spawned imports this file too
    main()
