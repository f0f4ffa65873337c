#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What `paceline train` says and writes when a program fails: its codes, its last words, exceptions, and what mpirun says of its ranks.

Real processes on one host, no network.
"""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / 'support'))
from job_tree import BUILD, expect, PACELINE, PYTHON, refused, run, SHOW, skipped, Tree  # noqa: E402
from waiting import wait_open  # noqa: E402


def a_signal_while_the_job_is_refused():
    """The exit code stays the one that the failure file reports."""
    with Tree() as tree:
        config = tree.base / 'input/config/resourceconfig.json'
        config.unlink()
        os.mkfifo(config)
        with open(config, 'r+b', buffering=0) as file, subprocess.Popen([PACELINE, 'train'], env=tree.env, stderr=subprocess.DEVNULL) as train:
            wait_open([train.pid], config)  # it waits for what comes now
            train.send_signal(signal.SIGTERM)
            file.write(b'{}')
            file.close()
        expect(train.returncode == 1 and 'current_host' in tree.read('output/failure'), (train.returncode, tree.read('output/failure')))


def exit_codes():
    for code in (1, 3, 127, 255):
        with Tree({'sagemaker_program': 'run.sh'}, {'run.sh': f'#!/bin/sh\necho why >&2\nexit {code}\n'}) as tree:
            refused(tree, f'code {code}', 'algo-1', 'why')
    with Tree({'sagemaker_program': 'run.sh'}, {'run.sh': '#!/bin/sh\nprintf " 45%%" >&2; exit 3\n'}) as tree:
        tree.train()
        expect(re.fullmatch(rb'paceline: version [^\n]*\n 45%\npaceline: error: failed after \d+ s: the program on host algo-1 exited with code 3\n', tree.done.stderr), tree.done.stderr)


def mpiruns_own_words():
    """The job map and the blocks about a rank that has failed are for PACELINE_LOG=debug; what mpirun itself fails by is always there."""
    if shutil.which('mpirun') is None:
        skipped.append('mpiruns_own_words: no mpirun')
        return
    hps = {'sagemaker_program': 'run.sh', 'sagemaker_mpi_enabled': 'true'}
    for level in ('debug', 'info'):
        with Tree(hps, {'run.sh': '#!/bin/sh\necho why >&2\nexit 3\n'}, env={'PACELINE_LOG': level}) as tree:
            refused(tree, 'rank 0 on host algo-1 exited with code 3')
            words = [word for word in (b'JOB MAP', b'Primary job', b'detected that one or more', b'\n----------') if word in tree.done.stdout + tree.done.stderr]
            expect(len(words) == (4 if level == 'debug' else 0), (level, words, tree.done.stdout, tree.done.stderr))
            expect(b'[1,0]<stderr>:why\n' in tree.done.stderr and b'paceline: error: failed after ' in tree.done.stderr, tree.done.stderr)
    with Tree({**hps, 'sagemaker_mpi_custom_mpi_options': '--display-map --mca rmaps nosuch'}, {'run.sh': SHOW}) as tree:
        expect(tree.train() != 0 and b'\n----------' in tree.done.stderr, tree.done.stderr)


def an_mpirun_that_runs_no_rank():
    """Options that make mpirun do something else and exit with 0 are not a success."""
    if shutil.which('mpirun') is None:
        skipped.append('an_mpirun_that_runs_no_rank: no mpirun')
        return
    hps = {'sagemaker_program': 'run.sh', 'sagemaker_mpi_enabled': 'true', 'sagemaker_mpi_custom_mpi_options': '--version'}
    with Tree(hps, {'run.sh': SHOW}) as tree:
        refused(tree, 'mpirun exited with code 0 but has not run the program: remove options such as --version or -h from sagemaker_mpi_custom_mpi_options')


def ranks_that_leave_without_a_word():
    """For mpirun status 0 without MPI_Finalize is a failure; its message is longer than a failure file."""
    probe = BUILD / 'tests/integration/lifecycle_probe'
    if shutil.which('mpirun') is None or not probe.exists():
        skipped.append('ranks_that_leave_without_a_word: no mpirun')
        return
    with Tree({'sagemaker_program': 'run.sh', 'sagemaker_mpi_enabled': 'true'}, {'run.sh': f'#!/bin/sh\nexec {probe} leave\n'}) as tree:
        refused(tree, 'mpirun on host algo-1 exited with code 1: no rank failed; did one end without MPI_Finalize(), for example by os._exit()?')


def python_program_as_toolkit_users_write_them():
    if PYTHON is None:
        skipped.append('python_program_as_toolkit_users_write_them: no python3')
        return
    program = ('import argparse, json, os\n'
               'parser = argparse.ArgumentParser()\n'
               "parser.add_argument('--epochs', type=int)\n"
               "parser.add_argument('--model-dir', default=os.environ['SM_MODEL_DIR'])\n"
               "parser.add_argument('--train', default=os.environ['SM_CHANNEL_TRAINING'])\n"
               'args = parser.parse_args()\n'
               "json.dump([args.epochs, args.train, json.loads(os.environ['SM_HOSTS'])], open(os.path.join(args.model_dir, 'out.json'), 'w'))\n")
    with Tree({'sagemaker_program': '"train.py"', 'epochs': '2'}, {'train.py': program}, channels={'training': {}}) as tree:
        expect(tree.train() == 0, tree.done.stderr)
        expect(json.loads(tree.read('model/out.json')) == [2, f'{tree.base}/input/data/training', ['algo-1']], 'output')
    with Tree({'sagemaker_program': '"train.py"'}, {'train.py': "raise ValueError('bad value 3')\n"}) as tree:
        refused(tree, 'ValueError: bad value 3')


def an_exception_before_a_long_dump():
    if PYTHON is None:
        skipped.append('an_exception_before_a_long_dump: no python3')
        return
    program = ("import atexit, sys\n"
               "atexit.register(lambda: print('\\n'.join(f'  [{i}, 0.5, 0.5]' for i in range(2000)), file=sys.stderr))\n"
               "raise ValueError('bad value 3\\n' + '  a tensor\\n' * 100)\n")
    with Tree({'sagemaker_program': '"train.py"'}, {'train.py': program}, env={'PACELINE_PYTHON': PYTHON}) as tree:
        refused(tree, '  [1999, 0.5, 0.5]\n')
        begin = f'ValueError: bad value 3 (train.py:3, on algo-1)\nthe program on host algo-1 exited with code 1\nProgram: {PYTHON} train.py\n'
        expect(tree.read('output/failure').startswith(begin), tree.read('output/failure'))
        expect(re.search(rb'\npaceline: error: failed after \d+ s: ValueError: bad value 3 \(train\.py:3, on algo-1\)\n', tree.done.stderr), tree.done.stderr[-500:])


def exceptions_have_a_place():
    """Whatever shape Python gives a traceback, the first line of the failure file has the exception and the program's own line."""
    if PYTHON is None:
        skipped.append('exceptions_have_a_place: no python3')
        return
    library = 'import json\n\n\ndef read(text):\n    return json.loads(text)\n'
    cases = {
        "import data\ndata.read('{')\n": 'json.decoder.JSONDecodeError: Expecting property name enclosed in double quotes: line 1 column 2 (char 1) (data.py:5, on algo-1)',
        "x = (\n": 'SyntaxError: ',
        "try:\n    {}['x']\nexcept KeyError as error:\n    raise ValueError('bad') from error\n": 'ValueError: bad (train.py:4, on algo-1)',
        "exec('1 / 0')\n": 'ZeroDivisionError: division by zero (train.py:1, on algo-1)',
        "import sys\ntry:\n    {}['x']\nexcept KeyError:\n    sys.exit(3)\n": 'the program on host algo-1 exited with code 3',
        "import subprocess, sys\nsys.exit(subprocess.call([sys.executable, 'other.py']))\n": 'AssertionError (other.py:1, on algo-1)',
    }
    if subprocess.run([PYTHON, '-c', 'ExceptionGroup'], stderr=subprocess.DEVNULL, check=False).returncode == 0:
        cases["def f():\n    raise KeyError('x')\ntry:\n    f()\nexcept KeyError as error:\n    raise ExceptionGroup('many', [error, ValueError('y')])\n"] = \
            "KeyError: 'x' (train.py:2, on algo-1)"
    for program, line in cases.items():
        with Tree({'sagemaker_program': '"train.py"'}, {'train.py': program, 'data.py': library, 'other.py': 'assert False\n'},
                  env={'PACELINE_PYTHON': PYTHON}) as tree:
            expect(tree.train() != 0, program)
            first = tree.read('output/failure').split('\n')[0]
            expect(first == line or line == 'SyntaxError: ' and first.startswith(line) and first.endswith(' (train.py:1, on algo-1)'), (first, line))


