# SPDX-License-Identifier: Apache-2.0
headgate_test(trace_test unit
  SOURCES trace_test.cc
  LIBS headgate_agent headgate_trace headgate_cli nlohmann_json::nlohmann_json)
target_compile_definitions(trace_test PRIVATE
  HEADGATE_TEST_DATA="${PROJECT_SOURCE_DIR}/tests/data")
