# SPDX-License-Identifier: Apache-2.0
find_package(rapidcheck REQUIRED)
headgate_test(config_test unit
  SOURCES
    config_flags_test.cc config_label_selector_test.cc config_load_test.cc config_problems_test.cc
    config_property_test.cc config_quantity_test.cc config_routes_test.cc config_samples_test.cc
    config_schema_test.cc
    config_senders_test.cc config_watch_test.cc
  LIBS headgate_config headgate_strategies headgate_base fmt::fmt nlohmann_json::nlohmann_json
    rapidcheck ${YAML_CPP_LIBRARIES})
target_include_directories(config_test PRIVATE ${PROJECT_SOURCE_DIR}/bpf)
target_compile_definitions(config_test PRIVATE HEADGATE_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
# A second opinion on the schema, where the machine has one.
find_package(Python3 COMPONENTS Interpreter QUIET)
if(Python3_FOUND)
  execute_process(COMMAND ${Python3_EXECUTABLE} -c "import jsonschema, yaml"
    RESULT_VARIABLE HEADGATE_NO_JSONSCHEMA OUTPUT_QUIET ERROR_QUIET)
  if(HEADGATE_NO_JSONSCHEMA EQUAL 0)
    add_test(NAME config_schema_python
      COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/config_schema_test.py
        ${PROJECT_SOURCE_DIR})
    set_tests_properties(config_schema_python PROPERTIES LABELS unit TIMEOUT 60)
  endif()
endif()
