# SPDX-License-Identifier: Apache-2.0
# The data plane on real connections, without an agent.
headgate_test(gate_test netns
  SOURCES gate_test.cc LIBS headgate_hooks headgate_net_lab PkgConfig::LIBBPF)
headgate_test(defer_test netns
  SOURCES defer_test.cc LIBS headgate_hooks headgate_net_lab PkgConfig::LIBBPF)
headgate_test(payload_test netns
  SOURCES payload_test.cc LIBS headgate_hooks headgate_decision headgate_net_lab PkgConfig::LIBBPF)
headgate_test(restart_test lease
  SOURCES restart_test.cc LIBS headgate_hooks headgate_net_lab PkgConfig::LIBBPF)
# An agent's data plane that can be killed.
add_executable(headgate_gate_holder ${CMAKE_CURRENT_LIST_DIR}/gate_holder_main.cc)
target_link_libraries(headgate_gate_holder PRIVATE headgate_hooks)
set_target_properties(headgate_gate_holder PROPERTIES
  RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
target_compile_definitions(restart_test PRIVATE
  HEADGATE_GATE_HOLDER="$<TARGET_FILE:headgate_gate_holder>")
add_dependencies(restart_test headgate_gate_holder)
# Requests on live connections of HTTP/1.1, answered by the kernel. nginx: tests/packages.txt.
headgate_test(http1_gate_test netns TIMEOUT 180
  SOURCES http1_test.cc LIBS headgate_hooks headgate_net_lab PkgConfig::LIBBPF)
headgate_test(tc_test netns
  SOURCES tc_test.cc LIBS headgate_hooks headgate_net_lab PkgConfig::LIBBPF)
headgate_test(xdp_test netns
  SOURCES xdp_test.cc LIBS headgate_hooks headgate_net_lab PkgConfig::LIBBPF)
headgate_test(requests_hook_test netns SERIAL TIMEOUT 60
  SOURCES requests_hook_test.cc
  LIBS headgate_hooks headgate_cgroup headgate_net_lab PkgConfig::LIBBPF)
