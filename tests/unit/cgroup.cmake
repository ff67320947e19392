# SPDX-License-Identifier: Apache-2.0
headgate_test(cgroup_unit_test unit
  SOURCES cgroup_parse_test.cc cgroup_parse_property_test.cc cgroup_hierarchy_test.cc
          cgroup_sampler_test.cc targets_locate_test.cc targets_serving_process_test.cc
  LIBS headgate_targets headgate_cgroup headgate_test_support rapidcheck)
