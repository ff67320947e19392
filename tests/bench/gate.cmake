# SPDX-License-Identifier: Apache-2.0
# ns per verdict, against a program that only passes. Needs root; fails above the bars.
add_executable(verdict_bench ${CMAKE_CURRENT_LIST_DIR}/verdict_bench.cc)
target_link_libraries(verdict_bench PRIVATE
  headgate_options headgate_dataplane headgate_bpf_skeleton Threads::Threads)
target_include_directories(verdict_bench PRIVATE ${PROJECT_SOURCE_DIR}/bpf)
set_target_properties(verdict_bench PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
add_test(NAME bench.verdict COMMAND verdict_bench)
set_tests_properties(bench.verdict PROPERTIES LABELS bench RUN_SERIAL ON)
# CPU of admitted traffic with and without the programs on cgroup_skb. Needs root.
add_executable(payload_bench ${CMAKE_CURRENT_LIST_DIR}/payload_bench.cc)
target_link_libraries(payload_bench PRIVATE
  headgate_options headgate_hooks headgate_net_lab PkgConfig::LIBBPF GTest::gtest Threads::Threads)
set_target_properties(payload_bench PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
# ns per frame in front of the socket layer. Needs root; compares with xdp-filter where it is.
add_executable(early_bench ${CMAKE_CURRENT_LIST_DIR}/early_bench.cc
  ${PROJECT_SOURCE_DIR}/tests/support/frames.cc)
target_link_libraries(early_bench PRIVATE
  headgate_options headgate_dataplane headgate_bpf_skeleton Threads::Threads)
set_target_properties(early_bench PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
