#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`paceline report`: the page of a job of `paceline local`, of a tree, of a sweep and of a million steps.

Each page is checked strictly: tags that close in their order, known attributes, nothing that is fetched, no script; names from outside stay text, and colours
have a contrast of at least 4.5 (text) or 3 (areas) with their background, light and dark.
"""
import datetime
import html.parser
import io
import json
import os
import pathlib
import re
import subprocess
import tarfile
import tempfile

BUILD = pathlib.Path(os.environ["PACELINE_BUILD"])
PACELINE = BUILD / "entrypoint/paceline"
VOID = {"meta", "path", "polygon", "polyline", "rect"}
TAGS = VOID | set("html head title style body main header section footer h1 h2 h3 p pre dl dt dd div figure figcaption span svg details summary table thead "
                  "tbody tr th td ul li i b".split())
ATTRIBUTES = set("lang charset name content class viewbox preserveaspectratio aria-hidden d points x y width height scope".split())
MOST_POINTS, MOST_BYTES = 2000, 500_000
HOSTILE = '<script>alert("x")</script> \' " & \x1b[31m \u0085 </style> end'


class Page(html.parser.HTMLParser):
    """Reads a page, and refuses what is not in order in it."""

    def __init__(self, path):
        super().__init__(convert_charrefs=True)
        raw = path.read_bytes()
        self.bytes, self.open, self.texts, self.points = len(raw), [], [], []
        self.text_of = {}
        self.raw = raw.decode("utf-8")
        assert self.raw.startswith("<!DOCTYPE html>\n"), self.raw[:100]
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", self.raw), "a control character"
        self.feed(self.raw)
        self.close()
        assert not self.open, f"open at the end: {self.open}"
        outside = re.sub(r"<style>.*?</style>", "", self.raw, flags=re.S)
        assert "://" not in re.sub(r">[^<]*<", "><", outside) and "url(" not in self.raw and "@import" not in self.raw, "an address"

    def handle_starttag(self, tag, attributes):
        assert tag in TAGS, f"the tag {tag}"
        for name, value in attributes:
            assert name in ATTRIBUTES, f"the attribute {name} of {tag}"
            if name == "points":
                self.points.append(len(value.split()))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        assert tag in VOID and tag != "meta", tag
        self.handle_starttag(tag, attributes)

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open}"
        self.open.pop()

    def handle_data(self, data):
        if "style" not in self.open:
            self.texts.append(data)
            if self.open:
                self.text_of.setdefault(self.open[-1], []).append(data)

    def says(self, *words):
        text = "".join(self.texts)
        for word in words:
            assert word in text, f"'{word}' is missing in {text}"


def report(folder, code=0, **variables):
    done = subprocess.run([PACELINE, "report", folder], env=dict(os.environ, **variables), text=True, capture_output=True, timeout=300)
    assert done.returncode == code, done.stderr
    return done.stderr if code else Page(folder / "report.html")


def luminance(colour):
    parts = [int(colour[at:at + 2], 16) / 255 for at in (1, 3, 5)]
    parts = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055)**2.4 for part in parts]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]


def contrast(one, other):
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def check_colours(page):
    schemes = [dict(re.findall(r"--(\w+):(#\w{6})", part)) for part in re.findall(r":root\{([^}]*)\}", page.raw)][:2]
    assert len(schemes) == 2 and schemes[0].keys() == schemes[1].keys(), schemes
    for scheme in schemes:
        for background in ("panel", "page"):
            for text in ("text", "soft", "accent", "good", "bad", "warn"):
                assert contrast(scheme[text], scheme[background]) >= 4.5, (text, background, scheme)
        for area in ("computes", "data", "saves", "moves"):
            assert contrast(scheme[area], scheme["panel"]) >= 3, (area, scheme)


def local_job(folder):
    """A job of `paceline local`, with metrics, a resume, a warning and a failure."""
    (folder / "program").write_text("#!/bin/sh\nfor i in 1 2 3; do echo \"step=$((i * 10)) loss=0.${i}5\"; done\necho 'resuming after step 20'\n"
                                    "echo 'trainer: warning: the rate is high'\necho 'loss=nan step=40'\n[ $SM_CURRENT_HOST = algo-1 ] || exit 0\nexit ${CODE:-0}\n")
    (folder / "program").chmod(0o755)
    words = ["--kind", "plain", "--metric", "train:loss=loss=([0-9.a-z]+)", "--metric", "never=accuracy=([0-9.]+)", "--hyperparameter", f"odd={HOSTILE[:40]}",
             "--environment", "API_TOKEN=geheim", "--environment", "PACELINE_PEER_WAIT_S=900", "--hyperparameter", "paceline_hang_s=7",
             "--hyperparameter", "paceline_bucket_bytes=4194304", "--", "./program"]
    for name, code in (("good", 0), ("bad", 7)):
        done = subprocess.run([PACELINE, "local", "--name", name, "--environment", f"CODE={code}", *words], cwd=folder, text=True, capture_output=True, timeout=300,
                              stdin=subprocess.DEVNULL)
        assert done.returncode == code, done.stdout + done.stderr
        assert re.search(rf"^Report: .*paceline-local/{name}/report\.html$", done.stdout, re.M), done.stdout
        page = Page(folder / f"paceline-local/{name}/report.html")
        page.says(name, "train:loss", "last 0.35, lowest 0.15, highest 0.35, 3 values, and 1 that is not a number", "No line of the log has a value of never.",
                  "resuming after step 20", "trainer: warning: the rate is high", "direct: one program", "There are no traces", '<script>alert("x")')
        page.says("paceline_hang_s")
        assert "PEER_WAIT_S" not in page.raw and "bucket_bytes" not in page.raw, "a setting with its default is shown"
        assert "geheim" not in page.raw and "geheim" not in (folder / f"paceline-local/{name}/job.json").read_text(), "a secret is shown"
        check_colours(page)
        job = json.loads((folder / f"paceline-local/{name}/job.json").read_text())
        begin, end = (datetime.datetime.fromisoformat(job[key]) for key in ("CreationTime", "TrainingEndTime"))
        assert begin <= end <= datetime.datetime.now(datetime.timezone.utc), job
        page.says(f"Started on {begin:%Y-%m-%d} at {begin:%H:%M} UTC. Paceline version ")
        assert job["ResourceConfig"]["InstanceCount"] == 1
        (folder / f"paceline-local/{name}/algo-2.log").write_text("loss=9\n")  # of an earlier job of this name
        assert "highest 9" not in "".join(report(folder / f"paceline-local/{name}").texts)
        assert job["TrainingJobStatus"] == ("Failed" if code else "Completed") and job["MetricDefinitions"][0]["Name"] == "train:loss", job
        if code:
            page.says("AlgorithmError: ", "exit code: 7")


def million(folder):
    folder.mkdir()
    with (folder / "algo-1.log").open("w") as log:
        log.writelines(f"step={i} loss={1000000 / (i + 1):.4f} rate={i % 97}\n" for i in range(1_000_000))
    page = report(folder)
    page.says("the words NAME=NUMBER of its log", "loss", "1000000 values", "highest 1e+06", "rate", "highest 96")
    assert len(page.points) == 2 and all(1000 <= points <= MOST_POINTS for points in page.points), page.points
    assert page.bytes <= MOST_BYTES, page.bytes


def resumed(folder):
    """Labels are round numbers around all values; a job that goes on after a checkpoint repeats steps, which a second line has."""
    folder.mkdir()
    steps = [*range(10, 210, 10), *range(150, 310, 10)]
    (folder / "algo-1.log").write_text("".join(f"step={step} accuracy={0.72 + step / 1200:.4f} zero={step % 20 - 10} same=7\n" for step in steps))
    page = report(folder)
    plots = re.findall(r'<h3>(\w+)</h3>.*?<div class="y">(.*?)</div>.*?<path class="value" d="([^"]*)"/>.*?<div class="x">(.*?)</div>', page.raw, re.S)
    labels = {name: re.findall(r"<span>([^<]*)</span>", y) for name, y, _, _ in plots}
    assert labels == {"accuracy": ["1", "0.9", "0.8", "0.7"], "zero": ["0", "-5", "-10"], "same": ["", "7", ""]}, labels
    for name, _, line, x in plots:
        assert x == "<span>10</span><span>step</span><span>300</span>", (name, x)
        parts = [[int(point.split(",")[0]) for point in part.split()] for part in line.split("M")[1:]]
        assert [len(part) for part in parts] == [20, 16] and parts[0][0] == 0 and parts[1][-1] == 10000, (name, parts)
        assert all(part == sorted(part) for part in parts), (name, parts)


def packed(folder):
    """Where the trees are gone, metrics, trials and rings are those of output.tar.gz. Its names write nothing elsewhere."""
    (folder / "tmp").mkdir(parents=True)
    (folder / "algo-1.log").write_text("no metric\n")
    files = {"metrics.jsonl": '{"step": 5, "train_loss": 0.25}\n', "trials.jsonl": '{"trial": 1, "state": "done"}\n', "../../evil.ring": "no ring",
             "deep/metrics.jsonl": '{"step": 5, "other": 1}\n'}

    def pack():
        with tarfile.open(folder / "output.tar.gz", "w:gz") as archive:
            for name, text in files.items():
                member = tarfile.TarInfo(name)
                member.size = len(text)
                archive.addfile(member, io.BytesIO(text.encode()))

    pack()
    page = report(folder, TMPDIR=str(folder / "tmp"))
    page.says("train_loss", "last 0.25", "Sweep: 1 trial", "Not in this report", "..-..-evil.ring")
    assert "other" not in page.text_of["h3"] and sorted(os.listdir(folder)) == ["algo-1.log", "output.tar.gz", "report.html", "tmp"], os.listdir(folder)
    assert not os.listdir(folder / "tmp") and not (folder.parent / "evil.ring").exists()
    (folder / "algo-1.log").write_text("train_loss=0.5 step=5 odd=1\n")  # the log repeats what metrics.jsonl has
    page = report(folder, TMPDIR=str(folder / "tmp"))
    assert page.text_of["h3"] == ["train_loss"] and "0.5" not in "".join(page.texts), page.texts
    (folder / "job.json").write_text('{"MetricDefinitions": [{"Name": "loss", "Regex": "loss=([0-9]+)"}]}')
    (folder / "algo-1.log").write_text("loss=3\n")
    files["metrics.jsonl"] = '{"step": 5, "train_loss": 0.25, "images_per_second": 80}\n'
    pack()
    page = report(folder, TMPDIR=str(folder / "tmp"))
    assert page.text_of["h3"] == ["loss", "images_per_second"], page.text_of["h3"]
    page.says("last 80", "the throughput is that of its metrics.jsonl")
    (folder / "output.tar.gz").write_bytes(b"no archive")
    report(folder, TMPDIR=str(folder / "tmp")).says("Not in this report", "output.tar.gz")
    assert not os.listdir(folder / "tmp")


def sweep(folder):
    """Each trial has a line, although trials print in turn; the best one is named; columns that are empty for all trials are left out."""
    (folder / "output").mkdir(parents=True)
    log = ["paceline: version 0.2.0, sweep: trials on 1 host; this is algo-1, the only host", "paceline-sweep: trial 0 lr=0.5"]
    for step in range(10, 60, 10):
        log += [f"[trial {trial}] step={step} accuracy={0.01 * step + 0.1 * trial:.2f}" for trial in range(3)]
    (folder / "algo-1.log").write_text("\n".join([*log, "best_accuracy=0.7 trial=2", ""]))
    data = folder / "algo-1/output/data"
    (data / "trial-0000").mkdir(parents=True)
    (data / "trial-0000/trace.json.rank0.ring").write_bytes(b"no ring")
    (data / "trials.jsonl").write_text("".join(json.dumps({"trial": i, "accuracy": 0.5 + 0.1 * i, "host": "algo-1", "reason": ""}) + "\n" for i in range(3)))
    page = report(folder)
    assert page.text_of["h3"] == ["accuracy"], page.text_of["h3"]
    [line] = re.findall(r'<path class="value" d="([^"]*)"/>', page.raw)
    parts = [[int(point.split(",")[0]) for point in part.split()] for part in line.split("M")[1:]]
    assert parts == [[0, 2500, 5000, 7500, 10000]] * 3, parts
    page.says("Best: best_accuracy=0.7 trial=2", "Each trial has traces of its own")
    assert re.findall(r'<tr class="best"><td class="number">(\d)</td>', page.raw) == ["2"] and "reason" not in page.text_of["th"], page.text_of["th"]


def hostile(folder):
    """Names, words and files from outside stay text, or are named as not readable."""
    (folder / "input/config").mkdir(parents=True)
    (folder / "output/data").mkdir(parents=True)
    (folder / "input/config/resourceconfig.json").write_text('{"hosts": ["algo-1", "algo-2"], "current_host": "algo-1"}')
    (folder / "input/config/hyperparameters.json").write_text(json.dumps({HOSTILE: HOSTILE, "password": "geheim", "deep": '{"a": 1}'}))
    (folder / "output/failure").write_bytes(b"ValueError: " + HOSTILE.encode() + b" \xff\xfe broken\n")
    (folder / "output/data/trials.jsonl").write_text(
        "".join(json.dumps({"trial": i, "state": HOSTILE, "hyperparameters": {"lr": 0.1 * i, HOSTILE: [1, True, None]}, "accuracy": 0.5}) + "\n" for i in range(700)))
    (folder / "output/data/trace.json.rank0.ring").write_bytes(b"no ring")
    page = report(folder)
    page.says("<script>alert", "ValueError: ", "?? broken", "Sweep: 700 trials", "The first 500 of 700 trials", "lr=0.1, ", "Not in this report", "trace.json.rank0.ring")
    assert "<script" not in page.raw and "geheim" not in page.raw
    (folder / "output/data/trials.jsonl").write_text('{"trial": 1}\nno JSON\n\n{"trial": 2}\n')
    (folder / "output/data/metrics.jsonl").write_text('{"step": 1, "loss": 0.5}\n{"step": 2, "loss": NaN}\n{"step": 3, "loss": 0.25}\n{"step": 4, "lo')
    report(folder).says("Not in this report", "trials.jsonl:2", "Sweep: 2 trials", "metrics.jsonl:2", "metrics.jsonl:4", "last 0.25, lowest 0.25, highest 0.5, 2 values")


def in_a_job(folder):
    """paceline_report=1: the master's page, of a job that fails too; the metrics are those of metrics.jsonl."""
    for code in (0, 3):
        tree = folder / str(code)
        (tree / "input/config").mkdir(parents=True)
        (tree / "input/config/resourceconfig.json").write_text('{"hosts": ["algo-1"], "current_host": "algo-1", "network_interface_name": "lo"}')
        (tree / "input/config/hyperparameters.json").write_text('{"paceline_report": "1"}')
        lines = "".join(json.dumps({"epoch": i, "step": 10 * i, "train_loss": 1 / i, "other": None}) + "\n" for i in range(1, 6))
        program = f"mkdir -p $SM_OUTPUT_DATA_DIR; cat >$SM_OUTPUT_DATA_DIR/metrics.jsonl <<'END'\n{lines}END\necho odd=1; exit {code}"
        done = subprocess.run([PACELINE, "--", "sh", "-c", program], env=dict(os.environ, SAGEMAKER_BASE_DIR=str(tree)), text=True, capture_output=True, timeout=300,
                              stdin=subprocess.DEVNULL)
        assert done.returncode == code, done.stderr
        page = Page(tree / "output/data/report.html")
        page.says("train_loss", "last 0.2, lowest 0.2, highest 1, 5 values", "10step50", "paceline_report", "the numbers of its metrics.jsonl")
        assert ("Failed" in "".join(page.texts)) == (code != 0), page.texts
        assert "odd" not in page.text_of.get("h3", []), page.texts


