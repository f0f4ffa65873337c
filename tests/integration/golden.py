#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Environment and argument vectors are those of the Python toolkit, byte for byte, for every captured case.

The captures are in tests/data/toolkit. Where the results differ on purpose, the test names the row of docs/differences.md
that says so, and fails when there is no such row or when there is no difference any more.
"""
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(os.environ.get('PACELINE_SOURCE', pathlib.Path(__file__).resolve().parents[2]))
BUILD = pathlib.Path(os.environ.get('PACELINE_BUILD', SOURCE / 'build'))
PACELINE = str(BUILD / 'entrypoint' / 'paceline')
IGNORED = {'SM_NUM_CPUS', 'SM_NUM_GPUS', 'SM_NUM_NEURONS', 'PYTHONPATH'}
COUNTS = re.compile(r'"num_(cpus|gpus|neurons)":\d+')
DIFFERENCES = set(re.findall(r'^- `([a-z-]+)`', (SOURCE / 'docs' / 'differences.md').read_text(), re.M))

# case -> the row that explains why its arguments or its success differ
CASE_DIFFERENCES = {
    '22-framework-capture-error': 'no-shell',
    '41-framework-semicolon-swallows-failure': 'no-shell',
    '32-mpi-custom-options-argparse-exit': 'mpi-options',
    'mpi-nif-ethwe': 'interface',
    'mpi-efa-p5': 'instance-types',
    'mpi-binary-entry': 'no-shell',
    'process-package-sh': 'no-shell',
}
SOCKET_INTERFACES = ('NCCL_SOCKET_IFNAME', 'GLOO_SOCKET_IFNAME', 'TP_SOCKET_IFNAME')
failures = []
used = set()


def differs(row):
    assert row in DIFFERENCES, f'docs/differences.md has no row `{row}`'
    used.add(row)


def check(what, ours, theirs):
    if ours != theirs:
        failures.append(f'{what}:\n    ours    {ours!r}\n    toolkit {theirs!r}')


def image():
    """A directory with launchers and a TensorFlow: the toolkit's captures had them, but this machine may lack them."""
    root = pathlib.Path(tempfile.mkdtemp(prefix='paceline-image-'))
    (root / 'first').mkdir()
    for name in ('mpirun', 'first/torchrun', 'neuron_parallel_compile', 'ssh'):
        (root / name).write_text('#!/bin/sh\n')
        (root / name).chmod(0o755)
    (root / 'tensorflow.py').touch()
    (root / 'id_ed25519').touch() # the key by which hosts are linked
    return root


