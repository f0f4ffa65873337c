#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Two hosts with two ranks each: a rank is killed, or stopped, in every operation, or stays in its own code (LATE) while the others are in named tensors or
# a plan. Each of the other three notices by the deadline and names the rank, the job ends, and no process or file is left on either host. Every operation meets one
# of the two signals, and each rank is late in one of the two; with the word `full` the other.
set -euo pipefail
source "$PACELINE_SOURCE/tests/support/cluster.sh"
program=$PACELINE_BUILD/tests/integration/fault_ranks
trap cluster_down EXIT
trap 'exit 143' TERM INT
cluster_up 2
hosts_listen
declare -A before
for host in "${cluster_hosts[@]}"; do before[$host]=$(host_pids "$host" | wc -l); done

fail() {
  echo "FAILED: $signal in $kind, rank $victim: $*"
  tail -n +1 "$cluster"/faults/noticed-* "$cluster/output" || true
  exit 1
}

# Lists what is left on a host: its processes except sshd, files in /dev/shm, System V segments.
left_on() {
  local tries=2400 count
  while count=$(($(host_pids "$1" | wc -l) - ${before[$1]})) && [ $count -gt 0 ] && [ $tries -gt 0 ]; do
    tries=$((tries - 1))
    sleep 0.05
  done
  [ $count = 0 ] || echo "$count processes"
  host_run "$1" ls -A /dev/shm
  host_run "$1" sh -c 'sed 1d /proc/sysvipc/shm'
}

# Of the others: a stopped rank that mpirun wakes up to end it may still find that they have gone, and says so in its own words.
noticed() { find "$cluster/faults" -name 'noticed-?' ! -name "noticed-$victim" | wc -l; }

# Ranks that Open MPI ended itself, with a word: its way with a message to a rank that was killed when part of it had left.
given_up() { { grep -a 'pml_ob1_.* FATAL' "$cluster/output" || true; } | cut -d']' -f1 | sort -u | wc -l; }

# Ranks that Open MPI 4.1 holds for ever: closing a connection over which a message could not leave, it waits for a lock that it has itself.
held() {
  local rank count=0
  for rank in 0 1 2 3; do
    [ -e "$cluster/faults/noticed-$rank" ] || ! grep -aq "\[\[[0-9]*,[0-9]*\],$rank\].*mca_btl_tcp_frag_send: writev failed" "$cluster/output" || count=$((count + 1))
  done
  echo $count
}

