#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What README.md, and docs/local.md about two containers, tell people to type works, word for word: its blocks of shell run one after the other in an empty folder, and its Dockerfiles build.
# A comment in the line above a block says where this test runs it:
#
#   <!-- not run: REASON -->     nowhere
#   <!-- run: full -->           with the word `full`, as tests/run.sh --full gives it
#   (none)                       always
#
# `docker` is a program of this test here, which gives the engine's image, containers and networks names of this test's own, and builds from the source
# folder. examples/quickstart.sh runs in a bare container.
#
#   readme.sh [full]
set -euo pipefail
suite=${1:-main}
source "$PACELINE_SOURCE/tests/support/containers.sh"
work=$(mktemp -d "${TMPDIR:-/tmp}/paceline-readme-XXXXXX")
run_id=plreadme$$
engine=none
cleanup() {
  if [ "$engine" != none ]; then
    for name in algo-1 algo-2 bare; do "$engine" rm -f "$run_id-$name" >/dev/null 2>&1 || true; done
    "$engine" network rm -f "$run_id-job-net" >/dev/null 2>&1 || true
    "$engine" rmi -f "$run_id" "$run_id-image" >/dev/null 2>&1 || true
  fi
  rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 143' TERM INT
fail() { echo "FAILED: $*"; exit 1; }
step() { echo "[$SECONDS s] $*"; }

# Every block in a file of its own, NN.LANGUAGE.WHERE, with the number of its first line in README.md; WHERE is never, main or full.
mkdir "$work/blocks" "$work/here" "$work/bin"
awk -v to="$work/blocks" '
  /^```/ && !inside { inside = 1; language = substr($0, 4); file = sprintf("%s/%03d.%s.%s", to, NR, language, where); printf "" >file; next }
  /^```/ { inside = 0; close(file); next }
  inside { print >file; next }
  { where = "main" }
  /^<!-- not run: .+ -->$/ { where = "never" }
  /^<!-- run: full -->$/ { where = "full" }
  /^<!-- / && where == "main" { print "README.md:" NR ": expected <!-- not run: REASON --> or <!-- run: full -->"; bad = 1 }
  /^    [a-zA-Z]/ { print "README.md:" NR ": a block without a fence: no test sees it"; bad = 1 }
  END { exit bad }' "$PACELINE_SOURCE/README.md" || fail "README.md has blocks that this test cannot read"
# The two containers of docs/local.md go on from README's job.
awk -v to="$work/blocks" '/^```sh$/ { file = sprintf("%s/9%03d.sh.main", to, NR); next } /^```/ { file = "" } file { print >file }' "$PACELINE_SOURCE/docs/local.md"
[ "$(ls "$work"/blocks/9*.sh.main | wc -l)" = 1 ] || fail "docs/local.md has not one block of sh"
for block in "$work"/blocks/*; do
  case ${block##*/} in
    *.sh.* | *.dockerfile.* | *.text.main | *.diff.main | *.python.main) ;;
    *) fail "README.md:${block##*/}: expected a block of sh, dockerfile, text, diff or python" ;;
  esac
done
[ "$(ls "$work"/blocks/*.sh.main | wc -l)" -ge 2 ] || fail "README.md has no blocks that run"

container_engine
step "engine $engine"
cat >"$work/bin/docker" <<D
#!/usr/bin/env bash
# Stands for docker in README's blocks.
set -euo pipefail
source "$PACELINE_SOURCE/tests/support/containers.sh"
engine=$engine
[ \$engine = docker ] || container_settings
words=() verb=\$1
for word; do
  case \$word in
    paceline) if [ "\$named" = yes ]; then word=paceline; else word=$run_id; fi; [ \$verb != run ] || named=yes ;;
    algo-1 | algo-2 | job-net) word=$run_id-\$word ;;
  esac
  words+=("\$word")
  [ "\$word" != "$run_id-algo-1" ] && [ "\$word" != "$run_id-algo-2" ] || [ \$verb != run ] || words+=(--network-alias "\${word#$run_id-}")
done
if [ "\${words[*]}" = "build -t $run_id ." ]; then
  container_build $run_id "$PACELINE_SOURCE"
else
  exec "$(command -v "$engine")" "\${words[@]}"
fi
D
sed -i 's/^words=() verb=\$1$/words=() verb=$1 named=no/' "$work/bin/docker"
chmod +x "$work/bin/docker"

run_shell() {
  local code=0
  if grep -q '^examples/quickstart.sh' "$1"; then
    tar -C "$PACELINE_SOURCE" --exclude ./build --exclude ./.git --exclude ./shared -c . | "$engine" run -i --rm --network host --name "$run_id-bare" "${PACELINE_TEST_BASE:-$base_image}" \
      sh -c "mkdir /src && cd /src && tar -xf - && $(cat "$1")" >"$work/log" 2>&1 || code=$?
  else
    (cd "$work/here" && PATH=$work/bin:$PATH bash -euo pipefail "$1") >"$work/log" 2>&1 </dev/null || code=$?
  fi
  [ $code = 0 ] || { tail -n 60 "$work/log"; fail "README.md:${1##*/} ended with $code"; }
  tail -n 12 "$work/log"
}

# The programs that README's Dockerfiles copy lie where README says: in examples/.
run_dockerfile() {
  mkdir -p "$work/image"
  cp "$PACELINE_SOURCE"/examples/*.c "$work/image"
  sed "s/^FROM paceline\b/FROM $run_id/; s/--from=paceline\b/--from=$run_id/" "$1" >"$work/image/Dockerfile"
  container_build "$run_id-image" "$work/image" >"$work/log" 2>&1 || { tail -n 40 "$work/log"; fail "README.md:${1##*/} does not build"; }
}

for block in "$work"/blocks/*; do
  where=${block##*.}
  case $suite.$where in
    *.main | full.full) ;;
    *) continue ;;
  esac
  case $block in
    *.sh.*)
      step "README.md:$(basename "$block"): $(head -n 1 "$block")"
      run_shell "$block"
      ;;
    *.dockerfile.*)
      step "README.md:$(basename "$block"): $(head -n 1 "$block")"
      run_dockerfile "$block"
      ;;
  esac
done

if [ -e "$work/here/job" ]; then
  [ -s "$work/here/job/model/model.safetensors" ] || fail "README's job has no model"
fi
step "all done"
