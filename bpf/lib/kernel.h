/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What is read of the kernel's own structs, and no more; libbpf finds the fields by their names in
 * the BTF of the running kernel. Only objects of their own include it: whatever shares an object
 * with a relocation cannot be loaded where there is no BTF, and reads all of it each time.
 */
#ifndef HEADGATE_LIB_KERNEL_H
#define HEADGATE_LIB_KERNEL_H

#include "lib/common.h"

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct file { /* linux/fs.h */
	__u32 f_flags;
};

struct socket { /* linux/net.h */
	struct file *file;
};

typedef struct { /* net/sock.h */
	int owned;
} socket_lock_t;

struct sock { /* net/sock.h */
	socket_lock_t sk_lock;
	__u8 sk_shutdown;
	struct socket *sk_socket;
};

struct inet_sock { /* net/inet_sock.h */
	struct sock sk;
};

struct inet_connection_sock { /* net/inet_connection_sock.h */
	struct inet_sock icsk_inet;
};

struct tcp_sock { /* linux/tcp.h */
	struct inet_connection_sock inet_conn;
	__u32 rcv_nxt;
	__u32 copied_seq;
	__u32 snd_una;
	__u32 write_seq;
};

#pragma clang attribute pop

/* asm-generic/fcntl.h; alpha, mips and parisc have other numbers and no such agent */
#define HEADGATE_O_NONBLOCK 04000
/* net/sock.h */
#define HEADGATE_RCV_SHUTDOWN 1

#endif /* HEADGATE_LIB_KERNEL_H */
