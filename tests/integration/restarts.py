#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Jobs that are started again with real programs: rows for the table of faults.py, which explains the columns.

    restarts.py training [PART]         examples/mnist is killed and comes to the same bits; a shell script that counts; a sample that kills its rank
    restarts.py training_full [PART]    examples/mnist with a second fault in each phase, on one host with four ranks and on two with two each

SEED=N draws other times.
"""
import os
import sys

import faults
from faults import BUILD, LOOKS, PACELINE, Host, again, ended, in_group, new_group

SOURCE = os.environ['PACELINE_SOURCE']
os.environ.pop('LD_LIBRARY_PATH', None)  # meson's leads to the libraries of tests/fakes, among them a driver with a GPU
sys.path.insert(0, f'{SOURCE}/tests/support')
from python_with import python_with  # noqa: E402

SEED = int(os.environ.get('SEED', '1'))

# --- examples/mnist: 24 steps of an epoch of real digits, with a file after 8 and 16 and a kept copy after each other step ---

MNIST = [str(BUILD / 'libexec/paceline/mnist'), '--batch-size', '4', '--max-steps', '24', '--checkpoint-steps', '8', '--data']
ENVIRONMENT = ['PACELINE_KEEP_STEPS=1', 'PACELINE_REPRODUCIBLE=1', 'OPENBLAS_NUM_THREADS=1']
DIGITS = '/opt/ml/input/digits'


def digits(folder):
    return f'mkdir -p "{folder}/training"; cp {SOURCE}/tests/data/mnist/train-* "{folder}/training"'


# The model without faults, of ranks that no job has started.
REFERENCE = f"""[ -e "$cluster/reference" ] || {{ {digits('$cluster/digits')}
OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 env {' '.join(ENVIRONMENT)} mpirun --oversubscribe --bind-to none --mca mpi_yield_when_idle 1 -n 4 \\
  {' '.join(MNIST)} "$cluster/digits" --checkpoint-dir "$cluster/digits/checkpoints" --model-dir "$cluster/reference" >"$cluster/reference.log" 2>&1 ||
  case_failed "training without faults: $(cat "$cluster/reference.log")"; }}
"""
SAME = """cmp "$cluster/reference/model.safetensors" "$cluster/algo-1/ml/model/model.safetensors" || case_failed "the model has other bits than without faults"
[ -z "$(find "$cluster/algo-1/ml/checkpoints" -name '.*')" ] || case_failed "a part of a checkpoint is left"
expect_file algo-1 checkpoints/checkpoint-000000000024.json
"""
LOW = """mount -t tmpfs tmpfs /sys/fs/cgroup; mkdir /sys/fs/cgroup/memory
echo 1073741824 >/sys/fs/cgroup/memory/memory.limit_in_bytes; echo 1060000000 >/sys/fs/cgroup/memory/memory.usage_in_bytes"""


def mnist(ranks, words, inside):
    """`words`: FAULTS of tests/fakes/fault_calls.c."""
    return Host(ranks=ranks, inside=f'{digits(DIGITS)}; {inside}', process=['sh', '-c', LOOKS, 'sh', PACELINE, '--', 'sh', '-c',
                f'export FAULTS="$0" LD_PRELOAD="{BUILD}/tests/fakes/libfault_calls.so${{LD_PRELOAD:+:$LD_PRELOAD}}"; exec "$@"', words, *MNIST, DIGITS])


def trained(group, name, count, words, causes, resumed, inside=':', before='', check='', fault=''):
    """examples/mnist on `count` hosts; `causes`: of each restart, as (rank, what the line has after it); `resumed`: after which steps the last attempt may go on;
    `inside`: of the first host."""
    per_host = 4 // count
    hosts = {'algo-1': mnist(per_host, words, inside)} | ({'algo-2': mnist(per_host, words, ':')} if count == 2 else {})
    lines = [f'rank {rank} on host algo-{rank // per_host + 1} was killed by signal 9 (SIGKILL){rest}$' for rank, rest in causes]
    check += ''.join(f"expect_line algo-1 'warning: restart {number} of 3: {line}'\n" for number, line in enumerate(lines[1:], 2))
    again(group, f'{count} host{"s" * (count - 1)}: {name}', hosts, lines[0], times=len(lines), env=ENVIRONMENT, before=REFERENCE + before, fault=fault,
          check=f"{check}expect_line algo-1 'resuming after step {resumed}, in epoch 1$'\n{SAME}")


# A rank that is killed in step 12 leaves step 10 or 11: the copy of step 11 may not be whole yet. What rank 0 leaves is certain, because it completes a copy before
# the next one.
KILLED = r'; step 1[01] is kept in memory'
TABLE = (
    ('a rank is killed in the middle', '0:3:12:step', [(3, KILLED)], '1[01]'),
    ('a second fault inside MPI_Init', '0:3:12:step 1:2:1:open=_segment.', [(3, KILLED), (2, KILLED)], '1[01]'),
    ('a second fault while loading', '0:3:12:step 1:0:1:load', [(3, KILLED), (0, KILLED)], '1[01]'),
    ('a second fault while keeping', '0:3:12:step 1:0:5:keep', [(3, KILLED), (0, '; step 1[23] is kept in memory')], '1[23]'),
    ("a second fault during the write of a checkpoint's file", '0:3:12:step 1:0:4:write=/.checkpoint-', [(3, KILLED), (0, '; step 16 is kept in memory')], '16'),
    ('a second fault in the last step', '0:0:23:keep 1:1:13:step', [(0, '; step 11 is kept in memory'), (1, '; step 2[23] is kept in memory')], '2[23]'),
)
for count in (1, 2):
    for name, words, causes, resumed in TABLE:
        trained('training_full', name, count, words, causes, resumed)
    trained('training_full', 'a rank is out of memory', count, '0:1:12:memory', [(1, ': out of memory.*' + KILLED)], '1[01]', inside=in_group('memory'),
            before=new_group('memory', '1G'), fault='enter_group')
    # What a copy needs is compared with files of the kernel, which these stand for: the room of a real limit would be another one at each run.
    trained('training_full', 'the memory limit is too low for keeping', count, '0:3:12:step 1:0:1:open=.safetensors', [(3, ''), (0, '')], '8', inside=LOW,
            check="""[ "$(grep -c 'no state is kept in memory, a job that is started again goes on from files' "$cluster/algo-1.log")" = 2 ] ||
  case_failed "not one warning of each attempt that has come to a step"\n""")
trained('training', TABLE[4][0], 1, *TABLE[4][1:])

# --- a shell script that counts, with ten kills at random times ---

COUNTER = """#!/bin/sh
n=$(cat /opt/ml/checkpoints/count 2>/dev/null || echo 0)
echo "begins after $n"
until [ -e /opt/ml/go ]; do
  n=$((n + 1))
  echo $n >>/opt/ml/numbers
  echo $n >/opt/ml/checkpoints/count.new
  mv /opt/ml/checkpoints/count.new /opt/ml/checkpoints/count
  sleep 0.01
