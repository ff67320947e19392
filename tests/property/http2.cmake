# SPDX-License-Identifier: Apache-2.0
# The kernel's reader of HTTP/2 against one that decodes everything.
headgate_test(http2_reference_test unit
  SOURCES http2_reference_test.cc
  LIBS headgate_dataplane PkgConfig::NGHTTP2)
target_include_directories(http2_reference_test PRIVATE ${PROJECT_SOURCE_DIR}/bpf)
