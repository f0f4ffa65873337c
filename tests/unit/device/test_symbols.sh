#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Covers device/load_cuda.c.
# A library names CUDA's functions, which it loads, and links nothing of CUDA's.
#
#   test_symbols.sh LIBRARY
set -euo pipefail
linked=$({ nm "$1"; nm -D "$1"; readelf -d "$1" | grep NEEDED; } 2>/dev/null | grep -E ' (cu|cuda|nccl|nv)[A-Z][A-Za-z0-9_]+$|lib(cuda|cublas|cudnn|nv|nccl)' || true)
named=$(strings -a "$1" | grep -E '^cu[A-Z][A-Za-z]+(_v[0-9])?$' | sort -u || true)
[ -z "$linked" ] || { echo "$1 links: $linked"; exit 1; }
[ "$(grep -c . <<<"$named")" -gt 30 ] || { echo "$1 names only: $named"; exit 1; }
