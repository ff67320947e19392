// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Notes the node's own connects (kubelet's probes, system services), so that they are exempt
 * exactly: cgroup_skb egress on the cgroups of the node that hold no pods. It runs behind
 * POSTROUTING (net/ipv4/ip_output.c, ip_finish_output()), so that the address and the port are
 * those that the target sees: a connect to a ClusterIP is masqueraded, and connection tracking
 * gives even one that is not another port where a masqueraded client of a NodePort has this one
 * (nf_nat_alloc_null_binding()). Only connects from an address of the node are noted: where the
 * program sits on the root of the hierarchy, it sees pods as well.
 */
#include "lib/node.h"
#include "lib/payload.h"

SEC("cgroup_skb/egress")
int headgate_node_connects(struct __sk_buff *skb)
{
	struct headgate_node_flow_key key = {};
	const __u32 ip_bytes = headgate_ip_header_bytes(skb, IPPROTO_TCP);
	void *data = (void *)(long)skb->data;
	void *end = (void *)(long)skb->data_end;
	struct tcphdr *tcp = data + ip_bytes;
	__u64 now_ns;

	if (!ip_bytes || (void *)(tcp + 1) > end || !tcp->syn || tcp->ack)
		return 1;
	if (skb->protocol == bpf_htons(ETH_P_IP)) {
		struct iphdr *ip = data;

		if ((void *)(ip + 1) > end)
			return 1;
		key.source_address[2] = bpf_htonl(0xffff);
		key.source_address[3] = ip->saddr;
	} else {
		struct ipv6hdr *ip = data;

		if ((void *)(ip + 1) > end)
			return 1;
		__builtin_memcpy(key.source_address, &ip->saddr, sizeof(key.source_address));
	}
	if (!headgate_is_node_address(key.source_address))
		return 1;
	key.source_port = bpf_ntohs(tcp->source);
	now_ns = bpf_ktime_get_ns();
	bpf_map_update_elem(&headgate_node_flows, &key, &now_ns, BPF_ANY);
	return 1;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
