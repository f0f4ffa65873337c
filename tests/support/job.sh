# SPDX-License-Identifier: Apache-2.0
# Functions for tests of `paceline train` on hosts in namespaces.
source "$PACELINE_SOURCE/tests/support/cluster.sh"

paceline=$PACELINE_BUILD/entrypoint/paceline
probe=$PACELINE_BUILD/tests/integration/mpi_probe

# job_config HOST HOSTS PROCESSES: writes HOST's configuration; HOSTS are separated by spaces; PROCESSES per host, 0 for no MPI.
job_config() {
  local names='' host
  for host in $2; do names="$names${names:+, }\"$host\""; done
  rm -rf "${cluster:?}/$1/ml"
  mkdir -p "$cluster/$1/ml/input/config" "$cluster/$1/ml/output" "$cluster/$1/ml/model"
  echo "{\"current_host\": \"$1\", \"hosts\": [$names], \"network_interface_name\": \"eth0\"}" >"$cluster/$1/ml/input/config/resourceconfig.json"
  if [ "$3" = 0 ]; then
    echo '{}' >"$cluster/$1/ml/input/config/hyperparameters.json"
  else
    echo "{\"sagemaker_mpi_enabled\": \"true\", \"sagemaker_mpi_num_of_processes_per_host\": \"$3\",
      \"sagemaker_mpi_custom_mpi_options\": \"--mca mpi_yield_when_idle 1\"}" >"$cluster/$1/ml/input/config/hyperparameters.json"
  fi
}

# start_host HOST WORDS...: starts its part of a job with two ranks on each of two hosts, which are `mpi_probe WORDS...`; start_both WORDS...: starts the whole job.
start_host() {
  local host=$1
  shift
  job_config "$host" "algo-1 algo-2" 2
  host_start "$host" "$paceline" -- "$probe" "$@"
}
start_both() { start_host algo-1 "$@"; start_host algo-2 "$@"; }
wait_host() { host_wait "$1" "$2" || case_failed "no end"; }
wait_both() { wait_host algo-1 "$1"; wait_host algo-2 "$1"; }

failure_of() { cat "$cluster/$1/ml/output/failure" 2>/dev/null || true; }

case_failed() {
  echo "FAILED: $case_name: $*"
  local host
  for host in "${cluster_hosts[@]}"; do
    echo "---- $host: exit code $(cat "$cluster/$host.code" 2>/dev/null || echo none), its output and failure file:"
    tail -n 40 "$cluster/$host.log" 2>/dev/null || true
    failure_of "$host"
  done
  exit 1
}

# expect_code HOST 0|bad|NUMBER
expect_code() {
  local found
  found=$(cat "$cluster/$1.code")
  case $2 in
  bad) [ "$found" != 0 ] || case_failed "$1 ended with 0" ;;
  *) [ "$found" = "$2" ] || case_failed "$1 ended with $found, not $2" ;;
  esac
}

# expect_failure HOST REGEX...: the failure file exists, each expression matches within its first 1,024 bytes.
expect_failure() {
  local host=$1 expression
  shift
  [ -s "$cluster/$host/ml/output/failure" ] || case_failed "$host wrote no failure file"
  for expression; do
    head -c 1024 "$cluster/$host/ml/output/failure" | grep -E -- "$expression" >/dev/null || case_failed "the failure file of $host lacks '$expression'"
  done
}

expect_success() {
  [ -e "$cluster/$1/ml/output/success" ] || case_failed "$1 wrote no success file"
  [ ! -e "$cluster/$1/ml/output/failure" ] || case_failed "$1 wrote a failure file"
}

# Checks that no process of the job is left on any host, even without its parents.
expect_nobody() {
  local host pids
  for host in "${cluster_hosts[@]}"; do
    pids=$(host_pids "$host")
    [ -z "$pids" ] || case_failed "left on $host: $(ps -o pid=,args= -p "$(echo $pids | tr ' ' ,)" | tr '\n' ';')"
  done
}

