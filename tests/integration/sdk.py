#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Versions 2 and 3 of the SageMaker SDK, unchanged and from PyPI, train on the image in local container mode.

Each SDK is installed into an environment of its own, with its telemetry off by its own configuration. Both call `docker
compose`: here a few lines call PyPI's podman-compose. The programs are shell scripts in the image as it is, which has
no Python, and a Python script in one made from it, which has Debian's torch. The estimator and the trainer of
docs/sdk.md run as they stand there, except the image's name, the places of code and data, and the kind and number of
processors; so do those of examples/pytorch. With the word `full`: what the others show on another number of hosts.
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "support"))
from waiting import wait_until  # noqa: E402

SOURCE = pathlib.Path(os.environ.get('PACELINE_SOURCE', pathlib.Path(__file__).resolve().parents[2]))
IMAGE = os.environ.get('PACELINE_TEST_IMAGE', 'paceline:sdk')
PYTHON_IMAGE = IMAGE + '-python'
PACKAGES = {'v2': 'sagemaker[local]==2.257.*', 'v3': 'sagemaker-train==1.27.*'}  # what trains in the SDK's version 3.27
LIMIT_S = 1500  # a far deadline, to find a run that hangs
STOP_S = 110  # SageMaker gives 120
BEGIN = time.monotonic()
PROGRAMS = '/opt/ml/input/data/tools/'
FULL = sys.argv[1:] == ['full']
REPEATED = {'estimator', 'plain', 'script-2', 'command', 'mpi-2', 'torchrun'}

# As docker compose does, and podman-compose does not, it ends with the code of the container that ended first.
DOCKER = '''#!/bin/sh
case "$1 $2" in
  "compose version") echo "Docker Compose version v2.0.0" ;;
  "compose "*)
    shift
    {compose} --in-pod false "$@"
    set -- $(podman inspect --format '{{{{.State.FinishedAt.UnixNano}}}} {{{{.State.ExitCode}}}}' $(podman ps -aq --filter "label=$LABEL") | sort -n)
    podman rm -f $(podman ps -aq --filter "label=$LABEL") >/dev/null
    exit "${{2:-1}}" ;;
  *) exec podman "$@" ;;
esac
'''
SETTINGS = "SchemaVersion: '1.0'\nSageMaker:\n  PythonSDK:\n    Modules:\n      TelemetryOptOut: true\n"
# As README.md says, with a torchrun that starts in Debian.
DOCKERFILE = '''FROM {image}
ENV PIP_BREAK_SYSTEM_PACKAGES=1
RUN apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \\
    python3 python3-pip python3-numpy python3-mpi4py python3-torch
COPY torchrun /usr/local/bin/
'''

# What a rank says: where it is, how many hosts and ranks it counts, what is process 1, its arguments. The hosts wait for
# each other in the model's folder, which they share: compose ends them all with the first.
RUN = '''#!/bin/sh
echo "host $SM_CURRENT_HOST of $SM_HOSTS rank ${OMPI_COMM_WORLD_RANK:--} of ${OMPI_COMM_WORLD_SIZE:--}, 1 is $(cat /proc/1/comm), $*"
touch "/opt/ml/model/came-$SM_CURRENT_HOST"
for host in $(echo "$SM_HOSTS" | tr -d '[]",'); do
  tries=0
  until [ -e "/opt/ml/model/came-$host" ] || [ $((tries += 1)) = 600 ]; do sleep 0.1; done
done
'''
FAIL = '''#!/bin/sh
[ "${OMPI_COMM_WORLD_RANK:-3}" = 3 ] && echo "no such thing as luck" >&2 && exit 7
sleep 600
'''
SAVE = '''#!/bin/sh
trap 'echo saved >"/opt/ml/model/checkpoint-$OMPI_COMM_WORLD_RANK"; exit 0' TERM
touch "/opt/ml/model/ready-$OMPI_COMM_WORLD_RANK"
while :; do sleep 0.1; done
'''
TRAIN = '''
import json, os, sys
rank = size = '-'
if 'OMPI_COMM_WORLD_RANK' in os.environ:
    from mpi4py import MPI
    rank, size = MPI.COMM_WORLD.rank, MPI.COMM_WORLD.allreduce(1)
elif 'RANK' in os.environ:
    import torch
    torch.distributed.init_process_group('gloo')
    count = torch.ones(1)
    torch.distributed.all_reduce(count)
    rank, size = torch.distributed.get_rank(), int(count.item())
channels = [name for name in json.loads(os.environ['SM_CHANNELS']) if name not in ('code', 'sm_drivers')]
with open('/proc/1/comm') as file:
    line = f"host {os.environ['SM_CURRENT_HOST']} of {os.environ['SM_HOSTS']} rank {rank} of {size}, 1 is {file.read().strip()}, "
sys.stdout.write(line + ' '.join(sys.argv[1:] + sorted(channels)) + '\\n')  # in one piece, or ranks' pieces mix
'''

