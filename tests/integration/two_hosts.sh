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

case_begin "a daemon that is not Open MPI's"
agent="--mca orte_launch_agent"
! command -v prted >/dev/null || agent="--prtemca prte_launch_agent" # Open MPI 5
for host in algo-1 algo-2; do
  job_config $host "algo-1 algo-2" 1
  sed -i 's|--mca mpi_yield_when_idle 1|& '"$agent"' /bin/reboot|' "$cluster/$host/ml/input/config/hyperparameters.json"
done
for host in algo-1 algo-2; do host_start $host "$paceline" -- "$probe"; done
both_end 60 bad "Open MPI's daemon on host 'algo-2' does not start: .*only orted and prted may be started, not '/bin/reboot'"

# root with another login shell; on this machine it stays what it is.
start_with_shell() {
  sed "s|^\(root:.*:\)[^:]*$|\1$1|" /etc/passwd >"$cluster/passwd"
  for host in algo-1 algo-2; do
    job_config $host "algo-1 algo-2" 1
    host_start $host sh -c 'mount --bind "$1" /etc/passwd && shift && exec "$@"' sh "$cluster/passwd" "$paceline" -- "$probe"
  done
}

case_begin "the user's login shell is sh"
start_with_shell /bin/sh
both_end 60 0

case_begin "a user who may not log in"
start_with_shell /usr/sbin/nologin
both_end 60 bad "expected a shell such as /bin/sh for 'root' in /etc/passwd, found '/usr/sbin/nologin'"

case_begin "root's keys and an ordinary user"
printf 'root:x:0:0::/root:/bin/sh\ntrainer:x:4242:4242::/opt/ml:/bin/sh\n' >"$cluster/passwd"
chmod 0711 "$cluster"
for host in algo-1 algo-2; do
  job_config $host "algo-1 algo-2" 1
  chown -R 4242:4242 "$cluster/$host/ml"
  host_start $host sh -c 'mount --bind "$1" /etc/passwd && shift && exec setpriv --reuid 4242 --regid 4242 --clear-groups "$@"' sh "$cluster/passwd" \
    env TMPDIR=/tmp "$paceline" -- "$probe"
done
both_end 60 bad "the ssh key '.*id_ed25519' belongs to user root, and this job's user 4242 cannot read it: run the container as that user"

# The host that runs sshd logs that before the first attempt; the other host never connects.
case_begin "a container without the capabilities that sshd needs"
job_config algo-2 "algo-1 algo-2" 1
host_start algo-2 setpriv --bounding-set -sys_chroot,-setuid "$paceline" -- "$probe"
case_ends 60 algo-2 bad "needs the capabilities SETGID, SETUID and SYS_CHROOT, but this container lacks SETUID, SYS_CHROOT: "

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

for rank in 1 3; do
  where=algo-$((rank / 2 + 1))
  case_begin "rank $rank exits with 3"
  start_both exit $rank 3
  await_log algo-1 "last word of rank $rank" 60
  case_mark
  both_end 60 bad "rank $rank on host $where exited with code 3" "^Program: [^ ]*/mpi_probe\$" "this is the last word of rank $rank"

  case_begin "rank $rank is killed by SIGKILL"
  start_both raise $rank 9
  await_log algo-1 "last word of rank $rank" 60
  case_mark
  both_end 60 bad "rank $rank on host $where was killed by signal 9 \(SIGKILL\)" "this is the last word of rank $rank"
done

# The kernel ends everything with a host's process 1, so look before: here a shell is process 1 and lists who is left.
case_begin "nobody survives under another process 1"
for host in algo-1 algo-2; do
  job_config $host "algo-1 algo-2" 2
  host_start $host sh -c '"$@"; code=$?; ps -e -o pid=,args= >/opt/ml/left; exit $code' sh "$paceline" -- "$probe" stubborn 2 7
done
await_log algo-1 "last word of rank 2" 60
case_mark
both_end 60 bad "rank 2 on host algo-2 exited with code 7"
for host in algo-1 algo-2; do
  ! grep -E "mpi_probe|mpirun|prterun|orted|prted|sshd|ssh |relay|paceline rank" "$cluster/$host/ml/left" | grep -v "sh -c" || case_failed "somebody was left on $host"
done

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
