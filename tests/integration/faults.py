#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Faults of jobs, as a table of cases: what the hosts run, who leaves or is signalled when, on which host, and how each host ends.

    faults.py GROUP [PART]    the cases of a group (direct: one host on which `paceline` is process 1; hosts: two hosts that train by MPI; start: before
                              these train; access: what the hosts are linked by; links: two hosts with programs of their own, the link beside them; restarts, restarts_full:
                              jobs that are started again, on one host and on two); with PART those whose names have it
    faults.py twins [PART]    each of ten supervisors with a mistake is found by a case

The columns `when`, `fault`, `ends` and `check` are lines of shell over the verbs of tests/support/cluster.sh and job.sh.
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

BUILD = pathlib.Path(os.environ['PACELINE_BUILD'])
PACELINE = str(BUILD / 'entrypoint/paceline')
PROBE = str(BUILD / 'tests/integration/mpi_probe')
FAULT_RANKS = str(BUILD / 'tests/integration/fault_ranks')
VERBS = r'''
set -euo pipefail
source "$PACELINE_SOURCE/tests/support/cluster.sh"
source "$PACELINE_SOURCE/tests/support/job.sh"
trap cluster_down EXIT
trap 'exit 143' TERM INT
expect_line() { grep -q -- "$2" "$cluster/$1.log" || case_failed "the output of $1 has no '$2'"; } # HOST REGEX
expect_no_line() { ! grep -q -- "$2" "$cluster/$1.log" || case_failed "the output of $1 has '$2'"; }
expect_file() { [ -e "$cluster/$1/ml/$2" ] || case_failed "$1 has no $2"; } # HOST PATH, in the folder of its job
expect_runs() { [ ! -e "$cluster/$1.code" ] || case_failed "$1 was ended"; }
expect_same_words() { cmp -s "$cluster/algo-1/ml/output/failure" "$cluster/algo-2/ml/output/failure" || case_failed "the words of the hosts differ"; }
go() { touch "$cluster/$1/ml/go"; }
await_ranks() { for rank in 0 1 2 3; do await_log algo-1 "rank $rank of 4" 60; done; }
await_control() { until host_run "$1" sh -c '[ -S /run/paceline.*/control ]' 2>/dev/null || [ -e "$cluster/$1.code" ]; do sleep 0.05; done; }
await_linked() {
  await_log algo-1 '^runs$' 60
  await_log algo-2 '^runs$' 60
  await_log algo-1 'all 2 hosts are linked' 60
  expect_line algo-1 "direct: one program on each of 2 hosts; this is algo-1, the master"
}
# Until the master's session is up on the worker; a program that runs may end before that.
await_link() {
  tries=1200
  until host_run algo-2 sh -c 'ss -xaH | grep "ESTAB.*/control" >/dev/null' 2>/dev/null; do
    tries=$((tries - 1))
    [ $tries -gt 0 ] || case_failed "no link"
    sleep 0.05
  done
}
expect_saved() { for rank in 0 1 2 3; do expect_file algo-$((rank / 2 + 1)) model/saved-$rank; done; } # by each of four ranks
# The platform may kill all processes before rank 0 has saved, so the files are written before that.
failure_before_save() {
  for host in algo-1 algo-2; do
    until [ -s "$cluster/$host/ml/output/failure" ] || [ -e "$cluster/$host.code" ]; do sleep 0.05; done
    [ ! -e "$cluster/algo-1/ml/model/saved-0" ] || case_failed "the failure file of $host was written after the save"
  done
}
# await_queues CONNECTIONS BYTES: until of algo-2's socket where the master comes in nobody has taken so many connections, nor read so many bytes.
await_queues() {
  tries=1200
  until [ "$(host_run algo-2 ss -xaH | awk '$5 ~ "/control$" { queue[$2] = $3 } END { print queue["LISTEN"], queue["ESTAB"] }')" = "$1 $2" ]; do
    tries=$((tries - 1))
    [ $tries -gt 0 ] || case_failed "the master's connection: $(host_run algo-2 ss -xaH)"
    sleep 0.05
  done
}
# relay BYTES FILE: what speaks as the master on algo-2, until FILE is there; the worker's answers go to the file `received`.
relay() { host_run algo-2 sh -c '{ until [ -e /opt/ml/greet ]; do sleep 0.05; done; printf "$2"; until [ -e "/opt/ml/$3" ]; do sleep 0.05; done; } |
  "$1" relay /run/paceline.* >/opt/ml/received' sh "$paceline" "$1" "$2" & }
# A cgroup of our own, version 2 or 1: CONTROLLER LIMIT; leaves its folder in `group`, empty if this machine lends none, and its mount in `group_type`.
make_group() {
  local file=$1.max
  group_type="cgroup2 none /sys/fs/cgroup"
  if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
    group=/sys/fs/cgroup/pl-limit-$$
  else
    group=/sys/fs/cgroup/$1$(sed -n "s/^[0-9]*:$1://p" /proc/self/cgroup)/pl-limit-$$
    group_type="cgroup -o $1 none /sys/fs/cgroup/$1"
    [ "$1" != memory ] || file=memory.limit_in_bytes
  fi
  if ! mkdir "$group" 2>/dev/null || ! { [ -e "$group/$file" ] && echo "$2" >"$group/$file"; } 2>/dev/null; then
    rmdir "$group" 2>/dev/null || true
    group=
  elif [ -e "$group/memory.swap.max" ]; then
    echo 0 >"$group/memory.swap.max"
  fi
}
# A host's process 1 enters the group before `paceline` takes its place.
enter_group() {
  until [ -n "$(host_first algo-1)" ]; do sleep 0.02; done
  host_first algo-1 >"$group/cgroup.procs"
  touch "$cluster/algo-1/ml/go"
  wait_host algo-1 60
  rmdir "$group" || true
}
'''


class Shell:
    """One bash that has the verbs. A line that fails ends the test, as case_failed does."""
    def __init__(self, hosts):
        self.answers, answer = os.pipe()
        self.bash = subprocess.Popen(['bash'], stdin=subprocess.PIPE, pass_fds=[answer], text=True)
        os.close(answer)
        self(f'answers={answer}\n{VERBS}\ncluster_up {hosts}')
        self.folder = pathlib.Path(self('echo "$cluster" >&$answers'))

    def __call__(self, lines):
        """Returns what the lines write to the descriptor `answers`."""
        self.bash.stdin.write(f'{{ :\n{lines}\n}} </dev/null\necho . >&$answers\n')
        self.bash.stdin.flush()
        text = ''
        while not text.endswith('.\n'):
            piece = os.read(self.answers, 4096).decode()
            if not piece:
                sys.exit(self.bash.wait())
            text += piece
        return text[:-3]


class Host:
    """What a host runs: `program` (words, a shell script, or None: `paceline train`), `ranks` a host by MPI (0: without), `files` in the folder of its job, a
    shell script that is process 1 first, variables, and the hosts that the job has."""
    def __init__(self, program=None, ranks=0, files=None, inside='', env=(), hosts=None, process=None):
        self.words = ['sh', '-c', program] if isinstance(program, str) else program
        self.ranks, self.files, self.inside, self.env, self.hosts, self.process = ranks, files or {}, inside, env, hosts, process

    def start(self, shell, name, hosts):
        words = self.process or [*(['env', *self.env] if self.env else []), PACELINE, *(['--', *self.words] if self.words else ['train'])]
        shell(shlex.join(['job_config', name, self.hosts or hosts, str(self.ranks)]))
        for path, text in self.files.items():
            path = shell.folder / name / 'ml' / path
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            path.chmod(0o755 if text.startswith('#!') else 0o644)
        shell(shlex.join(['host_start', name, *(['sh', '-c', self.inside + '; exec "$@"', 'sh'] if self.inside else []), *words]))


def ranks(words, **named):
    return Host([PROBE, *words.split()], 2, **named)


def both(host):
    return {'algo-1': host, 'algo-2': host}


CASES = []
RESTARTS = ('restarts', 'restarts_full', 'training', 'training_full', 'others_full')  # the last three: restarts.py


def case(group, name, hosts, when='', fault='', ends='', check='', env=(), before='', later=None, needs=None):
    """`hosts`: what each runs, in the order in which they start, or what algo-1 runs. After `when` the hosts of `later` start, and the time until a host has ended
    is measured. `before`: lines before the first host starts, which may say in `skipped` why not. `needs`: a program or file without which the case is left out."""
    hosts = hosts if isinstance(hosts, dict) else {'algo-1': hosts if isinstance(hosts, Host) else Host(hosts)}
    CASES.append((group, name, hosts, when, fault, ends, check, env, before, later or {}, needs))


def run(shell, group, name, hosts, when, fault, ends, check, env, before, later, needs):
    if needs and not shutil.which(needs) and not os.path.exists(needs):
        print(f'{name}: left out, there is no {needs}', flush=True)
        return
    names = 'algo-1' if group == 'direct' or (group in RESTARTS and len(hosts) == 1) else 'algo-1 algo-2'
    skipped = shell(f'case_begin {shlex.quote(name)}\ncluster_environment=({" ".join(env)})\nskipped=\n{before}\necho "$skipped" >&$answers').strip()
    if skipped:
        print(f'{name}: left out, {skipped}', flush=True)
        return
    for host, what in hosts.items():
        what.start(shell, host, names)
    shell(f'{when}\n{"case_mark" if when else ""}')
    for host, what in later.items():
        what.start(shell, host, names)
    shell(f'{fault}\n{ends}\n{check}')


