# SPDX-License-Identifier: Apache-2.0
# Does not need namespaces: tests/vm runs this binary under the oldest and the common kernel.
headgate_test(kernel_load_test kernel
  SOURCES load_test.cc abi_test.cc
  LIBS headgate_dataplane headgate_bpf_skeleton)
headgate_test(kernel_gate_test kernel
  SOURCES maps_test.cc verdict_run_test.cc early_run_test.cc
    ${PROJECT_SOURCE_DIR}/tests/support/frames.cc
  LIBS headgate_dataplane headgate_bpf_skeleton headgate_net_lab)
target_include_directories(kernel_gate_test PRIVATE ${PROJECT_SOURCE_DIR}/bpf)
