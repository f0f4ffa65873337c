#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Others' libraries that need less than Debian's shared ones do, for image.sh.
#
#   foreign.sh FOLDER    make them in FOLDER; with PKG_CONFIG_PATH=FOLDER/lib/pkgconfig the tree is built with them
#
# libcurl: from the source with Debian's patches, which apt fetches; HTTP and HTTPS alone. Debian's has LDAP, SSH, Kerberos, RTMP and more, and 25 libraries
# for them. libexpat: Debian's static one as a shared one that asks the kernel for random numbers. Debian's own needs glibc 2.36 for them. libarchive:
# Debian's static one, of which a program gets the formats that it names. The shared one has all, and needs libxml2 and ICU for one of them.
set -euo pipefail
[ $# = 1 ] || { sed -n '3,5s/^# \{0,1\}//p' "$0"; exit 2; }
mkdir -p "$1"/{lib/pkgconfig,copyright}
target=$(realpath "$1")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
linking="-Wl,-z,relro,-z,now -Wl,-O1"

keep_package() { # NAME PACKAGE: its version and licence, for the list of third parties
  dpkg-query -W -f '${Version}' "$2" >"$target/copyright/$1.version"
  cp "/usr/share/doc/$2/copyright" "$target/copyright/$1"
}

# The only thing that its writer of tar wants of the file that names all formats.
cat >"$work/kind.c" <<'C'
#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
void __archive_write_entry_filetype_unsupported(struct archive *archive, struct archive_entry *entry, const char *format);
void __archive_write_entry_filetype_unsupported(struct archive *archive, struct archive_entry *entry, const char *format)
{
    archive_set_error(archive, EILSEQ, "'%s' is of a kind that %s has not", archive_entry_pathname(entry), format);
}
C
gcc -c -O2 -fPIE -o "$work/kind.o" "$work/kind.c"
ar rcs "$target/lib/libkind.a" "$work/kind.o"
cat >"$target/lib/pkgconfig/libarchive.pc" <<P
Name: libarchive
Description: the static library, of which a program gets what it uses
Version: $(pkg-config --modversion libarchive)
Libs: -Wl,-u,__archive_write_entry_filetype_unsupported $target/lib/libkind.a -l:libarchive.a -lzstd -llzma -lbz2 -lz
P
keep_package libarchive libarchive-dev

cat >"$work/random.c" <<'C'
#include <stddef.h>
#include <sys/random.h>
__attribute__((visibility("hidden"))) void arc4random_buf(void *bytes, size_t count)
{
    for (char *at = bytes; count > 0;) {
        const ssize_t got = getrandom(at, count, 0);

        at += got > 0 ? got : 0;
        count -= got > 0 ? (size_t)got : 0;
    }
}
C
gcc -shared -fPIC -O2 -s $linking -Wl,-soname,libexpat.so.1 -o "$target/lib/libexpat.so.1" "$work/random.c" -Wl,--whole-archive -l:libexpat.a -Wl,--no-whole-archive
ln -sf libexpat.so.1 "$target/lib/libexpat.so"
printf 'Name: expat\nDescription: XML\nVersion: %s\nLibs: -L%s -lexpat\n' "$(pkg-config --modversion expat)" "$target/lib" >"$target/lib/pkgconfig/expat.pc"
keep_package libexpat libexpat1-dev

# apt's sources of packages, for those of programs, in lists of their own.
mkdir -p "$work"/apt/{parts,lists/partial,archives/partial} "$work/curl"
shopt -s nullglob
for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
  [ ! -e "$file" ] || sed -nE 's/^deb (.*(debian|ubuntu)\.(org|com).*)/deb-src \1/p' "$file" >"$work/apt/parts/$(basename "$file" .list).list"
done
for file in /etc/apt/sources.list.d/*.sources; do
  ! grep -qE '^URIs:.*(debian|ubuntu)\.(org|com)' "$file" || sed 's/^Types:.*/Types: deb-src/' "$file" >"$work/apt/parts/$(basename "$file")"
done
apt=(apt-get -qq -o Dir::Etc::sourcelist=/dev/null -o "Dir::Etc::sourceparts=$work/apt/parts" -o "Dir::State::lists=$work/apt/lists" -o "Dir::Cache=$work/apt" -o APT::Sandbox::User=root)
cd "$work/curl"
if ! "${apt[@]}" update || ! "${apt[@]}" source --download-only curl; then
  echo "foreign.sh: the source of curl cannot be fetched: Debian's own libcurl is taken, which needs many libraries" >&2
  exit 0
fi
sed -n 's/^Version: *//p' ./*.dsc | sed -n 1p >"$target/copyright/libcurl.version"
tar -xf "$(ls ./*.orig.tar.?z)" --strip-components=1
tar -xf "$(ls ./*.debian.tar.*)"
cp debian/copyright "$target/copyright/libcurl"
for name in $(sed -nE 's/^([^# ]+\.(patch|diff)).*/\1/p' debian/patches/series); do
  case $name in 90_gnutls* | 99_nss*) ;; *) patch -s -p1 <"debian/patches/$name" ;; esac # those are not for OpenSSL
done
find . -exec touch -h -d @1 {} + # of one time: make calls no autotools
{
  ./configure --prefix="$target" --libdir="$target/lib" --enable-shared --disable-static --disable-dependency-tracking --with-openssl \
    --with-ca-bundle=/etc/ssl/certs/ca-certificates.crt --with-ca-path=/etc/ssl/certs --enable-threaded-resolver --enable-versioned-symbols \
    --without-{zlib,brotli,zstd,libpsl,libidn2,librtmp,libssh,libssh2,nghttp2,gssapi,libgsasl} \
    --disable-{ldap,ldaps,ftp,file,dict,telnet,tftp,rtsp,pop3,imap,smtp,gopher,mqtt,smb,ntlm,manual,unix-sockets,alt-svc,hsts} \
    ac_cv_func_arc4random=no CFLAGS="-O2 -fstack-protector-strong -D_FORTIFY_SOURCE=2 -ffile-prefix-map=$work=." LDFLAGS="$linking" &&
    make -j"$(nproc)" -C lib install && make -C include install && make install-pkgconfigDATA
} >"$work/log" 2>&1 || { tail -n 30 "$work/log"; exit 1; }
rm -f "$target"/lib/*.la
strip --strip-unneeded "$target"/lib/libcurl.so.4
