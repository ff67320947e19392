// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Stage HTTP/1.1 of the program on the live connections of a port: finds out what a connection
 * speaks, recognises the requests on it (lib/http1.h), and answers those that are refused with 429
 * or 503 in the place of the server.
 *
 * An answer is written over the packet in which the request came, and the packet is sent back on
 * the same socket; what is left of the request's body is dropped when it comes. The packet keeps
 * its length, whatever there is to say: the kernel goes on in the stream by the length that the
 * packet has when this program is done (tcp_eat_skb()), and would lag behind for ever. So the
 * answer ends in blanks. Where the kernel, the server or the client could be led astray by an
 * answer, the request passes: see headgate_http1_guarded().
 *
 * Needs bpf_loop (Linux 5.17) and the kernel's BTF.
 */
#include "lib/request.h"
#include "lib/http1.h"
#include "lib/in_flight.h"
#include "lib/kernel.h"

struct headgate_http1_env {
	struct __sk_buff *skb;
	struct headgate_stream *stream;
	__u32 swallowing; /* the packet begins with what is left of a refused request */
};

/* How a request is judged. */
#define HEADGATE_JUDGE_GUARDED	1U /* must pass */
#define HEADGATE_JUDGE_FORCED	2U /* must not: see headgate_request_forced() */
#define HEADGATE_JUDGE_ANSWERED 4U /* the one before it has been answered */

/* An answer to which the connection ends, and the number of the action. */
#define HEADGATE_FORM_CLOSE 256U

/* A request is with the server. Where it has one already that is not answered, it cannot be told
 * which one an answer is for: none on this connection is timed any more.
 */
static __always_inline void headgate_http1_admitted(struct headgate_stream *stream, __u32 endpoint,
						    __u32 answered)
{
	stream->passed_ns = stream->begun_ns;
	if (headgate_in_flight_ends(stream) && !answered)
		stream->flags |= HEADGATE_STREAM_PIPELINED;
	if (!(stream->flags & HEADGATE_STREAM_PIPELINED))
		headgate_in_flight_begins(stream, endpoint);
}

/* The verdict on the request whose head has ended: enum headgate_action, or -1: it passes. `how`:
 * HEADGATE_JUDGE_*.
 */
__attribute__((noinline)) int headgate_http1_judge(struct headgate_stream *stream, __u32 how)
{
	struct headgate_request request = {.guarded = how & HEADGATE_JUDGE_GUARDED};
	const struct headgate_request_port *port;
	const struct headgate_route *route;
	struct headgate_counters *counters;
	struct headgate_route_key key;
	struct headgate_http1 *http1;
	__u32 slot;
	int action;

	if (!stream)
		return -1;
	http1 = &stream->http1;
	stream->flags &= ~HEADGATE_STREAM_PENDING;
	slot = stream->port;
	port = bpf_map_lookup_elem(&headgate_request_ports, &slot);
	if (!port)
		return -1;
	if (!(stream->flags & HEADGATE_STREAM_RECOGNIZED)) {
		stream->flags |= HEADGATE_STREAM_RECOGNIZED;
		counters = headgate_counters_of(slot);
		if (counters)
			__sync_fetch_and_add(&counters->recognized, 1);
	}
	if (!(port->flags & HEADGATE_REQUESTS_HTTP1)) {
		http1->reason = HEADGATE_UNKNOWN_PROTOCOL;
		stream->protocol = HEADGATE_PROTOCOL_NONE;
	}
	request.endpoint = port->rest;
	request.exempt = stream->exempt;
	if (http1->reason) {
		headgate_count_unknown(slot, http1->reason);
		request.guarded = 1;
	} else {
		__builtin_memcpy(&key, &http1->path.key, sizeof(key));
		route = bpf_map_lookup_elem(&headgate_routes, &key);
		if (route) {
			request.endpoint = route->endpoint;
			if (route->flags & HEADGATE_ROUTE_EXEMPT)
				request.exempt = HEADGATE_EXEMPT_KIND_SOURCE;
		}
	}
	request.bytes = http1->request_bytes + http1->body_bytes;
	if (http1->flags & HEADGATE_HTTP1_CHUNKED)
		http1->body_bytes = 0; /* what is yet to come is counted when it has come */
	stream->reading = request.endpoint;
	action = headgate_request_gate(&request);
	http1->refused_for = request.reason;
	if (action >= 0 && action != HEADGATE_ACTION_HTTP_429 &&
	    action != HEADGATE_ACTION_HTTP_503) {
		headgate_request_passed(&request); /* a form that is none for HTTP/1.1 */
		action = -1;
	}
	if (action < 0 && (how & HEADGATE_JUDGE_FORCED)) {
		headgate_request_forced(&request);
		action = HEADGATE_ACTION_HTTP_429;
	}
	if (action < 0)
		headgate_http1_admitted(stream, request.endpoint, how & HEADGATE_JUDGE_ANSWERED);
	return action;
}