# Both run their cases one after the other, each after a line "--- NAME", and say "--- ended" or why not. A case is a
# piece of docs/sdk.md, or what it is made of.
V3 = '''
import json, sys, traceback
from sagemaker.core.training.configs import Compute, InputData, SourceCode
from sagemaker.train import ModelTrainer, distributed
from sagemaker.train.model_trainer import Mode
root = sys.argv[1]
def train(case):
    local = {'training_mode': Mode.LOCAL_CONTAINER, 'local_container_root': f"{root}/{case['name']}", 'role': 'arn:aws:iam::111111111111:role/x'}
    if 'page' in case:
        return exec(case['page'], {'local': local})
    kind, how = case['distributed'] or (None, None)
    ModelTrainer(training_image=case['image'], source_code=SourceCode(source_dir=root + '/src', **case['source']) if case['source'] else None,
                 distributed=getattr(distributed, kind)(**how) if kind else None, hyperparameters=case['hyperparameters'],
                 compute=Compute(instance_type='local_cpu', instance_count=case['hosts']), environment=case['environment'], **local,
                 ).train([InputData(channel_name=name, data_source=place) for name, place in case['channels'].items()])
'''
V2 = '''
import json, sys, traceback
from sagemaker.estimator import Estimator
from sagemaker.local import LocalSession
root = sys.argv[1]
def train(case):
    session = LocalSession()
    session.config = {'local': {'local_code': True, 'container_root': f"{root}/{case['name']}"}}
    local = {'sagemaker_session': session, 'output_path': f"file://{root}/{case['name']}", 'role': 'arn:aws:iam::111111111111:role/x'}
    if 'page' in case:
        return exec(case['page'], {'local': local})
    Estimator(image_uri=case['image'], instance_type='local', instance_count=case['hosts'], hyperparameters=case['hyperparameters'], **local,
              ).fit({name: 'file://' + place for name, place in case['channels'].items()})
'''
CASES = '''
for case in json.load(sys.stdin):
    print('---', case['name'], flush=True)
    try:
        train(case)
        print('--- ended', flush=True)
    except Exception:
        print('--- failed', traceback.format_exc(), flush=True)
'''


def skip(why):
    print(why)
    sys.exit(77)


def expect(condition, what):
    if not condition:
        raise AssertionError(what)


def make_images(root):
    (root / 'image').mkdir()
    (root / 'image/Dockerfile').write_text(DOCKERFILE.format(image=IMAGE))
    wrapper = (SOURCE / 'tests/support/torchrun.py').read_text()
    (root / 'image/torchrun').write_text('#!/usr/bin/python3\n' + wrapper)
    (root / 'image/torchrun').chmod(0o755)
    script = f'''
        source "$PACELINE_SOURCE/tests/support/containers.sh"
        container_engine
        [ $engine = podman ] || skip "this test needs podman"
        [ -n "${{PACELINE_TEST_IMAGE:-}}" ] || container_build {IMAGE} "$PACELINE_SOURCE"
        container_build {PYTHON_IMAGE} {root}/image'''
    done = subprocess.run(['bash', '-ec', script], env={**os.environ, 'PACELINE_SOURCE': str(SOURCE)}, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors='replace', check=False)
    if done.returncode == 77:
        skip(done.stdout.strip().split('\n')[-1])
    expect(done.returncode == 0, done.stdout[-3000:])


def install(words):
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        skip(f'{words[-1]} cannot be installed from PyPI: ' + done.stdout.strip().split('\n')[-1])


