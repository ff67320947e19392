# SPDX-License-Identifier: Apache-2.0
headgate_test(layering_test unit SOURCES layering_test.cc hygiene_test.cc)
target_compile_definitions(layering_test PRIVATE HEADGATE_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
headgate_test(deploy_test unit SOURCES deploy_test.cc)
target_compile_definitions(deploy_test PRIVATE HEADGATE_SOURCE_DIR="${PROJECT_SOURCE_DIR}")

# The alerts against recorded series, by Prometheus' own unit tests of rules.
find_program(PROMTOOL promtool)
if(PROMTOOL)
  add_test(NAME Alerts.FireWhenTheyShould
    COMMAND ${PROMTOOL} test rules ${PROJECT_SOURCE_DIR}/tests/alerts/headgate.test.yaml)
  set_tests_properties(Alerts.FireWhenTheyShould PROPERTIES LABELS unit TIMEOUT 60)
else()
  message(STATUS "promtool (package prometheus) is not there: the alerts are not tested")
endif()