def one(code, words=''):
    return f'case_ends 60 algo-1 {code} {shlex.quote(words)}'


def bad_pip(script):
    """Replaces Python by a script, which is to be named in PACELINE_PYTHON or PATH, where pip is to install something."""
    return {'bin/python3': f'#!/bin/sh\n[ "$1" != -c ] || exit 0 # pip is there\n{script}\n', 'code/requirements.txt': 'numpy\n'}


# --- direct: exit codes, failure texts, survivors ---

for number in (0, 1, 2, 41, 126, 127, 128, 255):
    case('direct', f'the program exits with {number}', f'echo out; echo err >&2; exit {number}',
         ends=one(number, f'exited with code {number}' if number else ''),
         check=('expect_failure algo-1 "^err\\$"\n' if number else '') + "expect_line algo-1 '^out$'")
for number, name in ((9, 'KILL'), (11, 'SEGV'), (15, 'TERM'), (6, 'ABRT')):
    case('direct', f'the program is killed by SIG{name}', f'kill -{name} $$', ends=one(128 + number, rf'killed by signal {number} \(SIG{name}\)'))
case('direct', 'the program does not exist', ['/nonexistent/program'], ends=one('bad', '/nonexistent/program'))
case('direct', 'a daemon holds stdout and ignores SIGTERM', "(trap '' TERM; setsid sleep 300) & echo started; exit 0", ends=one(0))
for code in (0, 0, 0, 3):
    case('direct', 'a script that logs through tee loses no line', ['bash', '-c', 'exec > >(tee /opt/ml/output/log.txt) 2>&1; '
         f'head -c 60000 /dev/zero | tr "\\0" x | fold -w 99; echo; echo "the last line"; exit {code}'], needs='bash', ends=one(code), check="""
for file in /ml/output/log.txt .log; do
  [ "$(grep -Ec '^x+$|^the last line$' "$cluster/algo-1$file")" = 608 ] || case_failed "lines are missing in $file"
done""")
for progress, without in (('keep', 'cat'), ('10', 'tr -d "\\r"')):
    case('direct', f'output passes byte for byte, PACELINE_PROGRESS_S={progress}', Host(process=['sh', '-c', """until [ -e /opt/ml/go ]; do sleep 0.02; done
for n in 1 2; do "$1" -- sh -c "cat /opt/ml/bytes >&$n" >/opt/ml/out.1 2>/opt/ml/out.2; cmp /opt/ml/bytes /opt/ml/out.$n || exit 7; done""", 'sh', PACELINE]),
         fault=f'head -c 300000 /dev/urandom | {without} >"$cluster/algo-1/ml/bytes"; echo >>"$cluster/algo-1/ml/bytes"; go algo-1',
         env=['PACELINE_LOG=warning', f'PACELINE_PROGRESS_S={progress}'], ends=one(0))  # no line of Paceline's own
case('direct', 'a line of stderr reaches the log while the program waits for it there',
     'echo first >&2; until [ -e /opt/ml/go ]; do sleep 0.01; done; echo second', when="await_log algo-1 '^first$' 60", fault='go algo-1', ends=one(0),
     check='[ "$(grep -x "first\\|second" "$cluster/algo-1.log" | tr "\\n" " ")" = "first second " ] || case_failed "the lines are not in order"')
case('direct', "a killed Python program's lines are in the log", ['python3', '-c', """import os, signal
for number in range(5):
    print("line", number)
os.kill(os.getpid(), signal.SIGKILL)"""], needs='python3', before="unset PYTHONUNBUFFERED # the machine's own", ends=one(137),
     check='for number in 0 1 2 3 4; do expect_line algo-1 "^line $number\\$"; done')
case('direct', "the program's own failure file stays in front", 'echo "loss is NaN" >/opt/ml/output/failure; exit 9', ends=one(9, 'exited with code 9'),
     check='[ "$(failure_of algo-1 | sed -n 1p)" = "loss is NaN" ] || case_failed "the program\'s words are not in front"')


def stop_case(name, program, code, words='', check='', signal='TERM', stop_s=110, needs=None):
    """The program says "ready", then process 1 gets the signal and has so many seconds."""
    case('direct', name, program, env=[f'PACELINE_STOP_S={stop_s}'], needs=needs, when='await_log algo-1 ready 60', fault=f'host_signal algo-1 {signal}',
         ends=one(code, words), check=check)


SAVED = 'expect_file algo-1 model/saved\n'
stop_case('SIGTERM: the program saves and ends well', 'trap "sleep 1; echo saved >/opt/ml/model/saved; exit 0" TERM; echo ready; while :; do sleep 0.1; done', 0, check=SAVED)
stop_case('SIGTERM: the program dies of it', 'echo ready; sleep 300', 143, 'stopped by SIGTERM')
stop_case('SIGINT: the program dies of it', 'echo ready; exec sleep 300', 130, signal='INT')
stop_case('SIGTERM: the program ignores it', 'trap "" TERM; echo ready; while :; do sleep 1; done', 143, 'did not end within', stop_s=4,
          check='expect_line algo-1 "SIGTERM: stopping, 3 s for the program to save and end"')
# Programs of several processes, of which one saves. In the first, a worker that dies fails the program, as in torch's DataLoader, and one has the program's handler.
SAVE = """import signal, sys, time
def save(number, frame):
    print("saving", flush=True)
    time.sleep(1.5)
    print("saved", file=open("/opt/ml/model/saved", "x"), flush=True)
    print("it is saved", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
print("ready", flush=True)
while True:
    time.sleep(0.1)"""
WORKERS = """import multiprocessing, os, signal, sys, time
def save(number, frame):
    time.sleep(1.5)
    dead = [worker.exitcode for worker in workers if not worker.is_alive()]
    if dead:
        sys.exit(f"workers have ended: {dead}")
    print("saved", file=open("/opt/ml/model/saved", "x"), flush=True)
    for worker in workers:
        worker.kill()
    os._exit(0)
def work(number):
    if number == 0:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    events.send(number)
    while True:
        time.sleep(0.1)
signal.signal(signal.SIGTERM, save)
begun, events = multiprocessing.Pipe(False)
workers = [multiprocessing.get_context("fork").Process(target=work, args=(number,)) for number in range(2)]
for worker in workers:
    worker.start()
for worker in workers:
    begun.recv()
print("ready", flush=True)
while True:
    time.sleep(0.1)"""
stop_case('SIGTERM: a program with workers saves', ['python3', '-c', WORKERS], 0, check=SAVED, needs='python3')
for name in ('sh', 'bash'):
    stop_case(f'SIGTERM: a program below {name} saves', [name, '-c', 'python3 -c "$1" | tee /opt/ml/output/copy; echo "the shell ends"', name, SAVE], 0, needs='python3',
              check=SAVED + """grep -q '^it is saved$' "$cluster/algo-1/ml/output/copy" || case_failed "the pipe was cut"
expect_line algo-1 '^the shell ends$'""")
stop_case('SIGTERM: a shell does not go on after a program that saves', ['sh', '-c', 'python3 -c "$1"; echo "the second begins"; sleep 300; touch /opt/ml/model/second', 'sh', SAVE],
          143, 'stopped by SIGTERM', needs='python3', check=SAVED + """expect_line algo-1 '^the second begins$' # it was not stopped before its program had saved
[ ! -e "$cluster/algo-1/ml/model/second" ] || case_failed "the shell went on" """)

case('direct', 'SIGTERM while waiting for a host name', Host(['true'], hosts='algo-1 algo-unknown'), env=['PACELINE_PEER_WAIT_S=60'], when=':',
     fault='signal_until_end algo-1 TERM 60', ends=one(143, 'stopped by SIGTERM before its program started'))
# Preparation steps: an interpreter whose pip hangs, and an archive that never ends.
case('direct', 'SIGTERM while requirements are installed', Host(files={**bad_pip('echo "pip is at work"\nexec sleep 300'), 'code/train.py': 'print("never")\n',
     'input/config/hyperparameters.json': '{"sagemaker_program": "train.py"}'}), env=['"PATH=/opt/ml/bin:$PATH"'], when='await_log algo-1 "pip is at work" 60',
     fault='host_signal algo-1 TERM', ends=one(143, 'stopped by SIGTERM'), check='expect_failure algo-1 "pip install"')
case('direct', 'SIGTERM while code is unpacked', Host(files={'unpack': '#!/bin/sh\necho "the archive is at work"\nexec sleep 1000\n', 'input/data/code/sourcedir.tar.gz': '',
     'input/config/hyperparameters.json': '{"sagemaker_program": "train.py", "sagemaker_submit_directory": "/opt/ml/input/data/code/sourcedir.tar.gz"}'},
     inside='mount --bind /opt/ml/unpack "${1%/*}/../libexec/paceline/paceline-unpack"'), when='await_log algo-1 "the archive is at work" 60',
     fault='host_signal algo-1 TERM', ends=one(143, 'stopped by SIGTERM'), check='expect_failure algo-1 "unpack"')
