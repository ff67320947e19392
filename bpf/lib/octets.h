/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Where the parsers of HTTP/2 get octets from: a packet in the kernel, memory elsewhere. */
#ifndef HEADGATE_LIB_OCTETS_H
#define HEADGATE_LIB_OCTETS_H

#ifdef __bpf__
#include "lib/common.h"
#endif
#include "headgate/bpf_abi.h"

#ifdef __bpf__
#define HEADGATE_OCTETS_INLINE static __attribute__((always_inline)) inline
/* It need not be linear. */
typedef struct __sk_buff headgate_octets;
#define headgate_octets_load(octets, at, to, bytes) bpf_skb_load_bytes(octets, at, to, bytes)
#else
#define HEADGATE_OCTETS_INLINE static inline
typedef struct {
	const __u8 *data;
} headgate_octets;
HEADGATE_OCTETS_INLINE int headgate_octets_load(const headgate_octets *octets, __u32 at, void *to,
						__u32 bytes)
{
	__builtin_memcpy(to, octets->data + at, bytes);
	return 0;
}
#endif

#endif /* HEADGATE_LIB_OCTETS_H */
