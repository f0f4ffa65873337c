# SPDX-License-Identifier: Apache-2.0
# The training image: docker build -t paceline .   then   docker run -v TREE:/opt/ml paceline train
#
#   --build-arg BASE=...       another base, such as a CUDA one; Debian 12 or Ubuntu 22.04 and later
#   --build-arg PACKAGES="..." more packages for the final image, such as "python3 python3-mpi4py"
ARG BASE=debian:bookworm-slim

FROM ${BASE} AS build
COPY tests/support/packages.sh /tmp/packages.sh
RUN /tmp/packages.sh install build
COPY . /src
RUN meson setup /build /src --prefix=/usr/local --buildtype=release -Dtests=disabled \
 && ninja -C /build \
 && DESTDIR=/out meson install -C /build --no-rebuild --strip

FROM ${BASE}
ARG PACKAGES=""
COPY tests/support/packages.sh /tmp/packages.sh
# sshd's own host keys are not wanted: a job uses the pair below, on its own port, for its own time.
RUN /tmp/packages.sh install image \
 && if [ -n "$PACKAGES" ]; then apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $PACKAGES; fi \
 && rm -rf /var/lib/apt/lists/* /tmp/packages.sh /etc/ssh/ssh_host_*
# One key pair for this image's hosts to reach each other. Who has the image has the key: README.md says what follows.
RUN mkdir -p -m 0700 /etc/paceline/ssh \
 && ssh-keygen -q -t ed25519 -N "" -C paceline-host -f /etc/paceline/ssh/host_ed25519 \
 && ssh-keygen -q -t ed25519 -N "" -C paceline -f /etc/paceline/ssh/id_ed25519
COPY --from=build /out/usr/local/ /usr/local/
COPY examples /usr/local/share/paceline/examples
RUN mkdir -p /opt/ml /run/sshd
# paceline is process 1 and takes SIGTERM as SageMaker sends it.
STOPSIGNAL SIGTERM
ENTRYPOINT ["paceline"]
