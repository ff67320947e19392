# SPDX-License-Identifier: Apache-2.0
# Network namespaces, sock_diag, the node's addresses and the pit: no BPF in here.
add_library(headgate_net STATIC
  address.cc netlink.cc netns.cc node_addresses.cc pit.cc sock_diag.cc listener_table.cc
  devices.cc)
target_link_libraries(headgate_net PUBLIC headgate_options PRIVATE Threads::Threads)
