# SPDX-License-Identifier: Apache-2.0
headgate_test(log_test unit SOURCES log_test.cc LIBS headgate_base nlohmann_json::nlohmann_json)
