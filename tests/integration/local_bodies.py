#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The bodies of CreateTrainingJob that versions 2 and 3 of the SageMaker SDK send are taken by `paceline local`.

tests/data/bodies has them as a server of this machine caught them. Each runs to its end with what
it names in a stand-in for S3. Where programs of others are named, small ones are in their place: the user's, torchrun, which Debian's torch has not for its own
Python, and TensorFlow. tests/integration/pytorch.sh and parameter_server.sh have the real ones. With the word `full`: both SDKs are installed from PyPI and send them again, and the keys of each body are
those of the file; `full DIR` writes what they send into DIR.
"""
import gzip
import http.server
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading

SOURCE = pathlib.Path(os.environ.get("PACELINE_SOURCE", pathlib.Path(__file__).resolve().parents[2]))
PACELINE = os.environ["PACELINE_BUILD"] + "/entrypoint/paceline"
BODIES = SOURCE / "tests/data/bodies"
PACKAGES = {"v2": "sagemaker==2.257.*", "v3": "sagemaker-train==1.27.*"}  # what trains in the SDK's version 3.27
LIMIT_S = 900  # a far deadline, to find a program that hangs
SETTINGS = "SchemaVersion: '1.0'\nSageMaker:\n  PythonSDK:\n    Modules:\n      TelemetryOptOut: true\n"
IDENTITY = """<GetCallerIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><GetCallerIdentityResult>
<Arn>arn:aws:iam::123456789012:role/x</Arn><UserId>x</UserId><Account>123456789012</Account></GetCallerIdentityResult></GetCallerIdentityResponse>"""

V2 = """
import sys
import sagemaker
from sagemaker.estimator import Estimator
from sagemaker.inputs import ShuffleConfig, TrainingInput
from sagemaker.instance_group import InstanceGroup
from sagemaker.pytorch import PyTorch
from sagemaker.tensorflow import TensorFlow
session = sagemaker.Session(default_bucket="bucket")
COMMON = {"image_uri": "123456789012.dkr.ecr.us-west-2.amazonaws.com/paceline:1", "role": "arn:aws:iam::123456789012:role/x", "sagemaker_session": session,
          "output_path": "s3://bucket/output", "disable_profiler": True}
SCRIPT = {"source_dir": sys.argv[1] + "/src", "entry_point": "train.py", "instance_type": "ml.c5.xlarge"}
DATA = {"training": "s3://bucket/data/training", "testing": "s3://bucket/data/testing"}
PyTorch(base_job_name="v2-mpi", framework_version="2.3", py_version="py311", instance_count=2, hyperparameters={"epochs": 3, "rate": 0.1, "name": "a b"},
        distribution={"mpi": {"enabled": True, "processes_per_host": 2, "custom_mpi_options": "-x A=b"}}, **SCRIPT, **COMMON).fit(DATA, wait=False)
PyTorch(base_job_name="v2-torchrun", framework_version="2.3", py_version="py311", instance_count=2, distribution={"torch_distributed": {"enabled": True}},
        environment={"A": "b c"}, **SCRIPT, **COMMON).fit(DATA, wait=False)
TensorFlow(base_job_name="v2-parameter-server", framework_version="2.14", py_version="py310", instance_count=2,
           distribution={"parameter_server": {"enabled": True}}, **SCRIPT, **COMMON).fit(DATA, wait=False)
GROUPS = [InstanceGroup("data", "ml.c5.xlarge", 1), InstanceGroup("train", "ml.c5.2xlarge", 2)]
Estimator(base_job_name="v2-groups", instance_groups=GROUPS, **COMMON).fit(
    {"all": "s3://bucket/data/all", "one": TrainingInput("s3://bucket/data/one", instance_groups=["data"])}, wait=False)
