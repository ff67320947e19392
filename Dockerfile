# SPDX-License-Identifier: Apache-2.0
# The agent and nothing else: built from source in the first stage, installed from its own Debian
# package in the second, which brings exactly the shared libraries that it links.
#
#   docker build -t headgate .
#   docker run --privileged --pid host --network host --cgroupns host \
#     -v /sys/fs/bpf:/sys/fs/bpf -v /sys/fs/cgroup:/sys/fs/cgroup:ro \
#     -v /etc/headgate:/etc/headgate:ro headgate
FROM debian:bookworm-slim AS build
WORKDIR /headgate
# The package list first, so that a change of the sources does not install everything again.
COPY tests/run tests/lib.sh tests/packages.txt tests/
RUN tests/run --setup build && rm -rf /var/lib/apt/lists/*
COPY . .
RUN cmake --preset release -DHEADGATE_TESTS=OFF \
  && cmake --build --preset release --target headgate \
  && cpack -G DEB --config build/release/CPackConfig.cmake -B /package

FROM debian:bookworm-slim
COPY --from=build /package/headgate_*.deb /tmp/
RUN apt-get update \
  && apt-get install -y --no-install-recommends /tmp/headgate_*.deb \
  && rm -rf /var/lib/apt/lists/* /tmp/headgate_*.deb
# Root, because a process without uid 0 loses the capabilities that loading programs needs.
ENTRYPOINT ["/usr/bin/headgate"]
CMD ["run", "--config=/etc/headgate/headgate.yaml"]
