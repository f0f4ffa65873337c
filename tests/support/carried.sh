# SPDX-License-Identifier: Apache-2.0
# Debian packages that are carried to a machine which lacks them, to be sourced by tests/gpu.sh and tests/many_ranks.sh in the project's folder.
#
#   carried_pack DIR      fill DIR with the packages unpacked, DIR/python with Horovod's Python files, and DIR/horovod with its tests; needs Debian and a network
#   carried_use DIR       headers, libraries and pkg-config files below DIR are found by the compiler, the linker and the loader
#   carried_use_all DIR   the same for all that carried_pack put there, and its tools and Python packages too

# What apt would install on a machine that has nothing, without what every machine with a compiler has.
carried_pack() {
  local folder=$1 list library
  local own='libc6|libc-|linux-libc-dev|gcc|g\+\+|cpp|libgcc|libstdc|binutils|libbinutils|lib.*san[0-9]|perl|libperl|dpkg|debconf|cdebconf|coreutils|tar$'
  own+='|openssh|gfortran|libgfortran-|auto|m4$|make$|passwd|adduser|debianutils|libctf|libisl|libmpc|libmpfr|libgmp|libgprofng|libcc1|libpam|libaudit'
  own+='|python3|libpython3|media-types|libselinux|libsemanage|libsepol|libgdbm|libdb5|libtinfo|mawk|libcrypt|libx[^m]|libX|libjs-'
  mkdir -p "$folder/debs" || return
  list=$(tests/support/packages.sh list build test | grep -vE '^(gcc|libc6-dev|python3|git|openssh.*|iproute2|procps|util-linux|openssl|curl|libfaketime|spin)$')
  list=$(apt-get -s -o Dir::State::status=/dev/null --no-install-recommends install $list | awk '/^Inst /{print $2}' | grep -vE "^($own)")
  (cd "$folder/debs" && apt-get download -qq $list) || return
  for deb in "$folder"/debs/*.deb; do dpkg -x "$deb" "$folder" || return; done
  [ ! -d "$folder/lib" ] || { cp -a "$folder/lib/." "$folder/usr/lib" && rm -rf "$folder/lib"; } || return # one place, as where /lib is a link
  find "$folder/usr" -type l -lname '/*' -printf '%p %l\n' | while read -r link target; do # to where it lies now, not to this machine's
    ln -sfr "$folder${target/#\/lib/\/usr\/lib}" "$link"
  done
  rm -rf "$folder/debs" "$folder"/usr/share/{doc,man,locale,lintian,bug} "$folder"/usr/lib/*/{fortran,openblas-pthread/*.a}
  find "$folder/usr/lib" -name '*.a' | while read -r library; do [ ! -e "${library%.a}.so" ] || rm "$library"; done # what is linked is shared
  ln -sf mpirun.openmpi "$folder/usr/bin/mpirun" # what update-alternatives does
  HOROVOD_SKIP_COMPILE=1 python3 -m pip install -q --no-deps --target "$folder/python" horovod==0.28.1 cloudpickle packaging || echo "no Horovod was packed"
  python3 -m pip install -q --target "$folder/python" pytest mock && git clone -q --depth 1 --branch v0.28.1 https://github.com/horovod/horovod "$folder/source" &&
    mkdir -p "$folder/horovod/test" && cp -r "$folder/source/test/parallel" "$folder/source/test/utils" "$folder/horovod/test" || echo "Horovod's own tests were not packed"
  rm -rf "$folder/source"
  du -sh "$folder"
}

carried_use() {
  local folder
  for folder in "$1/include" "$1/include/x86_64-linux-gnu"; do
    export C_INCLUDE_PATH=$folder${C_INCLUDE_PATH:+:$C_INCLUDE_PATH} CPLUS_INCLUDE_PATH=$folder${CPLUS_INCLUDE_PATH:+:$CPLUS_INCLUDE_PATH}
  done
  for folder in "$1/lib" "$1/lib64" "$1/lib/x86_64-linux-gnu" "$1/lib/x86_64-linux-gnu/openblas-pthread"; do
    [ ! -d "$folder" ] || export LIBRARY_PATH=$folder${LIBRARY_PATH:+:$LIBRARY_PATH} LD_LIBRARY_PATH=$folder${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  done
}

carried_use_all() {
  carried_use "$1/usr"
  if ! command -v meson >/dev/null; then
    export PYTHONPATH=$1/usr/lib/python3/dist-packages${PYTHONPATH:+:$PYTHONPATH} # Ninja calls Meson too
    meson() { python3 -m mesonbuild.mesonmain "$@"; }
  fi
  export PATH=$PATH:$1/usr/bin OPAL_PREFIX=$1/usr
  local libraries=$1/usr/lib/x86_64-linux-gnu
  export PKG_CONFIG_PATH=$libraries/pkgconfig:$libraries/openblas-pthread/pkgconfig${PKG_CONFIG_PATH:+:$PKG_CONFIG_PATH}
  export PKG_CONFIG_SYSROOT_DIR=$1
}