Estimator(base_job_name="v2-spot", instance_type="ml.c5.xlarge", instance_count=1, use_spot_instances=True, max_run=600, max_wait=1200,
          checkpoint_s3_uri="s3://bucket/checkpoints", checkpoint_local_path="/opt/ml/checkpoints",
          metric_definitions=[{"Name": "loss", "Regex": "loss=([0-9.]+)"}, {"Name": "test:accuracy", "Regex": "accuracy: (.*?);"}],
          container_entry_point=["paceline"], container_arguments=["--", "./train", "--x"], tags=[{"Key": "a", "Value": "b"}],
          subnets=["subnet-1"], security_group_ids=["sg-1"], keep_alive_period_in_seconds=60, max_retry_attempts=2, encrypt_inter_container_traffic=True,
          **COMMON).fit(DATA, wait=False)
Estimator(base_job_name="v2-manifests", instance_type="ml.c5.xlarge", instance_count=2, **COMMON).fit({
    "named": TrainingInput("s3://bucket/named.manifest", s3_data_type="ManifestFile", distribution="ShardedByS3Key"),
    "fast": TrainingInput("s3://bucket/data/fast", input_mode="FastFile", content_type="text/csv"),
    "pipe": TrainingInput("s3://bucket/data/pipe", input_mode="Pipe", record_wrapping="RecordIO", compression="Gzip", shuffle_config=ShuffleConfig(7)),
    "lines": TrainingInput("s3://bucket/lines.manifest", s3_data_type="AugmentedManifestFile", input_mode="Pipe", attribute_names=["source-ref", "class"],
                           record_wrapping="RecordIO")}, wait=False)
"""
V3 = """
import sys
from sagemaker.core.helper.session_helper import Session
from sagemaker.train import ModelTrainer
from sagemaker.train import distributed
from sagemaker.train.configs import (CheckpointConfig, Channel, Compute, DataSource, InputData, InstanceGroup, MetricDefinition, Networking, OutputDataConfig,
                                     S3DataSource, ShuffleConfig, SourceCode, StoppingCondition, Tag)
session = Session(default_bucket="bucket")
COMMON = {"training_image": "123456789012.dkr.ecr.us-west-2.amazonaws.com/paceline:1", "role": "arn:aws:iam::123456789012:role/x", "sagemaker_session": session,
          "output_data_config": OutputDataConfig(s3_output_path="s3://bucket/output")}
CODE = SourceCode(source_dir=sys.argv[1] + "/src", entry_script="train.py")
DATA = [InputData(channel_name=name, data_source="s3://bucket/data/" + name) for name in ("training", "testing")]
TWO = Compute(instance_type="ml.c5.xlarge", instance_count=2)
ModelTrainer(base_job_name="v3-mpi", source_code=CODE, compute=TWO, distributed=distributed.MPI(process_count_per_node=2, mpi_additional_options=["-x", "A=b"]),
             hyperparameters={"epochs": 3, "rate": 0.1, "name": "a b"}, **COMMON).train(DATA, wait=False)
ModelTrainer(base_job_name="v3-torchrun", source_code=CODE, compute=TWO, distributed=distributed.Torchrun(), environment={"A": "b c"}, **COMMON).train(DATA, wait=False)
ModelTrainer(base_job_name="v3-groups", compute=Compute(instance_groups=[
    InstanceGroup(instance_group_name="data", instance_type="ml.c5.xlarge", instance_count=1),
    InstanceGroup(instance_group_name="train", instance_type="ml.c5.2xlarge", instance_count=2)]), **COMMON).train([
        Channel(channel_name="one", data_source=DataSource(s3_data_source=S3DataSource(
            s3_data_type="S3Prefix", s3_uri="s3://bucket/data/one", instance_group_names=["data"])))], wait=False)
trainer = ModelTrainer(base_job_name="v3-spot", compute=Compute(instance_type="ml.c5.xlarge", instance_count=1, enable_managed_spot_training=True),
                       stopping_condition=StoppingCondition(max_runtime_in_seconds=600, max_wait_time_in_seconds=1200), tags=[Tag(key="a", value="b")],
                       checkpoint_config=CheckpointConfig(s3_uri="s3://bucket/checkpoints", local_path="/opt/ml/checkpoints"),
                       networking=Networking(subnets=["subnet-1"], security_group_ids=["sg-1"]), **COMMON)
