# SPDX-License-Identifier: Apache-2.0
find_package(rapidcheck REQUIRED)
headgate_test(laws_property_test unit
  SOURCES laws_property_test.cc
  LIBS headgate_strategies headgate_decision headgate_signals headgate_base rapidcheck)
