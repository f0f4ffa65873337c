#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Covers tests/support/packages.sh.
# What is missing: neither what is installed, nor what an installed package provides under another name; a package that was removed is.
set -euo pipefail
packages=$(realpath "$(dirname "$0")/../../support/packages.sh")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cat >"$scratch/dpkg-query" <<'SH'
#!/bin/sh
cat <<'LIST'
installed openmpi-bin, mpi-runtime
installed openssh-server, ssh-server
installed openssh-client, ssh-client, rsh-client
installed ca-certificates, 
installed libcurl4t64, libcurl4 (= 8.14.1-2)
installed libarchive13t64, other (= 1), libarchive13 (= 3.7.4-4)
config-files libexpat1, 
installed libzstd1-dbg, libzstd (= 1)
installed libcjson1, 
installed libopenblas0-pthread, libblas.so.3, liblapack.so.3
installed libssl3t64, libssl3 (= 3.5.7)
installed libdw1t64, libdw1 (= 0.192-4)
installed libpcre2-8-0, libpcre2-8-0t64 (= 10.46-1)
LIST
SH
chmod +x "$scratch/dpkg-query"
found=$(PATH=$scratch:$PATH "$packages" missing image | tr '\n' ' ')
[ "$found" = "libexpat1 libisal2 libzstd1 " ] || { echo "missing: $found"; exit 1; }
! "$packages" missing nonsense 2>"$scratch/error" || { echo "an unknown role was taken"; exit 1; }
grep -q "unknown role 'nonsense'" "$scratch/error" || { cat "$scratch/error"; exit 1; }
echo "three are missing, four go by another name"