/* The rest of a chunked body has come. */
static __always_inline void headgate_http1_count_body(struct headgate_stream *stream)
{
	struct headgate_counters *counters = headgate_counters_of(stream->reading);

	if (!counters || !(stream->http1.flags & HEADGATE_HTTP1_CHUNKED))
		return;
	__sync_fetch_and_add(&counters->payload_bytes, stream->http1.body_bytes);
	if (!(stream->flags & HEADGATE_STREAM_SWALLOW))
		__sync_fetch_and_add(&counters->admitted_bytes, stream->http1.body_bytes);
}

/* 1 = nothing more is read of this packet. */
static __always_inline long headgate_http1_happened(struct headgate_http1_env *env, __u32 event)
{
	struct headgate_stream *stream = env->stream;

	switch (event) {
	case HEADGATE_HTTP1_BEGUN:
		stream->begun_ns = bpf_ktime_get_ns();
		return 0;
	case HEADGATE_HTTP1_HEAD:
		stream->flags |= HEADGATE_STREAM_PENDING;
		stream->protocol = HEADGATE_PROTOCOL_HTTP1;
		return stream->http1.state == HEADGATE_HTTP1_LOST;
	case HEADGATE_HTTP1_END:
		if (stream->flags & HEADGATE_STREAM_PENDING)
			return 0;
		headgate_http1_count_body(stream);
		stream->flags &= ~HEADGATE_STREAM_SWALLOW;
		return 0;
	case HEADGATE_HTTP1_HTTP2:
		stream->protocol = HEADGATE_PROTOCOL_HTTP2;
		return 1;
	}
	stream->protocol = HEADGATE_PROTOCOL_NONE;
	headgate_count_unknown(stream->port, stream->http1.reason);
	stream->http1.reason = HEADGATE_UNKNOWN_NONE; /* not that of a head that was whole */
	return 1;
}

/* Loads are of a constant length: verifiers before 6.2 lose the lower bound of another. */
static __always_inline long headgate_http1_look(struct headgate_http1_env *env)
{
	struct headgate_stream *stream = env->stream;
	__u32 at = stream->at, left = stream->packet_bytes - at;

	stream->window_at = at;
	if (left >= 64) {
		stream->window_bytes = 64;
		return bpf_skb_load_bytes(env->skb, at, stream->window, 64);
	}
	if (left >= 24) {
		stream->window_bytes = 24;
		return bpf_skb_load_bytes(env->skb, at, stream->window, 24);
	}
	if (left >= 8) {
		stream->window_bytes = 8;
		return bpf_skb_load_bytes(env->skb, at, stream->window, 8);
	}
	stream->window_bytes = 1;
	return bpf_skb_load_bytes(env->skb, at, stream->window, 1);
}

/* Another request begins in the packet in which one has come whole: that one is judged while it is
 * still known. 1 = nothing more is read of this packet.
 */