trainer.with_metric_definitions([MetricDefinition(name="loss", regex="loss=([0-9.]+)")]).train(DATA, wait=False)
ModelTrainer(base_job_name="v3-manifests", compute=TWO, **COMMON).train([
    Channel(channel_name="named", data_source=DataSource(s3_data_source=S3DataSource(
        s3_data_type="ManifestFile", s3_uri="s3://bucket/named.manifest", s3_data_distribution_type="ShardedByS3Key"))),
    Channel(channel_name="lines", input_mode="Pipe", record_wrapper_type="RecordIO", shuffle_config=ShuffleConfig(seed=7),
            data_source=DataSource(s3_data_source=S3DataSource(s3_data_type="AugmentedManifestFile", s3_uri="s3://bucket/lines.manifest",
                                                               s3_data_distribution_type="FullyReplicated", attribute_names=["source-ref", "class"])))], wait=False)
"""


def skip(why):
    print(why)
    sys.exit(77)


class Endpoint(http.server.BaseHTTPRequestHandler):
    """SageMaker, STS and S3, as far as the SDKs ask them."""
    protocol_version = "HTTP/1.1"

    def log_message(self, *words):
        pass

    def answer(self, text="", headers=None, status=200):
        data = text.encode()
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def body(self):
        if "100-continue" in self.headers.get("Expect", ""):
            self.send_response_only(100)
            self.end_headers()
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def do_HEAD(self):
        self.answer()

    def do_GET(self):
        if self.path.partition("?")[0] == "/":
            self.answer("<ListAllMyBucketsResult><Buckets><Bucket><Name>bucket</Name><CreationDate>2030-01-01T00:00:00.000Z</CreationDate></Bucket></Buckets>"
                        "</ListAllMyBucketsResult>")
        else:
            self.answer("<ListBucketResult><Name>bucket</Name><KeyCount>0</KeyCount><IsTruncated>false</IsTruncated></ListBucketResult>")

    def do_PUT(self):
        self.body()
        self.answer(headers={"ETag": '"x"'})

    def do_POST(self):
        data = self.body()
        call = self.headers.get("X-Amz-Target", "").partition(".")[2]
        if call == "CreateTrainingJob":
            self.server.bodies.append(json.loads(data))
            self.answer(json.dumps({"TrainingJobArn": "arn:aws:sagemaker:us-west-2:123456789012:training-job/x"}))
        elif call == "DescribeTrainingJob":
            job = self.server.bodies[-1]
            self.answer(json.dumps({**{key: job[key] for key in job if key not in ("Tags",)}, "TrainingJobStatus": "Completed", "SecondaryStatus": "Completed",
                                    "TrainingJobArn": "arn:aws:sagemaker:us-west-2:123456789012:training-job/x", "CreationTime": 1,
                                    "ModelArtifacts": {"S3ModelArtifacts": "s3://bucket/x"}}))
        elif b"Action=GetCallerIdentity" in data:
            self.answer(IDENTITY)
        else:  # what IAM says about the role is not asked here
            self.answer("<ErrorResponse><Error><Code>AccessDenied</Code></Error></ErrorResponse>", status=403)


def stable(text):
    """Without what differs from call to call: times, and what is drawn."""
    text = re.sub(r"-20\d\d-?\d\d-?\d\d-?\d\d-?\d\d-?\d\d(-?\d+)?", "-2030-01-01-00-00-00-000", text)
    return re.sub(r"-20\d{12,}", "-20300101000000", text)


def capture(root):
    """name -> the body that an SDK sends."""
    python = shutil.which("python3", path="/usr/bin:/usr/local/bin") or sys.executable
    subprocess.run([python, "-m", "venv", f"{root}/tools"], check=True)
    install = [[f"{root}/tools/bin/pip", "install", "-q", "uv"]]
    for name, package in PACKAGES.items():
        install += [[f"{root}/tools/bin/uv", "venv", "-q", "--python", python, f"{root}/{name}"],
                    [f"{root}/tools/bin/uv", "pip", "install", "-q", "--python", f"{root}/{name}/bin/python", package]]
    for words in install:
        done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if done.returncode != 0:
            skip(f"{words[-1]} cannot be installed from PyPI: " + done.stdout.strip().split("\n")[-1])
    (root / "src").mkdir()
    (root / "src/train.py").write_text("print('hello')\n")
    (root / "settings.yaml").write_text(SETTINGS)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Endpoint)
    server.bodies = []
    threading.Thread(target=server.serve_forever, daemon=True).start()
    environment = {"PATH": os.environ["PATH"], "HOME": str(root), "AWS_DEFAULT_REGION": "us-west-2", "AWS_REGION": "us-west-2", "AWS_ACCESS_KEY_ID": "x",
                   "AWS_SECRET_ACCESS_KEY": "x", "AWS_EC2_METADATA_DISABLED": "true", "SAGEMAKER_USER_CONFIG_OVERRIDE": f"{root}/settings.yaml",
                   "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.server_port}"}
    for name, program in (("v2", V2), ("v3", V3)):
        done = subprocess.run([f"{root}/{name}/bin/python", "-c", program, str(root)], env=environment, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, timeout=LIMIT_S, check=False)
        assert done.returncode == 0, f"{name}: {done.stdout[-3000:]}"
    server.shutdown()
    return {re.sub(r"-2030.*", "", body["TrainingJobName"]): body for body in json.loads(stable(json.dumps(server.bodies).replace(str(root), "/root")))}


def keys(value, path=""):
    """The paths of all keys; names that a user chooses are values too."""
    if isinstance(value, dict):
        return {path}.union(*(keys(item, f"{path}.{name}") for name, item in value.items()))
    if isinstance(value, list):
        return {path}.union(*(keys(item, f"{path}[]") for item in value))
    return {path}


def local(*words, cwd, code=0):
    done = subprocess.run([PACELINE, "local", *map(str, words)], cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=LIMIT_S, check=False)
    assert done.returncode == code, f"paceline local {words}: exit {done.returncode}, not {code}:\n{done.stdout}"
    return done.stdout


TRAIN = """#!/bin/sh
echo "loss=0.5"
echo "loss=0.25 accuracy: 0.75; $* and $TRAINING_JOB_NAME"
ls "$SM_CHANNEL_TRAINING"
ls "$SM_CHANNEL_TESTING"
"""


def runs(kept, folder):
    """A body of each version runs, with folders instead of its buckets."""
    for name in ("training", "testing"):
        (folder / name).mkdir()
        (folder / name / f"file-{name}").touch()
    (folder / "train").write_text(TRAIN)
    (folder / "train").chmod(0o755)
    channels = ["--kind", "plain", "--channel", "training=training", "--channel", "testing=testing"]
    os.environ["PATH"] = os.path.dirname(PACELINE) + ":" + os.environ["PATH"]
    for name, more in (("v2-spot", []), ("v3-spot", ["--", "./train", "--x"])):
        (folder / "body.json").write_text(json.dumps(kept[name]))
        log = local("--job", "body.json", *channels, *more, cwd=folder)
        for wanted in (f"[algo-1] loss=0.25 accuracy: 0.75; --x and {kept[name]['TrainingJobName']}", "[algo-1] file-training", "[algo-1] file-testing", "Status: Completed",
                       "Metric loss: last 0.25, lowest 0.25, highest 0.5, 2 values", "these keys have no meaning here: ", "VpcConfig"):
            assert wanted in log, f"{name}: no '{wanted}':\n{log}"


# One process of a job of several hosts: what it is, and the files of its channels.
PROGRAM = """#!/usr/bin/python3
import json, os, sys
env = os.environ
if "SM_CHANNEL_LINES" in env:
    assert len(open("/opt/ml/input/data/lines_0", "rb").read()) > 0
