# SPDX-License-Identifier: Apache-2.0
headgate_test(net_test netns SOURCES net_test.cc LIBS headgate_net headgate_net_lab)
headgate_test(net_lab_test netns SOURCES net_lab_test.cc LIBS headgate_net_lab)