def make_environments(root):
    """The SDKs' environments, by uv, which installs two hundred packages in a tenth of pip's time."""
    python = shutil.which('python3', path='/usr/bin:/usr/local/bin') or sys.executable
    subprocess.run([python, '-m', 'venv', str(root / 'tools')], check=True, stdout=subprocess.DEVNULL)
    install([str(root / 'tools/bin/pip'), 'install', '-q', 'podman-compose', 'uv'])
    for name, package in PACKAGES.items():
        uv = [str(root / 'tools/bin/uv')]
        install([*uv, 'venv', '-q', '--python', python, str(root / name)])
        install([*uv, 'pip', 'install', '-q', '--python', str(root / name / 'bin/python'), package])


def write_files(root, tools):
    for name, text in {'v2.py': V2 + CASES, 'v3.py': V3 + CASES, 'settings.yaml': SETTINGS, 'src/requirements.txt': 'numpy\n',
                       'bin/docker': DOCKER.format(compose=tools / 'tools/bin/podman-compose'), 'src/run.sh': RUN, 'src/fail.sh': FAIL,
                       'src/save.sh': SAVE, 'src/train.py': TRAIN, 'data/training/x': '', 'data/testing/x': ''}.items():
        (root / name).parent.mkdir(exist_ok=True, parents=True)
        (root / name).write_text(text)
        (root / name).chmod(0o755)


def label(root):
    return f'com.docker.compose.project={root.name}'


def start(root, tools, version, cases):
    environment = {
        **os.environ, 'PATH': f'{root}/bin:{os.environ["PATH"]}', 'HOME': str(root), 'AWS_DEFAULT_REGION': 'us-west-2', 'AWS_ACCESS_KEY_ID': 'x',
        'AWS_SECRET_ACCESS_KEY': 'x', 'AWS_EC2_METADATA_DISABLED': 'true', 'SAGEMAKER_USER_CONFIG_OVERRIDE': f'{root}/settings.yaml',
        'COMPOSE_PROJECT_NAME': root.name, 'LABEL': label(root), 'CONTAINERS_CONF': f'{os.environ.get("TMPDIR", "/tmp")}/paceline-containers/containers.conf',
    }
    for case in cases:
        (root / case['name']).mkdir()
    (root / f'{version}.json').write_text(json.dumps(cases))
    with open(root / f'{version}.json') as stdin, open(root / f'{version}.log', 'w') as log:
        return subprocess.Popen([str(tools / version / 'bin/python'), f'{root}/{version}.py', str(root)], env=environment, stdin=stdin,
                                stdout=log, stderr=subprocess.STDOUT)


def logs(root, version):
    """The output of each case, by its name."""
    text = (root / f'{version}.log').read_text(errors='replace')
    parts = re.split(r'^--- (?!ended|failed)(\S+)$', text, flags=re.M)
    return dict(zip(parts[1::2], parts[2::2]))


def said(log):
    """The ranks' lines, without what version 2 of the SDK appends to its hosts' names, and version 3's blanks."""
    lines = re.findall(r'(host algo-\d\S* of .* rank \S+ of \S+, 1 is \w+,.*?)\s*$', log, flags=re.M)
    return sorted(re.sub(r'(algo-\d)-\w+', r'\1', line).replace('", "', '","') for line in lines)


def lines(hosts, ranks, options, process_1='paceline'):
    """Those of all ranks: `ranks` on each host, 0: the hosts' programs are not ranks."""
    names = json.dumps([f'algo-{i + 1}' for i in range(hosts)], separators=(',', ':'))
    return sorted(f'host algo-{i + 1} of {names} rank {i * ranks + j if ranks else "-"} of {hosts * ranks or "-"}, 1 is {process_1}, {options}'.rstrip()
                  for i in range(hosts) for j in range(ranks or 1))


def page(word, replaced):
    """The piece of Python in docs/sdk.md that has the word."""
    pieces = [piece for piece in re.findall(r'^```python\n(.*?)^```', (SOURCE / 'docs/sdk.md').read_text(), flags=re.M | re.S) if word in piece]
    expect(len(pieces) == 1, f'docs/sdk.md has {len(pieces)} pieces of Python with {word}, not 1')
    piece = pieces[0]
    for old, new in replaced.items():
        expect(piece.count(old) >= 1, f"the piece of docs/sdk.md with {word} has no {old}")
        piece = piece.replace(old, new)
    return piece


