#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Steps that the Dockerfile's stages share. EXAMPLES=no leaves the example programs and OpenBLAS out.
#
#   image.sh build OPTION...   compile the tree around this file with these options of meson, install into /out
#   image.sh final             packages, the hosts' key pair, folders; runs once, in the image, from a folder that may
#                              hold more packages (*.deb) and trees (*.tar.gz, unpacked at /), and removes that folder
set -euo pipefail
cd "$(dirname "$0")"
case ${EXAMPLES:-yes} in
  yes) examples=true roles="image examples" ;;
  no) examples=false roles=image ;;
  *) echo "EXAMPLES is '$EXAMPLES': expected yes or no" >&2; exit 2 ;;
esac

if [ "${1:-}" = build ]; then
  shift
  cd ../..
  meson setup /build . --prefix=/usr/local --buildtype=release -Dstrip=true -Dtests=disabled -Dexamples=$examples -Dhorovod=enabled "$@"
  ninja -C /build
  DESTDIR=/out meson install -C /build --no-rebuild
  mkdir -p /out/usr/local/share/paceline/examples
  [ $examples = false ] || cp -r examples /out/usr/local/share/paceline
  cp -r examples/python /out/usr/local/share/paceline/examples # the module that Python programs import
  exit
fi

./packages.sh install $roles
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
# sshd's own host keys are not needed: a job uses the pair below, on its own port, while it runs.
apt-get clean # not every base does this by itself
rm -rf /var/lib/apt/lists/* /etc/ssh/ssh_host_*
# One key pair, by which this image's hosts reach each other. Everyone who has the image has the key: README.md explains the consequences.
# shellcheck disable=SC2174 # the mode is for the deepest folder
mkdir -p -m 0700 /etc/paceline/ssh
ssh-keygen -q -t ed25519 -N "" -C paceline-host -f /etc/paceline/ssh/host_ed25519
ssh-keygen -q -t ed25519 -N "" -C paceline -f /etc/paceline/ssh/id_ed25519
mkdir -p /opt/ml /run/sshd
rm -rf "$PWD"
