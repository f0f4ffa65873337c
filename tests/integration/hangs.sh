#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Jobs that hang, watched with PACELINE_HANG_S: the rank that is the cause is named first, in the log and in the failure file, on one host and
# on two; and `paceline stacks` shows the ranks of all hosts. `hangs.sh long`: a slow job is not accused.
set -euo pipefail
source "$PACELINE_SOURCE/tests/support/job.sh"
[ -x "$PACELINE_BUILD/libexec/paceline/paceline-stacks" ] || cluster_skip "paceline-stacks is not built"
python=$(command -v /usr/bin/python3 || command -v python3)
ranks=$PACELINE_BUILD/tests/integration/stuck_ranks
cluster_up 2

# Four ranks that wait for each other without MPI, by a FIFO without a writer. Rank 2 stands elsewhere.
cat >"$cluster/ranks.py" <<'PY'
import os, pathlib, queue, signal, socket, sys, tempfile, threading

rank = int(os.environ["OMPI_COMM_WORLD_RANK"])


def wait_for_the_others():
    os.open("/opt/ml/fifo", os.O_RDONLY)


def stuck_in_a_loop():
    while True:
        pass


def stuck_in_a_queue():
    queue.Queue().get()


def stuck_in_recv():
    here, there = socket.socketpair()
    here.recv(1)


def stuck_in_an_import():
    """A module that waits for a thread which waits for the module."""
    folder = tempfile.mkdtemp()
    pathlib.Path(folder, "circular.py").write_text("import threading\ndef use():\n    import circular\nthread = threading.Thread(target=use)\nthread.start()\nthread.join()\n")
    sys.path.insert(0, folder)
    import circular


def stopped():
    os.kill(os.getpid(), signal.SIGSTOP)


print(f"rank {rank} begins")
if rank == 2:
    globals()[os.environ["CAUSE"]]()
wait_for_the_others()
PY

hyperparameters() { # HOST NAME=VALUE...: added to those that job_config wrote
  local file=$cluster/$1/ml/input/config/hyperparameters.json
  shift
  python3 - "$file" "$@" <<'PY'
import json, sys
with open(sys.argv[1]) as file:
    parameters = json.load(file)
parameters.update(word.split("=", 1) for word in sys.argv[2:])
with open(sys.argv[1], "w") as file:
    json.dump(parameters, file)
PY
}

if [ "${1:-}" = long ]; then
  # ---- slow, but alive: a sign every 4 s, of one rank and each time of another kind; a look is every second ----
  case_begin "a slow job is not accused"
  cat >"$cluster/slow.py" <<'PY'
import os, subprocess, time
if os.environ["OMPI_COMM_WORLD_RANK"] == "1":
    for _ in range(4):
        time.sleep(4)
        print(".", flush=True)
        time.sleep(4)
        with open("/opt/ml/model/file", "a") as file:
            file.write("x")
        time.sleep(4)
        subprocess.run(["sh", "-c", "read word </proc/version"], check=True)
else:
    time.sleep(48)
PY
  cluster_environment=(OMPI_MCA_rmaps_base_oversubscribe=1)
  job_config algo-1 algo-1 4
  hyperparameters algo-1 paceline_hang_s=30 paceline_hang_action=end
  host_start algo-1 "$paceline" -- "$python" "$cluster/slow.py"
  case_ends 240 algo-1 0 ''
  if grep -q 'the job hangs' "$cluster/algo-1.log"; then case_failed "it was accused"; fi
  exit 0
fi

# ---- one host: what hangs in Python ----

python_hangs() { # CAUSE REGEX: the place of rank 2 in the failure file
  case_begin "a rank in Python is $1"
  cluster_environment=(CAUSE="$1" OMPI_MCA_rmaps_base_oversubscribe=1)
  job_config algo-1 algo-1 4
  hyperparameters algo-1 paceline_hang_s=3 paceline_hang_action=end
  mkfifo "$cluster/algo-1/ml/fifo"
  host_start algo-1 "$paceline" -- "$python" "$cluster/ranks.py"
  case_ends 120 algo-1 1 "^the job hangs, nothing has happened on any rank for 3 s; rank 2 on host algo-1 does something else than the others: $2"
  [ "$(grep -Eo '^rank [0-9], process' "$cluster/algo-1.log" | sed -n 1p)" = "rank 2, process" ] ||
    case_failed "rank 2 is not the first in the log"
}
python_hangs stuck_in_a_loop 'stuck_in_a_loop \(ranks.py line [0-9]+\), called by <module>'
python_hangs stuck_in_a_queue '.*get \(queue.py line [0-9]+\), called by stuck_in_a_queue'
python_hangs stuck_in_recv 'stuck_in_recv \(ranks.py'
python_hangs stuck_in_an_import '.*join \(threading.py line [0-9]+\), called by <module> \(circular.py'
python_hangs stopped 'stopped; most others: '

