# SPDX-License-Identifier: Apache-2.0
# What the demo computes from what it measured; the demo itself is run by tests/e2e.
headgate_test(demo_test unit
  SOURCES demo_test.cc demo_load_test.cc
  LIBS headgate_demo_parts nlohmann_json::nlohmann_json)
