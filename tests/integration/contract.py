#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`paceline train` with trees like /opt/ml: which program runs, its environment and arguments, and the files after an error.

Real processes on one host, no network. Each case lays out its own tree below SAGEMAKER_BASE_DIR.
"""
import io
import json
import os
import pathlib
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / 'support'))
from job_tree import expect, PACELINE, PYTHON, refused, run, SHOW, skipped, SOURCE, Tree  # noqa: E402
from python_with import python_with  # noqa: E402


def program_sees_arguments_environment_and_directory():
    hps = {'sagemaker_program': '"run.sh"', 'name': '"a b; $HOME \'x\'"', 'empty': '', 'n': '3', 'paceline_timeout_s': '9'}
    with Tree(hps, {'run.sh': SHOW}, channels={'training': {'TrainingInputMode': 'File'}}, env={'MINE': 'kept'}) as tree:
        expect(tree.train() == 0, tree.done.stderr)
        expect(tree.read('output/data/args') == "--empty\n\n-n\n3\n--name\na b; $HOME 'x'\n", tree.read('output/data/args'))
        env = tree.seen()
        expect(env['SM_HPS'] == '{"empty":"","n":3,"name":"a b; $HOME \'x\'"}', env['SM_HPS'])
        expect(env['SM_CHANNEL_TRAINING'] == f'{tree.base}/input/data/training', env['SM_CHANNEL_TRAINING'])
        expect(env['MINE'] == 'kept' and env['PACELINE_TIMEOUT_S'] == '9', 'inherited variables')
        expect(tree.read('output/data/cwd').strip() == f'{tree.base}/code', 'directory')
        expect(tree.read('output/success') == '', 'success file')


def env_prints_what_train_adds():
    with Tree({'sagemaker_program': 'run.sh', 'paceline_timeout_s': '9'}, {'run.sh': SHOW}) as tree:
        expect(tree.train() == 0, tree.done.stderr)
        printed = json.loads(subprocess.run([PACELINE, 'env'], env=tree.env, stdout=subprocess.PIPE, check=True).stdout)
        seen = tree.seen()
        added = {name: value for name, value in seen.items() if name not in tree.env and name not in ('PWD', 'OLDPWD', 'SHLVL', '_')}
        expect(printed == added, set(printed.items()) ^ set(added.items()))
        expect('PYTHONPATH' in printed and printed['PACELINE_TIMEOUT_S'] == '9', printed)


def start_words():
    with Tree({'sagemaker_program': 'run.sh'}, {'run.sh': SHOW}) as tree:
        expect(subprocess.run([PACELINE], env=tree.env, check=False).returncode == 0, 'no word')
        expect(tree.train('train', 'train') == 0 and tree.read('output/data/args') == '', 'an image whose entry point is `paceline train`')
        for words in (('--epochs', '3'), ('train', '--epochs'), ('--help',), ('trian',)):
            expect(tree.train('train', *words) == 2, words)
            expect(tree.read('output/failure').startswith(f"train takes no arguments, found '{words[0]}'; the program gets its arguments from "), tree.read('output/failure'))
            expect(tree.read('output/success') is None, words)
        expect(tree.train('--', 'sh', '-c', 'exit 7') != 0 and '7' in tree.read('output/failure'), 'a command')
        expect(tree.train('inof') == 2, 'a mistyped verb')
        base = os.path.relpath(tree.base)
        shutil.rmtree(tree.base / 'output')
        for name in (base, './' + base + '//'):
            tree.env['SAGEMAKER_BASE_DIR'] = name
            expect(tree.train() == 0 and tree.read('output/success') is not None, tree.done.stderr)
            seen = tree.seen()
            expect(os.path.isabs(seen['SAGEMAKER_BASE_DIR']) and os.path.samefile(seen['SAGEMAKER_BASE_DIR'], tree.base), seen)
            expect(os.path.isabs(seen['SM_MODEL_DIR']) and os.path.samefile(seen['SM_MODEL_DIR'], tree.base / 'model'), seen)
        tree.env['SAGEMAKER_BASE_DIR'] = str(tree.base)
        (tree.base / 'input/config/resourceconfig.json').unlink()
        expect(subprocess.run([PACELINE], env=tree.env, stderr=subprocess.PIPE, check=False).returncode == 2, 'no job')


def closed_standard_descriptors():
    """A program gets /dev/null for a descriptor that our parent closed, and no file or link of ours."""
    with Tree() as tree:
        closed = 'exec "$@" <&- >&- 2>&-'
        code = subprocess.run(['sh', '-c', closed, 'sh', PACELINE, '--', 'sh', '-c', 'ls -l /proc/$$/fd >"$SM_MODEL_DIR/fds"; echo why >&2; exit 5'],
                              env=tree.env, timeout=60, check=False).returncode
        expect(code == 5 and 'why' in tree.read('output/failure'), (code, tree.read('output/failure')))
        fds = dict(re.findall(r' (\d+) -> (.*)', tree.read('model/fds')))
        expect(fds.get('0') == '/dev/null', fds)


def a_terminal():
    """The program has the terminal to itself; Control-Z, after which nobody could continue it, does not suspend it."""
    with Tree() as tree:
        pid, fd = pty.fork()
        if pid == 0:
            os.execve(PACELINE, [PACELINE, '--', 'sh', '-c', 'echo begun; read word; echo "read $word"; exit 5'], tree.env)
        said, deadline = b'', time.monotonic() + 60
        while b'read again' not in said and time.monotonic() < deadline:
            if not select.select([fd], [], [], 0.1)[0]:
                continue
            before, said = said, said + os.read(fd, 1000)
            if b'begun' in said and b'begun' not in before:
                os.write(fd, b'\x1aagain\n')
        if b'read again' not in said:
            os.kill(pid, signal.SIGKILL)
        status = os.waitpid(pid, 0)[1]
        expect(os.WIFEXITED(status) and os.WEXITSTATUS(status) == 5, (status, said))
        os.close(fd)


def a_shell_of_the_sdk_begins_one_job():
    """The first shell of a container is replaced by the job; bash as process 1 of a namespace in the job is not. A file of the job's own that reads ours acts in both."""
    space = ['unshare', '--pid', '--fork', '--kill-child', '--mount-proc']
    probe = subprocess.run([*space, 'true'], capture_output=True, text=True, timeout=60, check=False)
    if probe.returncode != 0:
        skipped.append(f'a_shell_of_the_sdk_begins_one_job: no PID namespace can be made here: {probe.stderr.strip()}')
        return
    with Tree({}, {}) as tree:
        ours = (SOURCE / 'entrypoint/bash-env.sh').read_text().replace('@paceline@', PACELINE)
        tree.write('own.sh', f'OWN=yes\n{ours}')
        tree.write('input/data/sm_drivers/sourcecode.json', json.dumps({'command': f"echo job $$ $OWN; {' '.join(space)} bash -c 'echo inner $$ $OWN'; true"}))
        tree.env['BASH_ENV'] = str(tree.base / 'own.sh')
        done = subprocess.run([*space, 'bash', '-c', 'echo the script'], env=tree.env, capture_output=True, text=True, timeout=120, check=False)
        expect(done.returncode == 0 and re.fullmatch(r'job \d+ yes\ninner 1 yes\n', done.stdout), f'{done.returncode}: {done.stdout!r} {done.stderr}')