# A program without ranks, whose own sitecustomize is imported as without the hook; and the job that only reports goes on.
case_begin "a program alone, which is reported and goes on"
job_config algo-1 algo-1 0
hyperparameters algo-1 paceline_hang_s=2
mkdir "$cluster/site"
echo 'print("the own sitecustomize")' >"$cluster/site/sitecustomize.py"
mkfifo "$cluster/algo-1/ml/fifo"
cluster_environment=(PYTHONPATH="$cluster/site")
host_start algo-1 "$paceline" -- "$python" -c 'open("/opt/ml/fifo").read(); print("it goes on")'
await_log algo-1 'the job keeps running' 120
grep -q '^the own sitecustomize$' "$cluster/algo-1.log" || case_failed "the user's sitecustomize was not imported"
grep -q 'File "<string>", line 1 in <module>' "$cluster/algo-1.log" || case_failed "Python's stack is not in the log"
host_run algo-1 sh -c 'echo go >/opt/ml/fifo'
case_ends 60 algo-1 0 ''
grep -q '^it goes on$' "$cluster/algo-1.log" || case_failed "the program did not go on"
[ "$(grep -c 'the job hangs' "$cluster/algo-1.log")" = 1 ] || case_failed "one hang was reported more than once"

# ---- two hosts, 8 ranks: rank 5 on algo-2 ----

start_ranks() { # NAME=VALUE...
  for host in algo-2 algo-1; do
    job_config $host "algo-1 algo-2" 4
    hyperparameters $host "$@"
    cluster_environment=(OMPI_MCA_rmaps_base_oversubscribe=1)
    host_start $host "$paceline" -- "$ranks" 5
  done
}
case_begin "one rank of 4 in Python on two hosts"
for host in algo-2 algo-1; do
  job_config $host "algo-1 algo-2" 2
  hyperparameters $host paceline_hang_s=4 paceline_hang_action=end
  mkfifo "$cluster/$host/ml/fifo"
  cluster_environment=(CAUSE=stuck_in_a_queue OMPI_MCA_rmaps_base_oversubscribe=1)
  host_start $host "$paceline" -- "$python" "$cluster/ranks.py"
done
both_end 120 1 'rank 2 on host algo-2 does something else than the others: .*get \(queue.py line [0-9]+\), called by stuck_in_a_queue'

case_begin "a hang of two hosts is reported once"
for host in algo-2 algo-1; do
  job_config $host "algo-1 algo-2" 0
  hyperparameters $host paceline_hang_s=2
  mkfifo "$cluster/$host/ml/fifo"
  cluster_environment=()
  host_start $host "$paceline" -- "$python" -c 'open("/opt/ml/fifo").read()'
done
await_log algo-1 'the job keeps running' 120
grep -q '^host algo-2, process' "$cluster/algo-1.log" || case_failed "algo-2's program is not in the log"
sleep 5 # the report makes Python on both hosts write its stacks; then they hang again, for longer than the watch needs
for host in algo-1 algo-2; do host_run $host sh -c 'echo go >/opt/ml/fifo'; done
both_end 60 0
[ "$(grep -c 'the job hangs' "$cluster/algo-1.log")" = 1 ] || case_failed "one hang was reported more than once"

case_begin "one rank of 8 on two hosts, ended"
start_ranks paceline_hang_s=4 paceline_hang_action=end
both_end 120 1 '^the job hangs, nothing has happened on any rank for 4 s; rank 5 on host algo-2 does something else than the others: stuck_here'
[ "$(grep -Eo '^host algo-[12], rank [0-9]' "$cluster/algo-1.log" | sed -n 1p)" = "host algo-2, rank 5" ] || case_failed "rank 5 is not the first in the log"
[ "$(grep -Ec '^host algo-[12], rank [0-9], process' "$cluster/algo-1.log")" = 8 ] || case_failed "not all 8 ranks are in the log"

case_begin "paceline stacks on both hosts"
start_ranks
await_log algo-1 'mpi: 8 ranks on 2 hosts' 120
tries=1200
until host_run algo-1 "$paceline" stacks >"$cluster/stacks" 2>"$cluster/stacks.errors" && [ "$(grep -c '^host algo-[12], rank' "$cluster/stacks")" = 8 ] &&
  [ "$(grep -c MPI_Allreduce "$cluster/stacks")" -ge 7 ] && head -n 1 "$cluster/stacks" | grep '^host algo-2, rank 5, ' >/dev/null; do
  tries=$((tries - 1))
  [ $tries -gt 0 ] || { cat "$cluster/stacks" "$cluster/stacks.errors"; case_failed "the ranks are never all shown, rank 5 first"; }
  sleep 0.1
done
host_run algo-2 "$paceline" stacks >"$cluster/stacks" 2>"$cluster/stacks.errors" || case_failed "no stacks on algo-2"
[ "$(grep -Ec '^rank [4-7], process' "$cluster/stacks")" = 4 ] || { cat "$cluster/stacks"; case_failed "algo-2 shows other ranks than its own"; }
grep -q 'the master host algo-1 shows all' "$cluster/stacks.errors" || case_failed "it is not said where all are shown"
host_signal algo-2 USR2
both_end 60 0
