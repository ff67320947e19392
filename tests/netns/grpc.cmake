# SPDX-License-Identifier: Apache-2.0
# Requests of HTTP/2 on real connections.
headgate_test(grpc_test netns
  SOURCES grpc_test.cc
  LIBS headgate_hooks headgate_net_lab PkgConfig::LIBBPF)
target_include_directories(grpc_test PRIVATE ${PROJECT_SOURCE_DIR}/bpf)
headgate_needs_grpc_peer(grpc_test)
