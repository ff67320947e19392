# SPDX-License-Identifier: Apache-2.0
# The simulator. What it must reproduce is in tests/data/sim.
headgate_test(sim_test unit
  SOURCES sim_random_test.cc sim_pod_test.cc sim_gate_test.cc sim_calibration_test.cc
          sim_scenario_file_test.cc sim_contender_test.cc
  LIBS headgate_sim headgate_config headgate_base fmt::fmt)
headgate_test(failure_modes_test unit
  SOURCES sim_failure_modes_test.cc
  LIBS headgate_sim headgate_config headgate_base fmt::fmt)
headgate_test(cli_simulate_test unit
  SOURCES cli_simulate_test.cc
  LIBS headgate_cli nlohmann_json::nlohmann_json)
target_compile_definitions(sim_test PRIVATE
  HEADGATE_TEST_DATA="${PROJECT_SOURCE_DIR}/tests/data")