class Tree:
    """One host's /opt/ml, with SAGEMAKER_BASE_DIR instead of the mount."""

    def __init__(self, config, code, env):
        self.base = pathlib.Path(tempfile.mkdtemp(prefix='paceline-golden-'))
        (self.base / 'input/config').mkdir(parents=True)
        for name, text in config.items():
            (self.base / 'input/config' / name).write_text(text)
        for name, text in code.items():
            path = self.base / 'code' / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        self.env = {'PATH': f"{IMAGE}/first:{os.environ['PATH']}:{IMAGE}", 'PYTHONPATH': str(IMAGE), 'HOME': str(self.base), 'SAGEMAKER_BASE_DIR': str(self.base),
                    'PACELINE_SSH_DIR': str(IMAGE)}
        self.env.update(env)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.base)

    def run(self, verb):
        done = subprocess.run([PACELINE, verb], env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
        if done.returncode != 0:
            return None, done.stderr.decode()
        return json.loads(done.stdout.decode().replace(str(self.base), '/opt/ml')), ''


def comparable(env):
    return {k: COUNTS.sub(r'"num_\1":0', v) if k == 'SM_TRAINING_ENV' else v for k, v in env.items() if k not in IGNORED}


def code_of(case):
    program = json.loads(case.get('hyperparameters', {}).get('sagemaker_program', '"train.py"'))
    code = case.get('code') or {'train.py': '# a program\n'}
    if case.get('tarball'):
        code = dict(case['tarball'])
    code.setdefault(program, '#!/bin/sh\n')
    return code


def without_rank(argv):
    """The words before `paceline rank`, through which MPI's ranks run, and the program with its arguments, separated by `--`."""
    at = next((i for i, w in enumerate(argv) if os.path.basename(w) == 'paceline' and argv[i + 1:i + 2] == ['rank']), None)
    if at is None:
        return [], argv
    dash = argv.index('--', at + 3)
    return argv[:at], argv[at + 2:dash] + argv[dash + 1:]


def words_of(argv):
    """The user's arguments: after `paceline rank` under MPI, after the interpreter for Python."""
    argv = without_rank(argv)[1]
    if os.path.basename(argv[0]).startswith('python'):
        argv = argv[3:] if argv[1:3] == ['-m', 'mpi4py'] else argv[1:]
    return argv[1:] if argv[0] == '/bin/sh' else argv


def unmasked(words, env):
    """`plan` shows *** for values under secret names; `env` masks nothing. The arguments are the last words."""
    args = json.loads(env.get('SM_USER_ARGS', '[]'))
    at = len(words) - len(args)
    return words[:at] + [arg if word == '***' else word for word, arg in zip(words[at:], args)]


def run_case(name, data):
    case, expected = data['case'], data['expected']
    for host, result in expected.get('hosts', {}).items():
        env = dict(expected.get('parent_env') or {})
        env.setdefault('TRAINING_JOB_NAME', 'sample-job-2024-01-01-00-00-00-000')
        env.update(case.get('env', {}))
        env.pop('LD_PRELOAD', None)
        env.pop('PATH', None)
        env.pop('HOME', None)
        with Tree(data['config'][host], code_of(case), env) as tree:
            check_host(name, host, result, tree)


def check_host(name, host, result, tree):
    row = CASE_DIFFERENCES.get(name)
    env, _ = tree.run('env')
    plan, _ = tree.run('plan')
    for process, seen in result['processes'].items():
        if env is None or plan is None:
            failures.append(f'{name} {process}: refused')
            return
        theirs = comparable(seen['env'])
        ours = comparable(env)
        if 'PYTHONUNBUFFERED' not in theirs:
            differs('unbuffered')
            check(f'{name} {process} PYTHONUNBUFFERED', ours.pop('PYTHONUNBUFFERED', None), '1')
        check(f'{name} {process} checkpoints', ours.pop('PACELINE_CHECKPOINT_DIR', None), '/opt/ml/checkpoints')  # for SAGEMAKER_BASE_DIR is set
        for variable in SOCKET_INTERFACES:
            if variable not in theirs:
                differs('socket-interface')
                check(f'{name} {process} {variable} is an interface', ours.pop(variable, None) in os.listdir('/sys/class/net'), True)
        for variable in [variable for variable in theirs if not variable.isascii()]:  # the name of a hyperparameter
            differs('characters')
            copied = next((own for own in ours if own.upper() == variable), None)
            check(f'{name} {process} {variable}', ours.pop(copied, None), theirs.pop(variable))
        if plan['role'] == 'worker':
            # All ranks of the toolkit see the master's values.
            differs('own-host')
            for key in ('SM_CURRENT_HOST', 'SM_TRAINING_ENV', 'SM_RESOURCE_CONFIG'):
                ours.pop(key)
                theirs.pop(key)
        check(f'{name} {process} environment', sorted(set(ours.items()) - set(theirs.items())), [])
        check(f'{name} {process} environment', [], sorted(set(theirs.items()) - set(ours.items())))
        check(f'{name} {process} directory', plan['cwd'], seen['cwd'])
        if plan['argv'] is None:
            continue
        if row is None:
            check(f'{name} {process} arguments', unmasked(words_of(plan['argv']), env), seen['argv'])
        else:
            differs(row)
            assert words_of(plan['argv']) != seen['argv'], f'{name}: there is no difference any more'
    if not result['processes'] and result['failure_file'] and ('json' in name or 'no-program' in name):
        check(f'{name} refused', plan is None, True)


def translate(argv, interpreter):
    """The toolkit's command line in the form that ours must have, with the placeholders filled in."""
    out = []
    for word in argv:
        if word == '{PY}':
            word = interpreter
        out.append('LD_PRELOAD=' if word.startswith('LD_PRELOAD=') else word)
    return out


def run_command(name, data):
    config = {'hyperparameters.json': json.dumps(data['hyperparameters']), 'resourceconfig.json': json.dumps(data['resourceconfig'])}
    if '-x' in (data['argv'] if data.get('argv') else []) and 'SM_CHANNEL_TRAIN' in data['argv']:
        config['inputdataconfig.json'] = json.dumps({'train': {'TrainingInputMode': 'File'}})
    with Tree(config, {f: '#!/bin/sh\n' for f in data['code_files']}, data['extra_env']) as tree:
        plan, error = tree.run('plan')
    if name.startswith('smddp'):
        differs('smddp')
        check(f'{name} refused', 'not supported' in error, True)
        return
    if 'error' in data:
        check(f'{name} refused', plan is None and 'torchrun' in error, True)
        return
    if plan is None:
        failures.append(f'{name}: refused: {error}')
        return
    if data['argv'] is None:
        check(f'{name} role', (plan['role'], plan['argv']), ('worker', None))
        return
    interpreter = next((w for w in plan['argv'] if os.path.basename(w).startswith('python')), '')
    ours = ['LD_PRELOAD=' if w.startswith('LD_PRELOAD=') else w for w in plan['argv']]
    ours = sum(without_rank(ours), [])
    theirs = translate(data['argv'], interpreter)
    row = CASE_DIFFERENCES.get(name)
    if row == 'no-shell':
        differs(row)
        at = theirs.index('/bin/sh')
        theirs = theirs[:at] + theirs[at + 2].strip('"').split()
    elif row == 'interface':
        differs(row)
        chosen = next(w.split('=')[1] for w in ours if w.startswith('NCCL_SOCKET_IFNAME='))
        theirs = [w.replace('ethwe', chosen) for w in theirs]
    elif row == 'instance-types':
        differs(row)
        at = ours.index('FI_EFA_USE_DEVICE_RDMA=1')
        ours = ours[:at - 1] + ours[at + 1:]
    check(f'{name} command', ours, theirs)
    for key, value in data['env_set_by_runner'].items():
        check(f'{name} {key}', plan['env'].get(key), value)


def run_tf_config(kind, switch, data):
    for name, expected in data.items():
        count, current = re.match(r'(\d) hosts, current (\S+)', name).groups()
        hosts = [f'algo-{i + 1}' for i in range(int(count))]
        config = {
            'hyperparameters.json': json.dumps({switch: 'true', 'sagemaker_program': '"train.py"'}),
            'resourceconfig.json': json.dumps({'current_host': current, 'hosts': hosts, 'network_interface_name': 'eth0'}),
        }
        with Tree(config, {'train.py': '# a program\n'}, {}) as tree:
            plan, error = tree.run('plan')
        if plan is None:
            failures.append(f'{kind} {name}: refused: {error}')
        elif kind == 'parameter_server' and len(hosts) == 1:
            check(f'{kind} {name}', plan['launcher'], 'direct')
        else:
            check(f'{kind} {name} TF_CONFIG', plan['env'].get('TF_CONFIG'), expected['TF_CONFIG'])
            if expected.get('ps_task_config'):
                check(f'{kind} {name} server', plan['side']['TF_CONFIG'], expected['ps_task_config'])


def run_v3(name, data):
    """A tree of the SDK's version 3: each variable that its script exports, and the arguments. Values that the script gets wrong are right here."""
    theirs = data.get('env') or {}
    values = data['hyperparameters']
    order = json.loads(theirs.get('SM_HPS', '{}')) or values  # the capture has names sorted, the variables have the files' order
    config = {
        'hyperparameters.json': json.dumps({key: values[key] for key in order}),
        'resourceconfig.json': theirs.get('SM_RESOURCE_CONFIG', json.dumps(data['resourceconfig'])),
        'inputdataconfig.json': theirs.get('SM_INPUT_DATA_CONFIG', '{}'),
    }
    script = data['sourcecode.json']['entry_script']
    with Tree(config, {}, {'TRAINING_JOB_NAME': 'sample-job-2024-01-01-00-00-00-000'}) as tree:
        base = pathlib.Path(tree.base)
        for file, text in (('sm_drivers/sourcecode.json', json.dumps(data['sourcecode.json'])),
                           ('sm_drivers/distributed.json', theirs.get('SM_DISTRIBUTED_CONFIG', '{}')), ('code/' + script, '#!/bin/sh\n')):
            path = base / 'input/data' / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        plan, error = tree.run('plan')
    if plan is None:
        failures.append(f'v3 {name}: refused: {error}')
        return
    differs('sdk-drivers')
    ours = {key: value.replace(str(base), '/opt/ml') for key, value in plan['env'].items()}
    for key, value in theirs.items():
        if key == 'SM_TRAINING_ENV':
            mine = json.loads(ours[key])
            for member, expected in json.loads(value).items():
                if not member.startswith('num_'):
                    check(f'v3 {name} SM_TRAINING_ENV {member}', mine.get(member), expected)
        elif key not in IGNORED:
            check(f'v3 {name} {key}', ours.get(key), value)
    command = data.get('command')
    command = command['argv'] if isinstance(command, dict) else command
    if not theirs:  # the SDK's script fails at a quote
        check(f'v3 {name} argv', plan['argv'][1], script)
    elif command[0] == 'mpirun':
        hosts, each = len(data['resourceconfig']['hosts']), data['distributed.json']['process_count_per_node'] or 1
        check(f'v3 {name} processes', plan['processes'], hosts * each)
        check(f'v3 {name} hosts', plan['argv'][plan['argv'].index('--host') + 1], command[command.index('--host') + 1])
        at = plan['argv'].index('--')
        check(f'v3 {name} arguments', plan['argv'][at + 1:], command[command.index(script) + 1:])
    elif command[0] == '/bin/sh':
        check(f'v3 {name} argv', plan['argv'], shlex.split(command[2].split(' && ')[1]))
    else:
        check(f'v3 {name} arguments', plan['argv'][plan['argv'].index(script):], command[command.index(script):])


folder = SOURCE / 'tests/data/toolkit'
IMAGE = image()
cases = json.loads((folder / 'cases.json').read_text())
commands = json.loads((folder / 'commands.json').read_text())
tf_config = json.loads((folder / 'tf-config.json').read_text())
for case_name, case_data in cases.items():
    run_case(case_name, case_data)
for case_name, case_data in commands.items():
    run_command(case_name, case_data)
run_tf_config('parameter_server', 'sagemaker_parameter_server_enabled', tf_config['parameter_server'])
run_tf_config('multi_worker_mirrored', 'sagemaker_multi_worker_mirrored_strategy_enabled', tf_config['multi_worker_mirrored'])
v3 = json.loads((folder / 'v3-drivers.json').read_text())
for case_name, case_data in v3.items():
    run_v3(case_name, case_data)
shutil.rmtree(IMAGE)
for failure in failures:
    print(failure)
print(f'{len(cases)} cases, {len(commands)} command lines and {len(v3)} jobs of the SDK, {len(failures)} failures, differences used: {", ".join(sorted(used))}')
sys.exit(1 if failures else 0)
