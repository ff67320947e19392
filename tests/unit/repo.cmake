# SPDX-License-Identifier: Apache-2.0
headgate_test(layering_test unit SOURCES layering_test.cc hygiene_test.cc)
target_compile_definitions(layering_test PRIVATE HEADGATE_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
