#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# paceline setup [OPTION...]
#
# Becomes the program `install` of the folder that this Paceline lies in: /opt/paceline, or the one of a wheel.
# Test  tests/integration/command_line.py, tests/integration/wheel.py
set -u
here=$(realpath "${0%/*}") || exit
install=$(realpath -m "$here/../../install")
if [ ! -x "$install" ]; then
  echo "paceline setup: error: there is no '$install', which an image's /opt/paceline and pip's package have: this Paceline was built and installed by hand" >&2
  exit 1
fi
exec "$install" "$@"
