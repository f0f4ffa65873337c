#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""paceline.data's places: after a stop anywhere the rest is that of a run without one, over formats, gzip, files and S3, shuffle buffers, map(), the workers of
torchdata's StatefulDataLoader and Lightning's fit; no byte before the oldest one that is needed is asked of S3; a checkpoint resumes model and data. Needs numpy; what torch and torchdata
show is left out with a message where they are not.

  places.py [full]     full: 200 stops instead of 20, programs that are killed 20 times, torchdata and Lightning from PyPI

Each case is a function, which runs in a Python of its own: places.py CASE STOPS.
"""
import asyncio
import gzip
import io
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
import time

SOURCE, BUILD = os.environ["PACELINE_SOURCE"], os.environ["PACELINE_BUILD"]
sys.path[:0] = [f"{SOURCE}/tests/support", f"{SOURCE}/tests/fakes"]
import records  # noqa: E402
from python_with import python_with  # noqa: E402

SKIP, LIMIT_S, KILLS = 77, 600, 20
CUTS = [0, 1, 90, 91, 250, 400, 401, 600]  # the records of the files
COUNT = CUTS[-1]
FOLDER = pathlib.Path(os.environ.get("PACELINE_DATA_FOLDER", ""))


def member(archive, name, data):
    info = tarfile.TarInfo(name)
    info.size = len(data)
    archive.addfile(info, io.BytesIO(data))


def archive_of(numbers):
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for i in numbers:
            member(archive, f"{i:06}.id", str(i).encode())
            if i % 3:
                member(archive, f"{i:06}.txt", b"text" * (i % 50))
    return file.getvalue()


FORMATS = {
    "tfrecord": (lambda i: records.tfrecord(records.example({"id": [i], "text": b"x" * (i % 70)})), {"id": "int64", "text": bytes}),
    "recordio": (lambda i: records.recordio(records.protobuf([i, i / 2], i)), {"id": "values"}),
    "csv": (lambda i: f"{i},\"{'y' * (i % 40)}\n\"\n".encode(), {"id": 0}),
    "tar": (None, {"id": "int64"}),
}


def fields_of(kind):
    from paceline.data import Field
    return {"recordio": {"id": Field("float32", (2,), name="values")}, "csv": {"id": Field("int64", name=0)}}.get(kind, FORMATS[kind][1])


def write(folder):
    for kind, (record, _) in FORMATS.items():
        for suffix, pack in (("", bytes), (".gz", gzip.compress)):
            (folder / f"{kind}{suffix}").mkdir()
            for number, (begin, end) in enumerate(zip(CUTS, CUTS[1:])):
                data = b"".join(map(record, range(begin, end))) if record else archive_of(range(begin, end))
                (folder / f"{kind}{suffix}/part-{number}").write_bytes(pack(data))


def bits(batch):
    """All that is in a batch."""
    return [(name, part.tobytes() if hasattr(part, "tobytes") else part.numpy().tobytes()) for name, value in sorted(batch.items())
            for part in (value if isinstance(value, tuple) else (value,))]


def everything(batches):
    return [bits(batch) for batch in batches]


def kept(state):
    """The state as a program gets it back from its file."""
    return json.loads(json.dumps(state))


class Server:
    """tests/fakes/fake_s3.py in a thread, with a list of the GETs: (key, first byte)."""

    def __init__(self, folder):
        from fake_s3 import FakeS3
        self.gets = gets = []

        class Noting(FakeS3):
            def answer(self, method, target, headers, body):
                if method == "GET" and "?" not in target:
                    first = headers.get("range", "bytes=0-").split("=")[1].split("-")[0]
                    gets.append((target.split("/", 2)[2], int(first)))
                return super().answer(method, target, headers, body)
        fake = Noting({str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("part-*")})
        loop = asyncio.new_event_loop()
        ready = threading.Event()

        def run():
            asyncio.set_event_loop(loop)
            self.port = loop.run_until_complete(fake.start())
            ready.set()
            loop.run_forever()
        threading.Thread(target=run, daemon=True).start()
        assert ready.wait(LIMIT_S)
        os.environ.update(AWS_ENDPOINT_URL_S3=f"http://127.0.0.1:{self.port}", AWS_REGION="us-east-1", NO_PROXY="*", AWS_ACCESS_KEY_ID="AKIDTEST",
                          AWS_SECRET_ACCESS_KEY="secret")


def stops(count):
    """Random stops; the bytes that S3 is asked for."""
    from paceline.data import Dataset
    server, draw, shown = Server(FOLDER), random.Random(5), 0
    offsets = {}
    for number, (begin, end) in enumerate(zip(CUTS, CUTS[1:])):
        at = 0
        for i in range(begin, end):
            offsets[i] = (f"tfrecord/part-{number}", at)
            at += len(FORMATS["tfrecord"][0](i))
    for stop in range(count):
        kind, packed, is_s3 = draw.choice(list(FORMATS)), draw.random() < 0.4, draw.random() < 0.5
        if stop % 4 == 0:
            kind, packed, is_s3 = "tfrecord", False, True
        source = f"{'s3://bkt' if is_s3 else FOLDER}/{kind}{'.gz' * packed}"
        options = {"format": kind, "compression": "gzip" if packed else "none", "batch": draw.choice([1, 7, 32]), "shuffle": draw.choice([0, 0, 100, 2000]),
                   "shuffle_objects": stop % 4 > 0 and draw.random() < 0.5, "seed": draw.randrange(2**64), "size": draw.choice([1, 3])}
        options["rank"] = draw.randrange(options["size"])
        threads, epoch = draw.choice([0, 0, 3]), draw.randrange(5)

        def dataset():
            made = Dataset(source + "/" * is_s3, fields_of(kind), decode_threads=draw.choice([1, 2, 4]), prefetch=draw.choice([0, 1, 9]), **options)
            return made.map(lambda batch: batch, threads=threads) if threads else made
        whole = dataset()
        whole.set_epoch(epoch)
        wanted = [everything(whole), everything(whole)]
        stopped = dataset()
        stopped.set_epoch(epoch)
        cut, given = draw.randrange(len(wanted[0]) + 1), []
        for batch in stopped if cut else ():
            given.append(bits(batch))
            if len(given) == cut:
                break
        state = kept(stopped.state_dict())
        stopped.close()
        assert kept(stopped.state_dict()) == state
        gone_on = dataset()
        server.gets.clear()
        gone_on.load_state_dict(state)
        rest = [everything(gone_on), everything(gone_on)]
        what = f"stop {stop}: {source}, {options}, {threads} threads of map(), epoch {epoch}, after {cut} of {len(wanted[0])} batches"
        assert given + rest[0] == wanted[0] and rest[1] == wanted[1], f"{what}: the rest differs"
        if (kind, packed, is_s3) == ("tfrecord", False, True) and 0 < cut < len(wanted[0]) and not options["shuffle_objects"]:
            import numpy
            numbers = {int(i) for batch in given for name, data in batch if name == "id" for i in numpy.frombuffer(data, numpy.int64)}
            oldest = min(set(range(options["rank"], COUNT, options["size"])) - numbers)
            # The reader is behind the last record that was read; records of other ranks may lie between.
            least = min(offsets[i] for i in range(oldest - options["size"] + 1 if not options["shuffle"] else oldest, oldest + 1) if i >= 0)
            first_epoch = server.gets[:1 + [key for key, _ in server.gets].index("tfrecord/part-6")]
            assert first_epoch and min(first_epoch) >= least, f"{what}: asked for {min(first_epoch)}, needed is {least}"
            shown += 1
    assert shown >= count // 10, shown
    print(f"{count} stops, {shown} with the bytes asked of S3")


def errors(_):
    """What a place does not fit is named; a place that was refused can be tried again."""
    from paceline.data import DataError, DataValueError, Dataset

    def dataset(**options):
        return Dataset(FOLDER / "tfrecord", {"id": "int64"}, **{"batch": 16, "shuffle": 50, "rank": 0, "size": 1, **options})

    def expect(words, call):
        try:
            call()
        except DataValueError as error:
            assert all(word in str(error) for word in words), f"'{error}' has not all of {words}"
            return
        raise AssertionError(f"no error with {words}")
    taken = dataset()
    for _, batch in zip(range(5), taken):
        pass
    state = kept(taken.state_dict())

    def load(state, **options):
        other = dataset(**options)
        other.load_state_dict(state)
        list(other)
    for words, options in ((["seed", "'0'", "'1'"], {"seed": 1}), (["batch", "'16'", "'8'"], {"batch": 8}), (["shuffle", "'50'", "'0'"], {"shuffle": 0}),
                           (["rank 0 of 1", "rank 1 of 2"], {"rank": 1, "size": 2}), (["format", "'tfrecord'", "'recordio'"], {"format": "recordio", "decode": "example"})):
        expect(words, lambda options=options: load(state, **options))
    expect(["damaged"], lambda: load({**state, "place": state["place"].replace("tfrecord", "tfrecorb")}))
    for wrong in ({}, {"version": 2}, {"version": 1, "epoch": -1, "place": None}, None):
        expect(["is not what state_dict() gave"], lambda wrong=wrong: load(wrong))
    other = dataset(seed=1)
    other.load_state_dict(state)
    for _ in range(2):
        expect(["seed"], lambda: list(other))
    other.load_state_dict({"version": 1, "epoch": 7, "place": None})
    again = dataset(seed=1)
    again.set_epoch(7)
    assert everything(other) == everything(again) and other.state_dict() == {"version": 1, "epoch": 8, "place": None}
    other.load_state_dict(dataset().state_dict())  # before the first iteration
    again.set_epoch(0)
    assert everything(other) == everything(again)
    # set_epoch() of the place's epoch leaves the place; another one does not.
    rest = dataset()
    rest.load_state_dict(state)
    rest.set_epoch(0)
    assert len(list(rest)) == -(-COUNT // 16) - 5
    rest.load_state_dict(state)
    rest.set_epoch(1)
    assert len(list(rest)) == -(-COUNT // 16)
    under_way = iter(rest)
    next(under_way)
    rest.load_state_dict(state)
    try:
        next(under_way)
        raise AssertionError("an iteration went on after load_state_dict()")
    except DataError:
        pass
    # Without a buffer other ranks go on in the middle.
    halves = [dataset(shuffle=0, rank=rank, size=2) for rank in range(2)]
    seen = [int(i) for half in halves for _, batch in zip(range(3), half) for i in batch["id"]]
    for rank in range(3):
        third = dataset(shuffle=0, rank=rank, size=3)
        third.load_state_dict(kept(halves[1].state_dict()))
        seen += [int(i) for batch in third for i in batch["id"]]
    assert sorted(seen) == list(range(COUNT))
    # A changed object.
    path = FOLDER / "tfrecord/part-3"
    path.write_bytes(path.read_bytes() + records.tfrecord(records.example({"id": [1]})))
    expect(["the data has changed since the place was saved", "digest"], lambda: load(state))


def torch(count):
    """torch without workers, set_epoch() in the parent of workers that persist, and the state that the parent has not."""
    import torch
    from paceline.data import DataError, Dataset

    def dataset(**options):
        return Dataset(FOLDER / "tfrecord", {"id": "int64", "text": bytes}, batch=8, shuffle=100, rank=0, size=1, **options).torch()
    whole = everything(dataset())
    for stop in range(1, len(whole), max(1, len(whole) // count)):
        stopped, rest = dataset(), dataset()
        for _, batch in zip(range(stop), torch.utils.data.DataLoader(stopped, batch_size=None)):
            pass
        rest.load_state_dict(kept(stopped.state_dict()))
        assert everything(rest) == whole[stop:], f"stop {stop}: the rest differs"
    for start in ("fork", "spawn"):
        persistent = dataset()
        loader = torch.utils.data.DataLoader(persistent, batch_size=None, num_workers=2, persistent_workers=True, multiprocessing_context=start)
        new = dataset()
        for epoch in (0, 1, 7, 3, 4):
            for made in (persistent, new) if epoch in (7, 3) else (new,):
                made.set_epoch(epoch)
            wanted = everything(torch.utils.data.DataLoader(new, batch_size=None, num_workers=2))
            assert everything(loader) == wanted, f"{start}, epoch {epoch}: workers that persist read other batches"
        try:
            persistent.state_dict()
            raise AssertionError("the parent of workers gave a place")
        except DataError as error:
            assert "StatefulDataLoader" in str(error)


def stateful(count):
    """torchdata's StatefulDataLoader, workers 0 and 2."""
    from paceline.data import Dataset
    from torchdata.stateful_dataloader import StatefulDataLoader
    draw = random.Random(3)
    for stop in range(count):
        kind, packed, workers, is_persistent = draw.choice(list(FORMATS)), draw.random() < 0.4, draw.choice([0, 2]), draw.random() < 0.3
        options = {"format": kind, "compression": "gzip" if packed else "none", "batch": draw.choice([7, 32]), "shuffle": draw.choice([0, 100, 2000]),
                   "seed": draw.randrange(99), "rank": 0, "size": 1}

        def loader(epoch):
            dataset = Dataset(FOLDER / f"{kind}{'.gz' * packed}", fields_of(kind), **options).torch()
            dataset.set_epoch(epoch)
            return dataset, StatefulDataLoader(dataset, batch_size=None, num_workers=workers, persistent_workers=workers > 0 and is_persistent,
                                               snapshot_every_n_steps=draw.choice([1, 1, 3]))
        dataset, whole = loader(2)
        wanted = [everything(whole)]
        dataset.set_epoch(3)
        wanted.append(everything(whole))
        dataset, stopped = loader(2)
        cut = draw.randrange(len(wanted[0]) + 1)
        given = []
        for batch in stopped if cut else ():
            given.append(bits(batch))
            if len(given) == cut:
                break
        state = stopped.state_dict() if cut else None
        del stopped
        dataset, gone_on = loader(2)
        if state:
            gone_on.load_state_dict(state)
        rest = everything(gone_on)
        what = f"stop {stop}: {kind}{'.gz' * packed}, {workers} workers, persistent {is_persistent}, {options}, after {cut} of {len(wanted[0])}"
        assert given + rest == wanted[0], f"{what}: the rest differs"
        dataset.set_epoch(3)
        assert everything(gone_on) == wanted[1], f"{what}: the next epoch differs"


