# SPDX-License-Identifier: Apache-2.0
# Hosts algo-1, algo-2, ... on one Linux machine, to be sourced by a test. Each is a set of namespaces in which the
# command given to host_start is process 1, with its own host name, /opt/ml, /run, /tmp, /etc/hosts, /dev/shm and a cable to a
# switch that is a namespace too; the machine's own network is not touched.
#
#   cluster_up N              make N hosts, which go when the shell exits; exits with 77 if that is not possible
#   host_rate HOST RATE       limit its link in each direction, RATE as tc writes it (200mbit); none: no limit
#   host_start HOST CMD...    power a host on: CMD becomes its process 1; output in $cluster/HOST.log
#   host_wait HOST SECONDS    wait for its end; sets $code to the exit code; fails if it does not end in SECONDS + 40 s (the machine may be busy)
#   host_signal HOST SIGNAL   send a signal to its process 1
#   host_off HOST             power it off: every process on it is killed at once
#   host_run HOST CMD...      run something else on a host that is up
#   host_cut HOST, host_join HOST    unplug its cable, plug it in again
#   hosts_listen              sshd becomes process 1 of every host; then
#   cluster_mpirun RANKS WORDS...   mpirun on algo-1 with RANKS per host (4, or 4x2: on the first two hosts only) and Open MPI's own options
#   host_pids HOST            its processes, by their ids on this machine
#   cluster_down              remove everything; a test with a trap of its own for EXIT calls it there
#
# $cluster is the work folder; $cluster/algo-1/ml is /opt/ml of algo-1. An array `cluster_environment` of NAME=VALUE
# reaches every process 1.

cluster_skip() { echo "SKIP: $*"; exit 77; }

cluster_up() {
  local i host
  [ "$(id -u)" = 0 ] || cluster_skip "namespaces need root"
  for tool in ip unshare nsenter ssh-keygen; do command -v $tool >/dev/null || cluster_skip "$tool is not installed"; done
  [ -x /usr/sbin/sshd ] || cluster_skip "sshd is not installed"
  cluster=$(mktemp -d "${TMPDIR:-/tmp}/paceline-cluster-XXXXXX")
  cluster_tag=pl$$
  cluster_hosts=()
  cluster_environment=()
  [ -n "$(trap -p EXIT)" ] || trap cluster_down EXIT
  trap 'exit 143' TERM INT
  ip netns add "$cluster_tag-sw" 2>/dev/null || { rm -rf "$cluster"; cluster_skip "this machine allows no network namespaces"; }
  ip -n "$cluster_tag-sw" link add sw0 type bridge 2>/dev/null || cluster_skip "the kernel has no bridge"
  ip -n "$cluster_tag-sw" link set sw0 up
  mkdir -m 0700 "$cluster/ssh"
  ssh-keygen -q -t ed25519 -N '' -C test -f "$cluster/ssh/id_ed25519"
  ssh-keygen -q -t ed25519 -N '' -C test -f "$cluster/ssh/host_ed25519"
  echo "127.0.0.1 localhost" >"$cluster/hosts"
  for i in $(seq "$1"); do echo "10.78.0.$i algo-$i" >>"$cluster/hosts"; done
  for i in $(seq "$1"); do
    host=algo-$i
    cluster_hosts+=("$host")
    ip netns add "$cluster_tag-$i"
    ip -n "$cluster_tag-$i" link add eth0 type veth peer name "p$i" netns "$cluster_tag-sw" 2>/dev/null || cluster_skip "the kernel has no veth"
    ip -n "$cluster_tag-sw" link set "p$i" master sw0 up
    ip -n "$cluster_tag-$i" link set lo up
    ip -n "$cluster_tag-$i" link set eth0 up
    ip -n "$cluster_tag-$i" addr add "10.78.0.$i/24" dev eth0
    mkdir -p "$cluster/$host/ml/input/config" "$cluster/$host/ml/input/data" "$cluster/$host/ml/output"
  done
}

host_number() { echo "${1#algo-}"; }

