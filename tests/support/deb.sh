#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Make a Debian package of what image.sh has built: docker build --target deb --output . .
#
#   deb.sh ROOT FOLDER    ROOT has opt/paceline; the package is written to FOLDER/paceline_VERSION_ARCHITECTURE.deb
#
# It depends on the packages that have the libraries here, and carries none. To be run where Paceline was built.
set -euo pipefail
[ $# = 2 ] || { sed -n '3,7s/^# \{0,1\}//p' "$0"; exit 2; }
root=$(realpath "$1") folder=$2
package=$(mktemp -d)
trap 'rm -rf "$package"' EXIT
chmod 755 "$package"
mkdir -p "$package/DEBIAN" "$package/opt" "$folder"
cp -a "$root/opt/paceline" "$package/opt"
rm -rf "$package"/opt/paceline/{lib/{carried,linked},share/paceline/{third-parties.txt,copyright}}

# The names of the packages that have the libraries. What only some of the programs need is left to the base, and `install` says so.
libraries() {
  find "$package/opt/paceline" -type f -exec sh -c 'for file; do [ "$(head -c 4 "$file" | tail -c 3)" != ELF ] || objdump -p "$file"; done' sh {} + |
    sed -n 's/^ *NEEDED *//p' | sort -u | grep -vE '^lib(paceline|mpi|cud|cublas|openblas|stdc\+\+|gcc_s|c\.|m\.)|^ld-linux' | while read -r name; do
    path=$(ldconfig -p | sed -nE "s|^\s*${name//./\\.} .*=> (/.*)|\1|p" | sed -n 1p)
    [ -n "$path" ] || { echo "deb.sh: no package has $name" >&2; exit 1; }
    dpkg -S "$(realpath "$path")" 2>/dev/null || dpkg -S "$path" 2>/dev/null || dpkg -S "/usr$path"
  done | cut -d : -f 1 | sort -u
}
names=$(libraries)
depends="libc6 (>= $(cat "$root/opt/paceline/share/paceline/glibc"))"
for name in $names openmpi-bin openssh-client openssh-server ca-certificates; do depends+=", $name"; done
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