case('direct', 'a host name that never resolves', Host(['true'], hosts='algo-1 algo-unknown'), env=['PACELINE_PEER_WAIT_S=1'], ends=one('bad', "'algo-unknown' does not resolve"))
# After its program has ended, a host is gone, and so is its name.
for setting in ('PACELINE_LINK=0', 'PACELINE_SSH_DIR=/nonexistent'):
    for names in ('algo-1 algo-unknown', 'algo-unknown algo-1'):
        case('direct', f'plain programs on {names} with {setting}', Host(['true'], hosts=names), env=['PACELINE_PEER_WAIT_S=1', setting], ends=one(0))

for name, size, command, check in (
        ('the disk under /opt/ml/output is full', '64k', 'true', ''),
        ("the disk is full, and the program's own failure file is long", '256k', 'head -c 100000 /dev/zero | tr "\\0" x >/opt/ml/output/failure',
         '[ "$(head -c 4096 "$cluster/algo-1/ml/kept/failure" | tr -d x)" = "" ] || case_failed "the program\'s words are not in front"')):
    case('direct', name, Host(process=['sh', '-c', f'mount -t tmpfs -o size={size} tmpfs /opt/ml/output; "$@"; code=$?; mkdir /opt/ml/kept; cp /opt/ml/output/failure /opt/ml/kept; exit $code',
         'sh', PACELINE, '--', 'sh', '-c', f'mkdir -p /opt/ml/output/data; {command}; cat /dev/zero >/opt/ml/output/data/big']), ends=one(1),
         check='grep -aq "exited with code 1: the disk is full under /opt/ml/output" "$cluster/algo-1/ml/kept/failure" || case_failed "the full disk is not named"\n' + check)
case('direct', 'the disk is full before the job starts', Host(['true'], inside='mount -t tmpfs -o size=64k tmpfs /opt/ml/output; mkdir /opt/ml/output/data; '
     'cat /dev/zero >/opt/ml/output/big 2>/dev/null'), ends=one('any'),
     check='[ "$(grep -c "the disk is full under /opt/ml/output before the job starts" "$cluster/algo-1.log")" = 1 ] || case_failed "that is not said once"')
for code, file in ((0, 'success'), (7, 'failure')):
    case('direct', f"a program that makes directories in the files' places exits with {code}",
         f'mkdir /opt/ml/output/failure /opt/ml/output/success; echo >/opt/ml/output/failure/kept; exit {code}', ends=one('any'), check=f"""expect_code algo-1 {code}
[ -f "$cluster/algo-1/ml/output/{file}" ] || case_failed "there is no file {file}"
expect_line algo-1 "/opt/ml/output/{file} is a directory, but a file of this name is needed: the directory is renamed to {file}.1\\$"
[ {code} = 0 ] || expect_file algo-1 output/failure.1/kept""")
READ_ONLY = 'mount --bind /opt/ml/{0} /opt/ml/{0}; mount -o remount,bind,ro /opt/ml/{0}'
case('direct', '/opt/ml/output is read-only', Host('exit 5', files={'output/data/file': ''}, inside=READ_ONLY.format('output')), ends=one(5),
     check="""expect_line algo-1 "error: failed after [0-9]* s: the program on host algo-1 exited with code 5"
expect_line algo-1 "write /opt/ml/output/failure: .*Read-only"
expect_no_line algo-1 "the old file" # one that is not there is not in the way""")
case('direct', '/opt/ml/model is read-only', Host('echo x >/opt/ml/model/m || exit 5', inside=READ_ONLY.format('model')), ends=one(5, 'exited with code 5'),
     check='expect_failure algo-1 "Read-only"')


def in_group(what):
    return f"""until [ -e /opt/ml/go ]; do sleep 0.02; done
exec unshare --cgroup sh -c 'mount -t tmpfs tmpfs /sys/fs/cgroup; mkdir -p /sys/fs/cgroup/{what}; mount -t $group_type; exec "$@"' sh "$@" """


def new_group(what, limit):
    return f'make_group {what} {limit}\n[ -n "$group" ] || skipped="this machine lends no {what} cgroup"\ncluster_environment+=("group_type=$group_type")'


OUT_OF_MEMORY = r'was killed by signal 9 \(SIGKILL\): out of memory'
for name, what, limit, code, words, program in (
        ('the memory limit kills the program', 'memory', '64M', 137, OUT_OF_MEMORY, ['tail', '/dev/zero']),
        ('the memory limit kills what the program started', 'memory', '64M', 7, "exited with code 7: out of memory, the kernel's OOM killer ended a process", 'tail /dev/zero || exit 7'),
        ('the memory limit kills the shim', 'memory', '64M', 137, OUT_OF_MEMORY, 'echo 1000 >/proc/$PPID/oom_score_adj; exec tail /dev/zero'),
        ('the limit of processes is reached', 'pids', '16', 7, "exited with code 7: the container's limit of processes and threads was reached", 'sh -c "while sleep 60 & do :; done" || exit 7')):
    case('direct', name, Host(program, inside=in_group(what)), before=new_group(what, limit), fault='enter_group', ends=one(code, words))

# --- hosts: two ranks on each of two hosts train ---


def training(name, words, fault, ends, check='', env=(), **named):
    case('hosts', name, both(ranks(words)), when='await_ranks', fault=fault, ends=ends, check=check, env=env, **named)


training('the worker is powered off mid-job', 'sleep 0 60', 'host_off algo-2', 'case_ends 20 algo-1 bad "host algo-2 went away" algo-2 any ""')
training('the master is powered off mid-job', 'sleep 0 60', 'host_off algo-1', 'case_ends 20 algo-2 bad "master host algo-1 went away" algo-1 any ""')
for delay in (0.9, 1.0, 1.05, 1.1):  # near the end either outcome is right, if the exit code and the files agree, no host waits, and no process is left
    training(f'the worker is powered off at the end, after {delay} s', 'sleep 0 1', f'sleep {delay}\ncase_mark\nhost_off algo-2 2>/dev/null || true',
             'case_ends 20 algo-1 any "" algo-2 any ""', 'if [ "$(cat "$cluster/algo-1.code")" = 0 ]; then expect_success algo-1; else expect_failure algo-1 algo-2; fi')
# The launcher or a daemon is killed, and its ranks, which have not failed, end with it.
for name, host, signal, program, words in (
        ('mpirun is killed', 'algo-1', 'KILL', 'mpirun', r'^mpirun on host algo-1 was killed by signal 9 \(SIGKILL\)'),
        ('mpirun is told to end', 'algo-1', 'TERM', 'mpirun', '^mpirun on host algo-1 exited with code 1: it ended its ranks, none of which had failed'),
        ('orted is killed', 'algo-2', 'KILL', 'orted', r"^Open MPI's launch daemon on host algo-2 was killed by signal 9 \(SIGKILL\)")):
    training(name, 'sleep 0 60', f'host_run {host} pkill -{signal} -x {program}', f'both_end 20 1 {shlex.quote(words)}')
case('hosts', 'a rank leaves with 0 and without MPI_Finalize', both(ranks('exit 2 0')),
     ends=r"both_end 30 1 '^rank 2 on host algo-2 exited with code 0: it left without MPI_Finalize\(\)' 'this is the last word of rank 2'")
for rank, how, words in ((1, 'exit 1 3', 'rank 1 on host algo-1 exited with code 3'), (3, 'raise 3 9', r'rank 3 on host algo-2 was killed by signal 9 \(SIGKILL\)')):
    case('hosts', f'rank {rank} ends: {how}', both(ranks(how)), when=f'await_log algo-1 "last word of rank {rank}" 60',
         ends=f"both_end 60 bad '{words}' '^Program: [^ ]*/mpi_probe$' 'this is the last word of rank {rank}'")
# The kernel ends everything with a host's process 1, so look before: here a shell is process 1 and lists who is left.
case('hosts', 'nobody survives under another process 1', both(ranks('', process=['sh', '-c', '"$@"; code=$?; ps -e -o pid=,args= >/opt/ml/left; exit $code', 'sh', PACELINE, '--',
     PROBE, 'stubborn', '2', '7'])), when='await_log algo-1 "last word of rank 2" 60',
     ends='both_end 60 bad "rank 2 on host algo-2 exited with code 7"', check="""for host in algo-1 algo-2; do
  ! grep -E "mpi_probe|mpirun|prterun|orted|prted|sshd|ssh |relay|paceline rank" "$cluster/$host/ml/left" | grep -v "sh -c" || case_failed "somebody was left on $host"
done""")
training('a rank is stopped and goes on', 'sleep 0 3', r"""host_run algo-2 sh -c 'kill -STOP $(pgrep -x mpi_probe | tail -n 1)'
await_log algo-1 'rank [23] on host algo-2 was stopped by signal 19 \(SIGSTOP\)' 20
host_run algo-2 sh -c 'kill -CONT $(pgrep -x mpi_probe | tail -n 1)'
await_log algo-1 'rank [23] on host algo-2 goes on' 20""", 'both_end 40 0')
training('a cut of 5 s is survived', 'sleep 0 7', 'host_cut algo-2\nsleep 5\nhost_join algo-2', 'both_end 60 0')
FAKE_TIME = str(next(pathlib.Path('/usr/lib').rglob('libfaketime.so.1'), 'libfaketime.so.1'))
training('the clock is set back by an hour', 'sleep 0 10', 'echo "-1h" >"$cluster/time"', 'both_end 60 0', needs=FAKE_TIME, before='echo "+0" >"$cluster/time"',
         env=['PACELINE_SILENCE_S=5', 'PACELINE_STOP_S=20', f'LD_PRELOAD={FAKE_TIME}', 'FAKETIME_DONT_FAKE_MONOTONIC=1', 'FAKETIME_NO_CACHE=1',
              '"FAKETIME_TIMESTAMP_FILE=$cluster/time"'])