# This runs in the new namespaces before the command becomes process 1. Open MPI keeps a job's files in /tmp under the names of host and process, which
# hosts of other tests have too: a host sees only the folders of the machine's /tmp that it runs from.
cluster_inside='
  set -e
  host=$1 cluster=$2; shift 2
  hostname "$host"
  mount --make-rprivate /
  mount -t tmpfs -o mode=0755 tmpfs /run
  mount -t tmpfs -o mode=1777 tmpfs /dev/shm
  mkdir /run/machine
  mount --rbind /tmp /run/machine
  mount -t tmpfs -o mode=1777 tmpfs /tmp
  for path in "$cluster" "$PACELINE_BUILD" "$PACELINE_SOURCE" "$PWD" "${PACELINE_OPENMPI5_ROOT:-/}"; do
    case $path in /tmp/*)
      path=${path#/tmp/}; path=${path%%/*}
      [ -e "/tmp/$path" ] || { mkdir "/tmp/$path"; mount --rbind "/run/machine/$path" "/tmp/$path"; }
    esac
  done
  umount --lazy /run/machine
  rmdir /run/machine
  mount --bind "$cluster/hosts" /etc/hosts
  if [ ! -d /opt/ml ]; then mount -t tmpfs -o mode=0755 tmpfs /opt; mkdir /opt/ml; fi
  mount --bind "$cluster/$host/ml" /opt/ml
  cd /; : >"$cluster/$host.up"
  exec "$@"'

# A background job of a shell ignores SIGINT, a container's process 1 does not: hence --default-signal.
host_start() {
  local host=$1 number
  shift
  number=$(host_number "$host")
  rm -f "$cluster/$host".{code,pid,up}
  : >"$cluster/$host.log"
  (
    ip netns exec "$cluster_tag-$number" unshare --mount --uts --ipc --pid --fork --kill-child --mount-proc \
      env --default-signal=INT,QUIT -u TMPDIR PACELINE_SSH_DIR="$cluster/ssh" "${cluster_environment[@]}" sh -c "$cluster_inside" sh "$host" "$cluster" "$@" </dev/null >"$cluster/$host.log" 2>&1 &
    echo $! >"$cluster/$host.pid"
    wait $! 2>/dev/null && echo 0 >"$cluster/$host.code.new" || echo $? >"$cluster/$host.code.new"
    echo "${EPOCHREALTIME/,/.}" >"$cluster/$host.end"
    mv "$cluster/$host.code.new" "$cluster/$host.code"
  ) &
  until [ -s "$cluster/$host.pid" ] && { [ -e "$cluster/$host.up" ] || [ -e "$cluster/$host.code" ]; }; do sleep 0.01; done
}

# unshare's only child is the host's process 1.
host_first() { pgrep -P "$(cat "$cluster/$1.pid")" 2>/dev/null; }

host_wait() {
  local most_s=$(($2 + 40)) begin_s=$SECONDS
  while [ ! -e "$cluster/$1.code" ]; do
    [ $((SECONDS - begin_s)) -le $most_s ] || { echo "FAILED: $1 did not end within $most_s s"; cat "$cluster/$1.log"; return 1; }
    sleep 0.05
  done
  code=$(cat "$cluster/$1.code")
}

host_signal() { kill "-$2" "$(host_first "$1")"; }
host_off() { kill -KILL "$(host_first "$1")"; }

host_run() {
  local host=$1
  shift
  nsenter -t "$(host_first "$host")" -n -m -u -i -p -- "$@"
}

# Starts sshd, for jobs that mpirun starts and not `paceline`.
hosts_listen() {
  local host
  cp "$cluster/ssh/id_ed25519.pub" "$cluster/ssh/authorized"
  for host in "${cluster_hosts[@]}"; do
    host_start "$host" sh -c 'mkdir -p /run/sshd && exec /usr/sbin/sshd -D -e -f /dev/null -h "$1/host_ed25519" -o AuthorizedKeysFile="$1/authorized" \
      -o PermitRootLogin=prohibit-password -o PasswordAuthentication=no -o UsePAM=no -o StrictModes=no -o UseDNS=no -o PidFile=none \
      -o MaxStartups=100 -o MaxSessions=100' sh "$cluster/ssh"
  done
  for host in "${cluster_hosts[@]}"; do
    local tries=1200
    until [ -n "$(host_first "$host")" ] && host_run "$host" $cluster_ssh -i "$cluster/ssh/id_ed25519" "$host" true 2>/dev/null; do
      tries=$((tries - 1))
      [ $tries -gt 0 ] || { echo "FAILED: no sshd on $host"; cat "$cluster/$host.log"; return 1; }
      sleep 0.05
    done
    while pgrep -P "$(host_first "$host")" >/dev/null; do sleep 0.05; done # the session's server, which outlives its client
  done
}
cluster_ssh="ssh -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR -o BatchMode=yes"

cluster_mpirun() {
  local per_host=${1%x*} hosts=${#cluster_hosts[@]} list='' i
  [ "$per_host" = "$1" ] || hosts=${1#*x}
  shift
  for i in $(seq "$hosts"); do list+=,algo-$i:$per_host; done
  # Binding would put the first ranks of all hosts on the same core, since the hosts share this machine.
  host_run algo-1 env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun --host "${list#,}" -n $((hosts * per_host)) --oversubscribe --bind-to none \
    --mca plm_rsh_agent "$cluster_ssh -i $cluster/ssh/id_ed25519" --mca mpi_yield_when_idle 1 "$@" </dev/null
}

# A token bucket at either end of the cable: full duplex.
host_rate() {
  local number end
  number=$(host_number "$1")
  for end in "$cluster_tag-$number eth0" "$cluster_tag-sw p$number"; do
    # Two words on purpose.
    # shellcheck disable=SC2086
    set -- "$1" "$2" $end
    tc -n "$3" qdisc del dev "$4" root 2>/dev/null || true
    [ "$2" = none ] || tc -n "$3" qdisc add dev "$4" root tbf rate "$2" burst 128kb latency 20ms || cluster_skip "the kernel cannot limit a link's rate"
  done
}

host_cut() { ip -n "$cluster_tag-sw" link set "p$(host_number "$1")" down; }
host_join() { ip -n "$cluster_tag-sw" link set "p$(host_number "$1")" up; }

# Prints every process in the host's network namespace, also those whose parents are gone.
host_pids() { ip netns pids "$cluster_tag-$(host_number "$1")"; }

cluster_down() {
  local host pid
  [ -n "${cluster:-}" ] || return 0
  for host in "${cluster_hosts[@]}"; do
    if [ -s "$cluster/$host.pid" ] && [ ! -e "$cluster/$host.code" ]; then kill -KILL "$(cat "$cluster/$host.pid")" 2>/dev/null || true; fi
    for pid in $(host_pids "$host" 2>/dev/null); do kill -KILL "$pid" 2>/dev/null || true; done
    ip netns del "$cluster_tag-$(host_number "$host")" 2>/dev/null || true
  done
  ip netns del "$cluster_tag-sw" 2>/dev/null || true
  # The shells that have started hosts still note how these ended.
  for _ in $(seq 100); do
    rm -rf "$cluster" 2>/dev/null && return
    sleep 0.05
  done
  rm -rf "$cluster"
}
