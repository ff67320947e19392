// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Notes the node's own connects (kubelet's probes, system services), so that they are exempt
 * exactly: sock_ops on the cgroups of the node that hold no pods. Only connects from an address of
 * the node are noted: where the program sits on the root of the hierarchy, it sees pods as well.
 */
#include "lib/common.h"
#include "lib/maps.h"

SEC("sockops")
int headgate_node_connects(struct bpf_sock_ops *ops)
{
	struct headgate_exempt_key address = {
	    .prefix_bits = 160,
	    .target = HEADGATE_EXEMPT_NODE_SET,
	};
	struct headgate_node_flow_key key = {};
	__u64 now_ns;

	if (ops->op != BPF_SOCK_OPS_TCP_CONNECT_CB)
		return 1;
	if (ops->family == AF_INET)
		headgate_read_ipv4(address.address, ops->local_ip4);
	else
		headgate_read_ipv6(address.address, ops->local_ip6);
	if (!bpf_map_lookup_elem(&headgate_exempt, &address))
		return 1;
	__builtin_memcpy(key.source_address, address.address, sizeof(key.source_address));
	key.source_port = (__u16)ops->local_port;
	now_ns = bpf_ktime_get_ns();
	bpf_map_update_elem(&headgate_node_flows, &key, &now_ns, BPF_ANY);
	return 1;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
