# SPDX-License-Identifier: Apache-2.0
headgate_test(log_test unit SOURCES log_test.cc LIBS headgate_base nlohmann_json::nlohmann_json)
headgate_test(web_test unit
  SOURCES web_metrics_test.cc web_state_test.cc web_server_test.cc web_control_socket_test.cc
  LIBS headgate_web nlohmann_json::nlohmann_json)
headgate_test(cli_test unit
  SOURCES cli_options_test.cc cli_views_test.cc cli_doctor_test.cc cli_explain_test.cc
          cli_report_test.cc
  LIBS headgate_cli headgate_web headgate_strategies nlohmann_json::nlohmann_json)
target_compile_definitions(cli_test PRIVATE HEADGATE_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
