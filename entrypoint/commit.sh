#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Prints what `paceline --version` says of the commit that this tree is built from.
#
# The commit comes from the variable COMMIT (a build argument of the Dockerfile), from git, or from git's files alone:
# where an image is built there is no git, and its build context has only those files that name the commit.
cd "$(dirname "$0")/.." || exit 1
changes=
if [ -n "${COMMIT:-}" ]; then
  commit=$COMMIT
elif [ -e .git ] && commit=$(git rev-parse HEAD 2>/dev/null); then
  [ -z "$(GIT_OPTIONAL_LOCKS=0 git status --porcelain --untracked-files=no)" ] || changes=" and changes"
elif read -r word branch <.git/HEAD; then
  case $word in
    ref:) commit=$(cat ".git/$branch" 2>/dev/null) || commit=$(sed -n "s|^\([0-9a-f]*\) $branch\$|\1|p" .git/packed-refs) ;;
    *) commit=$word ;;
  esac
fi 2>/dev/null
case ${commit:-} in
  [0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f]*) echo "commit $(echo "$commit" | cut -c 1-7)$changes" ;;
  *) echo "commit unknown: built outside git" ;;
esac