done
echo "has counted to $n"
"""
again('training', 'a shell script that counts is killed ten times', Host(process=['sh', '-c', LOOKS, 'sh', PACELINE, '--', '/opt/ml/counter'], files={'counter': COUNTER}),
      r'the program on host algo-1 was killed by signal 9 (SIGKILL)$', times=10, most=10, fault=f"""RANDOM={SEED} last=0
for number in $(seq 10); do
  until [ "$(cat "$cluster/algo-1/ml/checkpoints/count" 2>/dev/null || echo 0)" -gt $last ] || [ -e "$cluster/algo-1.code" ]; do sleep 0.02; done
  sleep 0.$(printf %02d $((RANDOM % 30)))
  host_run algo-1 pkill -KILL -x counter
  await_log algo-1 "restart $number of 10" 60
  last=$(cat "$cluster/algo-1/ml/checkpoints/count")
done
go algo-1""", check="""most=$(sed -n 's/^has counted to //p' "$cluster/algo-1.log")
[ "$(sort -nu "$cluster/algo-1/ml/numbers" | tr '\\n' ' ')" = "$(seq "$most" | tr '\\n' ' ')" ] || case_failed "a number is missing"
[ "$(wc -l <"$cluster/algo-1/ml/numbers")" -le $((most + 10)) ] || case_failed "more than one number was repeated by a restart"
[ "$(grep -c '^begins after ' "$cluster/algo-1.log")" = 11 ] || case_failed "not eleven attempts" """)

# --- a sample that kills the rank that reads it ---

POISONED = """import os, signal
import numpy
import paceline
from paceline.checkpoint import Checkpoints
from paceline.data import Dataset, Field
paceline.init()
dataset = Dataset("/opt/ml/input/numbers", {"value": Field("int64", name=0)}, 4, format="csv")
with Checkpoints() as checkpoints:
    first, tensors, state = checkpoints.load() or (0, {"sum": numpy.zeros(1)}, None)
    if state:
        dataset.load_state_dict(state)
    if paceline.rank() == 0:
        print("begins after step", first, flush=True)
    for step, batch in enumerate(dataset, first + 1):
        if 101 in batch["value"]:
            os.kill(os.getpid(), signal.SIGKILL)
        tensors["sum"] += paceline.allreduce(numpy.array([batch["value"].sum()], "float64"), op=paceline.Sum)
        if step % 5 == 0:
            checkpoints.save(step, tensors, dataset.state_dict())
            checkpoints.flush()
            paceline.allreduce(numpy.zeros(1), name="saved")
"""
PYTHON = python_with('numpy')
POISON = Host(ranks=2, files={'input/numbers/part-0': ''.join(f'{i}\n' for i in range(200))}, process=['sh', '-c', LOOKS, 'sh', PACELINE, '--', str(PYTHON), '-c', POISONED])
ended('training', 'a sample that kills its rank', POISON, 'bad', r'^rank 1 on host algo-1 was killed by signal 9 \(SIGKILL\), as before restart 1, and no file in /opt/ml/checkpoints is newer: '
      'not started again$', 1, needs=PYTHON or 'a Python with numpy', env=[f'PYTHONPATH={SOURCE}/python', f'PACELINE_LIBRARY={BUILD}/runtime/libpaceline.so',
      f'PACELINE_DATA_LIBRARY={BUILD}/runtime/libpaceline-data.so', 'OPENBLAS_NUM_THREADS=1'],
      check="""[ "$(grep -c 'begins after step 0$' "$cluster/algo-1.log") $(grep -c 'begins after step 10$' "$cluster/algo-1.log")" = "1 1" ] ||
  case_failed "it has not begun at step 0 and after step 10" """)


if __name__ == '__main__':
    sys.exit(faults.main())
