# SPDX-License-Identifier: Apache-2.0
# The training image: docker build -t paceline .   then   docker run -v TREE:/opt/ml paceline train
#
#   --build-arg BASE=...       another base; Debian 12 or Ubuntu 22.04 and later
#   --build-arg PACKAGES="..." more packages for the final image, such as "python3 python3-pip python3-mpi4py"
#   --build-arg SSH_KEYS=no    without the key pair by which a job's hosts reach each other; several hosts then need
#                              PACELINE_SSH_SECRET (docs/security.md), and two builds of one tree have the same files
#   --build-arg COMMIT=...     the commit for `paceline --version` and the label org.opencontainers.image.revision; without
#                              it `paceline --version` has what .git/HEAD says, and the label has "unknown"
#   --build-arg EXAMPLES=no    without the example programs and OpenBLAS (51 MB); a job must name its program then
#
# A Debian package: docker build --target deb --output . .
# A wheel for pip:  docker build --target wheel --output . .
#
# With GPUs: docker build --target cuda --build-arg CUDA_BASE=RUNTIME --build-arg CUDA_BUILD_BASE=DEVEL -t paceline-cuda .
#
#   RUNTIME, DEVEL   NVIDIA's images of one CUDA 12 version with cuDNN, on Debian 12 or Ubuntu 22.04 and later
#                    (nvidia/cuda:12.*-cudnn-runtime-* and -cudnn-devel-*); the runtime image holds NCCL, cuBLAS and
#                    cuDNN. docs/gpu.md says what the host's driver must be.
#   --build-arg EFA_FILES=DIR  a folder in the build context with *.deb to install and *.tar.gz to unpack at /: EFA's
#                    libfabric, aws-ofi-nccl
ARG BASE=debian:bookworm-slim
ARG CUDA_BASE=${BASE}
ARG CUDA_BUILD_BASE=${CUDA_BASE}

FROM ${BASE} AS build
COPY tests/support/packages.sh /tmp/packages.sh
RUN /tmp/packages.sh install build prefix
COPY tests/support/foreign.sh /tmp/foreign.sh
RUN /tmp/foreign.sh /foreign
COPY . /src
ARG EXAMPLES=yes
ARG COMMIT=""
RUN /src/tests/support/image.sh build -Dcuda=disabled

FROM build AS deb-build
RUN /src/tests/support/deb.sh /out /deb

FROM scratch AS deb
COPY --from=deb-build /deb/ /

FROM build AS wheel-build
RUN /src/tests/support/wheel.sh /out /wheel

FROM scratch AS wheel
COPY --from=wheel-build /wheel/ /

FROM ${CUDA_BUILD_BASE} AS build-cuda
COPY tests/support/packages.sh /tmp/packages.sh
RUN /tmp/packages.sh install build prefix cuda
COPY tests/support/foreign.sh /tmp/foreign.sh
RUN /tmp/foreign.sh /foreign
COPY . /src
ARG EXAMPLES=yes
ARG GPU_ARCHS=""
ARG COMMIT=""
RUN PATH=$PATH:/usr/local/cuda/bin /src/tests/support/image.sh build -Dcuda=enabled -Dgpu_archs="$GPU_ARCHS"

FROM ${CUDA_BASE} AS cuda
ARG PACKAGES=""
ARG EXAMPLES=yes
ARG EFA_FILES=""
COPY tests/support/packages.sh tests/support/image.sh ${EFA_FILES} /tmp/image/
RUN /tmp/image/image.sh final
COPY --from=build-cuda /out/ /
ARG SSH_KEYS=yes
RUN /opt/paceline/install --keys=$SSH_KEYS && rm -f /var/cache/ldconfig/aux-cache
STOPSIGNAL SIGTERM
# What NVIDIA's container runtime gives the container: the driver's libraries for computing, and nvidia-smi.
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
ENV BASH_ENV=/usr/local/share/paceline/bash-env.sh
ENTRYPOINT ["paceline"]
ARG COMMIT=""
LABEL org.opencontainers.image.title="Paceline" \
      org.opencontainers.image.description="SageMaker training container without Python in its path" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="0.2.0" \
      org.opencontainers.image.revision="${COMMIT:-unknown}"

FROM ${BASE}
ARG PACKAGES=""
ARG EXAMPLES=yes
COPY tests/support/packages.sh tests/support/image.sh /tmp/image/
RUN /tmp/image/image.sh final
COPY --from=build /out/ /
ARG SSH_KEYS=yes
RUN /opt/paceline/install --keys=$SSH_KEYS && rm -f /var/cache/ldconfig/aux-cache
# paceline is process 1 and takes SIGTERM as SageMaker sends it.
STOPSIGNAL SIGTERM
# What NVIDIA's container runtime gives the container on a host with GPUs, for programs that bring their own CUDA, such as pip's torch.
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
# Version 3 of the SDK starts a shell instead of the entry point: this file leads back.
ENV BASH_ENV=/usr/local/share/paceline/bash-env.sh
ENTRYPOINT ["paceline"]
ARG COMMIT=""
LABEL org.opencontainers.image.title="Paceline" \
      org.opencontainers.image.description="SageMaker training container without Python in its path" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="0.2.0" \
      org.opencontainers.image.revision="${COMMIT:-unknown}"
