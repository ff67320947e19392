# SPDX-License-Identifier: Apache-2.0
headgate_test(cgroup_kernel_test kernel SERIAL
  SOURCES cgroup_kernel_test.cc
  LIBS headgate_targets headgate_cgroup headgate_test_support)