def malformed_json():
    with Tree('{not json', {'run.sh': SHOW}) as tree:
        refused(tree, 'hyperparameters.json, line 1, column 2: expected a key (a name in double quotes)', "found 'n'", 'on your machine correct it')


def missing_file():
    with Tree({'sagemaker_program': 'run.sh'}, {'run.sh': SHOW}) as tree:
        (tree.base / 'input/config/resourceconfig.json').unlink()
        refused(tree, 'there is no job here', "resourceconfig.json' does not exist", 'paceline demo')


def wrong_type():
    with Tree({}, resource={'current_host': 'algo-1', 'hosts': 'algo-1'}) as tree:
        refused(tree, 'resourceconfig.json, line 1, column 37: hosts: expected a list, found a string "algo-1"')


def zero_processes():
    with Tree({'sagemaker_mpi_enabled': 'true', 'sagemaker_mpi_num_of_processes_per_host': '0', 'sagemaker_program': '/bin/true'}) as tree:
        refused(tree, 'sagemaker_mpi_num_of_processes_per_host: expected a whole number from 1')


def settings_that_cannot_be():
    """They are refused before the program starts; `plan` refuses them too."""
    for hps, env, told in (({'paceline_trial_cpus': 'abc'}, {}, "hyperparameter paceline_trial_cpus is 'abc': expected CPUs from 1 to 65536"),
                           ({'paceline_stop_s': 'x'}, {}, "hyperparameter paceline_stop_s is 'x': expected seconds from 3 to 86400"),
                           ({}, {'PACELINE_ALGORITHM': 'foo'}, "PACELINE_ALGORITHM is 'foo': expected one of ring halving doubling tree direct"),
                           ({}, {'HOROVOD_STALL_CHECK_TIME_SECONDS': '1m'}, "HOROVOD_STALL_CHECK_TIME_SECONDS is '1m': expected a number, at least 0")):
        with Tree({'sagemaker_program': 'run.sh', **hps}, {'run.sh': SHOW}, env=env) as tree:
            refused(tree, told)
            expect(tree.read('output/data/args') is None, 'the program was started')
            expect(tree.train('plan') == 1 and told in tree.done.stderr.decode(), tree.done.stderr)


def image_with(folder, *names):
    """A PATH with only these programs of this machine."""
    for name in names:
        (folder / name).symlink_to(shutil.which(name) or '/bin/' + name)
    return str(folder)


def refused_alike(tree, *parts):
    """`plan` fails like `train`, with the same message, and starts or writes nothing."""
    code, said = tree.train('plan'), tree.done.stderr.decode()
    expect(code == 1 and tree.done.stdout == b'', (code, tree.done.stdout, said))
    expect(tree.read('output/failure') is None, 'plan wrote a failure file')
    refused(tree, *parts)
    told = tree.read('output/failure').split('\n')[0]
    expect(f'paceline: error: cannot plan the job: {told}\n' in said, (said, told))


def what_the_image_lacks_is_known_to_plan():
    python = next((p for p in ('/usr/bin/python3', PYTHON) if p and os.path.exists(p)), None)
    with tempfile.TemporaryDirectory(prefix='paceline-image-') as folder:
        env = {'PATH': image_with(pathlib.Path(folder), 'sh', 'ssh'), **({'PACELINE_PYTHON': python} if python else {})}
        with Tree({'sagemaker_program': 'run.sh', 'sagemaker_mpi_enabled': 'true'}, {'run.sh': SHOW}, env=env) as tree:
            refused_alike(tree, "mpirun starts the job's program and is not on PATH in this image: build it with Open MPI")
        if python is None:
            skipped.append('what_the_image_lacks_is_known_to_plan: no python3')
            return
        hps = {'sagemaker_program': 'train.py', 'sagemaker_torch_distributed_enabled': 'true'}
        with Tree(hps, {'train.py': ''}, env=env) as tree:
            refused_alike(tree, "torchrun starts the job's program and is not on PATH in this image: build it with PyTorch")
            tree.write('store/sourcedir.tar.gz', archive([('train.py', b''), ('requirements.txt', b'torch')]))
            (tree.base / 'code/train.py').unlink()
            tree.write('input/config/hyperparameters.json', json.dumps({**hps, 'sagemaker_submit_directory': f'{tree.base}/store/sourcedir.tar.gz'}))
            expect(tree.train('plan') == 0, tree.done.stderr)
            warnings = json.loads(tree.done.stdout)['warnings']
            expect(any('torchrun' in warning and 'the packages that pip installs for the code must contain it' in warning for warning in warnings), warnings)
        # Two hosts, so that there are parameter servers; the second name is this host too, and there is no link between them.
        resource = {'current_host': 'algo-1', 'hosts': ['algo-1', 'algo-2'], 'network_interface_name': 'lo'}
        keys = pathlib.Path(folder) / 'keys'
        env['PACELINE_SSH_DIR'] = str(keys)
        with Tree({'sagemaker_program': 'train.py', 'sagemaker_parameter_server_enabled': 'true'}, {'train.py': ''}, resource, env=env) as tree:
            refused_alike(tree, "the training image that this job names has no ssh keys ('", 'PACELINE_SSH_SECRET', 'the Dockerfile that builds this training image')
        keys.mkdir()
        (keys / 'id_ed25519').touch()
        if subprocess.run([python, '-c', 'import tensorflow'], stderr=subprocess.DEVNULL, check=False).returncode != 0:
            with Tree({'sagemaker_program': 'train.py', 'sagemaker_parameter_server_enabled': 'true'}, {'train.py': ''}, resource, env=env) as tree:
                code, said = tree.train('plan'), tree.done.stderr.decode()
                expect(code == 1 and 'cannot plan the job: looking for tensorflow on host algo-1: sagemaker_parameter_server_enabled starts TensorFlow' in said, said)
                tree.write('code/tensorflow.py', '')
                expect(tree.train('plan') == 0, tree.done.stderr)
                (tree.base / 'code/tensorflow.py').unlink()
                tree.write('code/requirements.txt', 'tensorflow')
                code, said = tree.train('plan'), tree.done.stderr.decode()
                expect(code == 0 or 'this image has no pip' in said, said)


