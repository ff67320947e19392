# SPDX-License-Identifier: Apache-2.0
# Requests on live connections: the kernel's parsers, compiled natively, and `classify`.
find_package(rapidcheck REQUIRED)
find_library(HEADGATE_HTTP_PARSER http_parser REQUIRED)
headgate_test(http1_test unit
  SOURCES http1_test.cc http1_differential_test.cc
  LIBS headgate_stream_reader rapidcheck ${HEADGATE_HTTP_PARSER})
target_include_directories(http1_test PRIVATE ${PROJECT_SOURCE_DIR}/bpf)
headgate_test(cli_classify_test unit
  SOURCES cli_classify_test.cc cli_capture_test.cc
  LIBS headgate_cli headgate_strategies nlohmann_json::nlohmann_json)
