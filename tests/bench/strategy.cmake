# SPDX-License-Identifier: Apache-2.0
add_executable(strategy_bench ${CMAKE_CURRENT_LIST_DIR}/strategy_bench.cc)
target_link_libraries(strategy_bench PRIVATE headgate_options headgate_strategies headgate_base)
set_target_properties(strategy_bench PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