# Run until all three others have noticed, then see that the job ends and what it leaves. A killed rank would make mpirun end the others
# at once; told to recover it leaves them alone, does not end by itself, and its exit code says nothing. False: it crashed itself, which Open MPI
# 4.1's does at times over a rank's message that another has hung up, or could not start a rank; that says nothing of the ranks. Nor does a deadline that
# has passed before the signal, or over another rank, on a machine that halted one for so long.
fault() { # KIND SIGNAL VICTIM DEADLINE_S
  local rank code=0 tries=4800 job options=() seconds status words first named=0 missing deadline_s=$4
  kind=$1 signal=$2 victim=$3
  rm -rf "$cluster/faults"
  mkdir "$cluster/faults"
  [ "$signal" != KILL ] || options=(--enable-recovery)
  cluster_mpirun 2 ${options[@]+"${options[@]}"} timeout 400 "$program" "$kind" "$([ "$signal" = LATE ] && echo 0 || kill -l "$signal")" "$victim" $deadline_s \
    "$cluster/faults" >"$cluster/output" 2>&1 &
  job=$!
  until [ $(($(noticed) + $(given_up))) -ge 3 ] || [ $tries = 0 ] || ! kill -0 $job 2>/dev/null; do
    tries=$((tries - 1))
    [ $tries -lt 1200 ] || [ ! -s "$cluster/faults/hit" ] || tries=1200 # from the signal on a minute
    sleep 0.05
  done
  [ "$signal" != KILL ] || host_run algo-1 pkill -TERM -x mpirun || true
  tries=2400
  while kill -0 $job 2>/dev/null && [ $tries -gt 0 ]; do
    tries=$((tries - 1))
    sleep 0.05
  done
  [ $tries -gt 0 ] || fail "the job lives on"
  wait $job || code=$?
  if grep -q -e pmix_server_log_fn -e 'MPI_INIT failed' -e 'ORTE does not know how to route' "$cluster/output"; then
    for host in "${cluster_hosts[@]}"; do
      host_run "$host" pkill -KILL -f "$program" || true
      host_run "$host" pkill -KILL -x orted || true
      left_on "$host" >/dev/null
      host_run "$host" find /dev/shm -mindepth 1 -delete # Open MPI's, which its launcher would have removed
    done
    return 1
  fi
  ! grep -qs '^-1.000 TIMEOUT ' "$cluster"/faults/noticed-* || return 1
  [ $code != 0 ] || [ "$signal" = KILL ] || fail "the job ended well"
  missing=0
  if [ "$signal" = KILL ]; then
    missing=$(given_up)
    [ "$missing" != 0 ] || missing=$(held)
  fi
  [ "$missing" = 0 ] || echo "$signal in $kind, rank $victim: Open MPI ended $missing of the others itself, or holds them"
  [ $(($(noticed) + missing)) -ge 3 ] && [ "$missing" -lt 3 ] || fail "only $(ls "$cluster/faults")"
  for rank in 0 1 2 3; do
    [ $rank != "$victim" ] && [ -e "$cluster/faults/noticed-$rank" ] || continue
    read -r seconds status words <"$cluster/faults/noticed-$rank"
    case $status in
      TIMEOUT | PEER) ;;
      LIBRARY) [[ $words =~ ^MPI_[A-Za-z]*,\ rank\ $victim: ]] || fail "rank $rank says $status" ;; # MPI noticed first, and reports it
      *) fail "rank $rank says $status" ;;
    esac
    # A rank that only received the error has exactly the text of the first, up to what named tensors add.
    if [[ $words =~ ^rank\ ([0-3])\ has\ given\ up:\  && -e $cluster/faults/noticed-${BASH_REMATCH[1]} ]]; then
      read -r _ _ first <"$cluster/faults/noticed-${BASH_REMATCH[1]}"
      [[ $words = "${BASH_REMATCH[0]}${first%%[;)]*}"* ]] || fail "rank $rank reports another message than rank ${BASH_REMATCH[1]}'s"
    fi
    [[ $words =~ waiting\ for\ rank\ [0-3] || $words =~ rank\ $victim ]] || fail "rank $rank names nobody"
    [[ ! $words =~ for\ rank\ $victim && ! $words =~ rank\ $victim\'s\ process ]] || named=$((named + 1))
    awk "BEGIN { exit !($seconds >= 0 && $seconds < $deadline_s + 40) }" || fail "rank $rank needed $seconds s"
  done
  # MPI may report the end of a killed rank to each other rank in a different way.
  if [ $named -lt $([ "$signal" = KILL ] && echo $((missing == 0)) || echo 3) ]; then
    [ "$deadline_s" -lt 16 ] || fail "only $named ranks name rank $victim"
    echo "$signal in $kind, rank $victim: another rank was waited for until the deadline"
    return 1
  fi
  for host in "${cluster_hosts[@]}"; do
    [ -z "$(left_on "$host")" ] || fail "left on $host: $(left_on "$host")"
  done
}

signals="KILL STOP"
if command -v prted >/dev/null; then
  signals=STOP
  echo "left out: killed ranks, whose peers Open MPI 5 ends itself"
fi

notice() { # KIND SIGNAL VICTIM DEADLINE_S
  local deadline_s=$4
  until fault "$1" "$2" "$3" "$deadline_s"; do
    deadline_s=$((2 * deadline_s))
    [ $deadline_s -le 16 ] || fail "mpirun fails each time, or deadlines pass before the signal"
    echo "$2 in $1: mpirun failed, or a deadline passed too soon: once more, with $deadline_s s"
  done
}

for signal in $signals; do
  case ${1:-main}-$signal in
    main-KILL | full-STOP) kinds="0 2 4 6" ;;
    *) kinds="1 3 5" ;;
  esac
  for kind in $kinds; do notice "$kind" "$signal" $(((kind + 1) % 4)) 4; done
done
late=(names plan)
[ "${1:-main}" = main ] || late=(plan names)
for victim in 0 1 2 3; do notice "${late[victim % 2]}" LATE $victim 2; done
echo "noticed in every operation: $signals LATE, ${1:-main}"