def unknown_host():
    with Tree({'sagemaker_program': '/bin/true'}, resource={'current_host': 'algo-7', 'hosts': ['algo-1', 'algo-2']}) as tree:
        refused(tree, 'resourceconfig.json, line 1, column 18', 'current_host', '"algo-7"')


def a_fifo_instead_of_a_file():
    for name in ('resourceconfig.json', 'hyperparameters.json'):
        with Tree({'sagemaker_program': '/bin/true'}) as tree:
            config = tree.base / 'input/config' / name
            config.unlink()
            os.mkfifo(config)
            refused(tree, f"{name}' is a FIFO into which nobody writes: expected a file")


def program_not_found():
    with Tree({'sagemaker_program': '"nope.py"'}, {'train.py': ''}) as tree:
        refused_alike(tree, "the program 'nope.py' is not in")
    with Tree({'sagemaker_program': '"nope"'}, {'train.py': ''}) as tree:
        refused(tree, "the program 'nope' is neither a file in")
    with Tree({}, {'train.py': ''}) as tree:
        refused(tree, 'no program is named')


def a_byte_order_mark():
    """An editor's byte order mark before a script is an error for sh and for the kernel; both are reported."""
    script = b'\xef\xbb\xbf#!/bin/sh\nexit 3\n'
    with Tree({'sagemaker_program': 'run.sh'}, {'run.sh': script}) as tree:
        refused(tree, 'code 3')
        expect("'./run.sh' begins with a byte order mark, which sh takes as a part of its first line, so that no interpreter" in tree.done.stderr.decode(), tree.done.stderr)
        (tree.base / 'code/run.sh').chmod(0o755)
        expect(tree.train('--', str(tree.base / 'code/run.sh')) != 0, tree.done.stderr)
        expect('it begins with a byte order mark, save it without one' in tree.read('output/failure'), tree.read('output/failure'))


def no_python():
    with Tree({'sagemaker_program': '"train.py"'}, {'train.py': ''}, env={'PATH': '/nowhere'}) as tree:
        refused(tree, "the program 'train.py' needs Python")


def wrong_options():
    hps = {'sagemaker_mpi_enabled': 'true', 'sagemaker_program': '/bin/true', 'sagemaker_mpi_custom_mpi_options': '"-x \'A"'}
    with Tree(hps) as tree:
        refused_alike(tree, "sagemaker_mpi_custom_mpi_options: the quote ' at column 4 is not closed")
    hps.update({'sagemaker_mpi_custom_mpi_options': '', 'sagemaker_mpi_num_processes': '3'})
    with Tree(hps) as tree:
        refused(tree, '3 processes do not fit')


def how_much_paceline_says():
    """The setting comes before the SDK's hyperparameter; both reach the program; a plain job has a first and a last line."""
    first, last = rb'paceline: version [^\n]+, direct: one program; this is algo-1, the only host\n', rb'paceline: succeeded after \d+ s; [^\n]*/model is empty\n'
    unknown = rb'paceline: warning: PACELINE_HANG_A is not a setting of Paceline[^\n]*\n'
    for variable, own, sdk, lines, seen in ((None, None, None, first + last, None), (None, None, '20', first + last, None), (None, None, '"WARNING"', b'', 'warning'), (None, None, '45', b'', 'error'),
                                            ('info', None, '40', first + last, 'info'), (None, 'info', '10', first + last, 'info'), ('error', 'debug', '10', b'', 'error')):
        hps = {'sagemaker_program': 'run.sh', **({'paceline_log': own} if own else {}), **({'sagemaker_container_log_level': sdk} if sdk else {})}
        with Tree(hps, {'run.sh': SHOW}, env={'PACELINE_HANG_A': '1', **({'PACELINE_LOG': variable} if variable else {})}) as tree:
            expect(tree.train() == 0, tree.done.stderr)
            warned = unknown if seen != 'error' else b''
            expect(re.fullmatch(lines.replace(last, warned + last) if lines else warned, tree.done.stderr), (variable, own, sdk, tree.done.stderr))
            expect(tree.seen().get('PACELINE_LOG') == seen, (variable, own, sdk, tree.seen().get('PACELINE_LOG')))
    with Tree({'sagemaker_program': 'run.sh', 'sagemaker_container_log_level': 'loud'}, {'run.sh': SHOW}) as tree:
        expect(tree.train() == 0 and b'warning: hyperparameter sagemaker_container_log_level has no effect on' in tree.done.stderr, tree.done.stderr)
    for hps, env in (({'paceline_log': 'loud'}, {}), ({}, {'PACELINE_LOG': 'loud'})):
        with Tree({'sagemaker_program': 'run.sh', **hps}, {'run.sh': SHOW}, env=env) as tree:
            refused(tree, f"{'hyperparameter paceline_log' if hps else 'PACELINE_LOG'} is 'loud': expected one of debug info warning error")


def what_the_user_exports_reaches_ranks():
    """-x in the custom options takes precedence over variables that train adds on all hosts; SM_* variables come from each host."""
    if shutil.which('mpirun') is None:
        skipped.append('what_the_user_exports_reaches_ranks: no mpirun')
        return
    options = '-x LD_LIBRARY_PATH=/opt/foo/lib -x PACELINE_TIMEOUT_S=5 -x SM_MINE=a -x SM_CURRENT_HOST=other -x LD_PRELOAD='
    hps = {'sagemaker_program': 'run.sh', 'sagemaker_mpi_enabled': 'true', 'paceline_timeout_s': '9', 'sagemaker_mpi_custom_mpi_options': options}
    with Tree(hps, {'run.sh': SHOW}, env={'SM_IMAGE': 'kept'}) as tree:
        expect(tree.train() == 0, tree.done.stderr)
        env = tree.seen()
        names = ('LD_LIBRARY_PATH', 'PACELINE_TIMEOUT_S', 'SM_MINE', 'SM_CURRENT_HOST', 'SM_IMAGE')
        expect([env.get(name) for name in names] == ['/opt/foo/lib', '5', 'a', 'algo-1', 'kept'], env)
        expect(env['LD_PRELOAD'].endswith('libpaceline-hostname.so:'), env['LD_PRELOAD'])


