#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Covers entrypoint/commit.sh, Dockerfile.
# test_version.sh SOURCE VERSION: the commit is found with git, without git and by a build argument, and a tree without git says so. The image's label
# and the changelog have the version of the build.
set -euo pipefail
source=$1 version=$2
work=$(mktemp -d "${TMPDIR:-/tmp}/paceline-version-XXXXXX")
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/tree/entrypoint" "$work/bin"
cp "$source/entrypoint/commit.sh" "$work/tree/entrypoint"
for tool in cat cut dirname sed sh; do ln -s "$(command -v $tool)" "$work/bin/$tool"; done
one=0123456789abcdef0123456789abcdef01234567 other=89abcdef0123456789abcdef0123456789abcdef
# expect TEXT [VARIABLE=VALUE...]: what the script prints, in a PATH without git unless it is given.
expect() {
  local wanted=$1 found
  shift
  found=$(env -i PATH="$work/bin" "$@" "$work/tree/entrypoint/commit.sh" 2>&1)
  [ "$found" = "$wanted" ] || { echo "FAILED: '$found', expected '$wanted'"; exit 1; }
}

expect "commit unknown: built outside git"
expect "commit 0123456" COMMIT=$one
expect "commit unknown: built outside git" COMMIT=main

mkdir -p "$work/tree/.git/refs/heads/part"
echo "ref: refs/heads/part/main" >"$work/tree/.git/HEAD"
expect "commit unknown: built outside git"
printf '# pack-refs with: peeled fully-peeled sorted\n%s refs/heads/main\n%s refs/heads/part/main\n' $other $one >"$work/tree/.git/packed-refs"
expect "commit 0123456"
echo $other >"$work/tree/.git/refs/heads/part/main" # newer than the packed one
expect "commit 89abcde"
echo $one >"$work/tree/.git/HEAD"
expect "commit 0123456"
rm -rf "$work/tree/.git"
echo "gitdir: /nowhere" >"$work/tree/.git" # a worktree, of which an image's build context has no more
expect "commit unknown: built outside git"
rm "$work/tree/.git"

if command -v git >/dev/null; then
  git -C "$work/tree" init -q
  git -C "$work/tree" add .
  git -C "$work/tree" -c user.name=test -c user.email=test@example.org commit -qm test
  head=$(git -C "$work/tree" rev-parse HEAD)
  expect "commit ${head:0:7}" PATH="$PATH"
  echo "# changed" >>"$work/tree/entrypoint/commit.sh"
  expect "commit ${head:0:7} and changes" PATH="$PATH"
fi

labels=$(grep -o 'image.version="[^"]*"' "$source/Dockerfile" | sort -u)
[ "$labels" = "image.version=\"$version\"" ] || { echo "FAILED: the Dockerfile's labels say $labels, the build $version"; exit 1; }
first=$(sed -n 's/^## \([0-9][0-9.]*\).*/\1/p' "$source/CHANGELOG.md" | sed -n 1p)
[ "$first" = "$version" ] || { echo "FAILED: the changelog begins with '$first', the build is $version"; exit 1; }
echo "version $version"