# Checks that on no host whose process 1 was looks.sh the command has left a process, or a file in /dev/shm, /tmp or /run.
expect_nothing() {
  local host
  for host in "${cluster_hosts[@]}"; do
    [ -e "$cluster/$host/ml/after" ] || continue
    cmp -s "$cluster/$host/ml/before" "$cluster/$host/ml/after" || case_failed "files are left on $host: $(diff "$cluster/$host/ml/before" "$cluster/$host/ml/after")"
    [ ! -s "$cluster/$host/ml/left" ] || case_failed "processes are left on $host: $(cat "$cluster/$host/ml/left")"
  done
}

# await_log HOST REGEX SECONDS: waits until HOST's output matches; fails after SECONDS + 40 s, since the machine may be busy.
await_log() {
  local most_s=$(($3 + 40)) begin_s=$SECONDS
  until grep -Eq -- "$2" "$cluster/$1.log" 2>/dev/null; do
    [ $((SECONDS - begin_s)) -le $most_s ] || case_failed "the output of $1 lacks '$2' after $most_s s"
    sleep 0.05
  done
}

# expect_apart NUMBER: the hosts' logs have NUMBER lines that report that no rank was connected to another, all on algo-1.
expect_apart() {
  [ "$(cat "$cluster"/algo-*.log | grep -c 'no rank has called MPI_Init')" = "$1" ] || case_failed "not $1 lines about ranks that were never connected"
  [ "$(grep -c 'no rank has called MPI_Init' "$cluster/algo-1.log")" = "$1" ] || case_failed "another host than the master says that ranks were never connected"
}

# signal_until_end HOST SIGNAL SECONDS: for a host that does not show when it listens; an early signal does no harm to its process 1.
signal_until_end() {
  local most_s=$(($3 + 40)) begin_s=$SECONDS
  while [ ! -e "$cluster/$1.code" ]; do
    [ $((SECONDS - begin_s)) -le $most_s ] || case_failed "$1 did not end after SIG$2"
    sleep 0.2
    host_signal "$1" "$2" 2>/dev/null || true
  done
}

case_begin() {
  case_name=$1
  case_start=$(date +%s.%N)
  cluster_environment=()
}

# case_mark: starts the clock of "time to notice".
case_mark() { case_start=$(date +%s.%N); }

# case_end HOST...: prints one line of the table: case, seconds from the mark to each host's end, exit codes, first line of the failure.
case_end() {
  local host line
  line=$(printf '%-44s' "$case_name")
  for host; do
    line="$line $host: $(awk -v a="$case_start" -v b="$(cat "$cluster/$host.end")" 'BEGIN { printf "%.1f", b - a }') s code $(cat "$cluster/$host.code");"
  done
  echo "$line $(failure_of "$1" | sed -n 1p)"
}

# case_ends SECONDS [HOST CODE WORDS]...: each host ends in time with its CODE (as of expect_code, any: of no interest), and with 0 well, else with WORDS in its failure
# file if they are not empty; no process is left. Prints the case's line.
case_ends() {
  local seconds=$1 index hosts=()
  shift
  for ((index = 1; index <= $#; index += 3)); do
    hosts+=("${!index}")
    wait_host "${!index}" "$seconds"
  done
  expect_nobody
  case_end "${hosts[@]}"
  while [ $# -gt 0 ]; do
    [ "$2" = any ] || expect_code "$1" "$2"
    [ "$2" != 0 ] || expect_success "$1"
    [ -z "$3" ] || expect_failure "$1" "$3"
    shift 3
  done
}

# both_end SECONDS CODE [WORDS]...: algo-1 and algo-2 end alike, with each of WORDS in both failure files.
both_end() {
  local host
  case_ends "$1" algo-1 "$2" '' algo-2 "$2" ''
  [ $# -lt 3 ] || for host in algo-1 algo-2; do expect_failure $host "${@:3}"; done
}

# await_no_sleep HOST NUMBER: waits until no `sleep NUMBER...` runs there; each test has its own number.
await_no_sleep() {
  local begin_s=$SECONDS
  while host_run "$1" pgrep -f "^sleep $2" >/dev/null; do
    [ $((SECONDS - begin_s)) -le 60 ] || case_failed "sleep $2 is left on $1"
    sleep 0.05
  done
}

# Lets the programs of algo-1 and algo-2, which wait for the file `go`, succeed, and the case with them.
end_hosts() {
  touch "$cluster/algo-1/ml/go" "$cluster/algo-2/ml/go"
  both_end 30 0
}
