#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How much later a program begins under `paceline local` than under `paceline train`: seconds from the command to the program's first line, in turn.

    tests/bench/local_start.py [--build build] [--rounds 9] [--image IMAGE [--sdk FOLDER]]

One host, plain and with namespaces, and two hosts with one rank of Open MPI each, which for `paceline train` are made before the clock starts (root
only). With --image: `podman run IMAGE train`, `paceline local --image`, and with --sdk the local mode of the SDK's version 2; FOLDER has the
environments tools/ (podman-compose) and v2/ (sagemaker[local]==2.257.*), as tests/integration/sdk.py makes them.
"""
import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = HERE.parents[1]
LIMIT_S = 300
PROGRAM = "#!/bin/bash\necho \"begins at $EPOCHREALTIME\"\n"

# Two hosts that are there; a line on stdin runs one job on both and prints what rank 0 printed.
CLUSTER = '''
source "$PACELINE_SOURCE/tests/support/cluster.sh"
source "$PACELINE_SOURCE/tests/support/job.sh"
trap cluster_down EXIT
cluster_up 2
echo ready
while read -r program; do
  cp "$program" "$cluster/program"
  for host in algo-2 algo-1; do job_config $host "algo-1 algo-2" 1; done
  echo "start $EPOCHREALTIME"
  for host in algo-2 algo-1; do host_start $host "$paceline" -- "$cluster/program"; done
  for host in algo-1 algo-2; do host_wait $host 60 && [ "$code" = 0 ] || { cat "$cluster/$host.log"; exit 1; }; done
  grep -h "begins at" "$cluster/algo-1.log" | sed -n 1p
done
'''

# What the SDK needs instead of docker: podman, and podman-compose for `docker compose`.
DOCKER = '''#!/bin/sh
case "$1 $2" in
  "compose version") echo "Docker Compose version v2.0.0" ;;
  "compose "*) shift; exec {compose} --in-pod false "$@" ;;
  *) exec podman "$@" ;;
esac
'''
SDK = '''
import sys
from sagemaker.estimator import Estimator
from sagemaker.local import LocalSession
session = LocalSession()
session.config = {'local': {'local_code': True, 'container_root': sys.argv[2]}}
print('clock', flush=True)
sys.stdin.readline()
Estimator(image_uri=sys.argv[1], instance_type='local', instance_count=1, role='arn:aws:iam::111111111111:role/x', sagemaker_session=session,
          output_path='file://' + sys.argv[2], hyperparameters={'sagemaker_program': '/opt/ml/input/data/code/program'}).fit({'code': 'file://' + sys.argv[3]})
'''


def began(text, start):
    """Returns the seconds from the start to the first line of the program."""
    for line in text.splitlines():
        if "begins at " in line:
            return float(line.split("begins at ")[1].split()[0].replace(",", ".")) - start
    raise AssertionError(f"the program printed nothing: {text}")


def timed(words, folder, **environment):
    start = time.time()
    done = subprocess.run([str(word) for word in words], cwd=folder, env={**os.environ, **environment}, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=LIMIT_S)
    assert done.returncode == 0, done.stdout
    return began(done.stdout, start)


class Cluster:
    def __init__(self, build):
        environment = {**os.environ, "PACELINE_SOURCE": str(SOURCE), "PACELINE_BUILD": str(build)}
        self.shell = subprocess.Popen(["bash", "-ec", CLUSTER], env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.line("ready")

    def line(self, word):
        read = []
        while not read or word not in read[-1]:
            read.append(self.shell.stdout.readline())
            assert read[-1], "".join(read)
        return read[-1]

    def run(self, program):
        print(program, file=self.shell.stdin, flush=True)
        start = float(self.line("start ").split()[1].replace(",", "."))
        return began(self.line("begins at"), start)

    def end(self):
        self.shell.stdin.close()
        self.shell.wait(LIMIT_S)


def sdk_run(sdk, image, folder):
    """The clock starts when Python has loaded the SDK: a notebook has it loaded too."""
    (folder / "bin").mkdir(exist_ok=True)
    (folder / "bin/docker").write_text(DOCKER.format(compose=sdk / "tools/bin/podman-compose"))
    (folder / "bin/docker").chmod(0o755)
    root = folder / "sdk"
    root.mkdir(exist_ok=True)
    environment = {**os.environ, "PATH": f"{folder}/bin:{os.environ['PATH']}", "AWS_DEFAULT_REGION": "us-west-2", "AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x",
                   "AWS_EC2_METADATA_DISABLED": "true", "HOME": str(folder)}
    process = subprocess.Popen([sdk / "v2/bin/python", "-c", SDK, image, str(root), str(folder)], env=environment, text=True, stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    text = ""
    while not text.endswith("clock\n"):
        line = process.stdout.readline()
        assert line, text
        text += line
    start = time.time()
    text, _ = process.communicate("\n", timeout=LIMIT_S)
    return began(text, start)


def report(title, base, times):
    print(f"{title}, {len(times[base])} rounds, medians; a ratio is the median of the rounds' ratios")
    for name, values in times.items():
        more_s = statistics.median(value - other for value, other in zip(values, times[base]))
        ratio = statistics.median(value / other for value, other in zip(values, times[base]))
        print(f"  {name:<44} {statistics.median(values):7.3f} s" + ("" if name == base else f"  {more_s:+.3f} s  {ratio:6.2f} x"), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", type=pathlib.Path, default=SOURCE / "build")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--image")
    parser.add_argument("--sdk", type=pathlib.Path)
    options = parser.parse_args()
    build = options.build.resolve()
    paceline = build / "entrypoint/paceline"
    folder = pathlib.Path(tempfile.mkdtemp(prefix="paceline-local-start-"))
    program = folder / "program"
    program.write_text(PROGRAM)
    program.chmod(0o755)
    tree = folder / "tree"
    (tree / "input/config").mkdir(parents=True)
    (tree / "input/config/resourceconfig.json").write_text(json.dumps({"current_host": "algo-1", "hosts": ["algo-1"], "network_interface_name": "lo"}))
    (tree / "input/config/hyperparameters.json").write_text("{}")
    cluster = None
    try:
        one = {"paceline train": lambda: timed([paceline, "--", program], folder, SAGEMAKER_BASE_DIR=str(tree)),
               "paceline local, plain": lambda: timed([paceline, "local", "--kind", "plain", "--name", "plain", "--", program], folder),
               "paceline local, namespaces": lambda: timed([paceline, "local", "--name", "one", "--", program], folder)}
        cases = [("one host", "paceline train", one)]
        if os.geteuid() == 0:
            cluster = Cluster(build)
            cases.append(("two hosts, Open MPI, one rank each", "paceline train, hosts made before", {
                "paceline train, hosts made before": lambda: cluster.run(program),
                "paceline local, makes them": lambda: timed([paceline, "local", "--name", "two", "--hosts", "2", "--processes-per-host", "1", "--", program], folder)}))
        if options.image:
            # The SDK's job takes the program from a channel; so do the others.
            run = ["podman", "run", "--rm", "-v", f"{tree}:/opt/ml", "-v", f"{folder}:/opt/ml/input/data/code:ro", "-e",
                   "SAGEMAKER_PROGRAM=/opt/ml/input/data/code/program", options.image, "train"]
            images = {"podman run IMAGE train": lambda: timed(run, folder),
                      "paceline local --image IMAGE": lambda: timed([paceline, "local", "--name", "image", "--image", options.image, "--", "./program"], folder)}
            if options.sdk:
                images["the SDK's local mode, version 2"] = lambda: sdk_run(options.sdk.resolve(), options.image, folder)
            cases.append((f"one container of {options.image}", "podman run IMAGE train", images))
        for title, base, ways in cases:
            times = {name: [] for name in ways}
            for way in ways.values():
                way()  # a first run of each, which reads what the disk has
            for _ in range(options.rounds):
                for name, way in ways.items():
                    times[name].append(way())
            report(title, base, times)
    finally:
        if cluster:
            cluster.end()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
