#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What the Dockerfile's final stages have in common: packages, the hosts' key pair, folders. Runs once, in the image, from a folder that may hold
# more packages (*.deb) and trees (*.tar.gz, unpacked at /) beside it; that folder is removed.
set -euo pipefail
cd "$(dirname "$0")"
./packages.sh install image
if [ -n "${PACKAGES:-}" ]; then
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $PACKAGES
fi
shopt -s nullglob
debs=(./*.deb)
if [ ${#debs[@]} -gt 0 ]; then
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${debs[@]}"
fi
for tree in ./*.tar.gz; do tar -xzf "$tree" -C /; done
# sshd's own host keys are not wanted: a job uses the pair below, on its own port, for its own time.
apt-get clean # not every base does so by itself
rm -rf /var/lib/apt/lists/* /etc/ssh/ssh_host_*
# One key pair for this image's hosts to reach each other. Who has the image has the key: README.md says what follows.
mkdir -p -m 0700 /etc/paceline/ssh
ssh-keygen -q -t ed25519 -N "" -C paceline-host -f /etc/paceline/ssh/host_ed25519
ssh-keygen -q -t ed25519 -N "" -C paceline -f /etc/paceline/ssh/id_ed25519
mkdir -p /opt/ml /run/sshd
rm -rf "$PWD"
