#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Version 3 of the SageMaker SDK, unchanged and from PyPI, trains on the image in local container mode.

The SDK is installed into an environment of its own, with its telemetry off by its own configuration. It calls `docker
compose`: here a few lines call PyPI's podman-compose. The programs are shell scripts, in an image without Python.
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(os.environ.get('PACELINE_SOURCE', pathlib.Path(__file__).resolve().parents[2]))
IMAGE = os.environ.get('PACELINE_TEST_IMAGE', 'paceline:sdk')
PACKAGES = ['sagemaker-train==1.27.*', 'podman-compose']  # what trains in the SDK's version 3.27
LIMIT_S = 600
SETTINGS = "SchemaVersion: '1.0'\nSageMaker:\n  PythonSDK:\n    Modules:\n      TelemetryOptOut: true\n"
SAYS = 'echo "host $SM_CURRENT_HOST of $SM_HOST_COUNT rank ${OMPI_COMM_WORLD_RANK:--} of ${OMPI_COMM_WORLD_SIZE:--}, 1 is $(cat /proc/1/comm), $*"\n'
SCRIPTS = {'run.sh': '#!/bin/sh\n' + SAYS, 'fail.sh': '#!/bin/sh\necho "no such thing as luck" >&2\nexit 7\n'}
DOCKER = '''#!/bin/sh
case "$1 $2" in
  "compose version") echo "Docker Compose version v2.0.0" ;;
  "compose "*) shift; exec {compose} --in-pod false "$@" ;;
  *) exec podman "$@" ;;
esac
'''
TRAIN = '''
import json, sys
from sagemaker.core.training.configs import Compute, SourceCode
from sagemaker.train import ModelTrainer
from sagemaker.train.distributed import MPI
from sagemaker.train.model_trainer import Mode
image, root, hosts, source, mpi = sys.argv[1], sys.argv[2], int(sys.argv[3]), json.loads(sys.argv[4]), json.loads(sys.argv[5])
ModelTrainer(training_image=image, training_mode=Mode.LOCAL_CONTAINER, role='arn:aws:iam::111111111111:role/x', local_container_root=root,
             source_code=SourceCode(source_dir=root + '/src', **source), distributed=MPI(**mpi) if mpi else None,
             compute=Compute(instance_type='local_cpu', instance_count=hosts), hyperparameters={'epochs': 3, 'name': "it's"}).train()
'''


def skip(why):
    print(why)
    sys.exit(77)


def expect(condition, what):
    if not condition:
        raise AssertionError(what)


def make_image():
    if 'PACELINE_TEST_IMAGE' in os.environ:
        return
    script = f'source "$PACELINE_SOURCE/tests/support/containers.sh"; container_engine; [ $engine = podman ] || skip "this test needs podman"; container_build {IMAGE} "$PACELINE_SOURCE"'
    done = subprocess.run(['bash', '-c', script], env={**os.environ, 'PACELINE_SOURCE': str(SOURCE)}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode == 77:
        skip(done.stdout.strip().split('\n')[-1])
    expect(done.returncode == 0, done.stdout[-3000:])


def make_sdk(root):
    python = shutil.which('python3', path='/usr/bin:/usr/local/bin') or sys.executable
    venv = root / 'venv'
    subprocess.run([python, '-m', 'venv', str(venv)], check=True, stdout=subprocess.DEVNULL)
    done = subprocess.run([str(venv / 'bin/pip'), 'install', '-q', *PACKAGES], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        skip('the SDK cannot be installed from PyPI: ' + done.stdout.strip().split('\n')[-1])
    return venv


def train(root, venv, hosts, source, mpi=None):
    environment = {
        **os.environ, 'PATH': f'{root}/bin:{os.environ["PATH"]}', 'HOME': str(root), 'AWS_DEFAULT_REGION': 'us-west-2', 'AWS_ACCESS_KEY_ID': 'x',
        'AWS_SECRET_ACCESS_KEY': 'x', 'SAGEMAKER_USER_CONFIG_OVERRIDE': f'{root}/settings.yaml',
        'CONTAINERS_CONF': f'{os.environ.get("TMPDIR", "/tmp")}/paceline-containers/containers.conf',
    }
    words = [str(venv / 'bin/python'), f'{root}/train.py', IMAGE, str(root), str(hosts), json.dumps(source), json.dumps(mpi)]
    done = subprocess.run(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors='replace', timeout=LIMIT_S, check=False)
    return done.returncode, done.stdout


def said(log):
    return sorted(re.findall(r'(host algo-\d of \d rank \S+ of \S+, 1 is \w+, .*)', log))


def main():
    if os.geteuid() != 0:
        skip('containers on one network need root here')
    make_image()
    root = pathlib.Path(tempfile.mkdtemp(prefix='paceline-sdk-'))
    try:
        venv = os.environ.get('PACELINE_TEST_SDK')
        venv = pathlib.Path(venv) if venv else make_sdk(root)
        for name, text in {'train.py': TRAIN, 'settings.yaml': SETTINGS, 'bin/docker': DOCKER.format(compose=venv / 'bin/podman-compose'),
                           **{'src/' + name: text for name, text in SCRIPTS.items()}}.items():
            (root / name).parent.mkdir(exist_ok=True)
            (root / name).write_text(text)
            (root / name).chmod(0o755)
        options = "--epochs 3 --name it's"
        cases = [
            ('entry script', 1, {'entry_script': 'run.sh'}, None, [f'host algo-1 of 1 rank - of -, 1 is paceline, {options}']),
            ('command', 1, {'command': './run.sh', 'args': ['a b']}, None, ['host algo-1 of 1 rank - of -, 1 is paceline, a b']),
            ('MPI on two hosts', 2, {'entry_script': 'run.sh'}, {'process_count_per_node': 2},
             [f'host algo-{rank // 2 + 1} of 2 rank {rank} of 4, 1 is paceline, {options}' for rank in range(4)]),
        ]
        for what, hosts, source, mpi, lines in cases:
            code, log = train(root, venv, hosts, source, mpi)
            expect(code == 0 and said(log) == lines, f'{what}: exit code {code}, {said(log)} differs from {lines}: {log[-3000:]}')
            print('ok', what, flush=True)
        code, log = train(root, venv, 1, {'entry_script': 'fail.sh'})
        expect(re.search('exit(ed with)? code 7', log) and 'no such thing as luck' in log, f'a script that fails: exit code {code}: {log[-3000:]}')
        print('ok a script that fails')
    finally:
        shutil.rmtree(root, ignore_errors=True)


main()