def a_ranks_threads():
    """A rank's share of the CPUs, unless the job names a number; a program without MPI gets none."""
    if shutil.which('mpirun') is None:
        skipped.append('a_ranks_threads: no mpirun')
        return
    hps = {'sagemaker_program': 'run.sh', 'sagemaker_mpi_enabled': 'true', 'sagemaker_mpi_num_of_processes_per_host': '2',
           'sagemaker_mpi_custom_mpi_options': '--oversubscribe'}
    tell = '#!/bin/sh\necho "$OMP_NUM_THREADS $OPENBLAS_NUM_THREADS" > "$SM_OUTPUT_DATA_DIR/rank${OMPI_COMM_WORLD_RANK:-}"\n'
    share = max(len(os.sched_getaffinity(0)) // 2, 1)
    for env, wanted in (({}, f'{share} {share}\n'), ({'OPENBLAS_NUM_THREADS': '7'}, f'{share} 7\n')):
        with Tree(hps, {'run.sh': tell}, env=env) as tree:
            expect(tree.train() == 0, tree.done.stderr)
            expect([tree.read('output/data/rank0'), tree.read('output/data/rank1')] == [wanted, wanted], tree.read('output/data/rank1'))
    with Tree({'sagemaker_program': 'run.sh'}, {'run.sh': tell}) as tree:
        expect(tree.train() == 0 and tree.read('output/data/rank') == ' \n', tree.read('output/data/rank'))


def an_openblas_older_than_the_processor():
    """It takes the processor for a Prescott; Python programs of Debian's packages and the example programs get the kernels that the flags allow."""
    flags = re.search(r'^flags\s*:(.*)$', pathlib.Path('/proc/cpuinfo').read_text(), re.M)
    flags = flags.group(1).split() if flags else []
    best = 'SkylakeX' if 'avx512vl' in flags else 'Haswell' if 'avx2' in flags else 'None'
    fake = pathlib.Path(os.environ['PACELINE_BUILD'], 'tests/fakes/blas')
    mnist = pathlib.Path(os.environ['PACELINE_BUILD'], 'libexec/paceline/mnist')
    if mnist.exists():
        for named, wanted in ((None, best), ('Nehalem', 'Nehalem')):
            env = {**os.environ, 'LD_PRELOAD': str(fake / 'libblas.so.3'), 'OPENBLAS_VERBOSE': '2', **({'OPENBLAS_CORETYPE': named} if named else {})}
            done = subprocess.run([mnist, '--help'], env=env, capture_output=True, text=True, check=True)
            expect(wanted == 'None' or re.findall(r'Core: (\w+)', done.stdout + done.stderr)[-1] == wanted, done.stdout + done.stderr)
    debians = pathlib.Path('/usr/lib/python3/dist-packages/numpy').exists()
    if not debians:
        skipped.append("an_openblas_older_than_the_processor: no numpy of Debian's")
    tell = "import os\nopen(os.environ['SM_OUTPUT_DATA_DIR'] + '/' + os.environ.get('RANK', '0'), 'w').write(str(os.environ.get('OPENBLAS_CORETYPE')))\n"
    mpi = {'sagemaker_mpi_enabled': 'true', 'sagemaker_mpi_num_of_processes_per_host': '2', 'sagemaker_mpi_custom_mpi_options': '--oversubscribe'}
    old, log = {'PACELINE_PYTHON': '/usr/bin/python3', 'LD_LIBRARY_PATH': str(fake)}, {'PACELINE_LOG': 'debug'}
    for hps, code, env, wanted in (({}, {}, log, best), ({}, {}, {'OPENBLAS_CORETYPE': 'Nehalem'}, 'Nehalem'),
                                   ({}, {'numpy/__init__.py': ''}, log, 'None'), (mpi, {}, {}, best)) if debians else ():
        if hps and shutil.which('mpirun') is None:
            continue
        with Tree({'sagemaker_program': 'train.py', **hps}, {'train.py': tell, **code}, env={**old, **env}) as tree:
            expect(tree.train() == 0, tree.done.stderr)
            found = [path.read_text() for path in sorted((tree.base / 'output/data').glob('[01]'))]
            expect(found == [wanted] * (2 if hps else 1), (found, wanted, tree.done.stderr))
            if env is log:
                said = f'takes this processor for a Prescott: the program gets OPENBLAS_CORETYPE={best}' in tree.done.stderr.decode()
                expect(said == (wanted != 'None'), tree.done.stderr)


LIMITED = ('unshare', '-Urm', 'sh', '-ec', '''mount -t tmpfs tmpfs /sys/fs/cgroup; cd /sys/fs/cgroup; mkdir cpu
if [ $1 = 2 ]; then echo "$2 100000" >cpu.max; else echo $2 >cpu/cpu.cfs_quota_us; echo 100000 >cpu/cpu.cfs_period_us; fi
shift 2; cd "$OLDPWD"; exec "$@"''', 'sh')


def threads_under_a_cpu_limit():
    """docker run --cpus: libraries that count CPUs would start more threads than can run."""
    cpus = len(os.sched_getaffinity(0))
    if cpus < 2 or subprocess.run([*LIMITED, '2', '1', 'true'], stderr=subprocess.DEVNULL, check=False).returncode != 0:
        skipped.append('threads_under_a_cpu_limit: one CPU, or no namespaces here')
        return
    tell = '#!/bin/sh\necho "$OMP_NUM_THREADS $OPENBLAS_NUM_THREADS" > "$SM_OUTPUT_DATA_DIR/threads"\n'
    mpi = {'sagemaker_mpi_enabled': 'true'}
    cases = [({}, '2', '50000', {}, '1 1'), ({}, '1', '100000', {}, '1 1'), ({}, '2', '100000', {'OMP_NUM_THREADS': '9'}, '9 1'),
             ({}, '2', 'max', {}, ' '), ({}, '1', '-1', {}, ' '), ({}, '2', str(cpus * 100000), {}, ' ')]
    if shutil.which('mpirun') is not None:
        cases += [(mpi, '2', '100000', {}, '1 1'), (mpi, '2', '100001', {}, '2 2')]
    for hps, version, quota, env, wanted in cases:
        with Tree({'sagemaker_program': 'run.sh', **hps}, {'run.sh': tell}, env=env) as tree:
            expect(tree.train(under=(*LIMITED, version, quota)) == 0, tree.done.stderr)
            found = tree.read('output/data/threads')
            expect(found == wanted + '\n', (version, quota, env, hps, found))


def every_argument_reaches_a_rank():
    """mpirun takes a word that is a colon as the border between two programs."""
    if shutil.which('mpirun') is None:
        skipped.append('every_argument_reaches_a_rank: no mpirun')
        return
    values = {'a': ':', 'b': '\\:', 'c': '\\\\:', 'd': 'x:', 'e': '', 'f': ' ', 'g': '--', 'h': '-np', 'i': '\\', 'j': '$HOME; *', 'k': '::'}
    hps = {name: json.dumps(value) for name, value in values.items()}
    hps.update({'sagemaker_program': 'run.sh', 'sagemaker_mpi_enabled': 'true'})
    with Tree(hps, {'run.sh': SHOW}) as tree:
        expect(tree.train() == 0, tree.done.stderr)
        expect(tree.read('output/data/args') == ''.join(f'-{name}\n{value}\n' for name, value in values.items()), tree.read('output/data/args'))


def a_signal_to_the_whole_group():
    """A signal from a shell or timeout reaches the whole process group, but mpirun, which would kill its ranks, does not get it."""
    if shutil.which('mpirun') is None:
        skipped.append('a_signal_to_the_whole_group: no mpirun')
        return
    script = "trap 'sleep 1; echo saved; exit 0' TERM\necho ready\nwhile :; do sleep 0.1; done\n"
    with Tree({'sagemaker_program': 'train.sh', 'sagemaker_mpi_enabled': 'true'}, {'train.sh': script}) as tree:
        with subprocess.Popen([PACELINE, 'train'], env=tree.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              start_new_session=True) as train:
            lines = []
            for line in train.stdout:
                lines.append(line)
                if 'ready' in line:
                    os.killpg(train.pid, signal.SIGTERM)
        expect(train.returncode == 0 and 'saved' in ''.join(lines), (train.returncode, lines))


def host_names_that_mpirun_would_split():
    hps = {'sagemaker_program': '/bin/true', 'sagemaker_mpi_enabled': 'true'}
    for name in ('a:2', 'a,b', 'a b'):
        with Tree(hps, resource={'current_host': name, 'hosts': [name], 'network_interface_name': 'lo'}) as tree:
            refused(tree, f"the host name '{name}' cannot be in mpirun's host list")


def large_hyperparameters():
    hps = {f'p{i}': 'x' * 2500 for i in range(100)}
    hps['sagemaker_program'] = 'run.sh'
    with Tree(hps, {'run.sh': SHOW}, env={'SM_HPS': 'of another job'}) as tree:
        expect(tree.train() == 0, tree.done.stderr)
        env = tree.seen()
        expect('SM_HPS' not in env and env['SM_HP_P99'] == 'x' * 2500, 'variables')
        expect(len(tree.read('output/data/args').split('\n')) == 201, 'arguments')
        expect(b'SM_HPS is not set' in tree.done.stderr, 'warning')


def names_with_equals():
    with Tree({'a=b': '1', 'sagemaker_program': 'run.sh'}, {'run.sh': SHOW}) as tree:
        expect(tree.train() == 0, tree.done.stderr)
        expect(tree.read('output/data/args') == '--a=b\n1\n', 'arguments')
        expect(b"a variable's name cannot contain '='" in tree.done.stderr, 'warning')


def archive(entries):
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode='w:gz') as tar:
        for name, content in entries:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            info.mode = 0o755
            tar.addfile(info, io.BytesIO(content))
    return data.getvalue()


