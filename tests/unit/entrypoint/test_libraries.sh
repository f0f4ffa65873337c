#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Covers entrypoint/main.c.
# The front binary is on every container's way to the first instruction: it links libc and nothing else, be it cJSON, MPI or curl.
#
#   test_libraries.sh BINARY
set -euo pipefail
needed=$(readelf -d "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\].*/\1/p' | sort | tr '\n' ' ')
[ "$needed" = "libc.so.6 " ] || { echo "$1 needs $needed"; exit 1; }
echo "needs ${needed% }"