if "SM_CHANNEL_PIPE" in env:
    assert b"wrapped record" in open("/opt/ml/input/data/pipe_0", "rb").read()
files = {name: sorted(os.listdir(env["SM_CHANNEL_" + name.upper()])) for name in json.loads(env["SM_CHANNELS"])
         if name not in ("code", "sm_drivers", "lines", "pipe")}
task = json.loads(env.get("TF_CONFIG", "{}")).get("task")
line = "process " + json.dumps({"host": env["SM_CURRENT_HOST"], "rank": env.get("OMPI_COMM_WORLD_RANK", env.get("RANK")), "A": env.get("A"), "task": task, "files": files,
                             "words": sys.argv[1:]})
os.write(1, (line + "\\n").encode())  # whole, where several processes write
open(env["SM_MODEL_DIR"] + "/" + env["SM_CURRENT_HOST"] + "-" + str(env.get("OMPI_COMM_WORLD_RANK")), "w").close()
"""
TORCHRUN = """#!/bin/sh
[ "$1 $3 $5 $7 $9" = "--nnodes --nproc_per_node --master_addr --master_port --node_rank" ] || exit 9
each=$4 node=${10}
shift 10
for rank in $(seq $((node * each)) $((node * each + each - 1))); do RANK=$rank python3 "$@" & done
wait
"""
TENSORFLOW = """import time, types
class Server:
    def __init__(self, *args, **named): print("the server is up", flush=True)
    def join(self): time.sleep(600)
