# SPDX-License-Identifier: Apache-2.0
headgate_test(pods_test unit
  SOURCES cri_messages_test.cc locate_pods_test.cc pod_cgroup_test.cc pod_list_test.cc
  LIBS headgate_targets headgate_test_support fmt::fmt rapidcheck)
headgate_test(api_server_test unit
  SOURCES api_server_test.cc
  LIBS headgate_targets headgate_test_support fmt::fmt rapidcheck)
headgate_test(kube_events_test unit
  SOURCES kube_events_test.cc
  LIBS headgate_targets headgate_test_support fmt::fmt nlohmann_json::nlohmann_json)
