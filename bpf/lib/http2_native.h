/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * lib/http2.h outside the kernel: `headgate classify` and the tests feed it octets and are told
 * what it sees. The requests that wait are kept by the caller, as the kernel keeps them in a map.
 */
#ifndef HEADGATE_LIB_HTTP2_NATIVE_H
#define HEADGATE_LIB_HTTP2_NATIVE_H

#include "lib/http2.h"

struct headgate_http2_env {
	void *user;
	__u64
	    packet_offset;  /* in the stream, of the packet's first octet; 0 = behind the preface */
	__u64 block_offset; /* the same, of the frame that opened the latest header block */
	/* fills in endpoint and flags where the key has a route */
	void (*find)(void *user, const struct headgate_method_key *key, struct headgate_call *call);
	/* a request: its stream is h->stream, its class h->hpack.call */
	void (*seen)(void *user, const struct headgate_http2 *h);
	int (*put)(void *user, __u32 stream, const struct headgate_call *call);
	int (*take)(void *user, __u32 stream, struct headgate_call *call);
	void (*judge)(void *user, const struct headgate_http2 *h,
		      const struct headgate_http2_judged *judged);
	void (*gone)(void *user, __u32 stream); /* NULL: nobody asks */
};

static inline void headgate_http2_find(struct headgate_http2_env *env, struct headgate_http2 *h,
				       struct headgate_call *call)
{
	env->find(env->user, &h->hpack.key, call);
}

static inline void headgate_http2_seen(struct headgate_http2_env *env, struct headgate_http2 *h)
{
	env->seen(env->user, h);
}

static inline int headgate_http2_put(struct headgate_http2_env *env, __u32 stream,
				     const struct headgate_call *call)
{
	return env->put(env->user, stream, call);
}

static inline int headgate_http2_take(struct headgate_http2_env *env, __u32 stream,
				      struct headgate_call *call)
{
	return env->take(env->user, stream, call);
}

static inline void headgate_http2_judge(struct headgate_http2_env *env, struct headgate_http2 *h,
					const struct headgate_http2_judged *judged)
{
	env->judge(env->user, h, judged);
}

static inline void headgate_http2_more(struct headgate_http2_env *env, struct headgate_http2 *h)
{
	(void)env;
	(void)h; /* of live bytes nothing is known here */
}

static inline void headgate_http2_gone(struct headgate_http2_env *env, __u32 stream)
{
	if (env->gone)
		env->gone(env->user, stream);
}

/*
 * One packet of a connection that began with zeroed `h` behind the preface. Returns how many octets
 * were read: all of them, or up to where the connection was lost (headgate_http2_lost(); the reason
 * is in h->hpack.reason).
 */
static inline __u32 headgate_http2_feed(struct headgate_http2 *h, const __u8 *data, __u32 bytes,
					struct headgate_http2_env *env)
{
	headgate_octets octets = {data};
	int steps = 0;

	h->at = 0;
	while (!headgate_http2_lost(h) && h->at < bytes) {
		if (steps++ == HEADGATE_HTTP2_STEPS_MAX) {
			headgate_http2_lose(h, HEADGATE_UNKNOWN_BUDGET);
			break;
		}
		if (h->state == HEADGATE_HTTP2_HEAD && h->have == 0 &&
		    !(h->marks & HEADGATE_HTTP2_IN_BLOCK))
			env->block_offset = env->packet_offset + h->at;
		headgate_http2_handle(env, h, headgate_http2_step(h, &octets, bytes));
	}
	env->packet_offset += bytes;
	return h->at;
}

#endif /* HEADGATE_LIB_HTTP2_NATIVE_H */