training('the cable is cut for good', 'sleep 0 60', 'host_cut algo-2\nwait_both 40\nhost_join algo-2', 'case_ends 40 algo-1 bad '
         '"host algo-2 went away: nothing was received from it for 6 s" algo-2 bad "master host algo-1 went away: nothing was received from it for 6 s"', env=['PACELINE_SILENCE_S=6'])
for host in ('algo-1', 'algo-2'):
    training(f'SIGTERM to {host}: ranks on both save', 'save 0 1', f'host_signal {host} TERM', 'both_end 60 0', 'expect_saved')
# A rank is a shell without a trap, below which the program saves.
case('hosts', "SIGTERM: the ranks' programs save below shells", both(Host(['sh', '-c', '"$@"; code=$?; echo "the shell ends"; exit $code', 'sh', *ranks('save 0 2').words], 2)),
     when='await_ranks', fault='host_signal algo-2 TERM', ends='both_end 60 0', check="""expect_saved
[ "$(grep -c 'the shell ends' "$cluster/algo-1.log")" = 4 ] || case_failed "not all shells have ended by themselves"
! grep -q 'has no handler' "$cluster"/algo-?.log || case_failed "a rank that saves is said to have no handler" """)
# Only rank 0 handles SIGTERM, as scripts usually do: the ends of the others must not cut its save short.
for how, stop_s, words in (('', 30, 'was killed by signal 15 .SIGTERM.: it has no handler for this signal'), ('leave', 30, 'exited with code 1'),
                           ('ignore', 15, 'was killed by signal 9 .SIGKILL.: it had not ended when it was asked to')):
    training(f'SIGTERM, rank 0 alone saves, the others {how or "die of it"}', f'alone 0 4 {how}', 'host_signal algo-2 TERM' + ('\nfailure_before_save' if how != 'ignore' else ''),
             f'case_ends 40 algo-1 bad "stopped by SIGTERM; rank [123] on host algo-[12] {words}" algo-2 bad ""', 'expect_file algo-1 model/saved-0', [f'PACELINE_STOP_S={stop_s}'])
training('SIGTERM that the ranks ignore', 'save 0 60', 'host_signal algo-1 TERM', 'case_ends 40 algo-1 bad "SIGTERM|asked to stop" algo-2 bad ""', env=['PACELINE_STOP_S=6'])
training('a rank leaves a daemon that holds its output', 'daemon 2 60', '', 'both_end 40 0')
training('a rank fails after all have finished', 'last 3 5', '', 'both_end 60 bad "rank 3 on host algo-2 exited with code 5"')
# Replaces TensorFlow: a server that serves until it is killed.
SERVER = """import time, types
class Server:
    def __init__(self, *args, **named): print('server is up', flush=True)
    def join(self): time.sleep(600)
distribute = types.SimpleNamespace(Server=Server, cluster_resolver=types.SimpleNamespace(TFConfigClusterResolver=lambda: types.SimpleNamespace(cluster_spec=lambda: None)))
train = types.SimpleNamespace(ClusterSpec=lambda x: x, Server=Server)
"""
for name, script, ends in (
        ('parameter servers end with the master', 'import os, time; print(os.environ["TF_CONFIG"], flush=True); time.sleep(1)', 'both_end 40 0'),
        ('a program on a worker fails', 'import os, sys, time; "algo-2" == os.environ["SM_CURRENT_HOST"] and sys.exit("the worker is out of data"); time.sleep(60)',
         'both_end 40 bad "the program on host algo-2 exited with code 1" "the worker is out of data"')):
    server = Host(files={'code/train.py': script, 'code/tensorflow.py': SERVER, 'input/config/hyperparameters.json':
                         '{"sagemaker_parameter_server_enabled": "true", "sagemaker_program": "train.py", "sagemaker_submit_directory": "/opt/ml/code"}'})
    case('hosts', name, {'algo-2': server, 'algo-1': server}, ends=ends)

# --- start: before they train ---

case('start', 'the worker never comes', ranks(''), ends='case_ends 30 algo-1 bad "1 of 2 hosts did not connect within 3 s: algo-2"', env=['PACELINE_PEER_WAIT_S=3'])
case('start', 'the master never comes', {'algo-2': ranks('')}, ends='case_ends 30 algo-2 bad "master host algo-1 did not connect within 3 s"', env=['PACELINE_PEER_WAIT_S=3'])
LISTEN = 'import socket, time; s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); s.bind(("", 22)); s.listen()'
# The reason is the message of the last attempt, not of an earlier attempt that got less far.
case('start', "the worker's port hangs up on every session", {'algo-1': ranks(''), 'algo-2': Host(process=['python3', '-c', f'import time; time.sleep(1); {LISTEN}\n'
     'while True: s.accept()[0].close()'])}, fault='wait_host algo-1 30\nhost_off algo-2', env=['PACELINE_PEER_WAIT_S=6'],
     ends=r'case_ends 10 algo-1 bad "1 of 2 hosts did not connect within 6 s: algo-2 \(kex_exchange_identification" algo-2 any ""')
HELLO = r'PL\006\000\020\000\000\000master\000algo-1\0000\000'
case('start', 'a master that greets twice and goes', {'algo-2': ranks('')}, when='await_control algo-2', fault=rf"""relay '{HELLO}PL\006\000\000\000\000\000' greet
touch "$cluster/algo-2/ml/greet"
wait $! || true""", ends='case_ends 20 algo-2 bad "master host algo-1 went away: its connection closed"')
case('start', "SIGTERM in the moment of the master's greeting", {'algo-2': ranks('')}, when='await_control algo-2', fault=f"""relay '{HELLO}' output/failure
await_queues 0 0
host_signal algo-2 STOP
touch "$cluster/algo-2/ml/greet"
await_queues 0 24
host_signal algo-2 TERM
case_mark
host_signal algo-2 CONT
wait_host algo-2 60
wait $! || true""", ends='case_ends 60 algo-2 143 "stopped by SIGTERM before its program started"',
     check=r"""grep -aq $'PL\x06\x07' "$cluster/algo-2/ml/received" || case_failed "the master was not notified" """)
case('start', 'SIGTERM while waiting for the worker', ranks(''), when=':', fault='signal_until_end algo-1 TERM 30', env=['PACELINE_STOP_S=360'],
     ends='case_ends 30 algo-1 143 "stopped by SIGTERM before its program started"')
TAKEN = f"""python3 -c '{LISTEN}; open("/opt/ml/taken", "w"); time.sleep(600)' &
until [ -e /opt/ml/taken ]; do sleep 0.05; done"""
case('access', 'port 22 is taken on the worker', {'algo-1': ranks(''), 'algo-2': ranks('', inside=TAKEN)}, env=['PACELINE_PEER_WAIT_S=3'],
     ends='case_ends 30 algo-2 bad "cannot use port 22.*Address already in use" algo-1 bad algo-2', check='expect_failure algo-2 PACELINE_SSH_PORT')
for broken in (['algo-2'], ['algo-1'], ['algo-1', 'algo-2']):  # PACELINE_PEER_WAIT_S is left at its 900 s
    case('start', f'the preparation fails on {" ".join(broken)}', {host: ranks('', files=bad_pip('echo "no such package" >&2\nexit 4') if host in broken else {})
         for host in ('algo-1', 'algo-2')}, env=['PACELINE_PYTHON=/opt/ml/bin/python3'],
         ends=r"both_end 100 bad 'installing requirements.txt on host algo-[12]: no such package \(exit code 4\)$'")
    case('start', f'the configuration of {" ".join(broken)} cannot be read', {host: ranks('', files={'input/config/hyperparameters.json':
         '{"sagemaker_mpi_enabled": "true", "sagemaker_mpi_num_of_processes_per_host": "two"}'} if host in broken else {}) for host in ('algo-1', 'algo-2')},
         ends="both_end 100 1 '^host algo-[12]: hyperparameter sagemaker_mpi_num_of_processes_per_host: expected a whole number from 1 to 65536, found \"two\"$'",
         check='expect_same_words' if len(broken) == 1 else '')
