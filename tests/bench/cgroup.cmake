# SPDX-License-Identifier: Apache-2.0
add_executable(sampler_bench ${CMAKE_CURRENT_LIST_DIR}/sampler_bench.cc)
target_link_libraries(sampler_bench PRIVATE headgate_options headgate_cgroup)
set_target_properties(sampler_bench PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
