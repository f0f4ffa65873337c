#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The list of Debian packages that Paceline needs, by purpose.
#
#   packages.sh list ROLE...       print the packages of the roles, one per line
#   packages.sh missing ROLE...    print those that are not installed
#   packages.sh install ROLE...    install the missing ones; calls apt only then, as root or through sudo
#
# Roles: build (compile), test (tests/run.sh), format (the checks of the code's layout and of shell scripts, left out without it),
# python and torch (tests of Python programs, which skip without them), peers (libraries that tests/bench/peers.py measures
# next to ours), image (what the final container image carries), examples (what the programs in examples/ need there), cuda
# (nvcc's host compiler), prefix (what makes the image's /opt/paceline relocatable, and the libraries that it carries), containers and s3-server (an engine and a real server, for tests that print that they need them).
# Run on Debian 12, and on Debian 13, which has no clang-format 14 and where some names are provided by other packages,
# and with roles build, test, image and cuda on Ubuntu 22.04 and 24.04. 24.04 has no python3-torch.
set -euo pipefail

packages_of() {
  case $1 in
    build) echo "gcc g++ libc6-dev meson ninja-build pkgconf libopenmpi-dev openmpi-bin libcurl4-openssl-dev \
      libarchive-dev libcjson-dev libexpat1-dev libzstd-dev libisal-dev libopenblas-dev libssl-dev libdw-dev libpcre2-dev \
      python3-dev" ;;
    test) echo "check spin python3 git openssh-server openssh-client iproute2 nftables procps util-linux openssl curl libfaketime" ;;
    format) echo "clang-format-14 shellcheck" ;;
    python) echo "python3-numpy python3-mpi4py" ;;
    torch) echo "python3-torch" ;;
    peers) echo "mpich libmpich-dev python3-torch" ;;
    image) echo "openmpi-bin openssh-server openssh-client ca-certificates" ;;
    examples) echo "libopenblas0-pthread" ;;
    cuda) echo "g++" ;;
    prefix) echo "patchelf make patch xz-utils libbz2-dev liblzma-dev zlib1g-dev" ;;
    containers) echo "podman buildah runc debootstrap netavark aardvark-dns iptables nftables iproute2" ;;
    s3-server) echo "radosgw ceph-mon ceph-osd ceph-common uuid-runtime openssl curl python3" ;;
    *) echo "packages.sh: unknown role '$1': build, test, format, python, torch, peers, image, examples, cuda, prefix, containers or s3-server" >&2; return 2 ;;
  esac
}

list() {
  local role words
  for role in "$@"; do
    words=$(packages_of "$role") || return
    printf '%s\n' $words
  done | sort -u
}

missing() {
  local wanted installed
  wanted=$(list "$@") || return
  # "installed NAME, PROVIDED (= VERSION), ..." to one name per line
  installed=$(dpkg-query -W -f '${db:Status-Status} ${Package}, ${Provides}\n' | sed -E -n 's/^installed //; T; s/ \([^)]*\)//g; s/, */\n/g; p')
  grep -vxF -f <(printf '%s\n' "$installed" | grep .) <<<"$wanted" || true
}

install() {
  local wanted sudo=()
  if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    echo "packages.sh: this is not Debian or Ubuntu; install what these packages hold: $(list "$@" | tr '\n' ' ')" >&2
    return 0 # the build reports missing libraries
  fi
  wanted=$(missing "$@") || return
  [ -n "$wanted" ] || return 0
  if [ "$(id -u)" != 0 ]; then
    if ! command -v sudo >/dev/null; then
      echo "packages.sh: run this as root, or install first: apt-get install $(echo "$wanted" | tr '\n' ' ')" >&2
      return 1
    fi
    sudo=(sudo)
  fi
  echo "packages.sh: installing $(echo "$wanted" | tr '\n' ' ')"
  "${sudo[@]}" apt-get update -qq </dev/null
  "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $wanted </dev/null >/dev/null
}

verb=${1:-help}
shift || true
case $verb in
  list | missing) "$verb" "$@" ;;
  install) exec flock --close "${TMPDIR:-/tmp}/paceline-packages-$(id -u).lock" "$0" install-now "$@" ;; # apt does not wait for a running apt
  install-now) install "$@" ;;
  *) sed -n '3,12s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