for stopped, other in (('algo-2', 'algo-1'), ('algo-1', 'algo-2')):
    case('start', f'SIGTERM to {stopped} alone while it prepares', {host: ranks('', files=bad_pip('echo "pip is at work"\nexec sleep 300') if host == stopped else {})
         for host in ('algo-1', 'algo-2')}, when=f'await_control {other}\nawait_log {stopped} "pip is at work" 60', fault=f'host_signal {stopped} TERM',
         ends='both_end 40 143 "the job was stopped by SIGTERM"', env=['PACELINE_PYTHON=/opt/ml/bin/python3', 'PACELINE_STOP_S=360'])
AGENT = '--prtemca prte_launch_agent' if shutil.which('prted') else '--mca orte_launch_agent'  # of Open MPI 5, or 4
case('access', "a daemon that is not Open MPI's", both(ranks('', files={'input/config/hyperparameters.json': json.dumps({'sagemaker_mpi_enabled': 'true',
     'sagemaker_mpi_custom_mpi_options': f'--mca mpi_yield_when_idle 1 {AGENT} /bin/reboot'})})),
     ends="""both_end 60 bad "Open MPI's daemon on host 'algo-2' does not start: .*only orted and prted may be started, not '/bin/reboot'" """)
PASSWD = 'mount --bind /opt/ml/passwd /etc/passwd'
for shell, ends in (('/bin/sh', 'both_end 60 0'),
                    ('/usr/sbin/nologin', """both_end 60 bad "expected a shell such as /bin/sh for 'root' in /etc/passwd, found '/usr/sbin/nologin'" """)):
    passwd = re.sub(r'(?m)^(root:.*:)[^:\n]*$', rf'\g<1>{shell}', pathlib.Path('/etc/passwd').read_text())
    case('access', f"root's login shell is {shell}", both(ranks('', files={'passwd': passwd}, inside=PASSWD)), ends=ends)
case('access', "root's keys and an ordinary user", both(ranks('', files={'passwd': 'root:x:0:0::/root:/bin/sh\ntrainer:x:4242:4242::/opt/ml:/bin/sh\n'},
     inside=f'{PASSWD}; chown -R 4242:4242 /opt/ml', process=['setpriv', '--reuid', '4242', '--regid', '4242', '--clear-groups', 'env', 'TMPDIR=/tmp', PACELINE, '--', PROBE])),
     before='chmod 0711 "$cluster"',
     ends="""both_end 60 bad "the ssh key '.*id_ed25519' belongs to user root, and this job's user 4242 cannot read it: run the container as that user" """)
# The host that runs sshd logs that before the first attempt; the other host never connects.
case('access', 'a container without the capabilities that sshd needs', {'algo-2': ranks('', process=['setpriv', '--bounding-set', '-sys_chroot,-setuid', PACELINE, '--', PROBE])},
     ends='case_ends 60 algo-2 bad "needs the capabilities SETGID, SETUID and SYS_CHROOT, but this container lacks SETUID, SYS_CHROOT: "')
# The other host is stopped, or a setting of its own is wrong. PACELINE_PEER_WAIT_S is left at its 900 s.
PREPARES = bad_pip('echo "pip is at work"\nexec sleep 300')
PREPARES_ENV = ['PACELINE_PYTHON=/opt/ml/bin/python3']
for busy, other in (('algo-2', 'algo-1'), ('algo-1', 'algo-2')):
    case('start', f'SIGTERM to {other} while {busy} prepares', {busy: ranks('', files=PREPARES), other: ranks('')}, when=f'await_log {busy} "pip is at work" 60',
         fault=f'signal_until_end {other} TERM 30', ends='both_end 30 143 "the job was stopped by SIGTERM"', env=PREPARES_ENV)
NO_SSHD = ranks('', process=['setpriv', '--bounding-set', '-sys_chroot', PACELINE, '--', PROBE])
case('access', 'sshd may not run on algo-2', {'algo-1': ranks(''), 'algo-2': NO_SSHD}, check="expect_failure algo-1 '^host algo-2: sshd for the other hosts'",
     ends="both_end 30 bad 'needs the capabilities SETGID, SETUID and SYS_CHROOT, but this container lacks SYS_CHROOT'")
case('start', 'a setting of algo-2 has a wrong value', {'algo-1': ranks(''), 'algo-2': ranks('', env=['PACELINE_STOP_S=soon'])},
     ends="""both_end 30 1 "^host algo-2: PACELINE_STOP_S is 'soon': expected seconds" """)
case('access', 'another port serves', both(ranks('')), ends='both_end 60 0', env=['PACELINE_SSH_PORT=2022'])
GOOD = 'a secret of at least thirty-two bytes'
for name, wait_s, secrets, ends in (
        ('keys are made from a secret', 60, (GOOD, GOOD), 'both_end 90 0'),
        ('the hosts have different secrets', 10, (GOOD, 'another one of at least thirty-two bytes'), r'case_ends 90 algo-1 bad "algo-2 \(.*[Hh]ost key" algo-2 bad ""'),
        ('the secret is too short', 4, (GOOD, 'short'), "case_ends 90 algo-2 bad \"making ssh keys from the job's secret on host algo-2: cannot make ssh keys: PACELINE_SSH_SECRET: "
         r'.* at least 32 are needed \(exit code 1\)\$" algo-1 any ""')):
    # The worker waits longer: its sshd is there when the master gives up, and the reason is the key, not the port.
    case('access', name, {f'algo-{1 + i}': ranks('', files={'input/data/secret/key': secret + '\n'}, env=[f'PACELINE_PEER_WAIT_S={wait_s + 10 * i}'])
                         for i, secret in enumerate(secrets)}, ends=ends,
         env=['PACELINE_SSH_DIR=/nonexistent', 'PACELINE_SSH_SECRET=/opt/ml/input/data/secret/key', 'TRAINING_JOB_NAME=job-1'])

# --- links: each host has its own program, with the link beside it ---

SLEEPS = Host('echo runs; while :; do sleep 0.1; done')
SAVES = Host('trap "sleep 3; echo model >/opt/ml/model/model; exit 0" TERM; echo runs; while :; do sleep 0.1; done')
IGNORES = Host('trap "" TERM; echo runs; while :; do sleep 0.1; done')


def waits(then=':'):
    return Host(f'echo runs; until [ -e /opt/ml/go ]; do sleep 0.05; done; {then}')


def linked(name, hosts, fault, ends, check='', env=()):
    case('links', name, hosts, when='await_linked', fault=fault, ends=ends, check=check, env=env)


KILLED = shlex.quote(r'^the program on host algo-2 was killed by signal 9 \(SIGKILL\)')
linked('a program fails on the worker', both(SLEEPS), """host_run algo-2 sh -c 'kill -KILL $(pgrep -f "^sh -c echo runs")'""", f'case_ends 20 algo-1 1 {KILLED} algo-2 137 {KILLED}')
linked('a program fails on the master', {'algo-1': waits('echo no such column >&2; exit 3'), 'algo-2': SLEEPS}, 'go algo-1',
       'case_ends 20 algo-1 3 "no such column" algo-2 1 "no such column"', "for host in algo-1 algo-2; do expect_failure $host '^the program on host algo-1 exited with code 3'; done")
linked('the worker is powered off', both(SLEEPS), 'host_off algo-2', "case_ends 20 algo-1 1 '^host algo-2 went away' algo-2 any ''")
linked('the master is powered off', both(SLEEPS), 'host_off algo-1', "case_ends 20 algo-2 1 '^the master host algo-1 went away' algo-1 any ''")
linked('the cable is cut for ever', both(SLEEPS), 'host_cut algo-2\nwait_both 20\nhost_join algo-2', "case_ends 20 algo-1 1 '^host algo-2 went away: nothing was received "
       "from it for 3 s' algo-2 1 '^the master host algo-1 went away: nothing was received from it for 3 s'", env=['PACELINE_SILENCE_S=3'])
for host, other in (('algo-1', 'algo-2'), ('algo-2', 'algo-1')):
    linked(f'SIGTERM to {host} alone, both save', both(SAVES), f'host_signal {host} TERM', 'both_end 20 0', 'for host in algo-1 algo-2; do expect_file $host model/model; done')
    # The other host has not ended before the model was saved.
    linked(f'SIGTERM, only {host} saves', {host: SAVES, other: SLEEPS}, f'host_signal algo-1 TERM\nwait_host {other} 30\nexpect_file {host} model/model',
           rf'both_end 20 143 "^the job was stopped by SIGTERM; the program on host {other} was killed by signal 15 \(SIGTERM\)"')
    linked(f'{host} is powered off during a stop, the other saves', {other: SAVES, host: IGNORES}, f"""host_signal algo-1 TERM
await_log algo-1 'SIGTERM: stopping' 20
await_log algo-2 'SIGTERM: stopping' 20
case_mark
host_off {host}""", f'case_ends 30 {other} any "" {host} any ""', f'expect_file {other} model/model # the loss has not cut the save short')
    linked(f'{host} ends well long before the other', {host: waits('echo over'), other: waits('echo over')},
           f"go {host}\nawait_log {host} '^over$' 20\nsleep 2\nexpect_runs {other}\ngo {other}", 'both_end 20 0')
    case('links', f'{host} has no program, the other hears of it at once', {other: SLEEPS, host: Host(['/no/such/program'])}, ends='both_end 70 bad "/no/such/program"')
    # Each host would read these files by itself. PACELINE_PEER_WAIT_S is left at its 900 s.
    case('links', f'the configuration of {host} alone cannot be read', {other: SLEEPS, host: Host(['true'], files={'input/config/hyperparameters.json': '{"epochs": \n'})},
         ends=f'both_end 70 1 "^host {host}: /opt/ml/input/config/hyperparameters.json, line 2, column 1: expected"', check='expect_same_words')
    case('links', f'{host} fails before the other host is there', {host: Host('exit 7')}, when=f"await_log {host} 'the job has failed; waiting for' 20", later={other: SLEEPS},
         ends=f'case_ends 70 {host} 7 "^the program on host {host} exited with code 7" {other} 1 "^the program on host {host} exited with code 7"')
