#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A real S3 server for tests: Ceph's gateway over one monitor and one object store in memory, all on loopback.
#
#   s3_server.sh start DIR [tls]    start it in the new folder DIR; prints shell assignments, also kept in DIR/env
#   s3_server.sh stop DIR           end its processes and remove DIR
#
# Needs the packages radosgw ceph-mon ceph-osd ceph-common uuid-runtime (Debian 12: 16.2). If they are absent, `start` installs
# them as root with PACELINE_S3_SERVER=yes or CI=true (67 MB); otherwise it exits with 77.
set -euo pipefail
support=$(dirname "${BASH_SOURCE[0]}")/../support

verb=${1:?start or stop}
dir=${2:?a folder}

stop() {
  local name pid
  for name in gateway store monitor; do
    [ -s "$dir/$name.pid" ] || continue
    pid=$(cat "$dir/$name.pid")
    kill -KILL "$pid" 2>/dev/null || true # no data is needed any more, and an orderly end of the gateway takes seconds
    while kill -0 "$pid" 2>/dev/null; do sleep 0.05; done
  done
  if [ -s "$dir/sockets" ]; then rm -rf "$(cat "$dir/sockets")"; fi
  rm -rf "$dir"
}

background() { # NAME COMMAND...
  local name=$1
  shift
  setsid "$@" >"$dir/$name.out" 2>&1 </dev/null &
  echo $! >"$dir/$name.pid"
}

alive() { kill -0 "$(cat "$dir/$1.pid")" 2>/dev/null; }

fail() {
  echo "s3_server.sh: $1" >&2
  tail -n 5 "$dir"/*.out >&2 || true
  stop
  exit 1
}

configure() {
  local sockets front
  # Paths of Unix sockets have at most 107 bytes, so the sockets are not below DIR.
  sockets=$(mktemp -d /tmp/pls3.XXXX)
  echo "$sockets" >"$dir/sockets"
  if [ "$scheme" = https ]; then
    openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -keyout "$dir/key.pem" -out "$dir/cert.pem" \
      -addext 'subjectAltName=DNS:localhost,DNS:s3.localhost,DNS:*.s3.localhost,IP:127.0.0.1' 2>/dev/null
    front="beast ssl_endpoint=127.0.0.1:$port ssl_certificate=$dir/cert.pem ssl_private_key=$dir/key.pem"
  else
    front="beast endpoint=127.0.0.1:$port"
  fi
  cat >"$dir/ceph.conf" <<END
[global]
fsid = $fsid
mon initial members = a
mon host = v2:127.0.0.1:$monitor_port
ms bind msgr1 = false
public addr = 127.0.0.1
cluster addr = 127.0.0.1
# The cluster has no keys, so encryption is impossible too, which the gateway would request.
auth cluster required = none
auth service required = none
auth client required = none
ms mon client mode = crc
ms client mode = crc
ms service mode = crc
ms cluster mode = crc
# One copy of all data, and no wait between changes of the map: the start makes eight pools.
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 1
osd pool default pgp num = 1
osd pool default pg autoscale mode = off
osd crush chooseleaf type = 0
mon allow pool size one = true
mon max pg per osd = 1000
paxos propose interval = 0.02
paxos min wait = 0.01
mon data avail crit = 0
mon data avail warn = 1
run dir = $sockets
admin socket = $sockets/\$name.\$pid
log file = $dir/\$name.log
[mon]
mon data = $dir/mon
[osd]
osd data = $dir/osd
osd objectstore = memstore
memstore device bytes = 4294967296
osd memory target = 1073741824
[client.rgw]
rgw data = $dir/rgw
rgw frontends = $front
rgw thread pool size = 32
rgw dns name = s3.localhost
rgw enable apis = s3, admin
rgw gc obj min wait = 5
rgw gc processor period = 5
# One KMS key that the gateway keeps itself; without this setting it would not use the key over plain http.
rgw crypt require ssl = false
rgw crypt s3 kms backend = testing
rgw crypt s3 kms encryption keys = test-key=$(head -c 32 /dev/urandom | base64)
END
}

start_cluster() {
  local conf=$dir/ceph.conf osd_id
  mkdir "$dir/mon" "$dir/osd" "$dir/rgw"
  monmaptool --create --fsid "$fsid" --addv a "[v2:127.0.0.1:$monitor_port]" "$dir/monmap" >/dev/null
  ceph-mon -c "$conf" --mkfs -i a --monmap "$dir/monmap" >"$dir/mkfs.out" 2>&1
  background monitor ceph-mon -c "$conf" -i a -f
  osd_id=$(uuidgen)
  timeout 60 ceph -c "$conf" --connect-timeout 50 osd new "$osd_id" >/dev/null || fail "the monitor does not answer"
  # Without its id the monitor would refuse the store in silence.
  ceph-osd -c "$conf" -i 0 --mkfs --osd-uuid "$osd_id" >>"$dir/mkfs.out" 2>&1
  background store ceph-osd -c "$conf" -i 0 -f
}

wait_for_gateway() {
  local round
  for round in $(seq 600); do
    curl -sk -o /dev/null --noproxy '*' --max-time 2 "$scheme://127.0.0.1:$port/" && return
    alive gateway || fail "the gateway ended"
    sleep 0.1
  done
  fail "the gateway does not answer"
}

absent_tools() {
  local tool
  for tool in radosgw radosgw-admin ceph-mon ceph-osd ceph monmaptool uuidgen curl openssl python3; do
    command -v "$tool" >/dev/null || printf ' %s' "$tool"
  done
}

start() {
  local missing
  missing=$(absent_tools)
  if [ -n "$missing" ] && [ "$(id -u)" = 0 ] && { [ "${CI:-}" = true ] || [ "${PACELINE_S3_SERVER:-}" = yes ]; }; then
    "$support/packages.sh" install s3-server >&2 || true
    missing=$(absent_tools)
  fi
  if [ -n "$missing" ]; then
    echo "no real S3 server:$missing not installed; as root with PACELINE_S3_SERVER=yes the test installs the packages"
    exit 77
  fi
  [ ! -e "$dir" ] || { echo "s3_server.sh: '$dir' exists" >&2; exit 2; }
  mkdir -p "$dir"
  fsid=$(uuidgen)
  read -r port monitor_port < <(python3 -c 'import socket
sockets = [socket.socket() for _ in range(2)]
for s in sockets: s.bind(("127.0.0.1", 0))
print(*(s.getsockname()[1] for s in sockets))')
  configure
  start_cluster
  background gateway radosgw -c "$dir/ceph.conf" -n client.rgw -f
  wait_for_gateway
  # The key pair of AWS's documentation.
  radosgw-admin -c "$dir/ceph.conf" -n client.rgw user create --uid tester --display-name tester --max-buckets 0 \
    --access-key AKIAIOSFODNN7EXAMPLE --secret-key wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY >"$dir/user.out" 2>&1 || fail "no user could be made"
  {
    echo "export AWS_ENDPOINT_URL_S3=$scheme://127.0.0.1:$port"
    echo "export AWS_ACCESS_KEY_ID=AKIAIOSFODNN7EXAMPLE"
    echo "export AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
    echo "export AWS_REGION=us-east-1"
    [ "$scheme" = http ] || echo "export AWS_CA_BUNDLE=$dir/cert.pem"
  } >"$dir/env"
  cat "$dir/env"
}

scheme=http
[ "${3:-}" != tls ] || scheme=https
case $verb in
  start) start ;;
  stop) stop ;;
  *) sed -n '3,8s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
