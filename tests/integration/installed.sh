#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The files that `meson install` installs are enough for programs outside this tree: every public header, the library, pkg-config's flags, also for C++. And
# `paceline help` names every subcommand.
set -euo pipefail
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
DESTDIR=$scratch/root meson install -C "$PACELINE_BUILD" --no-rebuild >"$scratch/log" 2>&1 || { cat "$scratch/log"; exit 1; }
pc=$(find "$scratch/root" -name paceline.pc)
export PKG_CONFIG_PATH=${pc%/*} PKG_CONFIG_SYSROOT_DIR=$scratch/root LD_LIBRARY_PATH=${pc%/pkgconfig/*} SM_MODEL_DIR=$scratch

# The numbered examples, which examples.py runs as C, are C++ too; a library that were not declared as C would not link.
if command -v c++ >/dev/null; then
  for standard in c++11 c++20; do
    for source in "$PACELINE_SOURCE"/examples/[0-9]*.c; do
      c++ -x c++ -std=$standard -Wall -Werror "$source" -o "$scratch/$(basename "$source" .c)_$standard" $(pkg-config --cflags --libs paceline)
    done
    last=$("$scratch/03_train_$standard" | tail -n 1)
    [[ $last == "step=1000 loss=0.0"* ]] && [ -s "$scratch/model.safetensors" ] || { echo "03_train as $standard gave: $last"; exit 1; }
    rm "$scratch/model.safetensors"
  done
  echo "the numbered examples are C++ as well"
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
  cc --version | grep "Free Software Foundation" >/dev/null && { cat "$scratch/log"; exit 1; } # a header needs another one before it
  echo "cc is not GCC: what the library shows was not compared with its headers"
fi

paceline=$(find "$scratch/root" -path '*/bin/paceline')
cc "$PACELINE_SOURCE/examples/03_train.c" -o "$scratch/03_train" -lm $("$paceline" info --cflags) $("$paceline" info --libs)
last=$(env -u LD_LIBRARY_PATH "$scratch/03_train" | tail -n 1)
[[ $last == "step=1000 loss=0.0"* ]] || { echo "03_train with the flags of paceline info gave: $last"; exit 1; }
echo "paceline info has the flags of compiler and linker"
"$paceline" help >"$scratch/help"
for tool in "${paceline%/bin/paceline}"/libexec/paceline/paceline-*; do
  verb=${tool##*/paceline-}
  case $verb in keys | split | unpack | world) continue ;; esac # train runs them; users do not
  grep -q "^  paceline $verb " "$scratch/help" || { echo "paceline help lacks $verb"; exit 1; }
  usage=$("$paceline" "$verb" --help 2>&1)
  [[ $usage == "usage: paceline $verb"* ]] || { echo "paceline $verb --help shows no usage: $usage"; exit 1; }
done
echo "paceline help names each of them"