distribute = types.SimpleNamespace(Server=Server)
train = types.SimpleNamespace(ClusterSpec=lambda x: x, Server=Server)
"""
# body -> its number of processes, and what is given besides
ON_HOSTS = {"v2-mpi": (4, ["--hyperparameter", "sagemaker_submit_directory=/opt/ml/code"]),
            "v2-torchrun": (2, ["--hyperparameter", "sagemaker_submit_directory=/opt/ml/code"]),
            "v2-parameter-server": (2, ["--hyperparameter", "sagemaker_submit_directory=/opt/ml/code"]),
            "v2-groups": (3, ["--", "./train.py"]), "v2-manifests": (2, ["--", "./train.py"]), "v3-mpi": (4, []), "v3-torchrun": (4, []),
            "v3-groups": (3, ["--", "./train.py"]), "v3-manifests": (2, ["--", "./train.py"])}


def fill(objects, body):
    """Puts what a body names into the folder, and returns the body with the name of the stand-in's bucket."""
    name = body["TrainingJobName"]
    drivers = {"source_dir": "./src", "entry_script": "train.py", "command": None, "requirements": None, "ignore_patterns": []}
    launch = {"process_count_per_node": 2, **({"mpi_additional_options": ["-x", "A=b"]} if "mpi" in name else {"smp": None})}
    files = {f"data/{channel}/file-{channel}": b"" for channel in ("training", "testing", "all", "one", "fast")}
    files |= {f"named/{number}": b"" for number in "123"} | {"picture": b"a picture", "data/pipe/a.gz": gzip.compress(b"wrapped record")}
    files["named.manifest"] = json.dumps([{"prefix": "s3://bkt/named/"}, "1", "3"]).encode()
    files["lines.manifest"] = b'{"source-ref": "s3://bkt/picture", "class": 1}\n'
    where = f"{name[:name.index('-2030')]}/{name}/input"
    files |= {f"{where}/code/train.py": PROGRAM.encode(), f"{where}/sm_drivers/sm_train.sh": b"echo the drivers of the SDK run; exit 1\n",
              f"{where}/sm_drivers/sourcecode.json": json.dumps(drivers).encode(), f"{where}/sm_drivers/distributed.json": json.dumps(launch).encode()}
    for key, data in files.items():
        (objects / key).parent.mkdir(parents=True, exist_ok=True)
        (objects / key).write_bytes(data)
    return json.loads(json.dumps(body).replace("s3://bucket/", "s3://bkt/"))