def code_from_archive_directory_and_file():
    with Tree() as tree:
        tree.write('input/data/code/sourcedir.tar.gz', archive([('run.sh', SHOW.encode())]))
        tree.write('input/data/dir/sub/x', 'x')
        tree.write('input/data/dir/run.sh', SHOW)
        for uri in (f'{tree.base}/input/data/code/sourcedir.tar.gz', f'file://{tree.base}/input/data/dir', f'{tree.base}/input/data/dir/run.sh'):
            tree.write('input/config/hyperparameters.json', json.dumps({'sagemaker_program': 'run.sh', 'sagemaker_submit_directory': uri}))
            shutil.rmtree(tree.base / 'code', ignore_errors=True)
            expect(tree.train() == 0, (uri, tree.done.stderr))
            expect(tree.read('output/data/cwd') is not None, uri)
            (tree.base / 'output/data/cwd').unlink()


def code_from_an_archive_of_the_sdk():
    """Version 3 of the SDK names the archive and a file of requirements in it."""
    with Tree({}) as tree:
        tree.write('input/data/code/code.tar.gz', archive([('run.sh', SHOW.encode())]))
        tree.write('input/data/sm_drivers/sourcecode.json', json.dumps({'source_dir': 's3://bkt/code.tar.gz', 'entry_script': 'run.sh'}))
        expect(tree.train() == 0 and tree.read('output/data/cwd') is not None, tree.done.stderr)
        tree.write('input/data/sm_drivers/sourcecode.json',
                   json.dumps({'source_dir': 's3://bkt/code.tar.gz', 'entry_script': 'run.sh', 'requirements': 'req/prod.txt'}))
        refused(tree, 'requirements', 'req/prod.txt')


