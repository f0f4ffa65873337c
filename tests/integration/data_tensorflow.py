#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""paceline.data's tf() and the module sagemaker_tensorflow: `data_tensorflow.py VERSION`, a version of TensorFlow from PyPI.

Batches are what TensorFlow's own readers give of files that TensorFlow wrote; order, errors, iterators, Keras's fit; PipeModeDataset over FIFOs in AWS's formats,
and a script in the form that AWS published, under `paceline feed`. Skips where PyPI does not give tensorflow-cpu (1.3 GB, once for a build folder).

Each case is a function, which runs in a Python of its own: data_tensorflow.py CASE.
"""
import json
import os
import pathlib
import random
import struct
import subprocess
import sys
import tempfile
import threading
import time

SOURCE, BUILD = os.environ["PACELINE_SOURCE"], os.environ["PACELINE_BUILD"]
sys.path[0] = f"{SOURCE}/tests/support"
import records  # noqa: E402
from horovod_python import python_for  # noqa: E402
sys.path.pop(0)  # TensorFlow imports modules of the same names

COUNT, LIMIT_S = 1000, 600
FOLDER = pathlib.Path(os.environ.get("PACELINE_DATA_FOLDER", ""))
FIELDS = {"id": "int64", "image": ("uint8", (3, 2, 2)), "weight": ("float32", (2,)), "text": bytes, "list": ("int64", None)}
FEED = f"{BUILD}/libexec/paceline/paceline-feed"


def sample(i):
    return {"id": [i], "image": bytes((i + k) % 256 for k in range(12)), "weight": [i / 4, -i / 8], "text": f"record {i}".encode() * (i % 3), "list": [i] * (i % 4)}


def write(folder, tf, options=None):
    """1,000 records in five files of different lengths, by TensorFlow."""
    folder.mkdir()
    cuts = [0, 1, 130, 400, 651, COUNT]
    kinds = {bytes: lambda value: tf.train.Feature(bytes_list=tf.train.BytesList(value=[value])),
             int: lambda value: tf.train.Feature(int64_list=tf.train.Int64List(value=value)),
             float: lambda value: tf.train.Feature(float_list=tf.train.FloatList(value=value))}
    for number, (begin, end) in enumerate(zip(cuts, cuts[1:])):
        with tf.io.TFRecordWriter(str(folder / f"part-{number}"), options) as writer:
            for i in range(begin, end):
                features = {name: kinds[bytes if isinstance(value, bytes) else float if name == "weight" else int](value) for name, value in sample(i).items()}
                writer.write(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())
    return folder


def expect_error(kind, words, call):
    try:
        call()
    except kind as error:
        assert all(word in str(error) for word in words), f"'{error}' has not all of {words}"
        return error
    raise AssertionError(f"no error with {words}")


def ids(batches):
    return [int(i) for batch in batches for i in batch["id"]]


def equal():
    """Batches and their types are those of TFRecordDataset and parse_example."""
    import tensorflow as tf
    from paceline.data import Dataset, Field
    write(FOLDER / "plain", tf)
    write(FOLDER / "gzip", tf, "GZIP")
    features = {"id": tf.io.FixedLenFeature([], tf.int64), "image": tf.io.FixedLenFeature([], tf.string), "weight": tf.io.FixedLenFeature([2], tf.float32),
                "text": tf.io.FixedLenFeature([], tf.string), "list": tf.io.RaggedFeature(tf.int64, row_splits_dtype=tf.int64)}

    def parse(raw):
        batch = tf.io.parse_example(raw, features)
        return {**batch, "image": tf.reshape(tf.io.decode_raw(batch["image"], tf.uint8), [-1, 3, 2, 2])}
    for folder, compression in (("plain", "none"), ("gzip", "gzip")):
        files = sorted(map(str, (FOLDER / folder).iterdir()))
        wanted = tf.data.TFRecordDataset(files, compression_type="GZIP" if compression == "gzip" else None).batch(64).map(parse)
        for threads in (1, 4):
            found = Dataset(FOLDER / folder, FIELDS, 64, compression=compression, decode_threads=threads).tf()
            assert isinstance(found, tf.data.Dataset) and found.element_spec == wanted.element_spec, (found.element_spec, wanted.element_spec)
            batches = 0
            for mine, theirs in zip(found, wanted):
                assert sorted(mine) == sorted(theirs) and type(mine["list"]) is type(theirs["list"])
                for name, tensor in theirs.items():
                    parts = [(mine[name], tensor)] if name != "list" else [(mine[name].values, tensor.values), (mine[name].row_splits, tensor.row_splits)]
                    assert all(bool(tf.reduce_all(a == b)) and a.shape == b.shape and a.dtype == b.dtype for a, b in parts), f"batch {batches}: {name} differs"
                batches += 1
            assert batches == 16 and len(list(found)) == 16
    dropped = Dataset(FOLDER / "plain", FIELDS, 64, drop_last=True).tf()
    assert dropped.element_spec["image"].shape == [64, 3, 2, 2] and dropped.element_spec["list"].shape == [64, None] and len(list(dropped)) == 15
    half = next(iter(Dataset(FOLDER / "plain", {"half": Field("bfloat16", (2,), default=1.5, name="absent"), "id": "int32"}, 100).tf()))
    assert half["half"].dtype is tf.bfloat16 and half["id"].dtype is tf.int32 and bool(tf.reduce_all(half["half"] == tf.fill([100, 2], tf.constant(1.5, tf.bfloat16))))


def order():
    """Epochs and their order are those of iterating arrays; iterators, repetitions and pipelines do not disturb each other."""
    import tensorflow as tf
    from paceline.data import DataValueError, Dataset
    folder = write(FOLDER / "plain", tf)

    def dataset(**options):
        return Dataset(folder, {"id": "int64"}, 32, shuffle=300, seed=3, **options)
    arrays = dataset()
    epochs = [ids(arrays) for _ in range(4)]
    assert len({tuple(epoch) for epoch in epochs}) == 4
    for options in ({"decode_threads": 1}, {"decode_threads": 4}, {"epochs": 4}):
        found = dataset(**options).tf()
        assert [ids(found) for _ in range(4)] == epochs, f"{options}: the order differs"
        found.set_epoch(1)
        assert ids(found) == epochs[1] and found.progress().samples == COUNT and found.progress().epoch == 1
    assert ids(dataset().tf().repeat(4)) == sum(epochs, [])
    found = dataset().tf()
    first, second = iter(found), iter(found)
    mixed = [(int(a["id"][0]), int(b["id"][0])) for a, b in zip(first, second)]
    assert mixed == [(epochs[0][i], epochs[1][i]) for i in range(0, COUNT, 32)]
    piped = dataset().tf().map(lambda batch: batch["id"], num_parallel_calls=2).prefetch(2).unbatch().batch(10)
    assert [int(i) for batch in piped for i in batch] == epochs[0] and [int(i) for batch in piped for i in batch] == epochs[1]
    under_way = iter(dataset().tf().repeat())  # nothing of Python's knows the dataset any more
    assert [int(i) for batch in [next(under_way) for _ in range(70)] for i in batch["id"]] == sum(epochs, [])[:2000 + 6 * 32]
    shares = [ids(dataset(rank=rank, size=3).tf()) for rank in range(3)]
    assert sorted(sum(shares, [])) == list(range(COUNT))
    kept = list(Dataset(folder, FIELDS, 4, max_batches=8).tf())  # many more than max_batches
    assert ids(kept) == list(range(COUNT)) and [bytes(batch["image"][1].numpy()) for batch in kept] == [sample(i)["image"] for i in range(1, COUNT, 4)]
    expect_error(DataValueError, ["map()"], lambda: dataset().map(len).tf())
    zipped = tf.data.Dataset.zip((dataset().tf(), Dataset(folder, {"text": bytes}, 32).tf()))
    assert sum(len(a["id"]) == len(b["text"]) for a, b in zipped) == 32

    @tf.function
    def total(batches):
        sum_of = tf.constant(0, tf.int64)
        for batch in batches:
            sum_of += tf.reduce_sum(batch["id"])
        return sum_of
    assert int(total(dataset().tf())) == sum(range(COUNT))


def errors():
    import tensorflow as tf
    if not tf.__version__.startswith("2.12"):  # a pipeline that waits keeps a thread there
        tf.config.threading.set_inter_op_parallelism_threads(1)
    from paceline.data import DataError, Dataset
    folder = write(FOLDER / "plain", tf)
    data = (folder / "part-2").read_bytes()
    (FOLDER / "bad").mkdir()
    (FOLDER / "bad/flipped").write_bytes(data[:5000] + bytes([data[5000] ^ 1]) + data[5001:])
    whole = sum(len(batch["id"]) for batch in Dataset(FOLDER / "bad", {"id": "int64"}, 2, skip_corrupt=True).tf())
    assert whole == 269, whole
    for source, fields, kind, words in (
            (FOLDER / "bad", {"id": "int64"}, tf.errors.DataLossError, ["flipped", "record ", "CORRUPT"]),
            (folder, {"absent": "int64"}, tf.errors.NotFoundError, ["part-0", "record 0", "absent"]),
            (folder, {"image": ("uint8", (3, 5))}, tf.errors.InvalidArgumentError, ["image", "12"]),
            (FOLDER / "nowhere", {"id": "int64"}, tf.errors.NotFoundError, ["nowhere"])):
        dataset = Dataset(source, fields, 2)
        text = str(expect_error(DataError, [], lambda: list(dataset)))  # pylint: disable=cell-var-from-loop
        dataset.set_epoch(0)  # the epoch of the words
        for batches in (dataset.tf(), dataset.tf().map(lambda batch: batch).prefetch(2)):
            iterator = iter(batches)
            expect_error(kind, [text, *words], lambda: [next(iterator) for _ in range(COUNT)])  # pylint: disable=cell-var-from-loop
    iterator, seen = iter(Dataset(FOLDER / "bad", {"id": "int64"}, 2).tf()), 0
    try:
        for _ in iterator:
            seen += 1
    except tf.errors.DataLossError:
        assert list(iterator) == []  # it is over then
    assert 10 < seen < 135, seen
    os.mkfifo(FOLDER / "pipe_0")
    os.environ.update(SM_CHANNEL_PIPE=str(FOLDER / "pipe"), SM_INPUT_DATA_CONFIG=json.dumps({"pipe": {"TrainingInputMode": "Pipe"}}))
    expect_error(tf.errors.DeadlineExceededError, ["pipe", "TIMEOUT"], lambda: list(Dataset("pipe", {"id": "int64"}, 2, timeout=0.5).tf()))
    # A pipeline that waits for data ends when the program leaves it, long before the source's own deadline.
    waiting = iter(Dataset("pipe", {"id": "int64"}, 2, timeout=36000).tf().prefetch(2))
    time.sleep(0.5)  # whichever operation it is in then
    del waiting
    # It keeps none of TensorFlow's threads, of which there is one here: a step goes on while a pipeline waits.
    waiting = iter(Dataset("pipe", {"id": "int64"}, 2, timeout=36000).tf().prefetch(2))
    assert int(tf.reduce_sum(tf.data.Dataset.range(100).map(lambda i: i * 2).reduce(tf.constant(0, tf.int64), lambda a, b: a + b))) == 9900
    del waiting
    # A graph that another process stored is refused.
    from paceline._data_tensorflow import _module
    expect_error(tf.errors.InvalidArgumentError, ["another process"], lambda: _module()[0].paceline_data_open(source=[1, 2]))
    expect_error(tf.errors.InvalidArgumentError, ["not an iterator"], lambda: _module()[0].paceline_data_take(iterator=[1, 2], types=[tf.int64]))


def keras():
    """fit() over epochs, with and without steps, learns which of ten pictures a noisy one is."""
    import tensorflow as tf
    from paceline.data import Dataset
    draw = random.Random(1)
    pictures = [[draw.randrange(256) for _ in range(12)] for _ in range(10)]
    (FOLDER / "train").mkdir()
    for part in range(4):
        with tf.io.TFRecordWriter(str(FOLDER / f"train/{part}")) as writer:
            for _ in range(250):
                label = draw.randrange(10)
                image = bytes(min(255, max(0, byte + draw.randrange(-20, 20))) for byte in pictures[label])
                writer.write(records.example({"image": image, "label": [label]}))
    batches = Dataset(FOLDER / "train", {"image": ("uint8", (12,)), "label": "int64"}, 50, shuffle=500).tf()
    pairs = batches.map(lambda batch: (tf.cast(batch["image"], tf.float32) / 255, batch["label"]))
    model = tf.keras.Sequential([tf.keras.layers.Dense(10)])
    model.build((None, 12))
    model.compile(tf.keras.optimizers.Adam(0.05), tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
    history = model.fit(pairs, epochs=6, verbose=0, validation_data=Dataset(FOLDER / "train", {"image": ("uint8", (12,)), "label": "int64"}, 50).tf().map(
        lambda batch: (tf.cast(batch["image"], tf.float32) / 255, batch["label"]))).history
    assert history["accuracy"][-1] > 0.9 and history["val_accuracy"][-1] > 0.9, history
    assert batches.progress().epoch == 5 and batches.progress().samples == COUNT, "fit() took other epochs"
    model.fit(pairs.repeat(), epochs=2, steps_per_epoch=25, verbose=0)


def fifos(channel, *contents):
    """Writes each of these contents into a FIFO of Pipe Mode."""
    (FOLDER / "config").mkdir(exist_ok=True)
    (FOLDER / "config/inputdataconfig.json").write_text(json.dumps({channel: {"TrainingInputMode": "Pipe"}, "files": {"TrainingInputMode": "File"}}))
    for epoch, data in enumerate(contents):
        os.mkfifo(FOLDER / f"{channel}_{epoch}")
        threading.Thread(target=(FOLDER / f"{channel}_{epoch}").write_bytes, args=(data,), daemon=True).start()
    return {"pipe_dir": str(FOLDER), "state_dir": str(FOLDER / "state"), "config_dir": str(FOLDER / "config")}


def pipe():
    """PipeModeDataset: formats, epochs and their number on disk, damaged records, errors."""
    import tensorflow as tf
    from sagemaker_tensorflow import PipeModeDataset, PipeModeDatasetException
    from sagemaker_tensorflow.pipemode import PipeModeDataset as Same
    assert Same is PipeModeDataset
    wanted = [f"record {i}".encode() * (i % 4) for i in range(100)]
    framed = b"".join(map(records.recordio, wanted))
    folders = fifos("records", framed, framed, framed)
    dataset = PipeModeDataset("records", **folders)
    assert isinstance(dataset, tf.data.Dataset) and dataset.element_spec == tf.TensorSpec([], tf.string)
    assert [record.numpy() for record in dataset.repeat(2).prefetch(3)] == wanted * 2
    assert (FOLDER / "state/.records-pipe_mode-state").read_text().strip() == "2" and (FOLDER / "state/.records-pipe_mode-lock").exists()
    assert [record.numpy() for record in PipeModeDataset(channel="records", **folders)] == wanted  # a new one goes on with the next FIFO
    parts = b"".join(struct.pack("<II", 0xCED7230A, flag << 29 | 4) + text for flag, text in ((1, b"one "), (2, b"and "), (3, b"two!")))
    folders = fifos("parts", parts + records.recordio(b"whole"))
    assert [record.numpy() for record in PipeModeDataset("parts", "RecordIO", **folders)] == [b"one and two!", b"whole"]
    folders = fifos("lines", b"a,b\n\n1,2\nlast")
    assert [record.numpy() for record in PipeModeDataset("lines", record_format="TextLine", **folders)] == [b"a,b", b"", b"1,2", b"last"]
    good, bad = records.tfrecord(b"good"), bytearray(records.tfrecord(b"damaged"))
    bad[14] ^= 1
    folders = fifos("corrupt", good + bad * 2 + good + bad + good, good + bad * 2 + good, good + bad)
    skipping = PipeModeDataset("corrupt", "TFRecord", max_corrupted_records_to_skip=2, **folders)
    assert [record.numpy() for record in skipping] == [b"good"] * 3
    fewer = iter(PipeModeDataset("corrupt", "TFRecord", max_corrupted_records_to_skip=1, **folders))
    assert next(fewer) == b"good"
    expect_error(tf.errors.DataLossError, ["corrupt", "2 damaged"], lambda: next(fewer))
    expect_error(tf.errors.DataLossError, ["corrupt_2", "record 1"], lambda: list(PipeModeDataset("corrupt", "TFRecord", **folders)))
    expect_error(PipeModeDatasetException, ["Channel files is not a PipeMode channel"], lambda: PipeModeDataset("files", **folders))
    expect_error(PipeModeDatasetException, ["Channel absent not found in Training Job InputDataConfig"], lambda: PipeModeDataset("absent", **folders))
    expect_error(PipeModeDatasetException, ["only be set for record_format='TFRecord'"], lambda: PipeModeDataset("corrupt", max_corrupted_records_to_skip=1, **folders))
    expect_error(tf.errors.InvalidArgumentError, ["Invalid record format: CSV"], lambda: PipeModeDataset("corrupt", "CSV", **folders))
    folders = fifos("told", framed)
    assert len(list(PipeModeDataset("told", benchmark=True, benchmark_records_interval=50, **folders))) == 100
    (FOLDER / "state/.told-pipe_mode-state").write_text("many")
    expect_error(tf.errors.InvalidArgumentError, ["told-pipe_mode-state", "many"], lambda: list(PipeModeDataset("told", **folders)))
    own = FOLDER / "fifos/0/mine"  # the FIFO of a rank, and what has ended the platform's
    own.parent.mkdir(parents=True)
    os.mkfifo(f"{own}_0")
    os.write(os.open(f"{own}_0", os.O_RDWR), framed)
    (FOLDER / "fifos/mine.report").write_text("CORRUPT the platform's FIFO is cut")
    os.environ.update(SM_CHANNEL_MINE=str(own), PACELINE_FIFOS="mine")
    folders = fifos("mine")
    del folders["pipe_dir"]
    expect_error(tf.errors.DataLossError, ["the platform's FIFO is cut"], lambda: list(PipeModeDataset("mine", **folders)))


def graphs():
    """The same in a graph of TensorFlow 1, as older scripts have it."""
    import tensorflow as tf
    from sagemaker_tensorflow import PipeModeDataset
    tf.compat.v1.disable_eager_execution()
    folders = fifos("records", b"".join(records.recordio(b"%d" % i) for i in range(40)))
    following = tf.compat.v1.data.make_one_shot_iterator(PipeModeDataset("records", **folders).batch(8)).get_next()
    seen = []
    with tf.compat.v1.Session() as session:
        try:
            while True:
                seen.extend(session.run(following))
        except tf.errors.OutOfRangeError:
            pass
    assert seen == [b"%d" % i for i in range(40)]


SCRIPT = '''
import tensorflow as tf
from sagemaker_tensorflow import PipeModeDataset

features = {
    'data': tf.io.FixedLenFeature([], tf.string),
    'labels': tf.io.FixedLenFeature([], tf.int64),
}

def parse(record):
    parsed = tf.io.parse_single_example(record, features)
    return (tf.reshape(tf.io.decode_raw(parsed['data'], tf.float64), [4]), parsed['labels'])

ds = PipeModeDataset(channel='training', record_format='TFRecord')
num_epochs = 3
ds = ds.repeat(num_epochs)
ds = ds.prefetch(10)
ds = ds.map(parse, num_parallel_calls=10)
ds = ds.batch(64)

model = tf.keras.Sequential([tf.keras.Input((4,)), tf.keras.layers.Dense(2)])
model.compile('adam', tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
seen = []
history = model.fit(ds.map(lambda x, y: (tf.py_function(lambda t: seen.append(len(t)) or t, [x], tf.float64), y)).map(lambda x, y: (tf.ensure_shape(x, [None, 4]), y)), verbose=0)
assert sum(seen) == 3 * 500, seen
print('trained on', sum(seen))
'''


def script():
    """A script in the form of AWS's page, with its default folders, under `paceline feed`."""
    (FOLDER / "s3").mkdir()
    for part in range(2):
        (FOLDER / f"s3/{part}").write_bytes(b"".join(
            records.tfrecord(records.example({"data": struct.pack("<4d", i, i / 2, -i, 1), "labels": [i % 2]})) for i in range(part * 250, part * 250 + 250)))
    for folder in ("input/config", "input/data"):
        (FOLDER / "ml" / folder).mkdir(parents=True)
    (FOLDER / "ml/input/config/inputdataconfig.json").write_text(json.dumps({"training": {"TrainingInputMode": "Pipe", "RecordWrapperType": "None"}}))
    (FOLDER / "script.py").write_text(SCRIPT)
    feeder = subprocess.Popen([FEED, "--timeout", "60", FOLDER / "s3", FOLDER / "ml/input/data/training"], stderr=subprocess.DEVNULL)
    try:
        done = subprocess.run(["unshare", "-Urm", "sh", "-ec", 'mount -t tmpfs tmpfs /opt; mkdir /opt/ml; mount --bind "$0" /opt/ml; exec "$@"', FOLDER / "ml",
                               sys.executable, FOLDER / "script.py"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT_S)
    finally:
        feeder.terminate()
        feeder.wait()
    if "unshare:" in done.stdout or "mount:" in done.stdout:
        print(f"not shown, since no namespaces are allowed: {done.stdout.strip()}")
        return
    assert done.returncode == 0 and "trained on 1500" in done.stdout, done.stdout
    assert (FOLDER / "ml/pipe_state/.training-pipe_mode-state").read_text().strip() == "3"


def example():
    """examples/python/data_tf.py learns which of ten pictures a noisy one is."""
    draw = random.Random(1)
    pictures = [bytes(draw.randrange(256) for _ in range(192)) for _ in range(10)]
    (FOLDER / "digits").mkdir()
    for part in range(4):
        found = [(label, bytes(min(255, max(0, byte + draw.randrange(-60, 60))) for byte in pictures[label])) for label in draw.choices(range(10), k=250)]
        (FOLDER / f"digits/{part}").write_bytes(b"".join(records.tfrecord(records.example({"image": image, "label": [label]})) for label, image in found))
    output = subprocess.run([sys.executable, f"{SOURCE}/examples/python/data_tf.py", "--data", str(FOLDER / "digits")], stdout=subprocess.PIPE, text=True,
                            check=True).stdout.splitlines()
    assert len(output) == 5 and all("samples=1000" in line for line in output), output
    assert float(output[-1].split("accuracy=")[1]) > 0.9, output


def light():
    """paceline.data is imported without TensorFlow."""
    import paceline.data
    assert paceline.data.Dataset and "tensorflow" not in sys.modules


CASES = [light, equal, order, errors, keras, pipe, graphs, script, example]


def main():
    if sys.argv[1].isalpha():
        return globals()[sys.argv[1]]()
    python = python_for(sys.argv[1])
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("SM_", "OMPI_", "PMI"))}
    environment.update(PYTHONPATH=f"{SOURCE}/python", PACELINE_DATA_LIBRARY=f"{BUILD}/runtime/libpaceline-data.so", OMP_NUM_THREADS="1", TF_CPP_MIN_LOG_LEVEL="2")
    for case in CASES:
        with tempfile.TemporaryDirectory() as folder:
            began = time.monotonic()
            done = subprocess.run([python, __file__, case.__name__], env=dict(environment, PACELINE_DATA_FOLDER=folder), stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT_S)
            assert done.returncode == 0, f"{case.__name__}: exit {done.returncode}\n{done.stdout}"
            if case is pipe:
                for word in ("records: 50\n", "records: 100\n", "total read_bytes: ", "total read_GB/s: "):
                    assert f"PipeModeDatasetOp::Dataset::Iterator {word}" in done.stdout, done.stdout
        print(f"ok: {case.__name__}, {time.monotonic() - began:.1f} s {' '.join(line for line in done.stdout.splitlines() if line.startswith('not shown'))}", flush=True)


if __name__ == "__main__":
    main()
