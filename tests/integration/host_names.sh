#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Two hosts whose names resolve badly: a host's own name is missing, leads to a loopback address or elsewhere, or comes late.
set -euo pipefail
source "$PACELINE_SOURCE/tests/support/job.sh"
[ -x "$probe" ] || cluster_skip "built without MPI"
cluster_up 2

# Ranks meet at MASTER_ADDR, as those of torch do, and each looks its own host up.
cat >"$cluster/meet.py" <<'PY'
import os, socket, time

rank, deadline = int(os.environ["OMPI_COMM_WORLD_RANK"]), time.monotonic() + 60
six = socket.has_dualstack_ipv6() # as torch has it
server = socket.create_server(("", 29500), family=socket.AF_INET6 if six else socket.AF_INET, dualstack_ipv6=six) if rank == 0 else None
socket.getaddrinfo(socket.gethostname(), 29500)
while True:
    try:
        socket.create_connection((os.environ["MASTER_ADDR"], 29500), 5).sendall(b"1")
        break
    except ConnectionRefusedError:
        if time.monotonic() > deadline:
            raise
        time.sleep(0.01)
for _ in range(2 if server else 0):
    server.accept()[0].recv(1)
print(f"rank {rank} has met the other", flush=True)
PY

# start_named HOST HOSTS [HOST-NAME [OPTION]]: HOST, whose /etc/hosts has the text HOSTS, with two ranks a job; its kernel has HOST-NAME; OPTION of its file's mount.
start_named() {
  job_config "$1" "algo-1 algo-2" 1
  printf '127.0.0.1 localhost\n%b' "$2" >"$cluster/$1/hosts"
  host_start "$1" sh -c 'hostname "$1"; mount --bind "$2" /etc/hosts; [ -z "$3" ] || mount -o remount,bind,"$3" /etc/hosts; shift 3; exec "$@"' \
    sh "${3:-$1}" "$cluster/$1/hosts" "${4:-}" "$paceline" -- sh -c '"$1" && exec python3 "$2"' sh "$probe" "$cluster/meet.py"
}
# named_case NAME OWN [HOST-NAME]: each host's file has the other's line, and OWN with @ instead of its number.
named_case() {
  case_begin "$1"
  for number in 1 2; do
    start_named algo-$number "10.78.0.$((3 - number)) algo-$((3 - number))\n${2//@/$number}" "${3:-}"
  done
  wait_both 60
  for host in algo-1 algo-2; do
    expect_code $host 0
    expect_success $host
  done
  for rank in 0 1; do grep -q "rank $rank has met the other" "$cluster/algo-1.log" || case_failed "rank $rank met nobody"; done
  case_end algo-1 algo-2
}
own_line() { grep -c "^10.78.0.${1#algo-}	$1\$" "$cluster/$1/hosts" || true; }

named_case "its own name is missing" '# no line end'
for host in algo-1 algo-2; do
  [ "$(own_line $host)" = 1 ] || case_failed "$host has not told its programs its name"
  grep -q "the name of this host, $host, did not resolve (.*): /etc/hosts has now its address 10.78.0.${host#algo-}\$" "$cluster/$host.log" ||
    case_failed "$host does not say what it changed"
done
named_case "its own name is missing and its kernel has another" '' elsewhere
named_case "its own name is a loopback address" '127.0.1.1 algo-@\n'
[ "$(own_line algo-1)" = 0 ] || case_failed "a line was added for a name that resolves"
named_case "its own name has a foreign address too" '10.78.0.99 algo-@\n172.31.255.9 algo-@\n10.78.0.@ algo-@\n'
if ip -n "$cluster_tag-1" addr add fd00:78::1/64 dev eth0 nodad 2>/dev/null && ip -n "$cluster_tag-2" addr add fd00:78::2/64 dev eth0 nodad; then
  named_case "its own name is an IPv6 address alone" 'fd00:78::@ algo-@\n'
else
  echo "IPv6: left out, this machine has none"
fi

# A line of the log tells of the wait; then the names come.
case_begin "names that come late"
for number in 1 2; do start_named algo-$number ''; done
await_log algo-1 "waiting for the name of host algo-2 \(" 60
for number in 1 2; do echo "10.78.0.$((3 - number)) algo-$((3 - number))" >>"$cluster/algo-$number/hosts"; done
wait_both 60
for host in algo-1 algo-2; do expect_code $host 0; done
case_end algo-1 algo-2

# Only the program can find out what such an address is good for: it may be that of a proxy.
case_begin "its own name has a foreign address alone"
job_config algo-1 "algo-1 algo-2" 0
cluster_environment=(PACELINE_PEER_WAIT_S=1)
printf '10.78.0.99 algo-1\n10.78.0.2 algo-2\n' >"$cluster/algo-1/hosts"
host_start algo-1 sh -c 'mount --bind "$1" /etc/hosts; shift; exec "$@"' sh "$cluster/algo-1/hosts" "$paceline" -- true
wait_host algo-1 60
expect_code algo-1 0
grep -q "^paceline: warning: the name of this host, algo-1, leads to 10.78.0.99, which is none of its addresses: " "$cluster/algo-1.log" ||
  case_failed "no word of the foreign address"
case_end algo-1

case_begin "its own name is missing from a file that cannot be changed"
cluster_environment=(PACELINE_PEER_WAIT_S=5)
for number in 1 2; do start_named algo-$number "10.78.0.$((3 - number)) algo-$((3 - number))\n" '' ro; done
wait_both 60
for host in algo-1 algo-2; do
  expect_code $host bad
  expect_failure $host "host name 'algo-[12]' does not resolve: .*\. Its line belongs into /etc/hosts, .* \(it is this host's own name; cannot open '/etc/hosts': "
done
expect_nobody
case_end algo-1 algo-2

# The message is there at once; then this host tries to tell the other one.
case_begin "another host's name leads to this host"
start_named algo-1 '10.78.0.1 algo-1\n127.0.1.1 algo-2\n'
for _ in $(seq 1200); do [ ! -s "$cluster/algo-1/ml/output/failure" ] || break; sleep 0.05; done
expect_failure algo-1 "host name 'algo-2' leads to 127.0.1.1, which is this host's own address: correct /etc/hosts"
host_off algo-1
wait_host algo-1 60
case_end algo-1
echo "host names: all cases passed"
