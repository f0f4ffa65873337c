#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Make a wheel for pip of what image.sh has built: docker build --target wheel --output . .
#
#   wheel.sh ROOT FOLDER    ROOT has opt/paceline; the wheel is written to FOLDER/paceline-VERSION-py3-none-manylinux_GLIBC_MACHINE.whl
#   wheel.sh FOLDER         build the tree around this file first, in its folder build-wheel, with what packages.sh installs for the roles build
#                           and prefix
set -euo pipefail
here=$(realpath "$(dirname "$0")")
case $# in
  1)
    build=$(realpath "$here/../..")/build-wheel # of one name, which may stand in the programs, so that two builds are equal
    mkdir -p "$build"
    rm -rf "$build/out"
    FOREIGN=$build/foreign BUILD=$build/tree OUT=$build/out "$here/image.sh" build -Dcuda=disabled >"$build/log" 2>&1 || { tail -n 40 "$build/log"; exit 1; }
    set -- "$build/out" "$1"
    ;;
  2) ;;
  *) sed -n '3,7s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
mkdir -p "$2"
python3 "$here/wheel.py" "$1/opt/paceline" "$2" "$("$1/opt/paceline/bin/paceline" --version | cut -d ' ' -f 2)"
