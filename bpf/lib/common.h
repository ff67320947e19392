/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What every kernel program includes first. UAPI contexts only: nothing here needs BTF at run time.
 */
#ifndef HEADGATE_LIB_COMMON_H
#define HEADGATE_LIB_COMMON_H

#include <linux/bpf.h>
#include <linux/in.h>
#include <linux/types.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "headgate/bpf_abi.h"

#ifndef AF_INET
#define AF_INET 2
#endif
#ifndef AF_INET6
#define AF_INET6 10
#endif

/* A read of a context field that stays where it is: clang would merge the reads of two branches
 * into one through a computed pointer, which the verifier refuses ("dereference of modified ctx
 * ptr"). An empty asm that takes the value holds it in its branch.
 */
#define headgate_ctx_read(field)                                                                   \
	({                                                                                         \
		__u32 value__ = (field);                                                           \
		asm volatile("" : "+r"(value__));                                                  \
		value__;                                                                           \
	})

/* Copies an address out of a context: a macro, because the fields of the contexts differ. */
#define headgate_read_ipv4(to, field)                                                              \
	do {                                                                                       \
		(to)[2] = bpf_htonl(0xffff);                                                       \
		(to)[3] = headgate_ctx_read(field);                                                \
	} while (0)
#define headgate_read_ipv6(to, field)                                                              \
	do {                                                                                       \
		(to)[0] = headgate_ctx_read((field)[0]);                                           \
		(to)[1] = headgate_ctx_read((field)[1]);                                           \
		(to)[2] = headgate_ctx_read((field)[2]);                                           \
		(to)[3] = headgate_ctx_read((field)[3]);                                           \
	} while (0)

#endif /* HEADGATE_LIB_COMMON_H */