static __always_inline long headgate_http1_another(struct headgate_http1_env *env)
{
	struct headgate_stream *stream = env->stream;

	if (env->swallowing) { /* two behind the rest of a refused one: one packet, one answer */
		stream->flags |= HEADGATE_STREAM_CLOSING;
		return 1;
	}
	(void)headgate_http1_judge(stream, HEADGATE_JUDGE_GUARDED);
	return stream->protocol == HEADGATE_PROTOCOL_NONE;
}

static long headgate_http1_turn(__u32 index, struct headgate_http1_env *env)
{
	struct headgate_stream *stream = env->stream;
	__u32 event, in_window;

	(void)index;
	if (stream->at >= stream->packet_bytes)
		return 1;
	if (!headgate_http1_skips(&stream->http1) && headgate_http1_wants_window(stream) &&
	    headgate_http1_look(env))
		return 1;
	in_window = (stream->at - stream->window_at) & (HEADGATE_STREAM_WINDOW_BYTES - 1);
	if ((stream->flags & HEADGATE_STREAM_PENDING) &&
	    stream->http1.state == HEADGATE_HTTP1_BEGIN && stream->window[in_window] != '\r' &&
	    headgate_http1_another(env))
		return 1;
	event = headgate_http1_step(stream);
	if (event == HEADGATE_HTTP1_NOTHING)
		return 0;
	return headgate_http1_happened(env, event) ? 1 : 0;
}

/* What the socket says of an answer on it: HEADGATE_JUDGE_*. Nothing may be under way to the
 * client, or the answer would land in the middle of it; all that came before must have been read;
 * and no task may be within a system call on the socket, which keeps its own place in the stream
 * and would put back ours (tcp_bpf_recvmsg_parser()): it must be accepted, and non-blocking.
 */
static __always_inline __u32 headgate_http1_socket(struct __sk_buff *skb,
						   struct headgate_stream *stream)
{
	struct bpf_sock *ctx_sk = skb->sk;
	__u32 how = HEADGATE_JUDGE_GUARDED, written_seq;
	struct tcp_sock *tcp;
	struct socket *socket;
	struct sock *sk;
	struct file *file;

	if (!ctx_sk)
		return how;
	tcp = bpf_skc_to_tcp_sock(ctx_sk);
	if (!tcp)
		return how;
	sk = &tcp->inet_conn.icsk_inet.sk;
	written_seq = tcp->write_seq;
	if ((stream->flags & HEADGATE_STREAM_WRITTEN) && stream->written_seq != written_seq)
		how |= HEADGATE_JUDGE_ANSWERED;
	socket = sk->sk_socket;
	if (socket && !sk->sk_lock.owned && !(sk->sk_shutdown & HEADGATE_RCV_SHUTDOWN) &&
	    written_seq == tcp->snd_una && tcp->rcv_nxt - tcp->copied_seq == skb->len &&
	    ((how & HEADGATE_JUDGE_ANSWERED) || !(stream->flags & HEADGATE_STREAM_WRITTEN))) {
		file = socket->file;
		if (file && (file->f_flags & HEADGATE_O_NONBLOCK))
			how &= ~HEADGATE_JUDGE_GUARDED;
	}
	stream->written_seq = written_seq;
	stream->flags |= HEADGATE_STREAM_WRITTEN;
	return how;
}

static const char headgate_status_429[] = "HTTP/1.1 429 Too Many Requests\r\n";
static const char headgate_status_503[] = "HTTP/1.1 503 Service Unavailable\r\n";
static const char headgate_close[] = "Connection: close\r\n";
static const char headgate_blanks[1024] = {[0 ... 1023] = ' '};

#define HEADGATE_RETRY_BYTES  20 /* "Retry-After: 12345" and CRLF */
#define HEADGATE_LENGTH_BYTES 25 /* "Content-Length: 12345", CRLF and the empty line */
#define HEADGATE_BLANKS_LOOPS 64 /* 64 KB */

static __always_inline __u32 headgate_http1_head_bytes(__u32 form)
{
	return ((form & 255) == HEADGATE_ACTION_HTTP_503 ? sizeof(headgate_status_503)
							 : sizeof(headgate_status_429)) -
	       1 + (form & HEADGATE_FORM_CLOSE ? sizeof(headgate_close) - 1 : 0) +
	       HEADGATE_RETRY_BYTES + HEADGATE_LENGTH_BYTES;
}

