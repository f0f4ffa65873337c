#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Two hosts: `paceline` is process 1 of each, with its own /opt/ml, host name and sshd, and MPI between them.
set -euo pipefail
source "$PACELINE_SOURCE/tests/support/job.sh"
[ -x "$probe" ] || cluster_skip "built without MPI"
cluster_up 2

# With debug lines mpirun prints its job map too.
for level in debug info; do
  case_begin "all ranks end well, PACELINE_LOG=$level"
  cluster_environment=("PACELINE_LOG=$level")
  start_both
  wait_both 60
  expected=$([ $level = debug ] && echo 1 || echo 0)
  for ranks in "1 0-1" "2 2-3"; do # several CPUs, or the machine's only one
    [ "$(grep -Ec "^paceline: debug: ranks ${ranks#* } (run on CPUs|bound to CPU) [0-9,-]+\$" "$cluster/algo-${ranks% *}.log")" = "$expected" ] || case_failed "where ranks ${ranks#* } run on algo-${ranks% *} is said or not"
  done
  [ "$(grep -c "JOB MAP" "$cluster/algo-1.log")" = "$expected" ] || case_failed "the master prints the job map or not"
  ! grep "Process rank\|JOB MAP" "$cluster/algo-2.log" || case_failed "the worker prints the job map"
done
for number in 1 2; do
  [ "$(grep -v '^\[1,' "$cluster/algo-$number.log")" = "$(grep -E "^paceline: (version [^,]+, mpi: 4 ranks on 2 hosts; this is algo-$number, the (master|worker)|succeeded after [0-9]+ s; /opt/ml/model is empty)\$" "$cluster/algo-$number.log")" ] ||
    case_failed "algo-$number prints other lines than the first and the last"
done
both_end 60 0
for rank in 0 1; do grep -q "\[1,$rank\]<stdout>: *rank $rank of 4 sum 4 on algo-1\$" "$cluster/algo-1.log" || case_failed "rank $rank did not run on algo-1"; done
for rank in 2 3; do grep -q "\[1,$rank\]<stdout>: *rank $rank of 4 sum 4 on algo-2\$" "$cluster/algo-1.log" || case_failed "rank $rank did not run on algo-2"; done
expect_apart 0
awk -v a="$(cat "$cluster/algo-1.end")" -v b="$(cat "$cluster/algo-2.end")" 'BEGIN { exit !(b > a) }' || case_failed "the worker ended before the master"

case_begin "a host with one CPU"
cpu=$(taskset -cp $$ | sed 's/.*: *\([0-9]*\).*/\1/')
for host in algo-1 algo-2; do job_config $host "algo-1 algo-2" 2; done
cluster_environment=(PACELINE_LOG=debug)
host_start algo-1 "$paceline" -- "$probe"
host_start algo-2 taskset -c "$cpu" "$paceline" -- "$probe"
both_end 60 0
grep -q "^paceline: debug: ranks 2-3 bound to CPU $cpu\$" "$cluster/algo-2.log" || case_failed "algo-2 does not say that its ranks share a CPU"

# If they were cut at the dot, both names would be the same.
case_begin "hosts whose names have dots"
for host in algo-1 algo-2; do
  job_config $host "algo-1 algo-2" 1
  sed -i 's/algo-\([12]\)/algo.job-\1.internal/g' "$cluster/$host/ml/input/config/resourceconfig.json"
  echo "10.78.0.${host#algo-} algo.job-${host#algo-}.internal" >>"$cluster/hosts"
done
for host in algo-1 algo-2; do host_start $host "$paceline" -- "$probe"; done
both_end 60 0
for rank in 0 1; do
  grep -q "\[1,$rank\]<stdout>: *rank $rank of 2 sum 2 on algo.job-$((rank + 1)).internal\$" "$cluster/algo-1.log" || case_failed "rank $rank did not run on its host"
done

# What a rank prints is its own host's, not what mpirun passed on from the master. Nor does it speak with another one.
case_begin "ranks see the channels of their own host, and train a model each"
for host in algo-1 algo-2; do
  job_config $host "algo-1 algo-2" 1
  echo "{\"own${host#algo-}\": {}}" >"$cluster/$host/ml/input/config/inputdataconfig.json"
  : >"$cluster/$host/ml/model/old"
  host_start $host "$paceline" -- sh -c 'echo "rank $OMPI_COMM_WORLD_RANK: $(env | grep ^SM_CHANNEL_ | tr "\n" ";") $SM_CHANNELS"
    [ $OMPI_COMM_WORLD_RANK != 0 ] || : >"$SM_MODEL_DIR/new"'
done
both_end 60 0
expect_apart 1
grep -q '^paceline: succeeded after .* /opt/ml/model has the model$' "$cluster/algo-1.log" || case_failed "algo-1 does not have the model"
grep -q '^paceline: succeeded after .* /opt/ml/model has only files from before this job$' "$cluster/algo-2.log" || case_failed "algo-2 takes an old file for the model"
for rank in 0 1; do
  grep -qF "rank $rank: SM_CHANNEL_OWN$((rank + 1))=/opt/ml/input/data/own$((rank + 1)); [\"own$((rank + 1))\"]" "$cluster/algo-1.log" ||
    case_failed "rank $rank has other channels"
done

cat >"$cluster/connect.py" <<'PY'
import os, socket, time

rank, deadline = int(os.environ["OMPI_COMM_WORLD_RANK"]), time.monotonic() + 60
if rank == 2:
    with socket.create_server(("127.0.0.1", 29500)) as server:
        server.accept()[0].recv(1)
while rank == 3:
    try:
        socket.create_connection(("127.0.0.1", 29500)).sendall(b"1")
        break
    except ConnectionRefusedError:
        if time.monotonic() > deadline:
            raise
        time.sleep(0.01)
PY
case_begin "ranks of algo-2 are connected without MPI"
for host in algo-1 algo-2; do
  job_config $host "algo-1 algo-2" 2
  host_start $host "$paceline" -- python3 "$cluster/connect.py"
done
both_end 60 0
expect_apart 0

# The interface has a name that no container has.
case_begin "hosts that have IPv6 addresses alone"
add_six() { ip -n "$cluster_tag-$1" addr add "fd00:78::$1/64" dev eth0 nodad 2>/dev/null; }
if command -v prted >/dev/null; then
  echo "$case_name: left out, mpirun 5 dies of it"
elif add_six 1 && add_six 2; then
  printf '::1 localhost\nfd00:78::1 algo-1\nfd00:78::2 algo-2\n' >"$cluster/hosts"
  for number in 1 2; do
    ip -n "$cluster_tag-$number" addr del "10.78.0.$number/24" dev eth0
    job_config algo-$number "algo-1 algo-2" 1
    sed -i s/eth0/ethwe/ "$cluster/algo-$number/ml/input/config/resourceconfig.json"
    host_start algo-$number "$paceline" -- "$probe"
  done
  both_end 60 0
  grep -q "no network interface 'ethwe' here; 'eth0' is used" "$cluster/algo-1.log" || case_failed "another interface was taken"
else
  echo "$case_name: left out, this machine has no IPv6"
fi
echo "two hosts: all cases passed"
