#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# How many TCP connections ranks on two hosts have: one, or as many as the job asks for by btl_tcp_links, whoever initialises MPI.
#
#   tcp_links.sh [STARTS]     each case so many times, 1 unless said otherwise
set -euo pipefail
source "$PACELINE_SOURCE/tests/support/job.sh"
probe=$PACELINE_BUILD/tests/integration/links_probe
[ -x "$probe" ] || cluster_skip "built without MPI"
command -v orted >/dev/null || cluster_skip "several connections are for Open MPI 4"
cluster_up 2

start() { # PER_HOST LINKS RANK...: these ranks initialise MPI themselves
  local per_host=$1 links=$2 host
  shift 2
  for host in algo-1 algo-2; do
    job_config $host "algo-1 algo-2" "$per_host"
    sed -i 's/^{/{"paceline_timeout_s": "'"$timeout_s"'", /' "$cluster/$host/ml/input/config/hyperparameters.json"
    [ "$links" = 0 ] || sed -i "s/--mca mpi_yield_when_idle 1/& --mca btl_tcp_links $links/" "$cluster/$host/ml/input/config/hyperparameters.json"
  done
  for host in algo-1 algo-2; do host_start $host "$paceline" -- "$probe" "$@"; done
  for host in algo-1 algo-2; do host_wait $host 60 || case_failed "no end"; done
}

counted() { # NAME PER_HOST LINKS CONNECTIONS RANK...
  local name=$1 per_host=$2 links=$3 connections=$4 host rank start
  shift 4
  for start in $(seq "$starts"); do
    case_begin "$name"
    start "$per_host" "$links" "$@"
    for host in algo-1 algo-2; do expect_code $host 0; done
    for rank in $(seq 0 $((2 * per_host - 1))); do
      grep -q "\[1,$rank\]<stdout>: *sum $((2 * per_host)), connections $connections\$" "$cluster/algo-1.log" || case_failed "rank $rank has another sum or number of connections"
    done
    expect_nobody
    case_end algo-1 algo-2
  done
}

refused() { # NAME TIMEOUT_S WORDS, words of the probe
  local name=$1 timeout_s=$2 words=$3 host start
  shift 3
  for start in $(seq "$starts"); do
    case_begin "$name"
    start 1 7 "$@"
    for host in algo-1 algo-2; do expect_code $host bad; done
    grep -q "btl_tcp_links is 7, but the program initialised MPI before Paceline" "$cluster/algo-1.log" || case_failed "no word of who initialised MPI"
    grep -q "$words" "$cluster/algo-1.log" || case_failed "the output lacks '$words'"
    expect_nobody
    case_end algo-1 algo-2
  done
}

starts=${1:-1} timeout_s=600
counted "one connection without the setting" 1 0 1
counted "one, though all have initialised MPI" 1 0 1 0 1
counted "one, though rank 0 alone has" 1 0 1 0
counted "seven where the job asks for them" 1 7 7
counted "two ranks a host with three" 2 3 6
refused "seven, and all have initialised MPI" 600 "Paceline to do that; start Paceline first" 0 1
refused "seven, and rank 1 alone has" 600 "(rank 1 on algo-2)" 1
refused "seven, and rank 0 alone has, and stays" 3 "rank 1 waited 3.0 s for its 7 connections" stay 0
