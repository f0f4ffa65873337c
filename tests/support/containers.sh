# SPDX-License-Identifier: Apache-2.0
# Sourced by the container tests: an engine, a base image, and the few functions that they need.
#
# An engine is podman or a docker that answers. If there is none, and only for root with CI=true or
# PACELINE_CONTAINERS=yes, podman is installed and a Debian base image is made with debootstrap (about a minute).
# Nothing of the machine's own container settings is changed.
#
# PACELINE_TEST_BASE names a different base for the images under test, which the engine must have.

base_image=docker.io/library/debian:bookworm-slim
container_state=${TMPDIR:-/tmp}/paceline-containers

skip() {
  echo "$*"
  exit 77
}

# The settings of our podman calls: runc, since crun refuses hybrid cgroups, and limits below hard ones.
container_settings() {
  local new
  mkdir -p "$container_state"
  new=$(mktemp "$container_state/XXXXXX")
  cat >"$new" <<C
[containers]
default_ulimits = ["nofile=1024:4096", "nproc=4096:4096"]
log_driver = "k8s-file"
[engine]
runtime = "$(command -v runc >/dev/null && echo runc || echo crun)"
C
  mv "$new" "$container_state/containers.conf" # podman calls of other tests read it now
  export CONTAINERS_CONF=$container_state/containers.conf
}

containers_allowed() {
  [ "$(id -u)" = 0 ] && { [ "${CI:-}" = true ] || [ "${PACELINE_CONTAINERS:-}" = yes ]; }
}

# Concurrent tests set the engine up and build one after the other: each finds the results of those before it.
container_lock() {
  mkdir -p "$container_state"
  exec {container_lock}>"$container_state/lock"
  flock "$container_lock"
}
container_unlock() { flock --unlock "$container_lock"; } # closing it is not enough: processes that the engine has started may have it too

# Sets `engine` to podman or docker and gets the base image, or skips the test.
container_engine() {
  container_lock
  container_find
  container_unlock
}

container_find() {
  local support root
  support=$(dirname "${BASH_SOURCE[0]}")
  if ! command -v podman >/dev/null && command -v docker >/dev/null && docker info >/dev/null 2>&1; then
    engine=docker
    return
  fi
  if ! command -v podman >/dev/null || ! command -v buildah >/dev/null; then
    containers_allowed || skip "no container engine (podman with buildah, or docker); as root with PACELINE_CONTAINERS=yes the test installs one"
    "$support/packages.sh" install containers >&2 || skip "podman could not be installed"
  fi
  [ "$(id -u)" = 0 ] || skip "podman needs root here: hosts on one network with names"
  engine=podman
  container_settings
  podman info >/dev/null 2>&1 || skip "podman does not work on this machine: $(podman info 2>&1 | tail -n 1)"
  if [ -z "${PACELINE_TEST_BASE:-}" ] && ! podman image exists "$base_image"; then
    command -v debootstrap >/dev/null || containers_allowed || skip "no image $base_image, and no debootstrap to make one"
    "$support/packages.sh" install containers >&2
    root=$(mktemp -d)
    debootstrap --variant=minbase bookworm "$root" >"$container_state/debootstrap.log" 2>&1 && tar -C "$root" -c . | podman import - "$base_image" >/dev/null 2>&1 \
      || { rm -rf "$root"; skip "the base image could not be made: $(tail -n 1 "$container_state/debootstrap.log")"; }
    rm -rf "$root"
  fi
}

# container_build TAG CONTEXT [OPTIONS]
container_build() {
  local tag=$1 context=$2 code=0
  shift 2
  [ -z "${PACELINE_TEST_BASE:-}" ] || set -- "$@" --build-arg "BASE=$PACELINE_TEST_BASE"
  container_lock
  if [ "$engine" = podman ]; then
    buildah bud --isolation chroot --pull-never --layers -t "$tag" "$@" "$context" || code=$?
  else
    docker build -t "$tag" "$@" "$context" || code=$?
  fi
  container_unlock
  return $code
}
