#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Covers device/load_cuda.c.
# What a program or library takes from CUDA: "none" not even a name in a text, "loaded" names of functions and nothing to link.
#
#   test_symbols.sh HOW FILE [HOW FILE]...
set -euo pipefail
failed=0
say() { echo "$1"; failed=1; }
while [ $# -gt 0 ]; do
  linked=$({ nm "$2"; nm -D "$2"; readelf -d "$2" | grep NEEDED; } 2>/dev/null | grep -E ' (cu|cuda|nccl|nv)[A-Z][A-Za-z0-9_]+$|lib(cuda|cublas|cudnn|nv|nccl)' || true)
  named=$(strings -a "$2" | grep -E '^cu[A-Z][A-Za-z]+(_v[0-9])?$|libcuda' | sort -u || true)
  [ -z "$linked" ] || say "$2 links: $linked"
  case $1 in
    none) [ -z "$named" ] || say "$2 names: $named" ;;
    loaded) [ "$(grep -c . <<<"$named")" -gt 30 ] || say "$2 names only: $named" ;;
    *) say "no such kind '$1'" ;;
  esac
  shift 2
done
exit $failed
