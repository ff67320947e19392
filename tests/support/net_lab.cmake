# SPDX-License-Identifier: Apache-2.0
# Network namespaces, servers, clients and cgroups for tests as root.
add_library(headgate_net_lab STATIC
  lab_cgroup.cc lab_client.cc lab_command.cc lab_segment.cc lab_server.cc leftovers.cc net_lab.cc
  server_loop.cc)
target_link_libraries(headgate_net_lab PUBLIC headgate_options GTest::gtest Threads::Threads)
# A program of its own: a server that is born in a cgroup, and that can be killed.
add_executable(headgate_lab_server lab_server_main.cc server_loop.cc)
target_link_libraries(headgate_lab_server PRIVATE headgate_options)
set_target_properties(headgate_lab_server PROPERTIES
  RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
target_compile_definitions(headgate_net_lab PRIVATE
  HEADGATE_LAB_SERVER="$<TARGET_FILE:headgate_lab_server>")
add_dependencies(headgate_net_lab headgate_lab_server)
