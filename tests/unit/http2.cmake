# SPDX-License-Identifier: Apache-2.0
# The reader of HTTP/2, compiled natively, and the keys that it looks up.
headgate_test(http2_test unit SOURCES cli_http2_reader_test.cc http2_test.cc method_keys_test.cc responses_test.cc
  LIBS headgate_stream_reader headgate_dataplane)
target_include_directories(http2_test PRIVATE ${PROJECT_SOURCE_DIR}/bpf)
