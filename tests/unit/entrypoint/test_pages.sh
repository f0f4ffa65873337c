#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Covers entrypoint/print_pages.c.
# test_pages.sh PACELINE MANUAL BASH ZSH: the manual page and both shells' completions have what `paceline help` has.
set -euo pipefail
paceline=$1 manual=$2 completion=$3 zsh=$4
fail() { echo "FAILED: $*"; exit 1; }

source "$completion"
# complete_words WORD...: what bash would offer for the last of them.
complete_words() {
  COMP_WORDS=(paceline "$@") COMP_CWORD=$#
  _paceline
  echo "${COMPREPLY[*]}"
}
[ "$(complete_words sy)" = sync ] || fail "sy becomes '$(complete_words sy)', not sync"
[ "$(complete_words bench --min)" = --min-bytes ] || fail "bench --min becomes '$(complete_words bench --min)', not --min-bytes"
[ -z "$(complete_words relay --)" ] || fail "a verb that only Paceline uses is completed"

verbs=$("$paceline" help | sed -n 's/^  paceline \([a-z0-9]*\) .*/\1/p')
[ "$(wc -w <<<"$verbs")" -gt 10 ] || fail "no verbs in the help: $verbs"
for verb in $verbs; do
  [[ " $(complete_words "") " = *" $verb "* ]] || fail "$verb is not completed"
  grep -qx "\.SS $verb" "$manual" || fail "$verb is not in the manual page"
  grep -q "^    $verb) _arguments " "$zsh" || fail "$verb is not completed by zsh"
  for option in $("$paceline" "$verb" --help 2>&1 | sed -n 's/^  \(--[a-z0-9-]*\).*/\1/p'); do
    [[ " $(complete_words "$verb" --) " = *" $option "* ]] || fail "$verb $option is not completed"
    grep -qF "\\fB$option\\fR" "$manual" || fail "$verb $option is not in the manual page"
    sed -n "/^    $verb) /,/ ;;\$/p" "$zsh" | grep -F -e "'$option[" >/dev/null || fail "$verb $option is not completed by zsh"
  done
done
# No line that roff would take for a request of its own.
if grep -nE "^(\.|')" "$manual" | grep -vE '^[0-9]+:\.(TH|SH|SS|B|PP|TP|br|nf|fi)( |$)'; then fail "the manual page has requests that nobody wrote"; fi
# zsh, where there is one, can read its completion.
! command -v zsh >/dev/null || zsh -n "$zsh" || fail "zsh cannot read $zsh"
# Every exit code of the help is in the manual page.
codes=$("$paceline" help | sed -n '/^Exit codes:/,/^$/s/^  \([^ ].*[^ ]\)  .*/\1/p')
while IFS= read -r code; do
  grep -qF "\fB${code%%  *}\fR" "$manual" || fail "the exit code '$code' is not in the manual page"
done <<<"$codes"
