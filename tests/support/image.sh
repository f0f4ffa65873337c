#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Steps that the Dockerfile's stages share. EXAMPLES=no leaves the example programs and OpenBLAS out.
#
#   image.sh build OPTION...   compile the tree around this file with these options of meson, install into /out; FOREIGN (made if it is
#                              not there, by foreign.sh), BUILD and OUT name other folders than /foreign, /build and /out
#   image.sh pack              of these steps what follows the installation: FOREIGN may be a folder that is empty then
#   image.sh final             packages; runs once, in the image, from a folder that may hold more packages (*.deb) and
#                              trees (*.tar.gz, unpacked at /), and removes that folder. /opt/paceline/install comes after
set -euo pipefail
cd "$(dirname "$0")"
foreign=${FOREIGN:-/foreign} build=${BUILD:-/build} out=${OUT:-/out}
case ${EXAMPLES:-yes} in
  yes) examples=true roles="image examples" ;;
  no) examples=false roles=image ;;
  *) echo "EXAMPLES is '$EXAMPLES': expected yes or no" >&2; exit 2 ;;
esac

prefix=/opt/paceline

# The ELF files of the prefix, the carried ones too.
programs() {
  find "$out$prefix" -type f \( -path '*/bin/*' -o -path '*/libexec/*' -o -path '*/lib/*' \) -print0 | while IFS= read -r -d '' file; do
    [ "$(head -c 4 "$file" | tail -c 3)" != ELF ] || printf '%s\n' "$file"
  done
}

