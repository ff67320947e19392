# SPDX-License-Identifier: Apache-2.0
# The agent and nothing else: no shell, no package manager; the binary, the libraries that it links
# and the certificate authorities. The same commit and base image give the same digest:
#
#   docker build --build-arg SOURCE_DATE_EPOCH=$(git log -1 --format=%ct) \
#     --build-arg REVISION=$(git describe --always --dirty) -t headgate .
#   docker run --privileged --pid host --network host --cgroupns host \
#     -v /sys/fs/bpf:/sys/fs/bpf -v /sys/fs/cgroup:/sys/fs/cgroup:ro \
#     -v /etc/headgate:/etc/headgate:ro headgate
FROM debian:bookworm-slim AS build
WORKDIR /headgate
# arm64: for that, also where the base is of another processor (BuildKit sets it by --platform).
ARG TARGETARCH=
# The package list first, so that a change of the sources does not install everything again.
COPY tests/run tests/lib.sh tests/packages.txt tests/
RUN if [ "$TARGETARCH" = arm64 ] && [ "$(dpkg --print-architecture)" != arm64 ]; then \
    dpkg --add-architecture arm64 && tests/run --setup build-arm64 image; \
  else tests/run --setup build image; fi \
  && rm -rf /var/lib/apt/lists/*
COPY . .
# Where a compiler's cache is mounted, it may have been filled in another directory (tests/lib.sh).
ENV CCACHE_BASEDIR=/headgate CCACHE_NOHASHDIR=1
ARG SOURCE_DATE_EPOCH=0
ARG REVISION=
RUN preset=release; [ ! -e /usr/bin/aarch64-linux-gnu-g++ ] || preset=release-arm64; \
  cmake --preset $preset -DHEADGATE_TESTS=OFF "-DHEADGATE_REVISION=$REVISION" \
  && cmake --build --preset $preset --target headgate \
  && SOURCE_DATE_EPOCH=$SOURCE_DATE_EPOCH deploy/image/collect build/$preset/headgate /image

FROM scratch
COPY --from=build /image /
# Root, because a process without uid 0 loses the capabilities that loading programs needs.
ENTRYPOINT ["/usr/bin/headgate"]
CMD ["run", "--config=/etc/headgate/headgate.yaml"]
