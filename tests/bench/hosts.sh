#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Times allreduce between hosts in network namespaces, compared with Open MPI's own: one JSON object per line.
#
#   tests/bench/hosts.sh [BUILD_DIR [CASE...]]      needs root; all cases take about a quarter of an hour
#
#   two, four       2 and 4 hosts, links of 1 Gbit/s, 1 and 2 ranks per host: small messages and 64 MiB
#   four_slow       4 hosts, links of 200 Mbit/s, 64 MiB
#   one_slow        4 hosts of which one has a link of 100 Mbit/s, 64 MiB
#   far             2 hosts, 1 Gbit/s, round trips of 10 and 40 ms (tests/fakes/delay_link.c)
#   flows           2 hosts, 1 Gbit/s, each TCP connection held to 250 Mbit/s (tests/fakes/slow_flows.c), then not; 16 MiB
#
# `peer` is default (Open MPI without settings) or best (64 MiB: its ring, whole; small: its fastest of whole and in pieces). `goodput_mbs` is the rate of one TCP
# stream from one host to the next over the same links in the same run, on the slowest link if they differ;
# `share` is 2(H-1)/H * bytes / goodput / time, and `peer_share` the same for the peer. For `one_slow`, 1/share is the time as a multiple of the slowest link's bound.
set -euo pipefail
here=$(dirname "$(realpath "$0")")
build=$(realpath "${1:-build}")
cases=("${@:2}")
[ ${#cases[@]} -gt 0 ] || cases=(two four four_slow one_slow far flows)
bench=$build/libexec/paceline/paceline-bench
delay_link=$build/tests/bench/delay_link
slow_flows=$build/tests/bench/libslow_flows.so
source "$here/../support/cluster.sh"

goodput() { # FROM TO ADDRESS_OF_TO: prints the bytes per second of one TCP stream
    host_run "$2" "$here/../support/goodput.py" serve &
    sleep 0.5
    host_run "$1" "$here/../support/goodput.py" "$3"
    wait $!
}

measure() { # CASE RANKS GOODPUT PEER, words of mpirun, --, options of paceline-bench
    local case=$1 ranks=$2 bytes_per_s=$3 peer=$4 mpi=()
    shift 4
    while [ "$1" != -- ]; do mpi+=("$1"); shift; done
    shift
    cluster_mpirun "$ranks" ${mpi[@]+"${mpi[@]}"} timeout 400 "$bench" allreduce --json "$@" 2>"$cluster/errors" | python3 -c '
import json, sys
case, peer, goodput = sys.argv[1], sys.argv[2], float(sys.argv[3])
for line in sys.stdin:
    result = {"case": case, **json.loads(line)}
    hosts = result["hosts"]
    least_s = 2 * (hosts - 1) / hosts * result["bytes"] / goodput
    if "ratio" in result:
        result["peer"] = peer
    if result["bytes"] >= 1 << 20:
        result["goodput_mbs"] = round(goodput / 1e6, 1)
        result["share"] = round(least_s / (result["time_us"] / 1e6), 3)
        if "ratio" in result:
            result["peer_share"] = round(least_s / (result["peer_time_us"] / 1e6), 3)
    print(json.dumps(result), flush=True)' "$case" "$peer" "$bytes_per_s" || { cat "$cluster/errors"; exit 1; }
}

small=(--min-bytes 64 --max-bytes 256KiB --factor 64 --pairs 7)
large=(--min-bytes 64MiB --max-bytes 64MiB --pairs 3 --loop-ms 1)
ring=(--mca coll_tuned_use_dynamic_rules 1 --mca coll_tuned_allreduce_algorithm 4)

up() { # HOSTS RATE
    cluster_up "$1"
    for host in "${cluster_hosts[@]}"; do host_rate "$host" "$2"; done
    hosts_listen
}

# Measures both peers on 64 MiB, for 1 and 2 ranks per host; small messages too if asked for.
compare() { # CASE GOODPUT [small]
    local per_host
    for per_host in 1 2; do
        if [ "${3:-}" = small ]; then
            measure "$1" $per_host "$2" default -- --peer mpi "${small[@]}"
            measure "$1" $per_host "$2" best -- --peer mpi-best "${small[@]}"
        fi
        measure "$1" $per_host "$2" default -- --peer mpi "${large[@]}"
        measure "$1" $per_host "$2" best "${ring[@]}" -- --peer mpi "${large[@]}"
    done
}

case_two() {
    up 2 1gbit
    compare two "$(goodput algo-2 algo-1 10.78.0.1)" small
}

case_four() {
    up 4 1gbit
    compare four "$(goodput algo-2 algo-1 10.78.0.1)" small
}

case_four_slow() {
    up 4 200mbit
    compare four_slow "$(goodput algo-2 algo-1 10.78.0.1)"
}

case_one_slow() {
    local bytes_per_s per_host
    up 4 1gbit
    host_rate algo-4 100mbit
    bytes_per_s=$(goodput algo-4 algo-1 10.78.0.1)
    for per_host in 1 2; do measure one_slow $per_host "$bytes_per_s" none -- "${large[@]}"; done
}

# One named interface, as in a job of `paceline train`; seven connections, and Open MPI's one. `goodput_mbs` is the rate
# of one stream without a limit.
case_flows() {
    local bytes_per_s per_host mbit links name
    up 2 1gbit
    bytes_per_s=$(goodput algo-2 algo-1 10.78.0.1)
    for mbit in 250 0; do
        for per_host in 1 2; do
            for links in 7 1; do
                name=flows_$([ $mbit = 0 ] && echo free || echo ${mbit}mbit)_$links
                measure "$name" $per_host "$bytes_per_s" none --mca btl_tcp_if_include eth0 --mca btl_tcp_links $links -x LD_PRELOAD="$slow_flows" -x PACELINE_FLOW_MBIT=$mbit \
                    -- --alone --min-bytes 16MiB --max-bytes 16MiB --pairs 3 --loop-ms 1
            done
        done
    done
}

# A second network, 10.79.0.0/24, whose packets go through delay_link; everything between ranks uses it.
case_far() {
    local number delay bytes_per_s links=() far=(--mca btl_tcp_if_include far0)
    [ -c /dev/net/tun ] || { echo "far is left out: the kernel has no TUN devices" >&2; return; }
    up 2 1gbit
    for number in 1 2; do # long packets, as in clouds, so that the forwarders use little of the CPUs
        ip -n "$cluster_tag-sw" link set "p$number" mtu 9000
        ip -n "$cluster_tag-$number" link set eth0 mtu 9000
        ip -n "$cluster_tag-$number" tuntap add dev far0 mode tun
        ip -n "$cluster_tag-$number" addr add "10.79.0.$number/24" dev far0
        ip -n "$cluster_tag-$number" link set far0 mtu 8972 txqueuelen 10000 up
    done
    for delay in 5 20; do
        links=()
        for number in 1 2; do
            ip netns exec "$cluster_tag-$number" "$delay_link" far0 $delay "10.79.0.$number=10.78.0.$number" "10.79.0.$((3 - number))=10.78.0.$((3 - number))" &
            links+=($!)
        done
        bytes_per_s=$(goodput algo-2 algo-1 10.79.0.1)
        for per_host in 1 2; do
            measure "far_$((2 * delay))ms" $per_host "$bytes_per_s" default "${far[@]}" -- --peer mpi --min-bytes 64 --max-bytes 64 --loop-ms 400
            measure "far_$((2 * delay))ms" $per_host "$bytes_per_s" default "${far[@]}" -- --peer mpi "${large[@]}"
        done
        kill "${links[@]}" # both still live
        wait "${links[@]}" 2>/dev/null || true
    done
}

for name in "${cases[@]}"; do
    declare -F "case_$name" >/dev/null || { echo "hosts.sh: no case '$name'" >&2; exit 2; }
    [ -x "$bench" ] || { echo "hosts.sh: no $bench" >&2; exit 2; }
    "case_$name"
    cluster_down
done