def code_from_s3():
    """sourcedir.tar.gz from a server that checks signatures, and the error when the object is missing."""
    with Tree() as tree:
        tree.write('store/jobs/source/sourcedir.tar.gz', archive([('run.sh', SHOW.encode())]))
        tree.write('store/jobs/source/run.sh', SHOW)
        server = subprocess.Popen([sys.executable, SOURCE / 'tests/fakes/fake_s3.py', tree.base / 'store'], stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, text=True)
        try:
            port = server.stdout.readline().split()[1]
            tree.env.update({'AWS_ENDPOINT_URL_S3': f'http://127.0.0.1:{port}', 'AWS_ACCESS_KEY_ID': 'AKIAIOSFODNN7EXAMPLE', 'NO_PROXY': '*',
                             'AWS_SECRET_ACCESS_KEY': 'wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY', 'AWS_REGION': 'us-east-1'})
            hps = {'sagemaker_program': 'run.sh', 'sagemaker_submit_directory': 's3://bkt/jobs/source/sourcedir.tar.gz'}
            tree.write('input/config/hyperparameters.json', json.dumps(hps))
            expect(tree.train() == 0, tree.done.stderr)
            expect(tree.read('output/data/cwd') is not None, 'the program did not run')
            shutil.rmtree(tree.base / 'code')
            # A file with the same size and time that another process has put at the target path is not used instead.
            tree.write('other', bytes(len((tree.base / 'store/jobs/source/sourcedir.tar.gz').read_bytes())))
            os.utime(tree.base / 'other', (1369353600, 1369353600))  # as the server says
            tree.env['TMPDIR'] = str(tree.base)
            code = tree.train(under=('sh', '-c', 'cp -p "$TMPDIR/other" "$TMPDIR/paceline-$$-source" && exec "$@"', 'sh'))
            expect(code == 0 and not list(tree.base.glob('paceline-*')), tree.done.stderr)
            shutil.rmtree(tree.base / 'code')
            (tree.base / 'output/success').unlink()
            tree.write('input/config/hyperparameters.json', json.dumps({**hps, 'sagemaker_submit_directory': 's3://bkt/jobs/no-such.tar.gz'}))
            refused(tree, 's3://bkt/jobs/no-such.tar.gz')
            tree.write('input/config/hyperparameters.json', json.dumps({**hps, 'sagemaker_submit_directory': 's3://bkt/jobs/source/run.sh'}))
            refused(tree, 'cannot read the tar archive')
        finally:
            server.terminate()
            server.wait(60)


