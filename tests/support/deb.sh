#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Make a Debian package of what image.sh has built: docker build --target deb --output . .
#
#   deb.sh ROOT FOLDER    ROOT has opt/paceline; the package is written to FOLDER/paceline_VERSION_ARCHITECTURE.deb
#
# It has the libraries that Paceline carries, and depends on the C library and on programs.
set -euo pipefail
[ $# = 2 ] || { sed -n '3,7s/^# \{0,1\}//p' "$0"; exit 2; }
root=$(realpath "$1") folder=$2
package=$(mktemp -d)
trap 'rm -rf "$package"' EXIT
chmod 755 "$package"
mkdir -p "$package/DEBIAN" "$package/opt" "$folder"
cp -a "$root/opt/paceline" "$package/opt"
depends="libc6 (>= $(cat "$root/opt/paceline/share/paceline/glibc"))"
depends+=", openmpi-bin, openssh-client, openssh-server, ca-certificates"
version=$("$root/opt/paceline/bin/paceline" --version | cut -d ' ' -f 2) architecture=$(dpkg --print-architecture)

cat >"$package/DEBIAN/control" <<C
Package: paceline
Version: $version
Architecture: $architecture
Maintainer: Paceline
Section: science
Priority: optional
Depends: $depends
Recommends: libopenblas0-pthread
Installed-Size: $(du -sk "$package/opt" | cut -f 1)
Description: SageMaker training container's entry point and runtime, without Python
 It reads /opt/ml, starts the training program alone, under Open MPI or under torchrun, watches it on every host and
 ends with its true result. Its runtime averages gradients between processes and hosts.
C
# Keys made here would be those of this machine alone: the hosts of a job need the same ones.
printf '#!/bin/sh\nset -e\n[ "$1" != configure ] || /opt/paceline/install --keys=no\n' >"$package/DEBIAN/postinst"
printf '#!/bin/sh\nset -e\n[ "$1" != remove ] || /opt/paceline/install --remove\n' >"$package/DEBIAN/prerm"
chmod 755 "$package"/DEBIAN/{postinst,prerm}
(cd "$package" && find opt -type f -print0 | sort -z | xargs -0 md5sum) >"$package/DEBIAN/md5sums"
dpkg-deb --root-owner-group --build "$package" "$folder/paceline_${version}_$architecture.deb"