/* Five columns, blanks in front: optional white space may precede a value (RFC 9110, 5.5). */
static __always_inline void headgate_put_number(char *to, __u32 value)
{
	int i;

#pragma unroll
	for (i = 4; i >= 0; i--) {
		to[i] = value || i == 4 ? (char)('0' + value % 10) : ' ';
		value /= 10;
	}
}

struct headgate_blanks_env {
	struct __sk_buff *skb;
	__u32 from;
	__u32 to;
};

static long headgate_blanks_turn(__u32 index, struct headgate_blanks_env *env)
{
	const __u32 at = env->from + index * sizeof(headgate_blanks);

	if (at + sizeof(headgate_blanks) > env->to)
		return 1;
	return bpf_skb_store_bytes(env->skb, at, headgate_blanks, sizeof(headgate_blanks), 0) ? 1
											      : 0;
}

/* Writes an answer of `bytes` bytes over the packet, which is writable. `bytes` is no less than
 * headgate_http1_head_bytes(form). Not 0: it failed.
 */
__attribute__((noinline)) int headgate_http1_write(struct __sk_buff *skb, __u32 bytes, __u32 form,
						   __u32 retry_after_s)
{
	char retry[HEADGATE_RETRY_BYTES] = "Retry-After:      \r";
	char length[HEADGATE_LENGTH_BYTES] = "Content-Length:      \r\n\r";
	struct headgate_blanks_env blanks = {.skb = skb, .to = bytes};
	__u32 at, piece;
	int err;

	retry[HEADGATE_RETRY_BYTES - 1] = '\n';
	length[HEADGATE_LENGTH_BYTES - 1] = '\n';
	headgate_put_number(retry + 13, retry_after_s);
	headgate_put_number(length + 16, bytes - headgate_http1_head_bytes(form));
	if ((form & 255) == HEADGATE_ACTION_HTTP_503) {
		at = sizeof(headgate_status_503) - 1;
		err = bpf_skb_store_bytes(skb, 0, headgate_status_503,
					  sizeof(headgate_status_503) - 1, 0);
	} else {
		at = sizeof(headgate_status_429) - 1;
		err = bpf_skb_store_bytes(skb, 0, headgate_status_429,
					  sizeof(headgate_status_429) - 1, 0);
	}
	if (form & HEADGATE_FORM_CLOSE) {
		err |= bpf_skb_store_bytes(skb, at, headgate_close, sizeof(headgate_close) - 1, 0);
		at += sizeof(headgate_close) - 1;
	}
	err |= bpf_skb_store_bytes(skb, at, retry, sizeof(retry), 0);
	at += sizeof(retry);
	err |= bpf_skb_store_bytes(skb, at, length, sizeof(length), 0);
	at += sizeof(length);
	blanks.from = at;
	bpf_loop(HEADGATE_BLANKS_LOOPS, headgate_blanks_turn, &blanks, 0);
	at += (bytes - at) & ~(__u32)(sizeof(headgate_blanks) - 1);
#pragma unroll
	for (piece = sizeof(headgate_blanks) / 2; piece; piece >>= 1) {
		if ((bytes - at) & piece) {
			err |= bpf_skb_store_bytes(skb, at, headgate_blanks, piece, 0);
			at += piece;
		}
	}
	return err;
}

/* Answers the packet: the program's verdict, or -1 where nothing can be written. */
static __always_inline int headgate_http1_answer(struct __sk_buff *skb, __u64 cookie,
						 const struct headgate_request_port *port,
						 __u32 form)
{
	const __u32 bytes = skb->len;
	__u32 retry_after_s = 1;

	if (bytes < headgate_http1_head_bytes(form) || bytes > 65536 ||
	    bpf_skb_pull_data(skb, bytes))
		return -1;
	if (port) {
		retry_after_s = port->retry_after_min_s;
		if (port->retry_after_max_s > retry_after_s)
			retry_after_s +=
			    bpf_get_prandom_u32() % (port->retry_after_max_s - retry_after_s + 1);
	}
	if (headgate_http1_write(skb, bytes, form, retry_after_s))
		return SK_DROP; /* half of it is written: it can be neither sent nor passed */
	return bpf_sk_redirect_hash(skb, &headgate_streams, &cookie, 0);
}

