# SPDX-License-Identifier: Apache-2.0
headgate_test(net_unit_test unit SOURCES net_test.cc LIBS headgate_net)
