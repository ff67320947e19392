# SPDX-License-Identifier: Apache-2.0
# The simulator. What it must reproduce is in tests/data/sim.
headgate_test(sim_test unit
  SOURCES sim_random_test.cc sim_pod_test.cc sim_gate_test.cc sim_calibration_test.cc
  LIBS headgate_sim headgate_base fmt::fmt)
target_compile_definitions(sim_test PRIVATE
  HEADGATE_TEST_DATA="${PROJECT_SOURCE_DIR}/tests/data")