def example(version, replaced):
    """examples/pytorch's estimator without what local mode has not: spot instances, and checkpoints on S3."""
    text = (SOURCE / f'examples/pytorch/estimator_{version}.py').read_text()
    text = re.sub(r'^    (use_spot_instances|max_run|max_wait|checkpoint_s3_uri|stopping_condition|checkpoint_config)=.*\n', '', text, flags=re.M)
    replaced = {'image, role, bucket = sys.argv[1:]': f'image = {PYTHON_IMAGE!r}', 'role=role': '**local',
                '"examples/pytorch"': repr(str(SOURCE / 'examples/pytorch')), '"epochs": 20': '"epochs": 2', **replaced}
    for old, new in replaced.items():
        expect(text.count(old) == 1, f'estimator_{version}.py has {old} {text.count(old)} times')
        text = text.replace(old, new)
    return text


def case(name, hosts, image=IMAGE, **more):
    return {'name': name, 'hosts': hosts, 'image': image, 'source': None, 'distributed': None, 'hyperparameters': {}, 'environment': {}, 'channels': {},
            **more}


def cases(root):
    """{version: [(case, the lines it says; None: it fails)]}"""
    mpi = {'sagemaker_mpi_enabled': True, 'sagemaker_mpi_num_of_processes_per_host': 2, 'sagemaker_program': PROGRAMS + 'run.sh', 'epochs': 3}
    tools = {'tools': f'{root}/src'}
    program = {'entry_script': 'run.sh'}
    hyper = {'epochs': 3, 'name': "it's"}
    options = "--epochs 3 --name it's"
    places = {'"ACCOUNT.dkr.ecr.REGION.amazonaws.com/paceline:latest"': repr(PYTHON_IMAGE), '"src"': repr(f'{root}/src'), 'role=role': '**local'}
    old = page('from sagemaker.pytorch', {**places, '"processes_per_host": 8': '"processes_per_host": 2', 'ml.c5.4xlarge': 'local',
                                            's3://BUCKET/mnist/train': f'file://{root}/data/training', 's3://BUCKET/mnist/test': f'file://{root}/data/testing'})
    new = page('import ModelTrainer', {**places, 'process_count_per_node=8': 'process_count_per_node=2', 'ml.c5.4xlarge': 'local_cpu',
                                         's3://BUCKET/mnist/': f'{root}/data/'})
    return {
        'v2': [
            (case('estimator', 1, hyperparameters=mpi, channels=tools), lines(1, 2, '--epochs 3')),
            (case('estimator-2', 2, page=old), lines(2, 2, '--epochs 5 testing training')),
            (case('example-v2', 2, page=example('v2', {'"ml.c5.xlarge"': '"local"'})), []),
        ],
        'v3': [
            (case('plain', 1, hyperparameters={**hyper, 'sagemaker_program': PROGRAMS + 'run.sh'}, channels=tools), lines(1, 0, options)),
            (case('plain-2', 2, hyperparameters=mpi, channels=tools), lines(2, 2, '--epochs 3')),
            (case('script', 1, source=program, hyperparameters=hyper), lines(1, 0, options)),
            (case('script-2', 2, source=program, hyperparameters=hyper), lines(2, 0, options)),
            (case('command', 1, source={'command': './run.sh', 'args': ['a b']}), lines(1, 0, 'a b')),
            (case('command-2', 2, source={'command': './run.sh "$SM_MASTER_ADDR:$SM_HOST_COUNT"'}), lines(2, 0, 'algo-1:2')),
            (case('mpi', 1, source=program, distributed=('MPI', {'process_count_per_node': 2})), lines(1, 2, '')),
            (case('mpi-2', 2, source=program, distributed=('MPI', {'process_count_per_node': 2}), hyperparameters=hyper), lines(2, 2, options)),
            (case('page-2', 2, PYTHON_IMAGE, page=new), lines(2, 2, '--epochs 5 testing training')),
            (case('example-v3', 2, page=example('v3', {'"ml.c5.xlarge"': '"local_cpu"', ', enable_managed_spot_training=True': ''})), []),
            (case('torchrun', 1, PYTHON_IMAGE, source={'entry_script': 'train.py'}, distributed=('Torchrun', {'process_count_per_node': 2})), lines(1, 2, '')),
            (case('torchrun-2', 2, PYTHON_IMAGE, source={'entry_script': 'train.py'}, distributed=('Torchrun', {'process_count_per_node': 2}),
                  hyperparameters=hyper), lines(2, 2, options)),
            (case('drivers', 1, PYTHON_IMAGE, source=program, environment={'PACELINE_SDK_DRIVERS': '1'}), lines(1, 0, '', 'bash')),
            (case('environment', 1, PYTHON_IMAGE, source={'command': 'paceline -- ./run.sh'}, environment={'BASH_ENV': '/etc/profile'}),
             lines(1, 0, '', 'bash')),
            (case('failure', 1, source={'entry_script': 'fail.sh'}), None),
            (case('failure-2', 2, source={'entry_script': 'fail.sh'}, distributed=('MPI', {'process_count_per_node': 2})), None),
            (case('stop', 2, source={'entry_script': 'save.sh'}, distributed=('MPI', {'process_count_per_node': 2})), []),
        ],
    }


