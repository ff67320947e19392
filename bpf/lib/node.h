/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The addresses of the node itself. */
#ifndef HEADGATE_LIB_NODE_H
#define HEADGATE_LIB_NODE_H

#include "lib/common.h"
#include "lib/maps.h"

static __always_inline int headgate_is_node_address(const __u32 *address)
{
	struct headgate_exempt_key key = {
	    .prefix_bits = 160,
	    .target = HEADGATE_EXEMPT_NODE_SET,
	};

	__builtin_memcpy(key.address, address, sizeof(key.address));
	return bpf_map_lookup_elem(&headgate_exempt, &key) != NULL;
}

#endif /* HEADGATE_LIB_NODE_H */