def a_shells_codes_say_what_its_command_did():
    """A script passes on how its last command ended; what its shell or the command has printed last comes first."""
    memory = "Next: look at this job's MemoryUtilization in CloudWatch. Near 100 %, the instance was out of memory: "
    end = 'the program on host algo-1 exited with code '
    shells = {shell: which for shell in ('sh', 'bash') if (which := shutil.which(shell))}
    for shell, path in shells.items():
        for script, code, first, second in (
                ('no-such-command --x\n', 127, r'\S*train\.sh: (line )?2: no-such-command: (command )?not found \(on algo-1\)', end + "127 (the command 'no-such-command' was not found)"),
                ('./data.txt\n', 126, r'\S*train\.sh: (line )?2: \./data\.txt: Permission denied \(on algo-1\)', end + "126 (the command './data.txt' cannot be executed)"),
                ('sh -c "kill -9 \\$\\$"\n', 137, re.escape(end + "137 (a shell's code for a command that signal 9, SIGKILL, has ended)"), memory),
                ('sh -c "kill -11 \\$\\$"\n', 139, re.escape(end + "139 (a shell's code for a command that signal 11, SIGSEGV, has ended)"), 'Next: compiled code, '),
                ('exit 127\n', 127, re.escape(end + "127 (a shell's code for a command that was not found)"), 'Program: '),
                ('echo "epoch: 3: loss: 0.5" >&2; exit 4\n', 4, re.escape(end + '4'), 'Program: ')):
            with Tree({'sagemaker_program': 'train.sh'}, {'train.sh': f'#!{path}\n{script}', 'data.txt': ''}) as tree:
                expect(tree.train() == code, (shell, script))
                lines = tree.read('output/failure').split('\n')
                expect(re.fullmatch(first, lines[0]) and lines[1].startswith(second), (shell, script, lines))