def package_with_setup_py():
    """A code directory with setup.py is installed by pip and run as a module."""
    venv = pathlib.Path(tempfile.mkdtemp(prefix='paceline-venv-'))
    try:
        python = python_with('venv', 'ensurepip', 'pip', 'setuptools', 'wheel')
        made = python and subprocess.run([python, '-m', 'venv', '--system-site-packages', venv], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
        probe = made and made.returncode == 0 and subprocess.run([venv / 'bin/python3', '-c', 'import setuptools, wheel, pip'], stderr=subprocess.DEVNULL, check=False)
        if not probe or probe.returncode != 0:
            skipped.append('package_with_setup_py: no venv, pip, setuptools or wheel')
            return
        code = {'setup.py': "from setuptools import setup\nsetup(name='digits', version='1', py_modules=['digits', 'helper'])\n",
                'helper.py': "WORD = 'installed'\n",
                'digits.py': "import os, sys, helper\nopen(os.path.join(os.environ['SM_MODEL_DIR'], 'out'), 'w').write(' '.join([helper.WORD] + sys.argv[1:]))\n"}
        # Without the network pip cannot fetch build tools: it builds with what is installed.
        with Tree({'sagemaker_program': '"digits.py"', 'epochs': '2'}, code,
                  env={'PATH': f"{venv}/bin:{os.environ['PATH']}", 'PIP_NO_BUILD_ISOLATION': 'false', 'PIP_NO_INDEX': '1'}) as tree:
            (tree.base / 'model').mkdir()
            expect(tree.train() == 0, (tree.done.stdout, tree.done.stderr))
            expect(tree.read('model/out') == 'installed --epochs 2', tree.read('model/out'))
    finally:
        shutil.rmtree(venv)


def code_that_is_not_there():
    with Tree({'sagemaker_program': 'run.sh', 'sagemaker_submit_directory': '/no/such/sourcedir.tar.gz'}) as tree:
        refused(tree, 'sagemaker_submit_directory: expected code at /no/such/sourcedir.tar.gz')
    with Tree() as tree:
        os.mkfifo(tree.base / 'fifo')
        tree.write('input/config/hyperparameters.json', json.dumps({'sagemaker_program': 'run.sh', 'sagemaker_submit_directory': f'{tree.base}/fifo'}))
        refused(tree, f"'{tree.base}/fifo' is neither a file nor a directory")


def damaged_archive():
    """A file with an archive's name is unpacked or refused, and never copied unchanged."""
    whole = archive([('big', os.urandom(50000)), ('run.sh', SHOW.encode())])
    for name, content, words in (('sourcedir.tar.gz', whole[:20000], 'truncated gzip input'), ('sourcedir.tar', b'', 'cannot read the tar archive'),
                                 ('sourcedir.tar', bytes(10240), 'the archive is empty'), ('a.target.tar', b'', 'cannot read the tar archive'),
                                 ('code.tgz', b'<html>403 Forbidden</html>' * 100, 'cannot read the tar archive (plain, or with gzip, bzip2, xz or zstd)')):
        with Tree() as tree:
            tree.write(f'input/data/code/{name}', content)
            tree.write('input/config/hyperparameters.json',
                       json.dumps({'sagemaker_program': 'run.sh', 'sagemaker_submit_directory': f'{tree.base}/input/data/code/{name}'}))
            (refused if content == whole[:20000] else refused_alike)(tree, 'bringing the code', name, words)


def dangerous_archive():
    with Tree() as tree:
        tree.write('input/data/code/sourcedir.tar.gz', archive([('run.sh', SHOW.encode()), ('../../escaped', b'x')]))
        tree.write('input/config/hyperparameters.json',
                   json.dumps({'sagemaker_program': 'run.sh', 'sagemaker_submit_directory': f'{tree.base}/input/data/code/sourcedir.tar.gz'}))
        refused(tree, "'../../escaped' is refused", 'outside')
        refused(tree, "'../../escaped' is refused", 'outside')  # files from before it do not count as the code
        expect(not (tree.base / 'escaped').exists() and not (tree.base.parent / 'escaped').exists(), 'it escaped')
        tree.write('input/data/code/sourcedir.tar.gz', archive([('run.sh', SHOW.encode())]))
        expect(tree.train() == 0 and tree.read('output/data/cwd') is not None, tree.done.stderr)
        expect([path.name for path in (tree.base / 'code').iterdir()] == ['run.sh'], 'something else is left beside the code')


def requirements_that_cannot_be_installed():
    if PYTHON is None or subprocess.run([PYTHON, '-m', 'pip', '--version'], stdout=subprocess.DEVNULL, check=False).returncode != 0:
        skipped.append('requirements_that_cannot_be_installed: no pip')
        return
    with Tree({'sagemaker_program': '"train.py"'}, {'train.py': '', 'requirements.txt': '/no/such/package.whl\n'}) as tree:
        refused(tree, 'requirements.txt', '/no/such/package.whl')
        tree.write('code/requirements.txt', 'plsmall\n')  # there is no server at the port
        tree.env.update(PIP_CONFIG_FILE='/dev/null', PIP_INDEX_URL='http://127.0.0.1:1/simple', PIP_RETRIES='1')
        refused(tree, 'installing requirements.txt on host algo-1: connection broken by ', 'Connection refused', 'No matching distribution found for plsmall')
        expect('Connection refused' in tree.read('output/failure').split('\n')[0], tree.read('output/failure'))
        expect(tree.env.update(PACELINE_INSTALL='0') is None and tree.train() == 0, 'PACELINE_INSTALL=0')


def wheel(folder):
    """A package of one module that pip installs without a build."""
    info = 'plsmall-1.0.dist-info/'
    with zipfile.ZipFile(folder / 'plsmall-1.0-py3-none-any.whl', 'w') as file:
        file.writestr('plsmall.py', "WORD = 'small'\n")
        file.writestr(info + 'METADATA', 'Metadata-Version: 2.1\nName: plsmall\nVersion: 1.0\n')
        file.writestr(info + 'WHEEL', 'Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n')
        file.writestr(info + 'RECORD', ''.join(f'{name},,\n' for name in ('plsmall.py', info + 'METADATA', info + 'WHEEL', info + 'RECORD')))


def requirements_are_installed():
    """From a folder, also into Debian's own Python, which pip refuses without an option; the user's site directory keeps this machine clean."""
    pythons = [python for python in ('/usr/bin/python3', PYTHON)
               if python and subprocess.run([python, '-m', 'pip', '--version'], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode == 0]
    if not pythons:
        skipped.append('requirements_are_installed: no pip')
        return
    program = "import os, plsmall\nopen(os.path.join(os.environ['SM_MODEL_DIR'], 'out'), 'w').write(plsmall.WORD + os.environ.get('PIP_BREAK_SYSTEM_PACKAGES', ''))\n"
    with Tree({'sagemaker_program': '"train.py"'}, {'train.py': program, 'requirements.txt': 'plsmall==1.0\n'},
              env={'PACELINE_PYTHON': pythons[0], 'PIP_NO_INDEX': '1', 'PIP_USER': '1'}) as tree:
        wheel(tree.base)
        tree.env['PIP_FIND_LINKS'] = str(tree.base)
        expect(tree.train() == 0, (tree.done.stdout, tree.done.stderr))
        expect(tree.read('model/out') == 'small', tree.read('model/out'))


UV = """#!/bin/sh
echo "uv $* break=$UV_BREAK_SYSTEM_PACKAGES strategy=$UV_INDEX_STRATEGY cache=$UV_CACHE_DIR" >"$SM_OUTPUT_DATA_DIR/uv"
grep -q nothing requirements.txt || exit 0
printf 'error: No solution found when resolving dependencies\\n  cause: Because nothing was not found, we can conclude.\\n' >&2
exit 1
"""


def uv_installs_requirements_where_nothing_configures_pip():
    """A stand-in for uv that writes its words down. The interpreter, which would run pip, fails."""
    with tempfile.TemporaryDirectory(prefix='paceline-uv-') as folder:
        for name, text in (('uv', UV), ('python', '#!/bin/sh\necho no pip >&2\nexit 9\n')):
            (pathlib.Path(folder) / name).write_text(text)
            (pathlib.Path(folder) / name).chmod(0o755)
        env = {'PATH': f"{folder}:{os.environ['PATH']}", 'PACELINE_PYTHON': f'{folder}/python', 'PIP_CONFIG_FILE': '/dev/null', 'PIP_DEFAULT_TIMEOUT': '9'}
        with Tree({'sagemaker_program': 'run.sh'}, {'run.sh': SHOW, 'requirements.txt': 'small\n'}, env=env) as tree:
            (tree.base / 'sagemaker/warmpoolcache').mkdir(parents=True)
            expect(tree.train() == 0, tree.done.stderr)
            words = tree.read('output/data/uv')  # with a constraint in between, where there are modules for Horovod
            expect(words.startswith(f'uv pip install --python {folder}/python -r requirements.txt ') and
                   words.endswith(f' break=1 strategy=unsafe-best-match cache={tree.base}/sagemaker/warmpoolcache/uv\n'), words)
            tree.write('code/requirements.txt', 'nothing\n')
            refused(tree, 'installing requirements.txt on host algo-1: No solution found when resolving dependencies: Because nothing was not found, we can')
            tree.write('code/requirements.txt', 'small\n')
            for name, value in (('PACELINE_UV', '0'), ('PIP_INDEX_URL', 'http://127.0.0.1:1/simple'), ('PIP_FIND_LINKS', '/wheels')):
                tree.env[name] = value
                expect(tree.train() != 0 and 'looking for pip on host algo-1' in tree.read('output/failure'), (name, tree.read('output/failure')))
                del tree.env[name]
            tree.write('code/requirements.txt', 'horovod\n')
            expect(tree.train() != 0 and 'looking for pip on host algo-1' in tree.read('output/failure'), ('horovod', tree.read('output/failure')))
            tree.write('.config/pip/pip.conf', '[global]\n')
            tree.write('code/requirements.txt', 'small\n')
            expect(tree.train() == 0, 'a file that PIP_CONFIG_FILE leaves out')
            del tree.env['PIP_CONFIG_FILE']
            expect(tree.train() != 0 and 'looking for pip on host algo-1' in tree.read('output/failure'), ('pip.conf', tree.read('output/failure')))


def requirements_without_pip():
    """An image with Python but without pip: the job reports at once what is missing."""
    venv = pathlib.Path(tempfile.mkdtemp(prefix='paceline-venv-'))
    try:
        python = python_with('venv')
        if not python or subprocess.run([python, '-m', 'venv', '--without-pip', venv], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode != 0:
            skipped.append('requirements_without_pip: no venv')
            return
        with Tree({'sagemaker_program': '"train.py"'}, {'train.py': '', 'requirements.txt': 'x\n'}, env={'PACELINE_PYTHON': f'{venv}/bin/python3'}) as tree:
            refused_alike(tree, 'the code has requirements.txt, but this image has no pip', 'python3-pip', 'PACELINE_INSTALL=0')
            expect('importlib' not in tree.read('output/failure'), tree.read('output/failure'))
    finally:
        shutil.rmtree(venv)


def intermediate_output():
    with Tree({'sagemaker_program': '/bin/true', 'sagemaker_s3_output': '"file:///x"'}) as tree:
        expect(tree.train() == 0 and (tree.base / 'output/intermediate').is_dir(), tree.done.stderr)
    with Tree({'sagemaker_program': '/bin/true', 'sagemaker_s3_output': '"ftp://x"'}) as tree:
        refused_alike(tree, 'sagemaker_s3_output: expected s3:// or file://')
    with Tree({'sagemaker_program': '/bin/true', 'paceline_check': '"--x \'a"'}) as tree:
        refused_alike(tree, "PACELINE_CHECK: the quote ' at column 5 is not closed")
    for uri in 's3://', 's3:///out':
        with Tree({'sagemaker_program': '/bin/true', 'sagemaker_s3_output': f'"{uri}"'}) as tree:
            refused_alike(tree, f"sagemaker_s3_output: expected a bucket after s3://, found '{uri}'")
    with Tree({'sagemaker_program': '/bin/true', 'sagemaker_s3_output': '"s3://bkt/out"'}) as tree:
        (tree.base / 'output/intermediate').mkdir(parents=True)  # as an earlier run or a check of this job has left it
        expect(tree.train('plan', '--json') == 0, tree.done.stderr)
        words = json.loads(tree.done.stdout)['sync']
        expect(words[-2:] == [f'{tree.base}/output/intermediate', 's3://bkt/out/output/intermediate'], words)


def a_second_run_in_the_same_directory():
    with Tree() as tree:
        expect(tree.train('--', 'sh', '-c', 'echo mine >"$SM_OUTPUT_DIR/failure"; exit 3') == 3, tree.done.stderr)
        expect(tree.read('output/failure').startswith('mine\n\nthe program'), tree.read('output/failure'))
        expect(tree.train('--', 'sh', '-c', 'exit 4') == 4 and tree.read('output/failure').startswith('the program'), tree.read('output/failure'))
        expect(tree.train('--', 'true') == 0 and tree.read('output/failure') is None, 'the failure file of the run before')
        expect(tree.train('--', 'false') == 1 and tree.read('output/success') is None, 'the success file of the run before')


WRITER = """#!/bin/sh
cd "$SM_OUTPUT_INTERMEDIATE_DIR" || exit 3
echo first > early.txt
mkdir -p deep/er && echo nested > deep/er/nested.txt
tries=0 # what was closed arrives while the program runs
until [ -e "$STORE/early.txt" ] && [ -e "$STORE/deep/er/nested.txt" ]; do
  tries=$((tries + 1)); [ $tries -lt 300 ] || exit 4
  sleep 0.1
done
echo changed > early.txt
echo half > open.log # closed only by this program's end
echo last > last.txt
exit ${CODE:-0}
"""


def stored(tree, name):
    path = tree.base / 'store/out/job-7/output/intermediate' / name
    return path.read_text() if path.exists() else None


def intermediate_output_to_s3():
    """Closed files arrive while the program runs, the rest at its end, also when it fails, encrypted as the job's settings have it; S3 that is not there fails no job."""
    with Tree({'sagemaker_program': 'run.sh', 'sagemaker_s3_output': '"s3://bkt/out"', 'paceline_sse': 'aws:kms'}, {'run.sh': WRITER}) as tree:
        (tree.base / 'store').mkdir()
        server = subprocess.Popen([sys.executable, SOURCE / 'tests/fakes/fake_s3.py', '--keep', '--demand', 'x-amz-server-side-encryption=aws:kms', '--demand',
                                   'x-amz-server-side-encryption-aws-kms-key-id=alias/mine', '--demand', 'x-amz-server-side-encryption-bucket-key-enabled=true',
                                   tree.base / 'store'], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        try:
            port = server.stdout.readline().split()[1]
            tree.env.update({'PACELINE_SSE_KMS_KEY_ID': 'alias/mine', 'PACELINE_BUCKET_KEY_ENABLED': 'yes', 'AWS_ENDPOINT_URL_S3': f'http://127.0.0.1:{port}', 'AWS_ACCESS_KEY_ID': 'AKIAIOSFODNN7EXAMPLE', 'NO_PROXY': '*',
                             'AWS_SECRET_ACCESS_KEY': 'wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY', 'AWS_REGION': 'us-east-1', 'TRAINING_JOB_NAME': 'job-7',
                             'STORE': str(tree.base / 'store/out/job-7/output/intermediate')})
            for code in (0, 5):
                shutil.rmtree(tree.base / 'output', ignore_errors=True)
                shutil.rmtree(tree.base / 'store/out', ignore_errors=True)
                tree.env['CODE'] = str(code)
                expect(tree.train() == code, tree.done.stderr)
                found = {name: stored(tree, name) for name in ('early.txt', 'deep/er/nested.txt', 'open.log', 'last.txt')}
                expect(found == {'early.txt': 'changed\n', 'deep/er/nested.txt': 'nested\n', 'open.log': 'half\n', 'last.txt': 'last\n'}, found)
        finally:
            server.kill()
            server.wait()
        shutil.rmtree(tree.base / 'output')
        tree.env.update(PACELINE_INTERMEDIATE_S='30', AWS_MAX_ATTEMPTS='1')
        tree.write('code/run.sh', '#!/bin/sh\necho x > "$SM_OUTPUT_INTERMEDIATE_DIR/x"\n')
        expect(tree.train() == 0 and tree.read('output/success') is not None, tree.done.stderr)
        expect(b"cannot upload 'x'" in tree.done.stderr and b'the upload of intermediate output' in tree.done.stderr, tree.done.stderr)


CASES = [program_sees_arguments_environment_and_directory, env_prints_what_train_adds, start_words, closed_standard_descriptors, a_terminal,
         a_shell_of_the_sdk_begins_one_job, malformed_json, missing_file, wrong_type, zero_processes, settings_that_cannot_be,
         what_the_image_lacks_is_known_to_plan, unknown_host, a_fifo_instead_of_a_file, program_not_found, a_byte_order_mark, no_python,
         wrong_options, how_much_paceline_says, what_the_user_exports_reaches_ranks, a_ranks_threads, an_openblas_older_than_the_processor,
         threads_under_a_cpu_limit, every_argument_reaches_a_rank, a_signal_to_the_whole_group, host_names_that_mpirun_would_split,
         large_hyperparameters, names_with_equals, code_from_archive_directory_and_file, code_from_an_archive_of_the_sdk, code_from_s3,
         package_with_setup_py, code_that_is_not_there, damaged_archive, dangerous_archive, requirements_that_cannot_be_installed,
         requirements_are_installed, uv_installs_requirements_where_nothing_configures_pip, requirements_without_pip, intermediate_output,
         intermediate_output_to_s3, a_second_run_in_the_same_directory]
if __name__ == '__main__':
    sys.exit(run(CASES))