def check(name, log, expected):
    if expected is not None:
        expect('--- ended' in log and said(log) == expected, f'{name}: {said(log)} differs from {expected}: {log[-6000:]}')
    else:
        expect('--- failed' in log, f'{name} did not fail: {log[-6000:]}')
    if name.startswith('example'):
        expect('epoch=2 loss=' in log and 'rank 1 of 2 begins at epoch 1 step 0' in log, f'{name}: {log[-6000:]}')
    print('ok', name, flush=True)


def check_failures(root, found):
    for name, words in {'failure': ['no such thing as luck', 'code 7'], 'failure-2': ['no such thing as luck', 'rank 3', 'algo-2', 'code 7']}.items():
        reason = (root / name / 'algo-1/output/failure').read_text()
        for word in words:
            expect(word in reason, f"{name}: the failure file lacks '{word}': {reason}")
    expect("is not process 1 (the job's BASH_ENV is '/etc/profile'" in found['environment'], f"no warning of BASH_ENV: {found['environment'][-6000:]}")


def await_files(files, process):
    wait_until(lambda: all(file.exists() for file in files), lambda: f'{[str(file) for file in files if not file.exists()]} did not come', process, LIMIT_S)


def containers(root):
    words = ['podman', 'ps', '-aq', '--filter', f'label={label(root)}']
    return subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True).stdout.split()


def stop(root, process):
    """Runs `docker stop` on the last job once all its ranks run; returns the output."""
    await_files([root / f'stop/model/ready-{rank}' for rank in range(4)], process)
    names = containers(root)
    expect(len(names) == 2, f'{len(names)} containers of the job, not 2')
    stops = [subprocess.Popen([f'{root}/bin/docker', 'stop', '-t', str(STOP_S), name], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
             for name in names]
    return ''.join(one.communicate(timeout=LIMIT_S)[0] for one in stops)


def check_stop(root, words, log):
    """Each rank has saved, and no container had to be killed."""
    expect('SIGKILL' not in words, f'docker stop had to kill: {words}{log[-6000:]}')
    saved = sorted(path.name for path in (root / 'stop/model').glob('checkpoint-*'))
    expect(saved == [f'checkpoint-{rank}' for rank in range(4)], f'{saved} were saved: {log[-6000:]}')


def main():
    if os.geteuid() != 0:
        skip('containers on one network need root here')
    root = pathlib.Path(tempfile.mkdtemp(prefix='paceline-sdk-'))
    process = None
    try:
        tools = pathlib.Path(os.environ.get('PACELINE_TEST_SDK', root))  # with tools/, v2/ and v3/
        make_images(root)
        if tools == root:
            make_environments(root)
        write_files(root, tools)
        print(f'[{time.monotonic() - BEGIN:.0f} s] prepared', flush=True)
        for version, jobs in cases(root).items():
            jobs = [(job, expected) for job, expected in jobs if (job['name'] in REPEATED) == FULL]
            process = start(root, tools, version, [job for job, _ in jobs])
            words = stop(root, process) if jobs[-1][0]['name'] == 'stop' else ''
            process.wait(LIMIT_S)
            found = logs(root, version)
            for job, expected in jobs:
                check(job['name'], found.get(job['name'], (root / f'{version}.log').read_text()), expected)
            print(f'[{time.monotonic() - BEGIN:.0f} s] version {version[1]}', flush=True)
        if not FULL:
            check_failures(root, found)
            check_stop(root, words, found['stop'])
        print('ok all', flush=True)
    finally:
        if process is not None:
            process.kill()
        if shutil.which('podman') and containers(root):
            subprocess.run(['podman', 'rm', '-f', *containers(root)], stdout=subprocess.DEVNULL, check=False)
        shutil.rmtree(root, ignore_errors=True)


main()
