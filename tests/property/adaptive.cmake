# SPDX-License-Identifier: Apache-2.0
find_package(rapidcheck REQUIRED)
headgate_test(adaptive_property_test unit
  SOURCES adaptive_property_test.cc
  LIBS headgate_strategies headgate_base rapidcheck)