/*
 * Must the request pass, whatever the policy says? HEADGATE_JUDGE_*.
 *
 * The whole packet is answered, so it must hold the whole head, from its first byte, and nothing of
 * another request. The kernel cannot close a connection, so one that the server is to close passes;
 * an answer to HEAD has no body, and cannot be as long as the packet. The server does not see what
 * is refused: one request passes from time to time, or its idle timer closes the connection.
 */
static __always_inline __u32 headgate_http1_guarded(struct __sk_buff *skb,
						    struct headgate_stream *stream,
						    const struct headgate_request_port *port)
{
	const struct headgate_http1 *http1 = &stream->http1;
	__u32 how = headgate_http1_socket(skb, stream);

	if (!(port->flags & HEADGATE_REQUESTS_REFUSE) || http1->offset != stream->offset ||
	    stream->protocol == HEADGATE_PROTOCOL_NONE || http1->method == HEADGATE_METHOD_HEAD ||
	    (http1->flags & HEADGATE_HTTP1_CLOSE) || (stream->flags & HEADGATE_STREAM_PIPELINED) ||
	    skb->len > port->first_bytes_max ||
	    skb->len < headgate_http1_head_bytes(
			   HEADGATE_ACTION_HTTP_503 |
			   (http1->flags & HEADGATE_HTTP1_EXPECT ? HEADGATE_FORM_CLOSE : 0)) ||
	    (port->let_through_ns && stream->begun_ns - stream->passed_ns >= port->let_through_ns))
		how |= HEADGATE_JUDGE_GUARDED;
	return how;
}

/* The packet begins with what is left of a refused request, so it cannot pass. */
static __always_inline int headgate_http1_swallow(struct __sk_buff *skb, __u64 cookie,
						  struct headgate_stream *stream,
						  const struct headgate_request_port *port)
{
	const struct headgate_http1 *http1 = &stream->http1;
	const int begun = http1->offset >= stream->offset;
	__u32 form = HEADGATE_ACTION_HTTP_429 | HEADGATE_FORM_CLOSE;
	int verdict;

	if (stream->flags & HEADGATE_STREAM_PENDING) {
		form = (__u32)headgate_http1_judge(stream, HEADGATE_JUDGE_FORCED);
		if (form > 255) /* the port is looked at no more */
			form = HEADGATE_ACTION_HTTP_429;
		if ((http1->flags & (HEADGATE_HTTP1_EXPECT | HEADGATE_HTTP1_CLOSE)) ||
		    (stream->flags & HEADGATE_STREAM_CLOSING) ||
		    stream->protocol == HEADGATE_PROTOCOL_NONE)
			form |= HEADGATE_FORM_CLOSE;
	} else if (stream->protocol == HEADGATE_PROTOCOL_NONE) {
		stream->flags |= HEADGATE_STREAM_CLOSING; /* where its body ends is lost */
		return SK_DROP;
	} else if (!begun || http1->state < HEADGATE_HTTP1_METHOD) {
		return SK_DROP;
	}
	verdict = headgate_http1_answer(skb, cookie, port, form);
	if (verdict < 0)
		verdict = SK_DROP; /* too short for an answer: nothing can be said */
	if (verdict == SK_DROP || (form & HEADGATE_FORM_CLOSE))
		stream->flags |= HEADGATE_STREAM_CLOSING;
	else if (http1->state != HEADGATE_HTTP1_BEGIN)
		stream->flags |= HEADGATE_STREAM_SWALLOW;
	return verdict;
}

