#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Open MPI 5: one host and two hosts, names with dots, a rank that fails, one that saves, directories of an earlier life, under the same `paceline train`.
#
# Needs a root directory of Debian 13, which has Open MPI 5, in PACELINE_OPENMPI5_ROOT:
#   debootstrap --variant=minbase --include=openmpi-bin,openssh-server,openssh-client trixie DIR
set -euo pipefail
source "$PACELINE_SOURCE/tests/support/cluster.sh"
root=${PACELINE_OPENMPI5_ROOT:-}
[ -n "$root" ] || cluster_skip "PACELINE_OPENMPI5_ROOT names no Debian 13 root directory with openmpi-bin"
[ -x "$root/usr/bin/prted" ] || cluster_skip "there is no Open MPI 5 in $root"
[ -x "$PACELINE_BUILD/tests/integration/mpi_probe" ] || cluster_skip "the build has no MPI"

cluster_up 2
mkdir -p "$root/opt/paceline/bin" "$root/opt/paceline/libexec/paceline" "$root/opt/ml" "$root/run/sshd"
install "$PACELINE_BUILD/entrypoint/paceline" "$PACELINE_BUILD/tests/integration/mpi_probe" "$root/opt/paceline/bin"
install "$PACELINE_BUILD/libexec/paceline/libpaceline-hostname.so" "$root/opt/paceline/libexec/paceline"

# The mounts are the host's own: they are gone with it. In /tmp lies what containers leave that were killed; started again, they give their processes the
# same numbers.
inside='root=$1; shift
for number in $(seq 2 60); do mkdir -p "/tmp/prterun.algo-1.$number.0/0" "/tmp/prted.algo-2.$number.0/0"; done
for path in /proc /dev /sys /run /tmp /opt/ml; do mount --rbind "$path" "$root$path"; done
touch "$root/etc/hosts" && mount --bind /etc/hosts "$root/etc/hosts"
mkdir -p /run/sshd
exec chroot "$root" /usr/bin/env PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin /opt/paceline/bin/paceline train'

job() {
  local hosts=$1 arguments=$2 host
  for host in algo-1 algo-2; do
    rm -rf "$cluster/$host/ml/output" && mkdir -p "$cluster/$host/ml/output" "$cluster/$host/ml/code"
    echo "{\"current_host\": \"$host\", \"hosts\": $hosts, \"network_interface_name\": \"eth0\"}" >"$cluster/$host/ml/input/config/resourceconfig.json"
    echo '{"sagemaker_mpi_enabled": "true", "sagemaker_mpi_num_of_processes_per_host": "2", "sagemaker_program": "run.sh"}' >"$cluster/$host/ml/input/config/hyperparameters.json"
    printf '#!/bin/sh\nexec /opt/paceline/bin/mpi_probe %s\n' "$arguments" >"$cluster/$host/ml/code/run.sh"
  done
}

fail() { echo "FAILED: $*"; cat "$cluster"/*.log; exit 1; }

job '["algo-1"]' ''
host_start algo-1 sh -c "$inside" sh "$root"
host_wait algo-1 60
[ "$code" = 0 ] || fail "one host ended with $code"
[ "$(grep -c 'of 2 sum 2 on algo-1' "$cluster/algo-1.log")" = 2 ] || fail "one host: two ranks were expected"

job '["algo-1", "algo-2"]' ''
for host in algo-1 algo-2; do host_start $host sh -c "$inside" sh "$root"; done
for host in algo-1 algo-2; do host_wait $host 60; [ "$code" = 0 ] || fail "$host ended with $code"; done
for host in algo-1 algo-2; do
  [ "$(grep -c "of 4 sum 4 on $host" "$cluster/algo-1.log")" = 2 ] || fail "two hosts: two ranks on $host were expected"
  [ -e "$cluster/$host/ml/output/success" ] || fail "$host wrote no success file"
done

# Cut at the dot, both names would be the same.
job '["algo-1", "algo-2"]' ''
for host in algo-1 algo-2; do
  sed -i 's/algo-\([12]\)/algo.job-\1.internal/g' "$cluster/$host/ml/input/config/resourceconfig.json"
  echo "10.78.0.${host#algo-} algo.job-${host#algo-}.internal" >>"$cluster/hosts"
done
for host in algo-1 algo-2; do host_start $host sh -c "$inside" sh "$root"; done
for host in algo-1 algo-2; do host_wait $host 60; [ "$code" = 0 ] || fail "$host, with a dot in its name, ended with $code"; done
for host in algo.job-1 algo.job-2; do
  [ "$(grep -c "of 4 sum 4 on $host.internal" "$cluster/algo-1.log")" = 2 ] || fail "names with dots: two ranks on $host were expected"
done

job '["algo-1", "algo-2"]' 'exit 3 5'
for host in algo-1 algo-2; do host_start $host sh -c "$inside" sh "$root"; done
for host in algo-1 algo-2; do host_wait $host 60; [ "$code" != 0 ] || fail "$host ended with 0"; done
for host in algo-1 algo-2; do
  grep -q 'rank 3 on host algo-2 exited with code 5' "$cluster/$host/ml/output/failure" || fail "$host: $(cat "$cluster/$host/ml/output/failure")"
  [ -z "$(host_pids $host)" ] || fail "processes are left on $host"
done
# Under Open MPI 5 a rank aborts when the process that it is connected to dies: the others must not get the signal before rank 0 has saved.
job '["algo-1", "algo-2"]' 'alone 0 3'
mkdir -p "$cluster/algo-1/ml/model"
for host in algo-1 algo-2; do host_start $host sh -c "$inside" sh "$root"; done
for rank in 0 1 2 3; do
  tries=1200
  until grep -q "rank $rank of 4" "$cluster/algo-1.log"; do
    tries=$((tries - 1))
    [ $tries -gt 0 ] || fail "rank $rank did not start"
    sleep 0.05
  done
done
host_signal algo-2 TERM
for host in algo-1 algo-2; do host_wait $host 60; [ "$code" = 143 ] || fail "$host ended with $code after SIGTERM"; done
[ -e "$cluster/algo-1/ml/model/saved-0" ] || fail "rank 0 was cut off while it saved"
grep -q 'it has no handler for this signal' "$cluster/algo-2/ml/output/failure" || fail "the failure file of a stop"
echo "Open MPI 5: one host, two hosts, names with dots, a rank that fails, and one that saves"
