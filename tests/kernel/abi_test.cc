// SPDX-License-Identifier: Apache-2.0
// The ABI header as clang lays it out for BPF (the object's BTF) and as the C++ compiler does: the
// same sizes, members, offsets. A member that is added must be added here.
#include <linux/btf.h>

#include <cstddef>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <bpf/btf.h>
#include <gtest/gtest.h>

#include "headgate/bpf_abi.h"

#include "tests/kernel/bpf_object.h"

namespace headgate {
namespace {

struct Layout {
  const char* name;
  std::size_t bytes;
  std::map<std::string, std::size_t> offset_bytes;
};

#define M(type, member) \
  { #member, offsetof(type, member) }

std::vector<Layout> layouts() {
  using key = headgate_endpoint_key;
  using ref = headgate_endpoint_ref;
  using policy = headgate_endpoint_policy;
  using target = headgate_target_policy;
  using state = headgate_endpoint_state;
  using target_state = headgate_target_state;
  using counters = headgate_counters;
  using flow = headgate_flow_key;
  using flow_set = headgate_flow_set;
  using connection = headgate_connection;
  using lives = headgate_life_histogram;
  using age = headgate_age;
  using sources = headgate_source_set;
  using exempt = headgate_exempt_key;
  using pit = headgate_pit_key;
  using node_flow = headgate_node_flow_key;
  using control = headgate_control;
  using target_id = headgate_target_identity;
  using endpoint_id = headgate_endpoint_identity;
  using model = headgate_model;
  using request_port = headgate_request_port;
  using route_key = headgate_route_key;
  using method_key = headgate_method_key;
  using route = headgate_route;
  using unknown_key = headgate_unknown_key;
  using call_key = headgate_call_key;
  using call = headgate_call;
  return {
      {"headgate_endpoint_key",
       sizeof(key),
       {M(key, netns_id), M(key, port), M(key, protocol), M(key, reserved), M(key, address)}},
      {"headgate_endpoint_ref", sizeof(ref), {M(ref, endpoint), M(ref, flags)}},
      {"headgate_endpoint_policy",
       sizeof(policy),
       {M(policy, flags),
        M(policy, admit_q32),
        M(policy, actions),
        M(policy, charge_request_ns),
        M(policy, charge_kb_ns),
        M(policy, depth_ns),
        M(policy, rate_interval_ns),
        M(policy, rate_burst_ns),
        M(policy, connections_max),
        M(policy, connections_legacy),
        M(policy, tickets_written_off),
        M(policy, probe_interval_ns),
        M(policy, max_refuse_q32),
        M(policy, exempt_interval_ns),
        M(policy, exempt_burst_ns),
        M(policy, target),
        M(policy, level),
        M(policy, parent),
        M(policy, generation),
        M(policy, defer_deadline_ns),
        M(policy, waiting_max),
        M(policy, waiting_max_other)}},
      {"headgate_target_policy",
       sizeof(target),
       {M(target, valid_until_ns), M(target, bucket_depth_max_ns), M(target, bucket_charge_max_ns),
        M(target, defer_deadline_ns), M(target, waiting_max), M(target, waiting_written_off),
        M(target, live_bytes_max), M(target, connections_max), M(target, connections_legacy),
        M(target, generation), M(target, reserved32), M(target, tickets_written_off),
        M(target, live_base), M(target, reserved)}},
      {"headgate_endpoint_state",
       sizeof(state),
       {M(state, lock), M(state, reserved32), M(state, share_q32), M(state, refuse_credit_q32),
        M(state, rate_tat_ns), M(state, exempt_tat_ns), M(state, probe_last_ns),
        M(state, in_flight), M(state, tickets_issued), M(state, tickets_settled),
        M(state, largest_request_bytes), M(state, early_datagrams), M(state, reserved)}},
      {"headgate_target_state",
       sizeof(target_state),
       {M(target_state, lock), M(target_state, reserved32), M(target_state, bucket_tat_ns),
        M(target_state, live_bytes), M(target_state, in_flight), M(target_state, waiting_started),
        M(target_state, waiting_settled), M(target_state, tickets_issued),
        M(target_state, tickets_settled), M(target_state, live_aged), M(target_state, reserved)}},
      {"headgate_counters",
       sizeof(counters),
       {M(counters, tries),
        M(counters, offered),
        M(counters, admitted),
        M(counters, admitted_exempt),
        M(counters, admitted_stale),
        M(counters, admitted_probe),
        M(counters, admitted_observed),
        M(counters, admitted_capped),
        M(counters, admitted_deferred),
        M(counters, repeats),
        M(counters, reset),
        M(counters, deferred),
        M(counters, deferred_tries),
        M(counters, expired),
        M(counters, dropped),
        M(counters, pit_missing),
        M(counters, would_refuse),
        M(counters, refused),
        M(counters, established),
        M(counters, closed),
        M(counters, received_bytes),
        M(counters, repeats_refused),
        M(counters, payload_bytes),
        M(counters, responses),
        M(counters, response_ns),
        M(counters, answered),
        M(counters, admitted_guarded),
        M(counters, admitted_bytes),
        M(counters, recognized),
        M(counters, admitted_last_try),
        M(counters, unrecognized),
        M(counters, reserved)}},
      {"headgate_flow_key",
       sizeof(flow),
       {M(flow, netns_id), M(flow, local_port), M(flow, remote_port), M(flow, local_address),
        M(flow, remote_address)}},
      {"headgate_connection",
       sizeof(connection),
       {M(connection, established_ns), M(connection, received_bytes), M(connection, released_bytes),
        M(connection, turn_bytes), M(connection, endpoint), M(connection, target),
        M(connection, kind), M(connection, responses), M(connection, turns),
        M(connection, generation), M(connection, closed)}},
      {"headgate_life_histogram", sizeof(lives), {M(lives, counts)}},
      {"headgate_flow_set",
       sizeof(flow_set),
       {M(flow_set, lock), M(flow_set, reserved32), M(flow_set, entries)}},
      {"headgate_age",
       sizeof(age),
       {M(age, first_ns), M(age, last_ns), M(age, endpoint), M(age, reserved)}},
      {"headgate_source_set", sizeof(sources), {M(sources, bits)}},
      {"headgate_exempt_key",
       sizeof(exempt),
       {M(exempt, prefix_bits), M(exempt, target), M(exempt, address)}},
      {"headgate_pit_key", sizeof(pit), {M(pit, netns_id), M(pit, family)}},
      {"headgate_node_flow_key",
       sizeof(node_flow),
       {M(node_flow, source_address), M(node_flow, source_port), M(node_flow, reserved)}},
      {"headgate_control",
       sizeof(control),
       {M(control, off), M(control, abi_version), M(control, policy_version), M(control, hash_key),
        M(control, endpoints_generation)}},
      {"headgate_target_identity",
       sizeof(target_id),
       {M(target_id, cgroup_id), M(target_id, name_hash), M(target_id, netns_id),
        M(target_id, reserved32), M(target_id, freed_at_ns)}},
      {"headgate_endpoint_identity",
       sizeof(endpoint_id),
       {M(endpoint_id, target_name_hash), M(endpoint_id, target), M(endpoint_id, port),
        M(endpoint_id, protocol), M(endpoint_id, reserved8), M(endpoint_id, route_hash),
        M(endpoint_id, freed_at_ns)}},
      {"headgate_model",
       sizeof(model),
       {M(model, version), M(model, bytes), M(model, strategy), M(model, data)}},
      {"headgate_request_port",
       sizeof(request_port),
       {M(request_port, rest), M(request_port, flags), M(request_port, retry_after_min_s),
        M(request_port, retry_after_max_s), M(request_port, let_through_ns),
        M(request_port, first_bytes_max), M(request_port, generation)}},
      {"headgate_route_key",
       sizeof(route_key),
       {M(route_key, prefix_bits), M(route_key, port), M(route_key, path)}},
      {"headgate_method_key",
       sizeof(method_key),
       {M(method_key, port), M(method_key, bytes), M(method_key, huffman), M(method_key, reserved),
        M(method_key, path)}},
      {"headgate_route", sizeof(route), {M(route, endpoint), M(route, flags)}},
      {"headgate_unknown_key", sizeof(unknown_key), {M(unknown_key, port), M(unknown_key, reason)}},
      {"headgate_call_key",
       sizeof(call_key),
       {M(call_key, cookie), M(call_key, stream), M(call_key, reserved)}},
      {"headgate_call", sizeof(call), {M(call, endpoint), M(call, flags), M(call, generation)}},
  };
}
#undef M

struct BtfDeleter {
  void operator()(btf* types) const { btf__free(types); }
};

TEST(Abi, StructsAreLaidOutAlikeOnBothSides) {
  const std::string_view section = test::object_section(".BTF");
  const std::unique_ptr<btf, BtfDeleter> types(
      btf__new(section.data(), static_cast<__u32>(section.size())));
  ASSERT_NE(types, nullptr);
  for (const Layout& layout : layouts()) {
    SCOPED_TRACE(layout.name);
    const int id = btf__find_by_name_kind(types.get(), layout.name, BTF_KIND_STRUCT);
    ASSERT_GT(id, 0) << "not in the object: no program uses it?";
    const btf_type* type = btf__type_by_id(types.get(), static_cast<__u32>(id));
    EXPECT_EQ(type->size, layout.bytes);
    std::map<std::string, std::size_t> offset_bytes;
    for (__u32 i = 0; i < btf_vlen(type); ++i) {
      const char* name = btf__name_by_offset(types.get(), btf_members(type)[i].name_off);
      EXPECT_EQ(btf_member_bit_offset(type, i) % 8, 0U) << name;
      offset_bytes[name] = btf_member_bit_offset(type, i) / 8;
    }
    EXPECT_EQ(offset_bytes, layout.offset_bytes);
  }
}

/// Every struct of ours that the object knows is compared above.
TEST(Abi, NoStructIsLeftOut) {
  const std::string_view section = test::object_section(".BTF");
  const std::unique_ptr<btf, BtfDeleter> types(
      btf__new(section.data(), static_cast<__u32>(section.size())));
  ASSERT_NE(types, nullptr);
  // of bpf/lib: what the kernel side keeps to itself
  const std::set<std::string> own = {
      "headgate_try",          "headgate_answer",      "headgate_request",    "headgate_stream",
      "headgate_path",         "headgate_http1",       "headgate_http2",      "headgate_http2_env",
      "headgate_http2_judged", "headgate_hpack",       "headgate_hpack_path", "headgate_payload",
      "headgate_packet",       "headgate_early",       "headgate_vlan",       "headgate_reset_tcp",
      "headgate_responses",    "headgate_waiting_call"};
  for (__u32 id = 1; id < btf__type_cnt(types.get()); ++id) {
    const btf_type* type = btf__type_by_id(types.get(), id);
    const std::string name = btf__name_by_offset(types.get(), type->name_off);
    if (!btf_is_struct(type) || name.rfind("headgate_", 0) != 0 || own.contains(name)) {
      continue;
    }
    bool compared = false;
    for (const Layout& layout : layouts()) {
      compared = compared || name == layout.name;
    }
    EXPECT_TRUE(compared) << name;
  }
}

TEST(Abi, MapsHoldWhatTheAgentReadsAndWrites) {
  const test::SkeletonPtr skeleton(headgate_bpf__open());
  ASSERT_NE(skeleton, nullptr);
  struct Expected {
    const char* map;
    std::size_t key_bytes, value_bytes;
    unsigned entries;
  };
  for (const Expected& expected : {
           Expected{"headgate_control", 4, sizeof(headgate_control), 1},
           {"headgate_endpoints", sizeof(headgate_endpoint_key), sizeof(headgate_endpoint_ref),
            4 * HEADGATE_MAX_ENDPOINTS},
           {"headgate_policies", 4, sizeof(headgate_endpoint_policy), HEADGATE_MAX_ENDPOINTS},
           {"headgate_targets", 4, sizeof(headgate_target_policy), HEADGATE_MAX_TARGETS},
           {"headgate_states", 4, sizeof(headgate_endpoint_state), HEADGATE_MAX_ENDPOINTS},
           {"headgate_target_states", 4, sizeof(headgate_target_state), HEADGATE_MAX_TARGETS},
           {"headgate_counts", 4, sizeof(headgate_counters), HEADGATE_MAX_ENDPOINTS},
           {"headgate_exempt", sizeof(headgate_exempt_key), 4, 16384},
           {"headgate_pits", sizeof(headgate_pit_key), 8, 2 * HEADGATE_MAX_TARGETS},
           {"headgate_target_ids", 4, sizeof(headgate_target_identity), HEADGATE_MAX_TARGETS},
           {"headgate_endpoint_ids", 4, sizeof(headgate_endpoint_identity), HEADGATE_MAX_ENDPOINTS},
           {"headgate_models", 4, sizeof(headgate_model), HEADGATE_MAX_TARGETS},
       }) {
    const bpf_map* map = bpf_object__find_map_by_name(skeleton->obj, expected.map);
    ASSERT_NE(map, nullptr) << expected.map;
    EXPECT_EQ(bpf_map__key_size(map), expected.key_bytes) << expected.map;
    EXPECT_EQ(bpf_map__value_size(map), expected.value_bytes) << expected.map;
    EXPECT_EQ(bpf_map__max_entries(map), expected.entries) << expected.map;
  }
}

}  // namespace
}  // namespace headgate
