# SPDX-License-Identifier: Apache-2.0
# The verdict, compiled natively (under ASan in the asan preset), and what the agent adds to it.
headgate_test(verdict_test unit SOURCES verdict_test.cc LIBS rapidcheck)
headgate_test(outstanding_test unit SOURCES outstanding_test.cc LIBS rapidcheck)
headgate_test(flows_test unit SOURCES flows_test.cc)
headgate_test(live_test unit SOURCES live_test.cc LIBS headgate_decision rapidcheck)
target_include_directories(live_test PRIVATE ${PROJECT_SOURCE_DIR}/bpf)
target_include_directories(flows_test PRIVATE ${PROJECT_SOURCE_DIR}/bpf)
headgate_test(beside_gate_test unit SOURCES beside_gate_test.cc)
headgate_test(packet_test unit
  SOURCES packet_test.cc ${PROJECT_SOURCE_DIR}/tests/support/frames.cc)
target_include_directories(packet_test PRIVATE ${PROJECT_SOURCE_DIR}/bpf)
headgate_test(storm_test unit SOURCES storm_test.cc LIBS headgate_decision)
headgate_test(state_events_test unit SOURCES state_events_test.cc LIBS headgate_agent)
headgate_test(request_routes_test unit SOURCES request_routes_test.cc LIBS headgate_agent)
