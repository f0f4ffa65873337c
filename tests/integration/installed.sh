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
readelf -d "$library" | grep 'SONAME.*\[libpaceline\.so\.0\]' >/dev/null || { echo "the library's soname is not libpaceline.so.0"; exit 1; }
include=$(find "$scratch/root" -type d -path '*/include/paceline')
(cd "$include" && find . -name '*.h' -printf '#include "%P"\n') >"$scratch/headers.c"
if cc -std=c11 -I"$include" -fsyntax-only -aux-info "$scratch/prototypes" "$scratch/headers.c" 2>"$scratch/log"; then # GCC's list of all prototypes
  sed -nE "s|^/\* $include/.* extern [^(]*\b([A-Za-z_][A-Za-z0-9_]*) \(.*|\1|p" "$scratch/prototypes" | sort -u >"$scratch/declared"
  nm -D --defined-only "$library" | awk '{ print $3 }' | sort -u >"$scratch/exported"
  hidden=$(comm -23 "$scratch/declared" "$scratch/exported") internal=$(comm -13 "$scratch/declared" "$scratch/exported")
  [ -s "$scratch/declared" ] && [ -z "$hidden" ] || { echo "the library lacks what its headers declare: $hidden"; exit 1; }
  [ -z "$internal" ] || { echo "the library shows what no installed header declares: $internal"; exit 1; }
  echo "the library shows the $(wc -l <"$scratch/declared") functions that its headers declare, and nothing else"
else
  cc --version | grep -q "Free Software Foundation" && { cat "$scratch/log"; exit 1; } # some header does not stand on its own
  echo "cc is not GCC: what the library shows was not compared with its headers"
fi

paceline=$(find "$scratch/root" -path '*/bin/paceline')
"$paceline" help >"$scratch/help"
for tool in "${paceline%/bin/paceline}"/libexec/paceline/paceline-*; do
  verb=${tool##*/paceline-}
  case $verb in keys | unpack) continue ;; esac # what train runs, and no user
  grep -q "^  paceline $verb " "$scratch/help" || { echo "paceline help lacks $verb"; exit 1; }
  usage=$("$paceline" "$verb" --help 2>&1)
  [[ $usage == "usage: paceline $verb"* ]] || { echo "paceline $verb --help shows no usage: $usage"; exit 1; }
done
echo "paceline help names each of them"
