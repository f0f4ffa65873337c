#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# EXEC: programs that one host's program starts on another host of the job, by process 1 there, and the requests of others that are refused.
set -euo pipefail
source "$PACELINE_SOURCE/tests/support/job.sh"
cluster_up 2

for host in algo-1 algo-2; do
  job_config $host "algo-1 algo-2" 0
  cluster_environment=(PACELINE_SILENCE_S=6 PACELINE_SSH_PORT=7788)
  host_start $host "$paceline" -- sh -c 'echo runs; until [ -e /opt/ml/go ]; do sleep 0.05; done'
done
await_log algo-2 '^runs$' 60
await_log algo-1 'all 2 hosts are linked' 60
client() { host_run algo-1 sh -c 'exec "$0" /run/paceline.* "$@"' "$PACELINE_BUILD/tests/integration/exec_client" "$@"; }

case_begin "input, output, error and exit code of a program on another host are the caller's"
found=$(echo word | client stdio algo-2 sh -c 'cat; hostname; echo "$1" >&2; exit 7' - "it's quoted" 2>&1) && status=0 || status=$?
[ "$status" = 7 ] || case_failed "exit code $status, not 7: $found"
for line in word algo-2 "it's quoted"; do grep -qx "$line" <<<"$found" || case_failed "no line '$line': $found"; done
found=$(client stdio algo-2 sh -c 'kill -TERM $$' 2>&1) && status=0 || status=$?
[ "$status" = 143 ] || case_failed "exit code $status, not 143: $found"
found=$(client stdio algo-2 no-such-program 2>&1) && status=0 || status=$?
[ "$status" = 127 ] && grep -q "no-such-program" <<<"$found" || case_failed "exit code $status, not 127: $found"
[ "$(head -c 100000000 /dev/zero | client stdio algo-2 cat | cksum)" = "$(head -c 100000000 /dev/zero | cksum)" ] || case_failed "100 MB come back with other bytes"
echo

case_begin "a program with a channel prints into its host's log"
answer=$(echo word | client channel algo-2 sh -c 'echo "to the log"; read line; echo "got $line" >&0')
[ "$answer" = "got word" ] || case_failed "the answer is '$answer', not 'got word'"
await_log algo-2 '^to the log$' 60
echo

case_begin "the end of the client ends the program, and one that nobody reads holds up nothing else"
client stdio algo-2 sh -c 'sleep 4721.1 & sleep 4721.2' &
until host_run algo-2 pgrep -f '^sleep 4721.2' >/dev/null; do sleep 0.05; done
host_run algo-1 pkill -KILL -f '^ssh .*sleep 4721'
await_no_sleep algo-2 4721
client stdio algo-2 sh -c 'yes & sleep 4722.1' | sleep 12 &
until host_run algo-2 pgrep -f '^sleep 4722.1' >/dev/null; do sleep 0.05; done
[ "$(client stdio algo-2 echo there)" = there ] || case_failed "a second program does not run"
wait $! || true # longer than the heartbeat timeout
await_no_sleep algo-2 4722
echo

case_begin "what is not a request is refused, and process 1 goes on"
socket=$(host_run algo-2 sh -c 'for name in /run/paceline.*/control /tmp/paceline.*/control; do if [ -S "$name" ]; then echo "$name"; break; fi; done')
[ -n "$socket" ] || case_failed "algo-2 has no socket in its run directory"
host_run algo-2 python3 - "$socket" <<'END' || case_failed "process 1 did not close what is not a request"
import array, os, socket, struct, sys

def frame(kind, *fields):
    payload = b"".join(field.encode() + b"\0" for field in fields)
    return b"PL" + bytes([VERSION, kind]) + struct.pack("<I", len(payload)) + payload

def ends(*parts, fds=()):
    link = socket.socket(socket.AF_UNIX)
    link.settimeout(60)
    link.connect(sys.argv[1])
    try:
        for part in parts[:-1]:
            link.sendall(part)
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        link.sendmsg([parts[-1]], ancillary)
        while link.recv(4096):
            pass
    except (BrokenPipeError, ConnectionResetError):
        pass
    return True

text = open(os.environ["PACELINE_SOURCE"] + "/entrypoint/ssh/link.h").read()
VERSION = int(text.split("PL_FRAME_VERSION = ")[1].split(",")[0])
names = [line.split("X(")[1].split(",")[0] for line in text.split("#define PL_FRAME_LIST(X)")[1].split("enum pl_frame_type")[0].splitlines() if " X(" in line]
hello, run = frame(names.index("HELLO"), "exec", ""), names.index("EXEC")
null = os.open("/dev/null", os.O_RDWR)
assert ends(hello, frame(run, "sh", "-c", "touch /opt/ml/never"))  # without descriptors
assert ends(hello, frame(run), fds=[null])  # without words
assert ends(hello, frame(names.index("SIGNAL"), "15"), fds=[null])
assert ends(hello, os.urandom(64), fds=[null] * 3)
assert ends(hello, b"PL" + bytes([VERSION, run]) + b"\xff\xff\xff\x7f")
assert ends(frame(names.index("HELLO"), "nobody", ""), frame(run, "true"))
END
[ ! -e "$cluster/algo-2/ml/never" ] || case_failed "a request without descriptors was carried out"
if host_run algo-2 setpriv --reuid 65534 --regid 65534 --clear-groups python3 -c "import socket, sys
socket.socket(socket.AF_UNIX).connect('$socket')" 2>/dev/null; then case_failed "another user reaches process 1"; fi
host_run algo-1 sh -c 'rm -rf /tmp/other && mkdir -p /tmp/other && ssh-keygen -q -t ed25519 -N "" -f /tmp/other/key'
if host_run algo-1 ssh -F none -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o IdentitiesOnly=yes -i /tmp/other/key \
  -p 7788 algo-2 "exec stdio 'touch' '/opt/ml/never'" 2>/dev/null; then case_failed "another key reaches process 1"; fi
[ ! -e "$cluster/algo-2/ml/never" ] || case_failed "another key's request was carried out"
end_hosts