def lightning(_):
    """Lightning's fit, stopped in the middle of the first and the second epoch, by a checkpoint of its own."""
    import pytorch_lightning
    import torch
    from paceline.data import Dataset
    from torchdata.stateful_dataloader import StatefulDataLoader

    class Model(pytorch_lightning.LightningModule):
        def __init__(self, stop=None):
            super().__init__()
            self.stop, self.seen = stop, []
            self.weight = torch.nn.Parameter(torch.zeros(1))

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.001)

        def training_step(self, batch, _):
            self.seen.append(bits(batch))
            return ((self.weight - batch["id"].float().mean()) ** 2).mean()

        def on_train_batch_end(self, *_):
            if len(self.seen) == self.stop:
                self.trainer.save_checkpoint(FOLDER / "lightning.ckpt")
                self.trainer.should_stop = True
                raise KeyboardInterrupt  # Lightning ends the fit

    def fit(workers, stop=None, path=None):
        model = Model(stop)
        loader = StatefulDataLoader(Dataset(FOLDER / "tfrecord", {"id": "int64", "text": bytes}, batch=16, shuffle=100, rank=0, size=1).torch(), batch_size=None,
                                    num_workers=workers, persistent_workers=workers > 0)
        # Without a number of batches Lightning takes one ahead, and its checkpoint has the place after that.
        trainer = pytorch_lightning.Trainer(max_epochs=2, limit_train_batches=-(-COUNT // 16), accelerator="cpu", devices=1, logger=False, enable_progress_bar=False, enable_checkpointing=False,
                                            enable_model_summary=False, default_root_dir=FOLDER)
        try:
            trainer.fit(model, loader, ckpt_path=path)
        except (KeyboardInterrupt, SystemExit):
            assert stop
        return model
    for workers in (0, 2):
        wanted = fit(workers)
        assert len(wanted.seen) == 2 * -(-COUNT // 16)
        for stop in (5, 50):
            given = fit(workers, stop).seen
            found = fit(workers, path=FOLDER / "lightning.ckpt")
            assert given + found.seen == wanted.seen, f"{workers} workers, stop {stop}: the rest differs"
            assert torch.equal(found.weight, wanted.weight), f"{workers} workers, stop {stop}: the weight is {found.weight}, not {wanted.weight}"


def checkpoint(_):
    """A program that is stopped after any step and resumes model and data from a checkpoint ends with the same sum."""
    import numpy
    from paceline.checkpoint import Checkpoints
    from paceline.data import Dataset

    def train(folder, most):
        dataset = Dataset(FOLDER / "tfrecord", {"id": "int64"}, batch=32, shuffle=100, rank=0, size=1)
        with Checkpoints(folder) as checkpoints:
            step, tensors, state = checkpoints.load() or (0, {"sum": numpy.zeros(1, numpy.uint64)}, None)
            if state:
                dataset.load_state_dict(state["data"])
            while dataset.state_dict()["epoch"] < 2 and step < most:
                for batch in dataset:
                    for i in batch["id"]:
                        tensors["sum"] = tensors["sum"] * numpy.uint64(31) + numpy.uint64(i)
                    step += 1
                    checkpoints.save(step, tensors, {"data": dataset.state_dict()})
                    if step == most:
                        return None
        return int(tensors["sum"][0])
    wanted = train(FOLDER / "a", 99)
    for stop in (3, 10, 19, 20, 30):
        assert train(FOLDER / "b", stop) is None
    found = train(FOLDER / "b", 99)
    assert found == wanted, f"the sum is {found}, not {wanted}"


def train(_):
    """A program for killed(): writes what it read and its place, again and again."""
    from paceline.data import Dataset
    dataset = Dataset(FOLDER / "tfrecord", {"id": "int64"}, batch=8, shuffle=100, rank=0, size=1)
    if "torch" in os.environ["PACELINE_PLACES_WITH"]:
        dataset = dataset.torch()
    file, seen = FOLDER / "state.json", []
    if file.exists():
        found = json.loads(file.read_text())
        seen = found["seen"]
        dataset.load_state_dict(found["data"])
    while dataset.state_dict()["epoch"] < 3:
        for batch in dataset:
            seen.append([int(i) for i in batch["id"]])
            (FOLDER / "new.json").write_text(json.dumps({"seen": seen, "data": dataset.state_dict()}))
            os.replace(FOLDER / "new.json", file)


def killed(count):
    """SIGKILL at random moments: the batches are those of a run without it, and nothing is left in /dev/shm, /tmp and /run."""
    from paceline.data import Dataset
    before = {path.name for path in FOLDER.iterdir()}
    whole = Dataset(FOLDER / "tfrecord", {"id": "int64"}, batch=8, shuffle=100, rank=0, size=1)
    wanted = [[int(i) for i in batch["id"]] for _ in range(3) for batch in whole]

    draw, pids, kills = random.Random(9), [], 0
    (FOLDER / "tmp").mkdir()
    while True:
        child = subprocess.Popen([sys.executable, __file__, "train", "0"], env=dict(os.environ, TMPDIR=str(FOLDER / "tmp")))
        pids.append(str(child.pid))
        if kills == count:
            assert child.wait(LIMIT_S) == 0
            break
        begun = (FOLDER / "state.json").stat().st_mtime_ns if (FOLDER / "state.json").exists() else 0
        while child.poll() is None and begun == ((FOLDER / "state.json").stat().st_mtime_ns if (FOLDER / "state.json").exists() else 0):
            time.sleep(0.001)
        time.sleep(draw.random() * 0.01)
        child.send_signal(signal.SIGKILL)
        if child.wait(LIMIT_S) == 0:
            break
        kills += 1
    seen = json.loads((FOLDER / "state.json").read_text())["seen"]
    assert seen == wanted, f"{kills} kills: the batches differ"
    # Other tests have files there too; those of these programs are named after them.
    left = [path for folder in ("/dev/shm", "/run", "/tmp") for path in pathlib.Path(folder).iterdir() if any(pid in path.name for pid in pids)]
    left += list((FOLDER / "tmp").iterdir()) + [path for path in FOLDER.iterdir() if path.name not in {*before, "tmp", "state.json", "new.json"}]
    assert not left, left
    print(f"{kills} kills")


def with_loaders(folder, *modules):
    """A Python with torch and modules, in the full run from PyPI; None where there is none."""
    if sys.argv[1:] != ["full"]:
        return python_with("numpy", "torch", *modules)
    made = pathlib.Path(folder) / "venv/bin/python3"
    for words in ([sys.executable, "-m", "venv", made.parents[1]], [made, "-m", "pip", "install", "-q", "numpy", "torch", "torchdata", "pytorch-lightning"]):
        if not made.exists() or "pip" in words:
            if subprocess.run(words, stdin=subprocess.DEVNULL, check=False).returncode != 0:
                return None
    return str(made)


def main():
    if len(sys.argv) == 3:
        return globals()[sys.argv[1]](int(sys.argv[2]))
    is_full = sys.argv[1:] == ["full"]
    plain = python_with("numpy", "torch") or python_with("numpy")
    if not plain:
        print("skipped: no Python here has numpy (python3-numpy)")
        sys.exit(SKIP)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("SM_", "OMPI_", "PMI"))}
    environment.update(PYTHONPATH=f"{SOURCE}/python", PACELINE_DATA_LIBRARY=f"{BUILD}/runtime/libpaceline-data.so", PACELINE_LIBRARY=f"{BUILD}/runtime/libpaceline.so",
                       OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1", PACELINE_PLACES_WITH="torch" if python_with("numpy", "torch") else "numpy")
    with tempfile.TemporaryDirectory(prefix="paceline-test-") as venv:
        cases = [(plain, stops, 200 if is_full else 20), (plain, errors, 0), (plain, checkpoint, 0)]
        cases += [(python_with("numpy", "torch"), torch, 20 if is_full else 4)]
        cases += [(with_loaders(venv, "torchdata.stateful_dataloader"), stateful, 100 if is_full else 8)]
        cases += [(with_loaders(venv, "torchdata.stateful_dataloader", "pytorch_lightning"), lightning, 0)]
        cases += [(plain, killed, KILLS)] if is_full else []
        for python, case, count in cases:
            if not python:
                print(f"not shown: {case.__name__}, whose modules no Python here has (python3-torch; PyPI's torchdata and pytorch-lightning)")
                continue
            with tempfile.TemporaryDirectory(prefix="paceline-test-") as folder:
                write(pathlib.Path(folder))
                done = subprocess.run([python, __file__, case.__name__, str(count)], env=dict(environment, PACELINE_DATA_FOLDER=folder), stdin=subprocess.DEVNULL,
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT_S * (3 if is_full else 1))
                assert done.returncode == 0, f"{case.__name__}: exit {done.returncode}\n{done.stdout}"
                print(f"ok: {case.__name__}", *[line for line in done.stdout.splitlines() if "stops" in line or "kills" in line], flush=True)


if __name__ == "__main__":  # a worker that is spawned imports this file too
    main()