for busy, other in (('algo-2', 'algo-1'), ('algo-1', 'algo-2')):  # `other` runs its program while `busy` prepares
    beside = f"await_log {other} '^runs$' 60\nawait_log {busy} 'pip is at work' 60\nawait_link"
    case('links', f'SIGTERM to {other}, which runs, while {busy} prepares', {busy: Host(['true'], files=PREPARES), other: SAVES}, when=beside, fault=f'host_signal {other} TERM',
         ends=f'case_ends 30 {busy} 143 "the job was stopped by SIGTERM" {other} any ""', check=f'expect_file {other} model/model', env=PREPARES_ENV)
    case('links', f'the program of {other} fails while {busy} prepares', {busy: Host(['true'], files=PREPARES), other: waits('exit 3')}, when=beside, fault=f'go {other}',
         ends=f'case_ends 30 {other} 3 "^the program on host {other} exited with code 3" {busy} bad "^the program on host {other} exited with code 3"', env=PREPARES_ENV)
# The master has connected and has left with success: HELLO and RESULT by hand. A later failure is this host's own.
case('links', 'a program fails after the master has left well', {'algo-2': waits('exit 3')}, when="await_log algo-2 '^runs$' 60", fault=rf"""
relay '{HELLO}PL\006\010\003\000\000\0000\000\000' output/failure
touch "$cluster/algo-2/ml/greet"
until [ -s "$cluster/algo-2/ml/received" ]; do sleep 0.05; done # READY
case_mark
go algo-2
wait_host algo-2 30
wait $! || true""", ends="case_ends 30 algo-2 3 '^the program on host algo-2 exited with code 3'")
case('links', 'no keys on either host: as without a link', {'algo-1': Host('echo runs; exit 0'), 'algo-2': Host('echo runs; exit 4')}, env=['PACELINE_SSH_DIR=/nowhere'],
     ends="case_ends 20 algo-2 4 '^the program on host algo-2 exited with code 4' algo-1 0 ''", check="""for host in algo-1 algo-2; do
  [ "$(grep -c 'the hosts of this job are not linked.*/nowhere/id_ed25519' "$cluster/$host.log")" = 1 ] || case_failed "$host: not one warning"
done""")
for name, inside, env, check in (("the worker's port is taken: as without a link", TAKEN, [], "expect_line algo-2 'the hosts of this job are not linked.*port 22'\n"),
                                 ('the link is switched off', '', ['PACELINE_LINK=0'], '')):
    case('links', name, {'algo-1': waits(), 'algo-2': Host('echo runs; exit 5', inside=inside)}, env=env,
         fault=f'wait_host algo-2 20\n{check}expect_runs algo-1\ngo algo-1', ends="case_ends 20 algo-2 5 '' algo-1 0 ''")
case('links', 'torchrun that survives the loss of a host', both(Host(['torchrun', '--nnodes', '1:2', 'train.py'], files={'bin/torchrun':
     '#!/bin/sh\necho runs\nuntil [ -e /opt/ml/go ]; do sleep 0.05; done\nexit $(cat /opt/ml/go)\n'})), env=['"PATH=/opt/ml/bin:$PATH"'],
     when="await_log algo-1 '^runs$' 20; await_log algo-2 '^runs$' 20",
     fault="""echo 9 >"$cluster/algo-2/ml/go.new"; mv "$cluster/algo-2/ml/go.new" "$cluster/algo-2/ml/go"
wait_host algo-2 20
expect_runs algo-1
echo 0 >"$cluster/algo-1/ml/go.new"; mv "$cluster/algo-1/ml/go.new" "$cluster/algo-1/ml/go\"""", ends="case_ends 20 algo-2 9 '' algo-1 0 ''")


# --- restarts: jobs that are started again, or are not ---

LOOKS = 'mkdir -p /opt/ml/checkpoints\n' + (pathlib.Path(os.environ['PACELINE_SOURCE']) / 'tests/support/looks.sh').read_text()


def trains(fault, ranks=4, times=1, **named):
    """What a job's hosts run: mpi_probe with the words of `fault` in the first attempts, which then ends well; each rank notes the attempt in its checkpoint."""
    script = f"""echo "$PACELINE_RESTART" >"/opt/ml/checkpoints/$OMPI_COMM_WORLD_RANK"
[ "$PACELINE_RESTART" -ge {times} ] || exec {PROBE} {fault}
exec {PROBE}"""
    return Host(ranks=ranks, process=['sh', '-c', LOOKS, 'sh', PACELINE, '--', 'sh', '-c', script], **named)


def again(group, name, hosts, cause, when='', fault='', times=1, check='', env=(), most=3, **named):
    """The job is started again `times` times of at most `most`, the first time because of `cause`, and ends well."""
    hosts = hosts if isinstance(hosts, dict) else {'algo-1': hosts}
    lines = f"expect_line algo-1 {shlex.quote(f'warning: restart 1 of {most}: {cause}')}\nexpect_line algo-1 'restart {times}: the program runs again, '\n"
    case(group, name, hosts, when=when, fault=fault, ends='case_ends 60 ' + ' '.join(f"{host} 0 ''" for host in sorted(hosts)),
         check=f"""{lines}expect_no_line algo-1 'restart {times + 1} of'
[ "$(grep -c '"cause"' "$cluster/algo-1/ml/output/data/restarts.jsonl")" = {times} ] || case_failed "restarts.jsonl has other lines"
expect_nothing
{check}""", env=[f'PACELINE_MAX_RESTARTS={most}', *env], **named)


def ended(group, name, hosts, code, words, restarts=0, when='', fault='', check='', env=(), most=3, ends='', **named):
    """The job is started again so many times, and ends with a code and words."""
    hosts = hosts if isinstance(hosts, dict) else {'algo-1': hosts}
    case(group, name, hosts, when=when, fault=fault, ends=ends or 'case_ends 60 ' + ' '.join(f'{host} {code} {shlex.quote(words)}' for host in sorted(hosts)),
         check=f"""[ "$(grep -c 'warning: restart [0-9]* of {most}: ' "$cluster/algo-1.log" || true)" = {restarts} ] || case_failed "it was started again another number of times"
expect_nothing
{check}""", env=[f'PACELINE_MAX_RESTARTS={most}', *env], **named)


def alone(script, **named):
    return Host(process=['sh', '-c', LOOKS, 'sh', PACELINE, '--', 'sh', '-c', script], **named)


KILL_ONE = "host_run {0} sh -c 'kill -KILL $(pgrep -x mpi_probe | tail -n {1})'"
again('restarts', 'a rank of four is killed', trains('sleep 0 60'), r'rank [0-3] on host algo-1 was killed by signal 9 (SIGKILL)$', when='await_ranks', fault=KILL_ONE.format('algo-1', 1))
again('restarts', 'a rank on the other host is killed', both(trains('sleep 0 60', 2)), r'rank [23] on host algo-2 was killed by signal 9 (SIGKILL)$', when='await_ranks',
      fault=KILL_ONE.format('algo-2', 1), check="expect_line algo-2 'warning: restart 1 of 3: rank [23] on host algo-2'")
for group, where, host in (('restarts_full', 'one host', trains), ('restarts_full', 'two hosts', lambda words, **named: both(trains(words, 2, **named)))):
    last = 'algo-1' if where == 'one host' else 'algo-2'
    again(group, f'{where}: a rank exits with 7', host('exit 1 7'), 'rank 1 on host algo-1 exited with code 7$')
    again(group, f'{where}: a rank crashes', host('raise 2 11'), rf'rank 2 on host {last} was killed by signal 11 (SIGSEGV)$')
    again(group, f'{where}: two ranks are killed at once', host('sleep 0 60'), rf'rank [0-3] on host {last} was killed by signal 9 (SIGKILL)$', when='await_ranks',
          fault=KILL_ONE.format(last, 2))
    again(group, f'{where}: mpirun is killed', host('sleep 0 60'), r'mpirun on host algo-1 was killed by signal 9 (SIGKILL)$', when='await_ranks',
          fault='host_run algo-1 pkill -KILL -x mpirun')
again('restarts_full', 'orted is killed', both(trains('sleep 0 60', 2)), r"Open MPI's launch daemon on host algo-2 was killed by signal 9 (SIGKILL)$", when='await_ranks',
      fault='host_run algo-2 pkill -KILL -x orted', needs='orted')