# lib/carried gets the libraries that these files need. Not the C library, not Open MPI, which the base's own programs share, and not what an image
# with such programs has: GPUs' libraries, OpenBLAS, C++'s.
carry() {
  local file name path
  mkdir -p "$out$prefix/lib/carried"
  local -x LD_LIBRARY_PATH=$foreign/lib
  programs | while read -r file; do # a library of the list is not looked up by name, since one of its own may not be loadable alone
    objdump -p "$file" | sed -n 's/^ *NEEDED *//p'
  done | sort -u | grep -E '^lib(curl|cjson|expat|zstd|isal|crypto|dw|pcre2-8|lzma|bz2|z)\.so' | while read -r name; do
    path=$foreign/lib/$name
    [ -e "$path" ] || path=$(ldconfig -p | sed -nE "s|^\s*${name//./\\.} .*=> (/.*)|\1|p" | sed -n 1p)
    echo "$name $path"
    ldd "$path" | sed -nE 's|^\s*(\S+) => (/\S+) .*|\1 \2|p'
  done | sort -u | tee "$build/carried.txt" | while read -r name path; do
    case $name in
      libc.so.* | libm.so.* | libdl.so.* | librt.so.* | libpthread.so.* | libresolv.so.* | libgcc_s.so.* | libstdc++.so.*) ;;
      *) install -m 644 "$path" "$out$prefix/lib/carried/$name" ;;
    esac
  done
  for file in "$out$prefix"/lib/carried/*; do patchelf --set-rpath '$ORIGIN' "$file"; done
}

# lib/without-mpi has a libmpi.so.40 with the names that libpaceline.so needs, for a process that no mpirun has started and that has no Open MPI: the
# package of Python loads it there. Of its functions only those that ask whether MPI runs can be called.
make_without_mpi() {
  local name library=$out$prefix/lib/without-mpi/libmpi.so.40
  mkdir -p "${library%/*}"
  {
    printf '#include <stdio.h>\n#include <stdlib.h>\nstatic int absent(const char *name) { fprintf(stderr, "paceline: %%s: there is no Open MPI\\n", name); abort(); }\n'
    nm -D --undefined-only "$out$prefix/lib/libpaceline.so.0" | sed -nE 's/^ *U ((MPI|ompi)_[A-Za-z0-9_]+)(@.*)?$/\1/p' | while read -r name; do
      case $name in
        MPI_Initialized | MPI_Finalized) echo "int $name(int *flag) { return *flag = 0; }" ;;
        MPI_*) echo "int $name(void) { return absent(\"$name\"); }" ;;
        *) echo "char ${name}[1024];" ;; # a communicator or a type, of which only the address is taken
      esac
    done
  } | gcc -x c -shared -fPIC -O2 -s -Wl,-soname,libmpi.so.40 -o "$library" -
}

# The package of an installed file. dpkg knows a file below /usr/lib by one of two names.
package_of() { { dpkg -S "$1" || dpkg -S "/usr$1" || dpkg -S "${1#/usr}"; } 2>/dev/null | sed -n 1p | cut -d : -f 1; }

# share/paceline/third-parties.txt names the carried libraries with package, version and licences; share/paceline/copyright has the packages' own texts.
# "FILE PATH" lines on standard input.
name_third_parties() {
  local name path package version licences share=$out$prefix/share/paceline
  mkdir -p "$share/copyright"
  echo "Libraries of others in lib/carried: file, Debian package or source, version, and each licence that the source names,"
  echo "its tests and build files included. The full texts are in share/paceline/copyright. Parts of libarchive are in the"
  echo "programs that read and write archives. An image's other packages have theirs in /usr/share/doc/PACKAGE/copyright."
  echo
  { sort -u; echo "libarchive.a $foreign/lib/libarchive.a"; } | while read -r name path; do
    package=${name%%.*}
    if [[ $path = "$foreign"/* ]]; then
      version=$(cat "$foreign/copyright/$package.version")
      install -m 644 "$foreign/copyright/$package" "$share/copyright/$package"
    else
      [ -e "$out$prefix/lib/carried/$name" ] || continue
      package=$(package_of "$path")
      version=$(dpkg-query -W -f '${Version}' "$package")
      install -m 644 "/usr/share/doc/$package/copyright" "$share/copyright/$package"
    fi
    licences=$(sed -nE 's/^License: *([^ ].*)/\1/p' "$share/copyright/$package" | sort -u | paste -sd ';' | sed 's/;/; /g')
    printf '%s  %s  %s  %s\n' "$name" "$package" "$version" "${licences:-see the full text}"
  done
}

if [ "${1:-}" = build ]; then
  shift
  [ -d "$foreign" ] || ./foreign.sh "$foreign"
  export PKG_CONFIG_PATH=$foreign/lib/pkgconfig
  cd ../..
  meson setup "$build" . --prefix=$prefix --buildtype=release -Dstrip=true -Dtests=disabled -Dexamples=$examples -Dhorovod=enabled "$@"
  ninja -C "$build"
  DESTDIR=$out meson install -C "$build" --no-rebuild
  cd "$OLDPWD"
  set -- pack
fi
if [ "${1:-}" = pack ]; then
  mkdir -p "$build"
  cd ../..
  [ $examples = false ] || cp -r examples "$out$prefix/share/paceline"
  install -m 755 entrypoint/install.sh "$out$prefix/install"
  sed -i 's|^prefix=.*|prefix=${pcfiledir}/../..|' "$out$prefix/lib/pkgconfig/paceline.pc" # `install` writes the folder's name
  carry
  # Our programs take the carried libraries; what other programs load takes the base's, and by links in lib/linked what the base has not. Horovod's folder has
  # links to its modules, and the loader's $ORIGIN is then that folder: beside a wheel's, or in an image.
  programs | grep -v /lib/carried/ | while read -r file; do
    lib=\$ORIGIN/$(realpath --relative-to="${file%/*}" "$out$prefix/lib")
    case $file in *.so | *.so.*) folders=$lib/linked:\$ORIGIN/../../paceline/_prefix/lib/linked:$prefix/lib/linked ;; *) folders=$lib/carried:$lib/linked ;; esac
    patchelf --set-rpath "$(patchelf --print-rpath "$file" | sed "s|$foreign/lib:*||; s/..*/&:/")$folders" "$file"
  done
  make_without_mpi
  name_third_parties <"$build/carried.txt" >"$out$prefix/share/paceline/third-parties.txt"
  programs | xargs -d '\n' objdump -T | grep -o 'GLIBC_[0-9.]*' | cut -d _ -f 2 | sort -uV | tail -n 1 >"$out$prefix/share/paceline/glibc"
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
rm -rf /var/lib/apt/lists/* /etc/ssh/ssh_host_* /var/log/apt/* /var/log/dpkg.log /var/log/alternatives.log # two builds of one tree have the same files
rm -rf "$PWD"
