#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The program `install` of an image: a job takes the first mpirun on PATH, so that one that is not Open MPI's is told as something that is missing, and the
# PATH that the message names is right. It runs in mounts of its own, on a prefix and an Open MPI that are stubs; bases.sh has images.
set -euo pipefail
if [ "${1:-}" != inside ]; then
  works=(unshare --mount)
  [ "$(id -u)" = 0 ] || works=(unshare --user --map-root-user --mount)
  "${works[@]}" true 2>/dev/null || { echo "SKIP: this machine allows no mounts of its own"; exit 77; }
  work=$(mktemp -d "${TMPDIR:-/tmp}/paceline-own-image-XXXXXX")
  trap 'rm -rf "$work"' EXIT
  "${works[@]}" "$0" inside "$work"
  exit
fi
work=$2
fail() { echo "FAILED: $*"; [ ! -e "$work/log" ] || cat "$work/log"; exit 1; }
for folder in /usr/local /opt /etc; do mount -t tmpfs tmpfs $folder; done
mkdir -p "$work"/prefix/{bin,libexec/paceline,share/paceline,lib/pkgconfig} "$work"/{tools,other,second/bin,second/lib} /opt/openmpi/{bin,lib} /usr/local/bin
for tool in sh dirname readlink sed cat getconf sort head tail grep mkdir ln rm; do ln -s "$(command -v $tool)" "$work/tools/$tool"; done
# fake_program FILE WORDS: a program that prints the words.
fake_program() { printf '#!/bin/sh\necho "%s"\n' "$2" >"$1"; chmod +x "$1"; }
fake_program "$work/tools/ldconfig" ""
fake_program "$work/prefix/bin/paceline" "paceline 0.0.0"
fake_program "$work/other/mpirun" "HYDRA build details: Version: 4.1"
for folder in /opt/openmpi "$work/second"; do
  fake_program $folder/bin/mpirun "mpirun (Open MPI) 4.1.4"
  touch $folder/lib/libmpi.so.40
done
cp "$PACELINE_SOURCE/entrypoint/install.sh" "$work/prefix/install"
echo 2.17 >"$work/prefix/share/paceline/glibc"
touch "$work/prefix/share/paceline/bash-env.sh" "$work/prefix/lib/pkgconfig/paceline.pc"
# installs PATH WORD...: its exit code is $code, what it prints is in the file log.
installs() { code=0; PATH=$1 "$work/prefix/install" --no-ssh "${@:2}" >"$work/log" 2>&1 || code=$?; }
# told FIRST FOLDER: the message names the first mpirun, and the folder that is to precede it.
told() { grep -qxF "install: $1 is first on PATH and is not Open MPI's: put $2 before it in PATH (ENV PATH=$2:\$PATH), or call this with --no-mpi" "$work/log"; }

echo "another mpirun is first"
installs "$work/other:$work/tools"
[ $code = 1 ] && told "$work/other/mpirun" /opt/openmpi/bin && [ ! -e /usr/local/bin/mpirun ] || fail "Open MPI in /opt: code $code"
installs "$work/other:$work/tools" --no-mpi
[ $code = 0 ] && ! grep -q 'first on PATH' "$work/log" || fail "--no-mpi: code $code"
installs "$work/other:$work/second/bin:$work/tools"
[ $code = 1 ] && told "$work/other/mpirun" "$work/second/bin" || fail "Open MPI later on PATH: code $code"

echo "Open MPI's is first"
installs "/opt/openmpi/bin:$work/other:$work/tools" # as the message has it
[ $code = 0 ] && grep -qF "Open MPI: Open MPI 4.1.4 (/opt/openmpi/bin/mpirun)" "$work/log" && [ ! -e /usr/local/bin/mpirun ] || fail "the PATH of the message: code $code"

echo "none is on PATH"
installs "$work/tools"
[ $code = 0 ] && [ "$(readlink /usr/local/bin/mpirun)" = /opt/openmpi/bin/mpirun ] || fail "a link to that of /opt: code $code"
installs "/usr/local/bin:$work/other:$work/tools" # once more: the link is first
[ $code = 0 ] || fail "the link is first: code $code"

echo "no Open MPI is there"
rm -r /opt/openmpi
installs "$work/other:$work/tools"
[ $code = 1 ] && grep -qF "$work/other/mpirun is not Open MPI's, which MPI jobs need: install openmpi-bin" "$work/log" || fail "another mpirun alone: code $code"
installs "$work/tools"
[ $code = 1 ] && grep -q "no Open MPI in PATH, " "$work/log" || fail "no mpirun: code $code"
