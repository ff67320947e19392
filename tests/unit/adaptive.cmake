# SPDX-License-Identifier: Apache-2.0
# The default law: recorded vectors, records of real collectors, rules one by one, a closed loop.
headgate_test(adaptive_test unit
  SOURCES adaptive_gold_test.cc adaptive_records_test.cc adaptive_rules_test.cc
          adaptive_closed_loop_test.cc adaptive_routes_test.cc
  LIBS headgate_strategies headgate_signals headgate_base)
target_compile_definitions(adaptive_test PRIVATE
  HEADGATE_TEST_DATA="${PROJECT_SOURCE_DIR}/tests/data")
