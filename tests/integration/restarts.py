#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Jobs that are started again with real programs: rows for the table of faults.py, which explains the columns.

    restarts.py training [PART]         examples/mnist is killed and comes to the same bits; a shell script that counts; a sample that kills its rank
    restarts.py training_full [PART]    examples/mnist with a second fault in each phase, on one host with four ranks and on two with two each
    restarts.py others_full [PART]      ten kills at random times of programs of other projects, as they are there: the DDP tutorial of pytorch/examples, and
                                        Horovod's elastic_torch_main.py and elastic_tensorflow2_main.py

The programs of others are taken from folders that PYTORCH_EXAMPLES and HVD_SOURCE name, else fetched by git into the build folder; without them their rows
are left out. SEED=N draws other times.
"""
import os
import pathlib
import sys

import faults
from faults import BUILD, LOOKS, PACELINE, Host, again, both, case, ended, in_group, new_group

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
KEPT = r'; step {} is kept in memory\(, [1-9] steps\? \(is\|are\) repeated\)\?'
KILLED = KEPT.format('1[01]')
TABLE = (
    ('a rank is killed in the middle', '0:3:12:step', [(3, KILLED)], '1[01]'),
    ('a second fault inside MPI_Init', '0:3:12:step 1:2:1:open=_segment.', [(3, KILLED), (2, KILLED)], '1[01]'),
    ('a second fault while loading', '0:3:12:step 1:0:1:load', [(3, KILLED), (0, KILLED)], '1[01]'),
    ('a second fault while keeping', '0:3:12:step 1:0:5:keep', [(3, KILLED), (0, KEPT.format('1[23]'))], '1[23]'),
    ("a second fault during the write of a checkpoint's file", '0:3:12:step 1:0:4:write=/.checkpoint-', [(3, KILLED), (0, KEPT.format('16'))], '16'),
    ('a second fault in the last step', '0:0:23:keep 1:1:13:step', [(0, KEPT.format('11')), (1, KEPT.format('2[23]'))], '2[23]'),
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

# --- programs of others, with ten kills at random times ---

# Copies files of a repository into $cluster/others: VARIABLE REPOSITORY REVISION FILE...; says in `skipped` why not.
OTHERS = r"""fetch_others() {
  local source=${!1:-} file
  [ -n "$source" ] || source=$(python3 "$PACELINE_SOURCE/tests/support/fetched.py" "${@:2}") || { skipped=${source#skipped: }; return; }
  mkdir -p "$cluster/others"
  for file in "${@:4}"; do cp "$source/$file" "$cluster/others"; done
}
# NUMBER REGEX LINES HOSTS PROGRAM: so many times one of the two processes of a host whose words match PROGRAM is killed, after LINES more lines of the output
# match REGEX and a random time. The job may end before; `kills` is how often it was killed.
kill_often() {
  local lines=0 host which pid code=$cluster/algo-1.code
  RANDOM=${SEED:-1} kills=0
  while [ $kills -lt "$1" ] && [ ! -e "$code" ]; do
    until [ "$(grep -c "$2" "$cluster/algo-1.log")" -ge $((lines + $3)) ] || [ -e "$code" ]; do sleep 0.02; done
    sleep 0.$(printf %02d $((RANDOM % 50)))
    host=algo-$((RANDOM % $4 + 1)) which=$((RANDOM % 2 + 1)) pid=
    until [ -n "$pid" ] || [ -e "$code" ]; do pid=$(host_run "$host" pgrep -f "$5" 2>/dev/null | sed -n "${which}p") || true; done
    host_run "$host" kill -KILL "$pid" 2>/dev/null || break
    kills=$((kills + 1))
    until grep "restart $kills of" "$cluster/algo-1.log" >/dev/null || [ -e "$code" ]; do sleep 0.02; done
    lines=$(grep -c "$2" "$cluster/algo-1.log")
  done
}
"""


def killed(name, hosts, before, kill, check, env=()):
    case('others_full', name, hosts, before=OTHERS + before, fault=kill, ends='case_ends 600 ' + ' '.join(f"{host} 0 ''" for host in sorted(hosts)),
         env=['PACELINE_MAX_RESTARTS=10', 'OMP_NUM_THREADS=1', *env], check=f"""
echo "  killed $kills times"
[ $kills -gt 0 ] || case_failed "no kill came in time"
[ "$(grep -c '"cause"' "$cluster/algo-1/ml/output/data/restarts.jsonl")" = $kills ] || case_failed "restarts.jsonl has not $kills restarts"
sed -i '\\,^/tmp/\\(torchelastic_\\|__autograph_\\),d' "$cluster"/*/ml/after # torchrun leaves its logs at each start, TensorFlow its compiled functions
expect_nothing
{check}""")


# The tutorial is for GPUs: a sitecustomize puts its tensors where they are, and its process group on Gloo. It also renames a snapshot into its place, which the
# tutorial writes over: a kill in the middle of that is not ours to survive. A line of the attempt before may come late, so an attempt is killed after two.
ON_CPU = """import os
if "LOCAL_RANK" in os.environ:
    import torch, torch.distributed
    from torch.nn.parallel import DistributedDataParallel
    def replaced(owner, name, make):
        setattr(owner, name, make(getattr(owner, name)))
    def renaming(plain):
        def save(value, path, new=".new" + os.environ["RANK"]):
            plain(value, path + new)
            os.replace(path + new, path)
        return save
    torch.cuda.set_device = lambda device: None
    replaced(torch.distributed, "init_process_group", lambda plain: lambda backend: plain("gloo"))
    replaced(DistributedDataParallel, "__init__", lambda plain: lambda self, module, device_ids: plain(self, module))
    replaced(torch, "load", lambda plain: lambda path, map_location: plain(path, map_location="cpu"))
    replaced(torch, "save", renaming)
    for kind in torch.nn.Module, torch.Tensor:
        replaced(kind, "to", lambda plain: lambda self, *to, **named: self if to and isinstance(to[0], int) else plain(self, *to, **named))
"""
TORCH = python_with('torch') if 'others_full' in sys.argv else None
for count in (1, 2) if TORCH else ():
    nodes = f'--nnodes 2 --node_rank $((${{SM_CURRENT_HOST#algo-}} - 1)) --master_addr algo-1 --master_port 29500' if count == 2 else ''
    tutorial = Host(inside='mkdir -p /opt/ml/checkpoints; mount --bind "$OTHERS/checkpoints" /opt/ml/checkpoints', process=['sh', '-c', LOOKS, 'sh', PACELINE, '--', 'sh',
                    '-c', f'cd /opt/ml/checkpoints && exec torchrun {nodes} --nproc_per_node 2 "$OTHERS/multigpu_torchrun.py" 300 2'], files={
                        'bin/torchrun': f'#!{TORCH}\n' + pathlib.Path(SOURCE, 'tests/support/torchrun.py').read_text(), 'cpu/sitecustomize.py': ON_CPU})
    killed(f'the DDP tutorial of PyTorch under torchrun, {count} host{"s" * (count - 1)}', both(tutorial) if count == 2 else {'algo-1': tutorial},
           """fetch_others PYTORCH_EXAMPLES https://github.com/pytorch/examples 77f55b912142e11fcfdf5b530231fb9c52f181e8 \
  distributed/ddp-tutorial-series/multigpu_torchrun.py distributed/ddp-tutorial-series/datautils.py
rm -rf "$cluster/others/checkpoints"
mkdir "$cluster/others/checkpoints"
cluster_environment+=("OTHERS=$cluster/others" "PATH=/opt/ml/bin:$PATH")""",
           f"kill_often 10 'Training snapshot saved' 2 {count} 'python.* -u .*multigpu_torchrun.py'",
           """[ "$(grep -o 'Resuming training from snapshot at Epoch' "$cluster/algo-1.log" | wc -l)" = $((2 * kills)) ] || case_failed "not each attempt went on from its snapshot"
expect_line algo-1 'Epoch 298 | Training snapshot saved'""", env=['PYTHONPATH=/opt/ml/cpu', 'PYTHONUNBUFFERED=1'])

# Horovod's programs draw their data at their start: a sitecustomize seeds that, and prints the weights at the end.
SEEDED = """import atexit, os, sys
if "OMPI_COMM_WORLD_RANK" in os.environ:
    rank = int(os.environ["OMPI_COMM_WORLD_RANK"])
    {}(rank)
    if rank == 0:
        atexit.register(lambda: print("weights", [value.tolist() for value in sys.modules["__main__"].model.{}], flush=True))
"""
PRINTED = """sed -n 's/.*>:weights //p' "$cluster/algo-1.log" >"$cluster/algo-1.weights"\n[ -s "$cluster/algo-1.weights" ] || case_failed "no weights"\n"""
for program, version, seed, weights in (('elastic_torch_main', 'torch', '__import__("torch").manual_seed', 'state_dict().values()'),
                                        ('elastic_tensorflow2_main', '2.21.0', '__import__("tensorflow").keras.utils.set_random_seed', 'get_weights()')):
    elastic = {'algo-1': Host(ranks=2, files={'seeded/sitecustomize.py': SEEDED.format(seed, weights)}, process=['sh', '-c', LOOKS, 'sh', PACELINE, '--', 'sh', '-c',
               f'exec {BUILD}/horovod-{version}/bin/python "$OTHERS/{program}.py" --logfile /opt/ml/output/data/epochs --epochs 300'])}
    prepare = f"""if python=$(python3 {SOURCE}/tests/support/horovod_python.py {version}); then
  "$python" -c 'import psutil' 2>/dev/null || "$python" -m pip install -q psutil >/dev/null 2>&1 || skipped="pip cannot install psutil"
  "$paceline" horovod --python "$python" >/dev/null
else
  skipped=${{python#SKIP: }}
fi
fetch_others HVD_SOURCE https://github.com/horovod/horovod v0.28.1 test/integration/data/{program}.py
cluster_environment+=("OTHERS=$cluster/others")"""
    variables = ['PYTHONPATH=/opt/ml/seeded', 'OMP_NUM_THREADS=1', 'TF_USE_LEGACY_KERAS=1', 'TF_CPP_MIN_LOG_LEVEL=3']
    case('others_full', f"Horovod's {program}.py without faults", elastic, before=OTHERS + prepare, env=variables, ends="case_ends 600 algo-1 0 ''",
         check=PRINTED + f'mv "$cluster/algo-1.weights" "$cluster/{program}"')
    killed(f"Horovod's {program}.py", elastic, prepare, "kill_often 10 '>:epoch ' 6 1 '/bin/python [^\"]*/{0}.py'".format(program), PRINTED +
           f'cmp "$cluster/algo-1.weights" "$cluster/{program}" || case_failed "the weights have other bits than without faults"', env=variables)

if __name__ == '__main__':
    sys.exit(faults.main())