# A rank that stays stopped: the others give up after `timeout_s`, 4 s, and are started again with it.
again('restarts_full', 'a rank is stopped for good', Host(ranks=4, process=['sh', '-c', LOOKS, 'sh', PACELINE, '--', 'sh', '-c', f'''mkdir -p /opt/ml/faults
[ "$PACELINE_RESTART" != 0 ] || exec {FAULT_RANKS} 0 19 1 4 /opt/ml/faults
exec {PROBE}''']), r'rank 1 on host algo-1 was stopped by signal 19 (SIGSTOP); rank [023] on host algo-1 exited with code 3$', needs=FAULT_RANKS)
# torchrun, and the numbers that its ranks find: a shell is the interpreter of both.
again('restarts_full', 'torchrun is killed', Host(process=['sh', '-c', LOOKS, 'sh', PACELINE, 'train'], files={
    'bin/torchrun': '#!/bin/sh\nWORLD_SIZE=1 RANK=0 LOCAL_WORLD_SIZE=1 LOCAL_RANK=0 "$PYTHON_EXEC" -u /opt/ml/code/train.py\n',
    'code/train.py': 'echo "restart $TORCHELASTIC_RESTART_COUNT of $TORCHELASTIC_MAX_RESTARTS"\n[ "$PACELINE_RESTART" != 0 ] || exec sleep 600\n',
    'input/config/hyperparameters.json': '{"sagemaker_torch_distributed_enabled": "true", "sagemaker_program": "train.py"}'}),
      r'torchrun on host algo-1 was killed by signal 9 (SIGKILL)$', when="await_log algo-1 'restart 0 of 3' 60", fault='host_run algo-1 pkill -KILL -x torchrun',
      env=['"PATH=/opt/ml/bin:$PATH"'], check="expect_line algo-1 'restart 1 of 3$'")

# Hosts with programs of their own: without ranks, with the link beside them.
UNTIL_RESTART = '[ "$PACELINE_RESTART" != 0 ] || exec sleep 600'
ONCE = 'echo "$PACELINE_RESTART" >>/opt/ml/checkpoints/attempts; [ "$PACELINE_RESTART" != 0 ] || exit 3'
again('restarts', 'a program of its own fails', alone(ONCE), 'the program on host algo-1 exited with code 3$',
      check='[ "$(tr "\\n" " " <"$cluster/algo-1/ml/checkpoints/attempts")" = "0 1 " ] || case_failed "not two attempts"')
HANDLED = """[ "$PACELINE_RESTART" = 2 ] || { printf 'Traceback (most recent call last):\\n  File "t.py", line 3, in <module>\\nKeyError: 1\\n' >&2; exit $((10 + PACELINE_RESTART)); }"""
again('restarts', 'the same logged exception before another exit code', alone(HANDLED), 'KeyError: 1 .*$', times=2)
again('restarts', "a worker's own program fails", {'algo-1': alone(UNTIL_RESTART), 'algo-2': alone(ONCE)}, 'the program on host algo-2 exited with code 3$')
again('restarts', "a worker's own program fails while the master prepares", {'algo-1': alone(UNTIL_RESTART, files={
    **bad_pip('echo "pip is at work"\nuntil [ -e /opt/ml/go ]; do sleep 0.05; done')}), 'algo-2': alone(ONCE)}, 'the program on host algo-2 exited with code 3$',
      env=['PACELINE_PYTHON=/opt/ml/bin/python3'], when="await_log algo-1 'pip is at work' 60",
      fault="await_log algo-1 'algo-2 exited with code 3; the job is started again when this host is prepared' 60\ngo algo-1")
again('restarts_full', "the master's own program fails at once", {'algo-2': alone(UNTIL_RESTART), 'algo-1': alone(ONCE)}, 'the program on host algo-1 exited with code 3$')
again('restarts_full', 'the job hangs', alone(UNTIL_RESTART), 'the job hangs, nothing has happened on any rank for 2 s.*$',
      env=['PACELINE_HANG_S=2', 'PACELINE_HANG_ACTION=end'])
# A second fault: an ssh that is killed while the hosts link again, an mpirun that is killed while it starts.
SECOND = """#!/bin/sh
[ "$PACELINE_RESTART" = 0 ] || [ -e /opt/ml/killed ] || {{ touch /opt/ml/killed; kill -KILL $$; }}
exec /usr/bin/{0} "$@"
"""
again('restarts_full', 'a second fault while the hosts link', {'algo-1': trains('exit 1 7', 2, files={'bin/ssh': SECOND.format('ssh')}), 'algo-2': trains('exit 1 7', 2)},
      'rank 1 on host algo-1 exited with code 7$', env=['"PATH=/opt/ml/bin:$PATH"'], check='expect_file algo-1 killed')
again('restarts_full', "a second fault inside mpirun's start", trains('exit 1 7', files={'bin/mpirun': SECOND.format('mpirun')}), 'rank 1 on host algo-1 exited with code 7$', times=2,
      env=['"PATH=/opt/ml/bin:$PATH"'], check=r"expect_line algo-1 'restart 2 of 3: mpirun on host algo-1 was killed by signal 9 (SIGKILL)$'")

# Not started again.
ended('restarts', 'a program that fails at once ends after the second', alone('exit 3'), 3,
      r'^the program on host algo-1 exited with code 3, as before restart 1, and no file in /opt/ml/checkpoints is newer: not started again$', 1)
ended('restarts', 'a program that makes checkpoints fails until its restarts are used up', alone('echo x >"/opt/ml/checkpoints/$PACELINE_RESTART"; exit 3'), 3,
      r'exited with code 3; not started again: PACELINE_MAX_RESTARTS is 2$', 2, most=2)
ended('restarts', 'a budget of one restart is used up', alone('echo "the last words" >&2; exit $((3 + PACELINE_RESTART))'), 4,
      r'^the program on host algo-1 exited with code 4; not started again: PACELINE_MAX_RESTARTS is 1$', 1, most=1,
      check="expect_failure algo-1 '^the last words$' '^Before restart 1: the program on host algo-1 exited with code 3$'")
ended('restarts', 'a program that writes its own failure file', alone('echo "the data is wrong" >/opt/ml/output/failure; exit 3'), 3,
      r'^the program on host algo-1 exited with code 3; not started again: the program has written its own failure file$',
      check="expect_line algo-1 'warning: the program has written /opt/ml/output/failure itself, which says that it has failed for good: the job is not started again'")
ended('restarts', 'a program that does not exist', Host(['/nonexistent/program']), 'bad', '/nonexistent/program')
ended('restarts', 'hosts without a link', {'algo-1': alone('exec sleep 1'), 'algo-2': alone('exit 3')}, 0, '', env=['PACELINE_LINK=0'],
      ends="case_ends 60 algo-1 0 '' algo-2 3 '^the program on host algo-2 exited with code 3$'",
      check="for host in algo-1 algo-2; do expect_line $host 'warning: PACELINE_MAX_RESTARTS has no effect here: the hosts are not linked'; done")
ended('restarts', 'another number on the other host', {'algo-1': ranks(''), 'algo-2': ranks('', env=['PACELINE_MAX_RESTARTS=2'])}, 1,
      r"^host algo-2: PACELINE_MAX_RESTARTS is '2': expected 3, the value of host algo-1$")
ended('restarts_full', "a rank on the other host writes its own failure file", both(Host(ranks=2, process=['sh', '-c', LOOKS, 'sh', PACELINE, '--', 'sh', '-c',
      f'[ "$OMPI_COMM_WORLD_RANK" != 3 ] || echo "the data is wrong" >/opt/ml/output/failure; exec {PROBE} exit 3 9'])), 1,
      r'rank 3 on host algo-2 exited with code 9; not started again: the program has written its own failure file$')
ended('restarts_full', 'requirements that cannot be installed', Host(files={**bad_pip('exit 4'), 'code/train.py': '', 'input/config/hyperparameters.json': '{"sagemaker_program": "train.py"}'}),
      1, 'installing requirements.txt', env=['"PATH=/opt/ml/bin:$PATH"'])
ended('restarts_full', 'the worker is powered off', both(ranks('sleep 0 60')), 1, '', when='await_ranks', fault='host_off algo-2',
      ends="case_ends 60 algo-1 1 '^host algo-2 went away: its connection closed$' algo-2 any ''")
ended('restarts_full', 'torchrun that is elastic', Host(['torchrun', '--max_restarts', '3', 'train.py'], files={'bin/torchrun': '#!/bin/sh\nexit 5\n'}), 5, 'exited with code 5$',
      env=['"PATH=/opt/ml/bin:$PATH"'], check="expect_line algo-1 'warning: PACELINE_MAX_RESTARTS has no effect here: torchrun'")

# A stop wins in each phase of a restart: while the next program runs, while hosts link, while mpirun starts, and whenever it comes.
RUNS_AGAIN = '[ "$PACELINE_RESTART" != 0 ] || exit 3; echo "runs again"; exec sleep 300'
ended('restarts', 'SIGTERM to a program that was started again', Host(RUNS_AGAIN), 143, 'the job was stopped by SIGTERM; the program on host algo-1 was killed by signal 15', 1,
      when="await_log algo-1 '^runs again$' 60", fault='host_signal algo-1 TERM', check="expect_failure algo-1 '^Before restart 1: the program on host algo-1 exited with code 3$'")