def check_processes(name, log):
    """What each process of a job printed is right."""
    count = ON_HOSTS[name][0]
    found = [json.loads(text) for text in re.findall(r"process (\{.*\})$", log, re.M)]
    hosts = [one["host"] for one in found]
    assert len(found) == count and {hosts.count(host) for host in hosts} == {count // len(set(hosts))}, f"{name}: {len(found)} processes, not {count}:\n{log}"
    data = {"training": ["file-training"], "testing": ["file-testing"]}
    for one in found:
        if "groups" in name:
            data = {} if name[:2] == "v3" else {"all": ["file-all"]}
            data |= {"one": ["file-one"]} if one["host"] == "algo-1" else {}
        elif "manifests" in name:
            data = {"named": ["1"] if one["host"] == "algo-1" else ["3"]} | ({"fast": ["file-fast"]} if name[:2] == "v2" else {})
        assert one["files"] == data, f"{name}: {one['host']} has {one['files']}, not {data}"
        assert one["A"] == ("b" if "mpi" in name else "b c" if "torchrun" in name else None), f"{name}: A is {one['A']}"
        assert "mpi" not in name or sorted(one["words"]) == sorted(["--epochs", "3", "--rate", "0.1", "--name", "a b"]), one
    if "mpi" in name or "torchrun" in name:
        assert sorted(one["rank"] for one in found) == list("0123")[:count], found
    assert name != "v2-parameter-server" or {one["task"]["type"] for one in found} == {"master", "worker"}, found


def runs_on_hosts(kept, folder):
    """Each body of several hosts runs to its end."""
    objects, tools, work = folder / "objects", folder / "tools-in-place", folder / "work"
    for path in (objects, tools, work):
        path.mkdir()
    for path, text in ((work / "train.py", PROGRAM), (tools / "torchrun", TORCHRUN), (work / "tensorflow.py", TENSORFLOW),
                       (folder / "shell.sh", (SOURCE / "entrypoint/bash-env.sh").read_text().replace("@paceline@", PACELINE))):
        path.write_text(text)
        path.chmod(0o755)
    (tools / "python3").symlink_to("/usr/bin/python3")
    bodies = {name: fill(objects, kept[name]) for name in ON_HOSTS}
    server = subprocess.Popen([sys.executable, SOURCE / "tests/fakes/fake_s3.py", objects], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    os.environ.update(AWS_ENDPOINT_URL_S3="http://127.0.0.1:" + server.stdout.readline().split()[1], AWS_ACCESS_KEY_ID="x", AWS_SECRET_ACCESS_KEY="x",
                      PATH=f"{tools}:{os.environ['PATH']}", BASH_ENV=str(folder / "shell.sh"))
    try:
        for name, body in bodies.items():
            (work / "body.json").write_text(json.dumps(body))
            log = local("--job", "body.json", *ON_HOSTS[name][1], cwd=work)
            assert "Status: Completed" in log and "the drivers of the SDK run" not in log, log
            check_processes(name, log)
            print(f"{name}: {ON_HOSTS[name][0]} processes ran to their end", flush=True)
    finally:
        server.kill()
        server.wait()


# What SageMaker writes and the SDK's local mode leaves out, and where it is seen in `paceline plan`: groups of instances, and how channels are distributed.
# With groups, as with the toolkit, distribution_hosts are those of the groups that a distribution names: none here.
LEFT_OUT = {"input/config/resourceconfig.json": {"current_group_name", "instance_groups"},
            "input/config/inputdataconfig.json": {"S3DistributionType", "RecordWrapperType"}}
LEFT_OUT_OF_PLAN = {"SM_CURRENT_INSTANCE_GROUP", "SM_CURRENT_INSTANCE_GROUP_HOSTS", "SM_INSTANCE_GROUPS", "SM_INSTANCE_GROUPS_DICT", "current_instance_group",
                    "current_instance_group_hosts", "instance_groups_dict", "distribution_hosts"}.union(*LEFT_OUT.values())


def without(value, names, found):
    """The value without members of these names, which are added to `found`."""
    if isinstance(value, str) and value.startswith("{"):
        value = json.loads(value)  # a variable that holds JSON
    if not isinstance(value, dict):
        return value
    found |= names & set(value)
    return {key: without(item, names, found) for key, item in value.items() if key not in names}


def plan_of(tree, golden):
    """`paceline plan` in a tree, with the tree's path as /opt/ml, without LEFT_OUT_OF_PLAN; and which of these were there."""
    environment = {**os.environ, **golden["environment"], "SAGEMAKER_BASE_DIR": str(tree)}
    done = subprocess.run([PACELINE, "plan"], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stderr
    found = set()
    plan = without(json.loads(done.stdout.replace(str(tree), "/opt/ml")), LEFT_OUT_OF_PLAN, found)
    return plan, found


def golden_tree(folder):
    """The tree of a job is that of the SDK's local mode, and so is the plan in it, except what LEFT_OUT lists."""
    golden = json.loads((SOURCE / "tests/data/local-tree.json").read_text())
    work = folder / "golden"
    (work / "data").mkdir(parents=True)
    (work / "train.py").write_text("import json, os\nprint(json.dumps(dict(os.environ)), flush=True)\n")
    words = ["--keep", "--name", golden["environment"]["TRAINING_JOB_NAME"], "--hosts", "2", "--channel", "training=data", "--channel", "testing=data",
             "--hyperparameter", "epochs=3", "--hyperparameter", "name=it's", "--hyperparameter", "sagemaker_program=train.py", "--environment", "A=b c"]
    os.environ["AWS_REGION"] = golden["environment"]["AWS_REGION"]
    log = local(*words, cwd=work)
    seen = [json.loads(text) for text in re.findall(r"^\[algo-\d\] (\{.*\})$", log, re.M)]
    assert len(seen) == 2 and all(one[name] == value for one in seen for name, value in golden["environment"].items()), log
    for host, theirs in golden["hosts"].items():
        ours, copy = work / "paceline-local/golden-job" / host, folder / "of-the-sdk" / host
        for name in theirs["folders"] + ["output/data"]:
            assert (ours / name).is_dir(), f"{host} has no folder {name}"
            (copy / name).mkdir(parents=True, exist_ok=True)
        (copy / "code").symlink_to(work)
        for name, text in theirs["files"].items():
            (copy / name).write_text(text)
            written, found, known = json.loads((ours / name).read_text()), set(), set()
            compared = without(written, LEFT_OUT.get(name, set()), found)
            assert compared == json.loads(text), f"{host}: {name} differs: {written}, not {text}"
            without(json.loads(text), LEFT_OUT.get(name, set()), known)
            assert found == LEFT_OUT.get(name, set()) and not known, f"{host}: {name}: LEFT_OUT is out of date: {found} {known}"
        (ours / "code").rmdir()  # where the code was mounted
        (ours / "code").symlink_to(work)
        mine, found = plan_of(ours, golden)
        assert found == LEFT_OUT_OF_PLAN, f"LEFT_OUT_OF_PLAN is out of date: {LEFT_OUT_OF_PLAN - found}"
        sdk, _ = plan_of(copy, golden)
        assert mine["env"]["SM_TRAINING_ENV"]["current_host"] == host and mine == sdk, f"{host}: the plans differ:\n{json.dumps(mine)}\n{json.dumps(sdk)}"
    print("the tree is that of the SDK's local mode")


def main():
    kept = {path.stem: json.loads(path.read_text()) for path in sorted(BODIES.glob("*.json"))}
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        if sys.argv[1:2] == ["full"]:
            sent = capture(folder)
            if len(sys.argv) > 2:
                for name, body in sent.items():
                    (pathlib.Path(sys.argv[2]) / f"{name}.json").write_text(json.dumps(body, indent=1) + "\n")
                return
            assert sorted(sent) == sorted(kept), f"other bodies: {sorted(sent)}"
            for name, body in sent.items():
                assert keys(body) == keys(kept[name]), f"{name}: other keys: {sorted(keys(body) ^ keys(kept[name]))}"
            print(f"{len(sent)} bodies have the keys of tests/data/bodies")
            return
        assert len(kept) == 11, sorted(kept)
        runs(kept, folder)
        if os.geteuid() != 0 or subprocess.run(["unshare", "--mount", "--pid", "--fork", "--net", "true"], stderr=subprocess.DEVNULL, check=False).returncode != 0:
            skip("hosts in namespaces need root: bodies of several hosts did not run")
        if not shutil.which("mpirun"):
            skip("no mpirun: bodies of several hosts did not run")
        golden_tree(folder)
        runs_on_hosts(kept, folder)
        print(f"{len(kept)} bodies run")


if __name__ == "__main__":
    main()
