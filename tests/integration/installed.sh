#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What `meson install` leaves is enough for a program outside this tree, the one that docs/runtime.md shows: every public header, the library,
# pkg-config's flags. And `paceline help` names every subcommand.
set -euo pipefail
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
DESTDIR=$scratch/root meson install -C "$PACELINE_BUILD" --no-rebuild >"$scratch/log" 2>&1 || { cat "$scratch/log"; exit 1; }
sed -n '/^```c$/,/^```$/{/^```/d;p}' "$PACELINE_SOURCE/docs/runtime.md" >"$scratch/program.c"
pc=$(find "$scratch/root" -name paceline.pc)
export PKG_CONFIG_PATH=${pc%/*} PKG_CONFIG_SYSROOT_DIR=$scratch/root
cc -std=c11 -Wall -Werror "$scratch/program.c" -o "$scratch/program" $(pkg-config --cflags --libs paceline)
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 LD_LIBRARY_PATH=${pc%/pkgconfig/*}
export SM_MODEL_DIR=$scratch
found=$(timeout 60 mpirun --oversubscribe --bind-to none -n 2 "$scratch/program")
[ "$found" = "ranks=2 slope=2.000 offset=1.000" ] && [ -s "$scratch/model.safetensors" ] || { echo "the installed library gave: $found"; exit 1; }
echo "a program built against the installed library runs on two ranks"

# The same lines are C++ too; a library that were not declared as C would not link.
if command -v c++ >/dev/null; then
  for standard in c++11 c++20; do
    c++ -x c++ -std=$standard -Wall -Werror "$scratch/program.c" -o "$scratch/program_$standard" $(pkg-config --cflags --libs paceline)
    [ "$("$scratch/program_$standard")" = "ranks=1 slope=2.000 offset=1.000" ] || { echo "the program as $standard gave something else"; exit 1; }
  done
  echo "and so it does as C++"
else
  echo "there is no c++: C++ programs were not tried"
fi

library=$(realpath "$LD_LIBRARY_PATH/libpaceline.so")
foreign=$(nm -D --defined-only "$library" | awk '$3 !~ /^pl_/ { print $3 }')
[ -z "$foreign" ] || { echo "the library shows names that are not ours: $foreign"; exit 1; }
readelf -d "$library" | grep 'SONAME.*\[libpaceline\.so\.0\]' >/dev/null || { echo "the library's soname is not libpaceline.so.0"; exit 1; }
nm -D --defined-only "$library" | grep -w pl_sampler_init >/dev/null || { echo "the library lacks the data path"; exit 1; }
echo "the library shows its own names alone"

paceline=$(find "$scratch/root" -path '*/bin/paceline')
"$paceline" help >"$scratch/help"
for tool in "${paceline%/bin/paceline}"/libexec/paceline/paceline-*; do
  verb=${tool##*/paceline-}
  case $verb in keys | unpack) continue ;; esac # what train runs, and no user
  grep -q "^  paceline $verb " "$scratch/help" || { echo "paceline help lacks $verb"; exit 1; }
  usage=$("$paceline" "$verb" --help 2>&1)
  [[ $usage == "usage: paceline $verb"* ]] || { echo "paceline $verb --help shows no usage: $usage"; exit 1; }
done
[ "$("$paceline" plan --help)" = "$(cat "$scratch/help")" ] || { echo "paceline plan --help shows no help"; exit 1; }
echo "paceline help names each of them"