WAITS = """#!/bin/sh
[ "$PACELINE_RESTART" = 0 ] || touch /opt/ml/waits
[ "$PACELINE_RESTART" = 0 ] || until [ -e /opt/ml/go ]; do sleep 0.05; done
exec /usr/bin/{0} "$@"
"""
AWAIT_WAITS = """await_log algo-1 'warning: restart 1 of' 60
until [ -e "$cluster/algo-1/ml/waits" ] || [ -e "$cluster/algo-1.code" ]; do sleep 0.05; done\n"""
for group, host in (('restarts', 'algo-2'), ('restarts_full', 'algo-1')):
    ended(group, f'SIGTERM to {host} while the hosts link again', {'algo-1': Host([PROBE, 'exit', '1', '7'], 2, files={'bin/ssh': WAITS.format('ssh')}), 'algo-2': ranks('exit 1 7')}, 143,
          'the job was stopped by SIGTERM before its program started again$', 1, when=AWAIT_WAITS,
          fault=f"host_signal {host} TERM\nawait_log {host} 'SIGTERM: stopping' 60\nsleep 4 # longer than hosts of a first attempt may take to link\ngo algo-1",
          env=['"PATH=/opt/ml/bin:$PATH"', 'PACELINE_STOP_S=40'], check="expect_failure algo-1 '^Before restart 1: rank 1 on host algo-1 exited with code 7$'")
ended('restarts_full', 'SIGTERM while mpirun starts again', Host([PROBE, 'exit', '1', '7'], 4, files={'bin/mpirun': WAITS.format('mpirun')}), 143, 'SIGTERM', 1,
      when=AWAIT_WAITS, fault='host_signal algo-1 TERM', env=['"PATH=/opt/ml/bin:$PATH"', 'PACELINE_STOP_S=12'])
FAILS_ONCE = Host(['sh', '-c', f'[ "$PACELINE_RESTART" != 0 ] || exec {PROBE} exit 1 7; exec {PROBE} sleep 0 60'], 2)
for number in range(12):
    ended('restarts_full', f'SIGTERM {number * 0.05:.2f} s after a failure', both(FAILS_ONCE), 143, 'SIGTERM', 1, when="await_log algo-1 'restart 1 of 3' 60",
          fault=f'sleep {number * 0.05:.2f}; host_signal algo-{1 + number % 2} TERM', env=['PACELINE_STOP_S=60'])

# Fifty restarts: what process 1 has, and what lies about, is as at the beginning; the second attempt is the first with an earlier one.
FLAT = f"""mkdir -p /opt/ml/checkpoints
echo x >"/opt/ml/checkpoints/$PACELINE_RESTART-$OMPI_COMM_WORLD_RANK"
if [ "$OMPI_COMM_WORLD_RANK" = 0 ]; then
  echo "$(ls /proc/1/fd | wc -l) $(ls /dev/shm | wc -l) $(ls /tmp | wc -l) $(ls /run | wc -l) $(awk '/^VmRSS/ {{ print $2 }}' /proc/1/status) $(ps -e -o pid= | wc -l)" >>/opt/ml/seen
fi
[ "$PACELINE_RESTART" -ge 50 ] || exec {PROBE} exit 1 7
exec {PROBE}"""
case('restarts_full', 'fifty restarts leave nothing', Host(['sh', '-c', FLAT], 2), env=['PACELINE_MAX_RESTARTS=50'], ends="case_ends 400 algo-1 0 ''", check="""
[ "$(wc -l <"$cluster/algo-1/ml/seen")" = 51 ] || case_failed "not 51 attempts"
cat "$cluster/algo-1/ml/seen"
awk 'NR == 2 { for (i = 1; i <= 4; i++) first[i] = $i; memory = $5 } NR > 2 { for (i = 2; i <= 4; i++) if ($i != first[i]) exit 1; if ($1 > first[1] + 8 || $5 > memory + 512) exit 1 }' \
  "$cluster/algo-1/ml/seen" || case_failed "something grows: descriptors of process 1, /dev/shm, /tmp, /run, KiB of process 1" """)


# --- twins ---

# A supervisor with a mistake: what it does wrong, file, line and what stands in its place, the case that finds it, and in what words.
TWINS = [
    ('a stop is not passed on to other hosts', 'supervise.c', 'first && i < supervisor->connections_count', 'false', 'links', 'SIGTERM to algo-1 alone, both save',
     'did not end within'),
    ('the silence of a host is not noticed', 'supervise.c', '> supervisor->job->settings.silence_ns)', '> 99 * supervisor->job->settings.silence_ns)', 'links', 'the cable is cut',
     'did not end within'),
    ('ranks that have ended are not held', 'holding.c', 'if (saving > 0 || !has_ranks) {', 'if (!has_ranks) {', 'hosts', 'rank 0 alone saves, the others leave',
     'the failure file of algo-1 was written after the save'),
    ('no failure file while ranks save', 'holding.c', 'pl_supervise_write_failure(supervisor, pl_text_string(&text));', '', 'hosts', 'rank 0 alone saves, the others die',
     'the failure file of algo-1 was written after the save'),
    ('the loss of a host is not a failure', 'frames.c', 'pl_supervise_fail_lost(supervisor, "host", session->host, why);', '', 'links', 'the worker is powered off', 'did not end within'),
    ("a worker does not take over the master's result", 'frames.c', 'pl_supervise_fail_as(supervisor, frame->fields[1]);', '', 'links', 'a program fails on the master',
     'did not end within'),
    ('an earlier end is not reported to a late master', 'frames.c', '    if (supervisor->link_kind != PL_LAUNCH_PLAN_LINK_BESIDE) {\n        return;', '    if (true) {\n        return;', 'links', 'algo-2 fails before the other',
     "the failure file of algo-1 lacks '^the program on host algo-2"),
    ('a stop has the exit code of a failure', 'supervise_failure.c', 'return supervisor->stop.number != 0 ? 128 + supervisor->stop.number : 1;', 'return 1;', 'direct', 'waiting for a host name',
     'algo-1 ended with 1, not 143'),
    ('ranks that a launcher ended are the cause', 'host.c', 'if (launcher_ended_ranks(supervisor)) {', 'if (false) {', 'hosts', 'mpirun is told to end', "lacks '^mpirun on host algo-1"),
    ('a rank that left early is forgotten', 'host.c', 'main->left_early = *exit_report;', '', 'hosts', 'a rank leaves with 0', "lacks '^rank 2 on host algo-2 exited with code 0"),
]


def twins(wanted):
    unfound = []
    with tempfile.TemporaryDirectory() as folder:
        source, build = pathlib.Path(folder, 'source'), pathlib.Path(folder, 'build')
        shutil.copytree(os.environ['PACELINE_SOURCE'], source, ignore=shutil.ignore_patterns('build*', '.git'))
        subprocess.run(['meson', 'setup', build, source, '-Dtests=disabled', '-Dexamples=false', '-Dmpi=disabled', '-Dcuda=disabled', '-Dstacks=disabled', '-Dhorovod=disabled'],
                       stdout=subprocess.DEVNULL, check=True)
        (build / 'tests').symlink_to(BUILD / 'tests')  # what ranks run
        (build / 'libexec/paceline').unlink()
        (build / 'libexec/paceline').symlink_to(BUILD / 'programs')
        for name, file, line, instead, group, part, words in TWINS:
            if wanted not in name:
                continue
            path = source / 'entrypoint/supervise' / file
            text = path.read_text()
            assert text.count(line) == 1, f'{file} has {text.count(line)} times: {line}'
            path.write_text(text.replace(line, instead))
            subprocess.run(['ninja', '-C', build, 'entrypoint/paceline'], stdout=subprocess.DEVNULL, check=True)
            path.write_text(text)
            done = subprocess.run([__file__, group, part], env={**os.environ, 'PACELINE_BUILD': str(build)}, stdout=subprocess.PIPE, text=True, check=False)
            failed = next((line for line in done.stdout.splitlines() if line.startswith('FAILED: ')), 'NOT FOUND')
            print(f'{name}: {failed}', flush=True)
            unfound += [] if words in failed else [name]
    return len(unfound) > 0


def main():
    group, *part = sys.argv[1:]
    if group == 'twins':
        return twins(part[0] if part else '')
    if group in ('hosts', 'start', 'access', *RESTARTS) and not (BUILD / 'tests/integration/mpi_probe').exists():
        print('SKIP: built without MPI')
        return 77
    chosen = [row for row in CASES if row[0] == group and (not part or part[0] in row[1])]
    shell = Shell(1 if group == 'direct' else 2)
    for row in chosen:
        run(shell, *row)
    print(f'faults of {group}: all of {len(chosen)} cases passed' if chosen else 'there is no such case')
    shell.bash.stdin.close()
    return shell.bash.wait() or not chosen


if __name__ == '__main__':
    sys.exit(main())
