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
installed openmpi-bin-dbg, mpi-runtime
installed openssh-server, ssh-server
installed other-ssh, other (= 1), openssh-client (= 10.0), rsh-client
config-files ca-certificates, 
installed xz-utils-t64, xz-utils (= 5.8.1-1)
installed patchelf, 
installed make-guile, make
installed patch, 
installed libbz2-dev, 
installed liblzma-dev, 
LIST
SH
chmod +x "$scratch/dpkg-query"
found=$(PATH=$scratch:$PATH "$packages" missing image prefix | tr '\n' ' ')
[ "$found" = "ca-certificates openmpi-bin zlib1g-dev " ] || { echo "missing: $found"; exit 1; }
! "$packages" missing nonsense 2>"$scratch/error" || { echo "an unknown role was taken"; exit 1; }
grep -q "unknown role 'nonsense'" "$scratch/error" || { cat "$scratch/error"; exit 1; }
echo "three are missing, three go by another name"