def a_programs_own_last_word_is_the_reason():
    if PYTHON is None:
        skipped.append('a_programs_own_last_word_is_the_reason: no python3')
        return
    program = "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--epochs', type=int)\nparser.parse_args()\n"
    with Tree({'sagemaker_program': '"train.py"', 'epochs': 'three'}, {'train.py': program}, env={'PACELINE_PYTHON': PYTHON}) as tree:
        expect(tree.train() == 2, 'argparse')
        begin = "train.py: error: argument --epochs: invalid int value: 'three' (on algo-1)\nthe program on host algo-1 exited with code 2\n"
        expect(tree.read('output/failure').startswith(begin), tree.read('output/failure'))


def secrets_stay_out_of_plan_and_log():
    with Tree({'sagemaker_program': '/bin/true', 'db_password': 'hunter2', 'api_token': '"t0psecret"'}) as tree:
        plan = subprocess.run([PACELINE, 'plan'], env=tree.env, stdout=subprocess.PIPE, check=True).stdout
        expect(b'hunter2' not in plan and b't0psecret' not in plan and b'***' in plan, plan)
        expect(tree.train() == 0, tree.done.stderr)
        expect(b'hunter2' not in tree.done.stderr + tree.done.stdout, 'the log')


def a_python_that_prints_leaves_the_plan_alone():
    files = {'train.py': '', 'requirements.txt': 'numpy\n', 'python': f'#!/bin/sh\necho hello\nexec {PYTHON} "$@"\n'}
    with Tree({'sagemaker_program': 'train.py'}, files) as tree:
        (tree.base / 'code/python').chmod(0o755)
        plan = subprocess.run([PACELINE, 'plan'], env={**tree.env, 'PACELINE_PYTHON': str(tree.base / 'code/python')}, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        expect(b'hello' not in plan.stdout and b'hello\n' in plan.stderr, plan)


def arguments_stay_out_of_the_failure_file():
    with Tree({'sagemaker_program': 'run.sh', 'k': 'hunter2'}, {'run.sh': '#!/bin/sh\nexit 3\n'}) as tree:
        refused(tree, 'exited with code 3\nProgram: ./run.sh\n')
        expect(tree.train('--', 'sh', '-c', 'exit 4', 'hunter2') == 4, tree.done.stderr)
        expect('Program: sh\n' in tree.read('output/failure'), tree.read('output/failure'))
    with Tree({'sagemaker_program': 'train.py', 'k': 'hunter2', 'paceline_python': PYTHON}, {'train.py': 'raise SystemExit(5)\n'}) as tree:
        refused(tree, f'exited with code 5\nProgram: {PYTHON} train.py\n')


CASES = [a_signal_while_the_job_is_refused, exit_codes, mpiruns_own_words, an_mpirun_that_runs_no_rank, ranks_that_leave_without_a_word,
         python_program_as_toolkit_users_write_them, an_exception_before_a_long_dump, exceptions_have_a_place,
         a_shells_codes_say_what_its_command_did, a_programs_own_last_word_is_the_reason, secrets_stay_out_of_plan_and_log,
         a_python_that_prints_leaves_the_plan_alone, arguments_stay_out_of_the_failure_file]
if __name__ == '__main__':
    sys.exit(run(CASES))
