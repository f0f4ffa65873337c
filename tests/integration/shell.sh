#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# `paceline shell`: commands and shells on another host of a job that runs, with and without a terminal, for jobs with MPI and for programs of each host.
set -euo pipefail
source "$PACELINE_SOURCE/tests/support/cluster.sh"
source "$PACELINE_SOURCE/tests/support/job.sh"
trap cluster_down EXIT
trap 'exit 143' TERM INT
cluster_up 2

program='mkdir -p /opt/ml/code; env | grep ^SM_ | sort >/opt/ml/program; echo runs; until [ -e /opt/ml/go ]; do sleep 0.05; done'
start_both() { # start_both PROCESSES
  local host
  cluster_environment+=(SHELL=/bin/sh) # its prompt is known
  for host in algo-1 algo-2; do
    job_config $host "algo-1 algo-2" "$1"
    host_start $host "$paceline" -- sh -c "$program"
  done
  # mpirun prints the lines of all hosts on the master.
  if [ "$1" = 0 ]; then await_log algo-2 '^runs$' 60; await_log algo-1 'all 2 hosts are linked' 60; else await_log algo-1 '^\[1,1\]<stdout>:runs' 60; fi
  until [ -s "$cluster/algo-1/ml/program" ] && [ -s "$cluster/algo-2/ml/program" ]; do sleep 0.05; done
}
shell() { host_run algo-1 "$paceline" shell "$@"; }
# expect_shell CODE OUTPUT WORDS...: checks the output of `paceline shell WORDS...`, with stderr, and its exit code.
expect_shell() {
  local expected=$1 output=$2 found status=0
  shift 2
  found=$(shell "$@" 2>&1 </dev/null) || status=$?
  [ "$status" = "$expected" ] || case_failed "shell $*: exit code $status, not $expected: $found"
  [ "$found" = "$output" ] || case_failed "shell $*: printed '$found', not '$output'"
}
# on_terminal CODE STEPS... -- WORDS...: the same on a terminal of 33 rows and 101 columns; leaves what it showed in $shown.
on_terminal() {
  local expected=$1 status=0 steps=()
  shift
  while [ "$1" != -- ]; do steps+=("$1"); shift; done
  shift
  shown=$(host_run algo-1 python3 "$PACELINE_SOURCE/tests/support/terminal.py" 33 101 xterm-mono "${steps[@]}" -- "$paceline" shell "$@" 2>&1) || status=$?
  [ "$status" = "$expected" ] || case_failed "shell $* on a terminal: exit code $status, not $expected: $shown"
}

for processes in 1 0; do
  case_begin "commands without a terminal, $([ $processes = 0 ] && echo each host its own program || echo MPI)"
  cluster_environment=("OF_THE_CONTAINER=a b")
  start_both $processes
  expect_shell 7 "algo-2 algo-2 /opt/ml/code a b" algo-2 sh -c 'echo $(hostname) $SM_CURRENT_HOST $(pwd) $OF_THE_CONTAINER; exit 7'
  expect_shell 0 "<it's> <> <\$HOME \"x\"> <two
lines>" algo-2 printf '<%s> <%s> <%s> <%s>\n' "it's" '' '$HOME "x"' 'two
lines'
  expect_shell 1 "not a tty" algo-2 tty
  expect_shell 143 "" algo-2 sh -c 'kill -TERM $$'
  cmp <(shell algo-2 sh -c 'env | grep ^SM_ | sort' </dev/null) "$cluster/algo-2/ml/program" || case_failed "the program's variables differ"
  [ "$(head -c 4000000 /dev/zero | shell algo-2 wc -c)" = 4000000 ] || case_failed "input got lost"
  [ "$(echo 'echo $((6 * 7)); exit 3' | shell algo-2 || echo "code $?")" = $'42\ncode 3' ] || case_failed "a shell without a terminal"
  if [ -e "$PACELINE_BUILD/libexec/paceline/paceline-stacks" ]; then
    shell algo-2 sh -c 'echo open >/opt/ml/open; exec sleep 5051' </dev/null &
    until [ -s "$cluster/algo-2/ml/open" ]; do sleep 0.05; done
    [ "$(host_run algo-2 "$paceline" stacks | grep -c 'sleep 5051')" = 0 ] || case_failed "the shell counts as a program"
    host_run algo-1 pkill -TERM -x paceline-shell
    wait %% && case_failed "SIGTERM to paceline shell: exit code 0" || [ $? = 143 ] || case_failed "SIGTERM to paceline shell: exit code $?"
    await_no_sleep algo-2 5051
  fi
  end_hosts
done

case_begin "a shell on a terminal"
start_both 1
echo by tail >"$cluster/algo-2/ml/read" # a shell that becomes a program may lose the signal in that moment, tail runs when it prints
on_terminal 5 'wait # ' 'send echo $(stty size) $TERM $(tty | cut -c 1-9) $SM_CURRENT_HOST\r' 'wait 33 101 xterm-mono /dev/pts/ algo-2' \
  'wait # ' 'send seq 1 20000\r' 'wait \r\n20000\r\n# ' 'send tail -f /opt/ml/read\r' 'wait by tail\r\n' 'send \x03' 'wait # ' \
  'send echo code $?\r' 'wait code 130\r\n# ' 'send exit 5\r' -- algo-2