def refused(folder):
    folder.mkdir()
    assert "is not a folder of a job: expected algo-1" in report(folder, 1)
    assert "is not a folder of a job" in report(folder / "missing", 1)


def elsewhere(folder, job):
    """--output: a link stays one, and what is no file is refused, since it would be replaced."""
    folder.mkdir()
    (folder / "link").symlink_to("page.html")
    (folder / "page.html").write_text("old")
    os.mkfifo(folder / "fifo")
    for name, code in (("link", 0), ("fifo", 1)):
        done = subprocess.run([PACELINE, "report", "--output", folder / name, job], text=True, capture_output=True, timeout=300)
        assert done.returncode == code and (code == 0 or "fifo' is not a regular file" in done.stderr), done.stderr
    assert (folder / "link").is_symlink() and (folder / "page.html").read_text().startswith("<!DOCTYPE") and (folder / "fifo").is_fifo()


def main():
    with tempfile.TemporaryDirectory(prefix="paceline-report-") as name:
        folder = pathlib.Path(name)
        local_job(folder)
        million(folder / "million")
        resumed(folder / "resumed")
        packed(folder / "packed")
        sweep(folder / "sweep")
        hostile(folder / "hostile")
        in_a_job(folder / "job")
        refused(folder / "empty")
        elsewhere(folder / "elsewhere", folder / "million")


main()
