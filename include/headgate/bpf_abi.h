/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * The contract between the agent and its kernel programs: the only header that both sides include.
 *
 * Rules. Fixed-width types, explicit padding, no bool, no bit-fields, no long, no packed attribute.
 * Sizes are asserted here on both sides and compared with BTF by tests/kernel. Every struct that
 * userspace stores into while the kernel reads it is made of aligned 8-byte words, each of which is
 * valid together with any older or newer word beside it, so a torn read is still a legal policy.
 *
 * Units are in the names: _ns is CLOCK_MONOTONIC nanoseconds (bpf_ktime_get_ns), _q32 is a fraction
 * in [0, 1 << 32], where 1 << 32 is exactly "always". Addresses are in network byte order, IPv4 as
 * ::ffff:a.b.c.d (RFC 4291, 2.5.5.2); ports are in host byte order.
 *
 * Changing a size or a meaning means raising HEADGATE_ABI_VERSION: it is part of the pin path, so
 * maps of another layout are never adopted.
 */
#ifndef HEADGATE_BPF_ABI_H
#define HEADGATE_BPF_ABI_H

#include <linux/types.h>

#define HEADGATE_ABI_VERSION 4

#ifdef __cplusplus
#define HEADGATE_ABI_SIZE(type, bytes) \
  static_assert(sizeof(struct type) == (bytes), "size of " #type)
#else
#define HEADGATE_ABI_SIZE(type, bytes) \
  _Static_assert(sizeof(struct type) == (bytes), "size of " #type)
#endif

#define HEADGATE_MAX_TARGETS 1024
#define HEADGATE_MAX_ENDPOINTS 4096
#define HEADGATE_MAX_STREAMS 65536 /* live connections whose requests are looked at */
#define HEADGATE_ALWAYS_Q32 (1ULL << 32)

/* Where a verdict's endpoint is looked up: (network namespace, address or any, port, protocol). */
struct headgate_endpoint_key {
  __u32 netns_id;   /* inode number of the network namespace */
  __u16 port;       /* host byte order */
  __u8 protocol;    /* IPPROTO_TCP or IPPROTO_UDP */
  __u8 reserved;    /* 0 */
  __u32 address[4]; /* network byte order; all zero = any address */
};
HEADGATE_ABI_SIZE(headgate_endpoint_key, 24);

/* Look again with the local address in the key; set on the "any" entry of a port whose listeners
 * are bound to addresses (hostNetwork and plain hosts). Its own endpoint field is then not used.
 */
#define HEADGATE_REF_BY_ADDRESS 1U
/* The requests on connections to this port are looked at: see headgate_request_port. */
#define HEADGATE_REF_REQUESTS 2U

struct headgate_endpoint_ref {
  __u32 endpoint; /* slot in the endpoint maps, [0, HEADGATE_MAX_ENDPOINTS) */
  __u32 flags;    /* HEADGATE_REF_* */
};
HEADGATE_ABI_SIZE(headgate_endpoint_ref, 8);

/* Why an attempt would be refused. The order of the verdict is that of headgate_judge(). */
enum headgate_reason {
  HEADGATE_REASON_NONE = 0,
  HEADGATE_REASON_CIRCUIT = 1,     /* the circuit is open: everything but the probe */
  HEADGATE_REASON_CONNECTIONS = 2, /* cap on live connections */
  HEADGATE_REASON_RATE = 3,        /* hard cap on new connections per second */
  HEADGATE_REASON_SHARE = 4,       /* thinned: above the admitted share */
  HEADGATE_REASON_BUDGET = 5,      /* the CPU budget (leaky bucket) is used up */
  HEADGATE_REASON_MEMORY = 6,      /* the live-bytes budget is used up */
  HEADGATE_REASON_WAITED = 7,      /* a deferred attempt that has waited for its deadline */
  HEADGATE_REASON_COUNT = 8,
};

/* What the client gets for a refusal. One byte a reason in headgate_endpoint_policy.actions. */
enum headgate_action {
  HEADGATE_ACTION_RESET = 0,    /* TCP RST, for UDP an ICMP error */
  HEADGATE_ACTION_DEFER = 1,    /* silence; the client's kernel tries again, each try is judged */
  HEADGATE_ACTION_DROP = 2,     /* silence for good (tc, XDP) */
  HEADGATE_ACTION_HTTP_429 = 3, /* requests only: answered by the kernel */
  HEADGATE_ACTION_HTTP_503 = 4, /* the same */
  HEADGATE_ACTION_GRPC_EXHAUSTED = 5, /* requests only: the server's own RESOURCE_EXHAUSTED */
  HEADGATE_ACTION_COUNT = 6,
};

/* What a hook does with one try. */
enum headgate_verdict {
  HEADGATE_ADMIT = 0,
  HEADGATE_RESET = 1,
  HEADGATE_DEFER = 2,
  HEADGATE_DROP = 3,
  HEADGATE_ANSWER = 4, /* a request is refused in the form of its action */
  HEADGATE_VERDICT_COUNT = 5,
};

/* headgate_endpoint_policy.flags: what is armed. 0 = the gate is idle and the verdict ends there.
 */
#define HEADGATE_ARM_CIRCUIT (1ULL << 0)
#define HEADGATE_ARM_CONNECTIONS (1ULL << 1)
#define HEADGATE_ARM_RATE (1ULL << 2)
#define HEADGATE_ARM_SHARE (1ULL << 3)
#define HEADGATE_ARM_BUDGET (1ULL << 4)
#define HEADGATE_ARM_MEMORY (1ULL << 5)
#define HEADGATE_ARM_MAX_REFUSE (1ULL << 6)
#define HEADGATE_ARM_MASK 0x7fULL
/* modifiers; they arm nothing */
#define HEADGATE_OBSERVE (1ULL << 16)         /* judge and count, refuse nothing */
#define HEADGATE_TICKETS_SETTLED (1ULL << 17) /* sock_ops deletes tickets: keep a used one */
#define HEADGATE_EXEMPT_NODE (1ULL << 18)     /* the node's own connects, known by sock_ops */
#define HEADGATE_EXEMPT_SOURCES (1ULL << 19)  /* look the source up in headgate_exempt */
#define HEADGATE_MAY_DEFER (1ULL << 20)       /* some action is DEFER: ages are kept */
#define HEADGATE_JUDGE_EARLY (1ULL << 21)     /* tc and XDP judge it, in front of the socket */
#define HEADGATE_LAST_TRY_ENTERS (1ULL << 22) /* refuse: auto; see headgate_resolve() */

#define HEADGATE_LEVEL_PORT 0
#define HEADGATE_LEVEL_ROUTE 1

/*
 * The decision for one endpoint as the kernel reads it (BPF_F_MMAPABLE array, stored by userspace
 * word by word). Everything a verdict refuses for hangs on the lease of its target.
 */
struct headgate_endpoint_policy {
  __u64 flags;               /* HEADGATE_ARM_* and modifiers; stored last when arming */
  __u64 admit_q32;           /* ARM_SHARE: share of the attempts to admit */
  __u64 actions;             /* headgate_action of reason r in bits [8r, 8r + 8) */
  __u64 charge_request_ns;   /* ARM_BUDGET: bucket time for one attempt */
  __u64 charge_kb_ns;        /* ARM_BUDGET: bucket time per kilobyte, where the size is known */
  __u64 depth_ns;            /* ARM_BUDGET: depth of the bucket for this endpoint */
  __u64 rate_interval_ns;    /* ARM_RATE: 1 / (attempts per second) */
  __u64 rate_burst_ns;       /* ARM_RATE: how far ahead of the clock the rate may run */
  __u64 connections_max;     /* ARM_CONNECTIONS: live connections and outstanding tickets */
  __u64 connections_legacy;  /* live ones older than the attach, counted by sock_diag */
  __u64 tickets_written_off; /* cumulative: issued, never established, given up by the agent */
  __u64 probe_interval_ns;   /* one attempt in this time is admitted in any state; 0 = none */
  __u64 max_refuse_q32;      /* ARM_MAX_REFUSE: refuse no larger share than this */
  __u64 exempt_interval_ns;  /* 1 / exempt rate for the node's addresses; 0 = no limit */
  __u64 exempt_burst_ns;     /* how far ahead of the clock the exempt rate may run */
  __u32 target;              /* slot in the target maps, [0, HEADGATE_MAX_TARGETS) */
  __u32 level;               /* HEADGATE_LEVEL_* */
  __u32 parent;              /* endpoint of the port, where level is ROUTE */
  __u32 generation;          /* tick that wrote this; shown by explain */
  __u64 defer_deadline_ns;   /* a deferred attempt is reset at its last try before this age */
  __u64 waiting_max;         /* a new attempt is deferred for BUDGET while fewer wait */
  __u64 waiting_max_other;   /* the same for every other reason; those of the whole target count */
};
HEADGATE_ABI_SIZE(headgate_endpoint_policy, 160);

/* The decision for one target (BPF_F_MMAPABLE array). */
struct headgate_target_policy {
  __u64 valid_until_ns;       /* the lease: later than this every attempt is admitted */
  __u64 bucket_depth_max_ns;  /* largest depth of its endpoints: tat is clamped with it */
  __u64 bucket_charge_max_ns; /* largest charge of its endpoints */
  __u64 defer_deadline_ns;    /* the longest of its endpoints: an older age is of another connect */
  __u64 waiting_max;          /* deferred attempts that may wait at once, whatever the endpoint */
  __u64 waiting_written_off;  /* cumulative: first tries whose clients have given up */
  __u64 live_bytes_max;       /* ARM_MEMORY: budget of bytes received by open connections */
  __u64 connections_max;      /* connections and tickets of the whole target; 0 = no cap */
  __u64 connections_legacy;   /* as in the endpoint */
  __u32 generation;
  __u32 reserved32;
  __u64 tickets_written_off; /* as in the endpoint */
  __u64 live_base;           /* HEADGATE_LIVE_BASE(): what is live no more, and the generation */
  __u64 reserved[4];
};
HEADGATE_ABI_SIZE(headgate_target_policy, 128);

/* Live bytes end with their connection, or with the first byte of the response where that can be
 * seen. Elsewhere they end by age: such bytes are added to the sum of the generation in which they
 * came, the agent counts generations up, and only the current one and the one before are live. The
 * sums are never cleared; what is in them that is live no more is in `live_base`, in one word with
 * the number of the generation, so that neither is ever read without the other.
 */
#define HEADGATE_LIVE_GENERATIONS 4
#define HEADGATE_LIVE_BASE(bytes, generation) (((__u64)(bytes) << 16) | ((generation)&0xffffU))
#define HEADGATE_LIVE_GENERATION(live_base) ((__u32)((live_base)&0xffffU))
#define HEADGATE_LIVE_BASE_BYTES(live_base) ((__s64)(live_base) >> 16)

/*
 * What the kernel keeps per endpoint and per target. Userspace reads it and never writes a whole
 * struct: that would destroy accumulators that run meanwhile. The first word is a bpf_spin_lock in
 * the variant for kernels without BPF atomics (< 5.12); a map with a lock cannot be mmapped.
 */
struct headgate_endpoint_state {
#ifdef __bpf__
  struct bpf_spin_lock lock;
#else
  __u32 lock;
#endif
  __u32 reserved32;
  __u64 share_q32;             /* error diffusion: fraction carried from attempt to attempt */
  __u64 refuse_credit_q32;     /* ARM_MAX_REFUSE: refusals that are paid for */
  __u64 rate_tat_ns;           /* theoretical arrival time of the hard rate cap (GCRA) */
  __u64 exempt_tat_ns;         /* the same for exempt connections of the node */
  __u64 probe_last_ns;         /* when the last probe was admitted */
  __u64 in_flight;             /* established minus closed since the attach (sock_ops) */
  __u64 tickets_issued;        /* cumulative */
  __u64 tickets_settled;       /* cumulative: established */
  __u64 largest_request_bytes; /* payload that came in one turn, since the slot was claimed */
  __u64 early_datagrams;       /* admitted by an early hook, not seen at the socket yet */
  __u64 reserved[5];
};
HEADGATE_ABI_SIZE(headgate_endpoint_state, 128);

struct headgate_target_state {
#ifdef __bpf__
  struct bpf_spin_lock lock;
#else
  __u32 lock;
#endif
  __u32 reserved32;
  __u64 bucket_tat_ns;   /* theoretical arrival time of the CPU budget */
  __u64 live_bytes;      /* received by open connections, not answered yet (HTTP/1.1) */
  __u64 in_flight;       /* live connections of the whole target */
  __u64 waiting_started; /* cumulative: distinct attempts deferred */
  __u64 waiting_settled; /* cumulative: of those admitted or reset later */
  __u64 tickets_issued;
  __u64 tickets_settled;
  __u64 live_aged[HEADGATE_LIVE_GENERATIONS]; /* the same where no response can be seen */
  __u64 reserved[4];
};
HEADGATE_ABI_SIZE(headgate_target_state, 128);

/*
 * Counters per endpoint, per CPU (element CPU * HEADGATE_MAX_ENDPOINTS + endpoint), cumulative. A
 * "try" is one run of the hook for a packet; an "attempt" is a client's connect: retransmits of a
 * deferred SYN and the second look-up of an admitted one are further tries of the same attempt.
 */
struct headgate_counters {
  __u64 tries;    /* every run of the hook for this endpoint */
  __u64 offered;  /* attempts: first tries */
  __u64 admitted; /* attempts admitted, for whatever cause (the next five are parts of it) */
  __u64 admitted_exempt;
  __u64 admitted_stale; /* would have been refused, but the lease had run out */
  __u64 admitted_probe;
  __u64 admitted_observed; /* would have been refused, but the mode is observe */
  __u64 admitted_capped;   /* would have been refused, but max_refuse forbids it */
  __u64 admitted_deferred; /* admitted at a later try */
  __u64 repeats;        /* further tries that met the answer of the first (not `deferred_tries`) */
  __u64 reset;          /* attempts answered by RST or ICMP */
  __u64 deferred;       /* attempts deferred at their first try */
  __u64 deferred_tries; /* tries answered by silence, the first ones included */
  __u64 expired;        /* attempts reset because they had waited for the deadline */
  __u64 dropped;
  __u64 pit_missing;                         /* a deferral that had to be a reset */
  __u64 would_refuse[HEADGATE_REASON_COUNT]; /* tries, by the reason that refused or would have */
  __u64 refused[HEADGATE_REASON_COUNT];      /* tries that were refused, by reason */
  __u64 established;                         /* sock_ops: handshakes completed by the server */
  __u64 closed;                              /* sock_ops */
  __u64 received_bytes;                      /* sock_ops: payload of the closed connections */
  __u64 repeats_refused;                     /* part of repeats: answered by RST again */
  __u64 payload_bytes;                       /* cgroup_skb: payload as it comes in, TCP and UDP */
  __u64 responses;                           /* closed connections that carried one request */
  __u64 response_ns;                         /* sum of their lives, established to closed */
  /* Requests, in the slots of routes: there "attempt" is a request, responses and response_ns are
   * from its first byte to the first byte of its answer (HTTP/1.1), payload_bytes are those of
   * requests, and `closed` counts the connections that ended with a request in flight.
   */
  __u64 answered;          /* refused by an answer of the kernel's, or by one it brings about */
  __u64 admitted_guarded;  /* would have been refused, but this socket must not be answered now */
  __u64 admitted_bytes;    /* of payload_bytes: requests that were admitted */
  __u64 recognized;        /* in the slot of the port: connections on which a request was seen */
  __u64 admitted_last_try; /* of admitted_deferred: let in because it could wait no longer */
  __u64 unrecognized;      /* in the slot of the port: connections that carry none, as they said */
  __u64 reserved[3];
};
HEADGATE_ABI_SIZE(headgate_counters, 384);

/* One TCP attempt: key of the tickets and of the ages. */
struct headgate_flow_key {
  __u32 netns_id;
  __u16 local_port;
  __u16 remote_port;
  __u32 local_address[4];
  __u32 remote_address[4];
};
HEADGATE_ABI_SIZE(headgate_flow_key, 40);

/*
 * What is remembered of a flow for a short time, in an array of small sets: the hash of the
 * flow chooses the set, more bits of it are kept as a fingerprint. One cache line a look-up, no
 * insertion into a chain or a list; a full set gives up what matters least. Keyed with secret
 * random words, so that nobody can make flows that collide; by chance two do once in 2^51 pairs.
 *
 * An entry is one word, so that it is read and replaced as a whole; 0 = free:
 *   bits 0 to 35 fingerprint, 36 to 61 time in units of 2^20 ns, 62 and 63 headgate_flow_kind.
 */
#define HEADGATE_FLOW_SETS 32768U /* a power of two */
#define HEADGATE_FLOWS_PER_SET 7
#define HEADGATE_FLOW_TIME_SHIFT 20

enum headgate_flow_kind {
  HEADGATE_FLOW_NONE = 0,
  HEADGATE_FLOW_TIME_WAIT = 1, /* the server has closed first: its side may be in TIME_WAIT */
  HEADGATE_FLOW_REFUSED = 2,   /* answered by RST while in TIME_WAIT: it will be looked up again;
                                * under the hash of flow and ISN: dropped, and will be sent again */
  HEADGATE_FLOW_TICKET = 3,    /* admitted, not established yet */
};

struct headgate_flow_set {
#ifdef __bpf__
  struct bpf_spin_lock lock;
#else
  __u32 lock;
#endif
  __u32 reserved32;
  __u64 entries[HEADGATE_FLOWS_PER_SET];
};
HEADGATE_ABI_SIZE(headgate_flow_set, 64);

/* A ticket older than this is no ticket: the SYN timer of any client has moved on (RFC 6298). */
#define HEADGATE_TICKET_TTL_NS (5ULL * 1000 * 1000 * 1000)
/* Where no sock_ops ends tickets when they are used, one lies about after its connection and lets
 * in the next from the same port. Then it lives as long as the first retransmit needs.
 */
#define HEADGATE_TICKET_UNSETTLED_TTL_NS (1500ULL * 1000 * 1000)
/* TCP_TIMEWAIT_LEN (include/net/tcp.h) and what the fingerprint's clock may miss. */
#define HEADGATE_TIME_WAIT_TTL_NS (61ULL * 1000 * 1000 * 1000)
/* A client whose SYN was answered out of TIME_WAIT by a challenge ACK sends its RST and the SYN
 * again: after two jiffies, before Linux 5.6 after one second.
 */
#define HEADGATE_REFUSED_TTL_NS (1500ULL * 1000 * 1000)

/* A SYN that was dropped is sent again with the same ISN: for about 67 s by Linux (six tries more,
 * the first four a second apart: tcp_syn_retries, tcp_syn_linear_timeouts), 63 s before 6.5.
 */
#define HEADGATE_DROPPED_TTL_NS (70ULL * 1000 * 1000 * 1000)

struct headgate_age {
  __u64 first_ns; /* first try of the attempt */
  __u64 last_ns;  /* latest try */
  __u32 endpoint;
  __u32 reserved;
};
HEADGATE_ABI_SIZE(headgate_age, 24);

/* Sources exempt from refusals: longest prefix match over (target, address). */
struct headgate_exempt_key {
  __u32 prefix_bits; /* 32 + bits of the address; IPv4 counts 96 + its own */
  __u32 target;
  __u32 address[4];
};
HEADGATE_ABI_SIZE(headgate_exempt_key, 24);

/* As `target` of the key: the node's own addresses, for the program that notes its connects. */
#define HEADGATE_EXEMPT_NODE_SET 0xffffffffU

#define HEADGATE_EXEMPT_KIND_SOURCE 1U /* configured network: always */
#define HEADGATE_EXEMPT_KIND_NODE 2U   /* an address of the node: up to the exempt rate */

/* The pit of a namespace: key of the SOCKHASH. */
struct headgate_pit_key {
  __u32 netns_id;
  __u32 family; /* AF_INET or AF_INET6 */
};
HEADGATE_ABI_SIZE(headgate_pit_key, 8);

/* A note about a connect of the node is good for this long: SYN retransmits included, long before
 * the port is used again.
 */
#define HEADGATE_NODE_FLOW_TTL_NS (10ULL * 1000 * 1000 * 1000)

/* A connect made by the node itself: noted at TCP_CONNECT_CB, met again on the server's side. The
 * destination is no part of the key, because kube-proxy rewrites it after the note is taken.
 */
struct headgate_node_flow_key {
  __u32 source_address[4];
  __u16 source_port;
  __u16 reserved;
};
HEADGATE_ABI_SIZE(headgate_node_flow_key, 20);

/* The one cell that every verdict reads first: the kill switch. */
struct headgate_control {
  __u64 off;            /* not 0: every verdict is "admit" (headgate off) */
  __u64 abi_version;    /* HEADGATE_ABI_VERSION of the writer */
  __u64 policy_version; /* meaning of the policy words, stored with them (case F29) */
  __u32 hash_key[10];   /* secret, random: of the flows' hash; made once with the map */
  /* Grows with each change of headgate_endpoints, after it: what the early hooks have found there
   * before holds no more.
   */
  __u64 endpoints_generation;
};
HEADGATE_ABI_SIZE(headgate_control, 72);

/*
 * ---- Early hooks: tc and XDP, in front of the socket layer. They judge what has the flag
 * JUDGE_EARLY and an armed gate, and leave everything else to sk_lookup, which then counts it. What
 * they admit bears a ticket (TCP) or is counted in `early_datagrams` (UDP), so that sk_lookup
 * behind them lets it in without judging, counting or charging again.
 */

/* Who was refused since the agent last looked: one bit a source, by a hash. How many bits are set
 * tells how many sources there are (linear counting: Whang et al., ACM TODS 15(2), 1990).
 */
#define HEADGATE_SOURCE_BITS 1024
struct headgate_source_set {
  __u64 bits[HEADGATE_SOURCE_BITS / 64];
};
HEADGATE_ABI_SIZE(headgate_source_set, 128);

/* Why an early hook left a packet to the socket's gate without looking for its endpoint. */
enum headgate_left {
  HEADGATE_LEFT_FRAGMENT = 0,  /* ports are known after reassembly only */
  HEADGATE_LEFT_DEEP = 1,      /* more tags or extension headers than are followed */
  HEADGATE_LEFT_MALFORMED = 2, /* lengths that contradict each other */
  HEADGATE_LEFT_COUNT = 3,
};

/* What is kept with a socket (sk_storage), from its handshake to its close. */
enum headgate_stream_kind {
  HEADGATE_STREAM_UNKNOWN = 0, /* no payload yet */
  HEADGATE_STREAM_HTTP1 = 1,   /* began with a method of HTTP/1.1 in plain text */
  HEADGATE_STREAM_OTHER = 2,   /* its responses cannot be seen */
};

struct headgate_connection {
  __u64 established_ns;
  __u64 received_bytes; /* payload that has come in */
  __u64 released_bytes; /* of it: live no more; OTHER: came before `generation` */
  __u64 turn_bytes;     /* received_bytes when the last turn ended */
  __u32 endpoint;
  __u32 target;
  __u16 kind;       /* enum headgate_stream_kind */
  __u16 responses;  /* not 0: lib/responses.h looks at what its server sends */
  __u32 turns;      /* requests that were answered, as far as payload tells; stays at 2 */
  __u32 generation; /* OTHER: of the latest bytes. HTTP1: bytes announced, still to come */
  __u32 closed;     /* not 0: what comes now is live no more */
};
HEADGATE_ABI_SIZE(headgate_connection, 56);

/*
 * ---- Requests on live connections. sock_ops adds a connection of a port with
 * HEADGATE_REF_REQUESTS to the SOCKHASH `headgate_streams`, keyed by socket cookie; the program on
 * that map sees the payload before the server does. Routes have endpoint slots of their own
 * (HEADGATE_LEVEL_ROUTE); what has no route, or is of unknown class, belongs to the slot `rest`.
 */

/* The port's side of it, keyed by the port's endpoint slot. Absent: nothing is looked at. */
struct headgate_request_port {
  __u32 rest;  /* endpoint slot of requests without a route: the port's rule */
  __u32 flags; /* HEADGATE_REQUESTS_* */
  __u32 retry_after_min_s;
  __u32 retry_after_max_s; /* Retry-After is drawn from [min, max] */
  __u64 let_through_ns;    /* one request of a connection passes in this time: its idle timer */
  __u32 first_bytes_max;   /* a first packet larger than this is not answered; [75, 65536] */
  /* Changes whenever routes or methods of the port do, and only then: HTTP/2 names a path once and
   * refers to it for the life of the connection. What was looked up under another generation is
   * counted where it still belongs, and never refused.
   */
  __u32 generation;
};
HEADGATE_ABI_SIZE(headgate_request_port, 32);

#define HEADGATE_REQUESTS_HTTP1 1U  /* paths of HTTP/1.1 are looked up in headgate_routes */
#define HEADGATE_REQUESTS_HTTP2 2U  /* paths of HTTP/2 are looked up in headgate_methods */
#define HEADGATE_REQUESTS_REFUSE 4U /* refusals are allowed: self-tests passed, form fits */

/* A path prefix of HTTP/1.1, normalised (RFC 3986 section 6: no query, no empty or "." segment, no
 * trailing "/", unreserved octets decoded) and ended by "/": longest prefix match ends at a border
 * of segments. "/" alone is "/". A path longer than the key matches by its beginning.
 */
#define HEADGATE_ROUTE_PATH_BYTES 120
struct headgate_route_key {
  __u32 prefix_bits; /* 32 + 8 * bytes of the path */
  __u32 port;        /* the port's endpoint slot */
  __u8 path[HEADGATE_ROUTE_PATH_BYTES];
};
HEADGATE_ABI_SIZE(headgate_route_key, 128);

/* A full gRPC method ("/package.Service/Method") as it stands in a header block: once in plain,
 * once in the Huffman form of RFC 7541, which is unique. Zero padded.
 */
struct headgate_method_key {
  __u32 port;
  __u16 bytes;
  __u8 huffman; /* 1: `path` is the coded form */
  __u8 reserved;
  __u8 path[HEADGATE_ROUTE_PATH_BYTES];
};
HEADGATE_ABI_SIZE(headgate_method_key, 128);

#define HEADGATE_ROUTE_EXEMPT 1U /* exempt.paths: counted in its slot, never refused */
#define HEADGATE_ROUTE_UNARY 2U  /* gRPC: exactly one message a call, the only kind to refuse */

struct headgate_route {
  __u32 endpoint; /* slot that counts it and whose policy it meets */
  __u32 flags;    /* HEADGATE_ROUTE_* */
};
HEADGATE_ABI_SIZE(headgate_route, 8);

/* A request of HTTP/2 between its header block and its first DATA, where others come in between. */
struct headgate_call_key {
  __u64 cookie; /* of the socket */
  __u32 stream;
  __u32 reserved;
};
HEADGATE_ABI_SIZE(headgate_call_key, 16);

/* Whose request it is. */
struct headgate_call {
  __u16 endpoint;  /* slot of the route; HEADGATE_CALL_REST = the port's rest */
  __u8 flags;      /* HEADGATE_ROUTE_*, HEADGATE_CALL_NO_PATH */
  __u8 generation; /* of headgate_request_port, its lower octet, at the look-up */
};
HEADGATE_ABI_SIZE(headgate_call, 4);

#define HEADGATE_CALL_REST 0xffffU
#define HEADGATE_CALL_NO_PATH 0x80U /* no path was seen: of unknown class */

/* Why the class of a request, or of the rest of its connection, is unknown. */
enum headgate_unknown {
  HEADGATE_UNKNOWN_NONE = 0,
  HEADGATE_UNKNOWN_NOT_HTTP = 1,  /* the first bytes are neither HTTP/1.1 nor HTTP/2 */
  HEADGATE_UNKNOWN_TLS = 2,       /* a TLS record: nothing can be seen */
  HEADGATE_UNKNOWN_OLD = 3,       /* the connection is older than the agent */
  HEADGATE_UNKNOWN_UPGRADE = 4,   /* Upgrade (h2c, WebSocket) or CONNECT */
  HEADGATE_UNKNOWN_METHOD = 5,    /* no method of RFC 9110, or not in capitals */
  HEADGATE_UNKNOWN_TARGET = 6,    /* a request target that is no path: "..", "*", bad %XX */
  HEADGATE_UNKNOWN_FRAMING = 7,   /* Content-Length and chunked, two lengths, a bad one */
  HEADGATE_UNKNOWN_SYNTAX = 8,    /* obs-fold, bare CR or LF, a blank before the colon */
  HEADGATE_UNKNOWN_TOO_LONG = 9,  /* head, path or header block beyond the limits */
  HEADGATE_UNKNOWN_BUDGET = 10,   /* more steps than the program may take on one packet */
  HEADGATE_UNKNOWN_PREFACE = 11,  /* HTTP/2: the preface differs */
  HEADGATE_UNKNOWN_FRAME = 12,    /* HTTP/2: a frame that breaks RFC 9113 */
  HEADGATE_UNKNOWN_HPACK = 13,    /* HTTP/2: a header block that breaks RFC 7541 */
  HEADGATE_UNKNOWN_NO_PATH = 14,  /* HTTP/2: the path was not seen (evicted, too old) */
  HEADGATE_UNKNOWN_PROTOCOL = 15, /* HTTP/2 where HTTP/1.1 is configured, or the reverse */
  HEADGATE_UNKNOWN_COUNT = 16,
};

/* How often, per port: HASH {key} -> __u64. */
struct headgate_unknown_key {
  __u32 port;
  __u32 reason; /* enum headgate_unknown */
};
HEADGATE_ABI_SIZE(headgate_unknown_key, 8);

/* Slots of the PROG_ARRAY `headgate_stream_stages`: a live socket keeps the program it was given,
 * so all that is ever to be changed is reached through a tail call.
 */
#define HEADGATE_STAGE_HTTP1 0
#define HEADGATE_STAGE_HTTP2 1
#define HEADGATE_STAGE_COUNT 8

/* Lives of connections, a histogram per endpoint: quarters of an octave from 2^16 ns (65 us) on.
 * Counts wrap; differences are what counts.
 */
#define HEADGATE_LIFE_BUCKETS 96
#define HEADGATE_LIFE_FIRST_OCTAVE 16
struct headgate_life_histogram {
  __u32 counts[HEADGATE_LIFE_BUCKETS];
};
HEADGATE_ABI_SIZE(headgate_life_histogram, 384);

/* Who owns a slot, kept in the kernel so that a restarted agent finds its slots again. */
struct headgate_target_identity {
  __u64 cgroup_id; /* inode of the target's cgroup directory; 0 = slot is free */
  __u64 name_hash; /* FNV-1a of the target's name and container */
  __u32 netns_id;
  __u32 reserved32;
  __u64 freed_at_ns; /* a freed slot is not given away within one lease */
};
HEADGATE_ABI_SIZE(headgate_target_identity, 32);

struct headgate_endpoint_identity {
  __u64 target_name_hash; /* 0 = slot is free */
  __u32 target;
  __u16 port;
  __u8 protocol;
  __u8 reserved8;
  __u64 route_hash; /* 0 = the port itself */
  __u64 freed_at_ns;
};
HEADGATE_ABI_SIZE(headgate_endpoint_identity, 32);

/* What a strategy has learned about a target, so that an upgrade under load does not start cold. */
#define HEADGATE_MODEL_BYTES 496
struct headgate_model {
  __u32 version;  /* of the strategy's own layout; another one is ignored */
  __u32 bytes;    /* used, [0, HEADGATE_MODEL_BYTES] */
  __u64 strategy; /* FNV-1a of the strategy's name */
  __u8 data[HEADGATE_MODEL_BYTES];
};
HEADGATE_ABI_SIZE(headgate_model, 512);

#endif /* HEADGATE_BPF_ABI_H */