static __always_inline int headgate_http1_packet(struct __sk_buff *skb, __u64 cookie,
						 struct headgate_stream *stream,
						 const struct headgate_request_port *port)
{
	const struct headgate_http1 *http1 = &stream->http1;
	int action, verdict;
	__u32 form;

	if (!(stream->flags & HEADGATE_STREAM_PENDING))
		return SK_PASS;
	action = headgate_http1_judge(stream, headgate_http1_guarded(skb, stream, port));
	if (action < 0)
		return SK_PASS;
	form = (__u32)action;
	/* It waits for 100 Continue: it may send its body or not, and nobody can tell which. */
	if ((http1->flags & HEADGATE_HTTP1_EXPECT) && http1->state != HEADGATE_HTTP1_BEGIN)
		form |= HEADGATE_FORM_CLOSE;
	verdict = headgate_http1_answer(skb, cookie, port, form);
	if (verdict < 0) {
		struct headgate_request request = {
		    .endpoint = stream->reading,
		    .bytes = http1->request_bytes + http1->body_bytes,
		    .reason = http1->refused_for,
		};

		headgate_request_passed(&request);
		headgate_http1_admitted(stream, stream->reading, 1);
		return SK_PASS;
	}
	if (verdict == SK_DROP || (form & HEADGATE_FORM_CLOSE))
		stream->flags |= HEADGATE_STREAM_CLOSING;
	else if (http1->state != HEADGATE_HTTP1_BEGIN)
		stream->flags |= HEADGATE_STREAM_SWALLOW;
	return verdict;
}

SEC("sk_skb/stream_verdict")
int headgate_stream_http1(struct __sk_buff *skb)
{
	struct headgate_http1_env env = {.skb = skb};
	const struct headgate_request_port *port;
	struct headgate_stream *stream;
	__u64 cookie = bpf_get_socket_cookie(skb);
	__u32 slot;
	int verdict;

	stream = bpf_map_lookup_elem(&headgate_stream_states, &cookie);
	if (!stream)
		return SK_PASS;
	if (stream->flags & HEADGATE_STREAM_CLOSING)
		return SK_DROP;
	env.stream = stream;
	env.swallowing = stream->flags & HEADGATE_STREAM_SWALLOW;
	slot = stream->port;
	port = bpf_map_lookup_elem(&headgate_request_ports, &slot);
	if (!port && !env.swallowing) {
		stream->protocol = HEADGATE_PROTOCOL_NONE;
		return SK_PASS;
	}
	stream->at = 0;
	stream->packet_bytes = skb->len;
	stream->window_bytes = 0;
	bpf_loop(HEADGATE_HTTP1_STEPS_MAX, headgate_http1_turn, &env, 0);
	if (stream->protocol == HEADGATE_PROTOCOL_HTTP2) {
		__builtin_memset(stream->http2, 0, sizeof(stream->http2));
		bpf_tail_call(skb, &headgate_stream_stages, HEADGATE_STAGE_HTTP2);
		stream->protocol = HEADGATE_PROTOCOL_NONE;
		headgate_stream_given_up(stream);
		return SK_PASS;
	}
	if (stream->protocol != HEADGATE_PROTOCOL_NONE && stream->at < stream->packet_bytes &&
	    stream->http1.state != HEADGATE_HTTP1_LOST &&
	    !(stream->flags & HEADGATE_STREAM_CLOSING)) {
		stream->protocol = HEADGATE_PROTOCOL_NONE;
		headgate_count_unknown(slot, HEADGATE_UNKNOWN_BUDGET);
	}
	if (env.swallowing)
		verdict = headgate_http1_swallow(skb, cookie, stream, port);
	else if (port)
		verdict = headgate_http1_packet(skb, cookie, stream, port);
	else
		verdict = SK_PASS;
	stream->offset += stream->packet_bytes;
	if (stream->http1.state == HEADGATE_HTTP1_LOST)
		stream->protocol = HEADGATE_PROTOCOL_NONE; /* behind a head with Upgrade */
	if (stream->protocol == HEADGATE_PROTOCOL_NONE)
		headgate_stream_given_up(stream);
	return verdict;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