on_terminal 6 'wait on a terminal' -- algo-2 sh -c 'test -t 0 && test -t 1 && test -t 2 && echo on a terminal; exit 6'
# A program that runs sees that the terminal has another size; Ctrl-Z does not stop one that nobody could continue.
on_terminal 0 'wait begins' 'resize 44 122' 'wait changed to 44 122' -- algo-2 \
  python3 -c 'import os, signal as s; s.pthread_sigmask(s.SIG_BLOCK, {s.SIGWINCH}); print("begins"); s.sigwait({s.SIGWINCH}); print("changed to", *os.get_terminal_size()[::-1])'
on_terminal 130 'wait begins' 'send \x1a' 'send \x03' -- algo-2 sh -c 'echo begins; exec sleep 5052'
# The terminal's end is the shell's, and the client leaves its own as it was.
on_terminal 143 'wait # ' 'send echo sle""eps; exec sleep 5053\r' 'wait sleeps\r\n' 'signal TERM' -- algo-2
await_no_sleep algo-2 5053
on_terminal 255 'wait # ' 'send (trap "" HUP; exec sleep 5054) &\r' 'wait # ' 'send kill -9 $(ps -o ppid= $PPID)\r' -- algo-2
grep -q 'paceline shell: error: there is no connection to algo-2' <<<"$shown" || case_failed "a connection that ends: $shown"
begin_s=$SECONDS
until host_run algo-2 pgrep -f '^sleep 5054' >/dev/null; do
  [ $((SECONDS - begin_s)) -le 60 ] || case_failed "what ignores SIGHUP does not run on"
  sleep 0.05
done
end_hosts # and no process is left, not even that one

case_begin "what it refuses"
start_both 0
refused() { # refused HOST WORDS HOST: on the first, a shell on the second
  local found status=0
  found=$(host_run "$1" "$paceline" shell $3 true 2>&1 </dev/null) || status=$?
  [ "$status $found" = "255 paceline shell: error: $2" ] || case_failed "shell $3 on $1: $status $found"
}
refused algo-1 "'algo-3' is not a host of this job: expected one of algo-2" algo-3
refused algo-1 "'algo-1' is this host: expected one of algo-2" algo-1
refused algo-2 "this host, algo-2, cannot reach the others: expected the job's master, algo-1" algo-1
found=$(host_run algo-2 sh -c 'SSH_ORIGINAL_COMMAND="shell ls" "$1" relay /run/paceline.* 2>&1 </dev/null; echo $?' sh "$paceline")
[ "$found" = "paceline shell: error: request for a shell: expected one of \`paceline shell\`'s own
255" ] || case_failed "a request of another form: $found"
found=$(host_run algo-2 sh -c 'SSH_TTY=/dev/pts/0 SSH_ORIGINAL_COMMAND="exec stdio true" "$1" relay /run/paceline.* 2>&1 </dev/null; echo $?' sh "$paceline")
[ "$found" = "paceline: error: paceline relay: only a shell may have a terminal
1" ] || case_failed "a program with a terminal: $found"
end_hosts
for processes in 1 0; do
  [ $processes = 1 ] || cluster_environment=(PACELINE_LINK=0)
  hosts="algo-1"; [ $processes = 1 ] || hosts="algo-1 algo-2"
  job_config algo-1 "$hosts" $processes
  host_start algo-1 "$paceline" -- sh -c "$program"
  await_log algo-1 'runs$' 60
  if [ $processes = 1 ]; then
    refused algo-1 "the job on this host has no link to other hosts: expected a started job on several hosts, without PACELINE_LINK=0" algo-2
  else
    refused algo-1 "no job with ranks or with a link between its hosts runs here: run this in the container of such a job" algo-2
  fi
  touch "$cluster/algo-1/ml/go"
  host_wait algo-1 30 || case_failed "no end"
  expect_code algo-1 0
done
expect_nobody
case_end algo-1

# The end of the job does not wait for shells, and ends them.
for processes in 1 0; do
  case_begin "the job ends while shells are open, $([ $processes = 0 ] && echo each host its own program || echo MPI)"
  start_both $processes
  shell algo-2 sh -c 'trap "" HUP TERM; echo open >/opt/ml/open; exec sleep 5055' </dev/null >/dev/null 2>&1 &
  host_run algo-1 python3 "$PACELINE_SOURCE/tests/support/terminal.py" 24 80 xterm 'wait # ' 'send trap "" HUP TERM; echo open >/opt/ml/too; sleep 5055\r' \
    -- "$paceline" shell algo-2 >/dev/null 2>&1 &
  until [ -s "$cluster/algo-2/ml/open" ] && [ -s "$cluster/algo-2/ml/too" ]; do sleep 0.05; done
  case_mark
  end_hosts
  wait
done
echo "a shell on another host: its output, its codes, its terminal and its end"
