// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "headgate/bpf_abi.h"
#include "headgate/clock.h"
#include "headgate/result.h"

#include "agent/base/unique_fd.h"
#include "agent/dataplane/bpffs.h"
#include "agent/dataplane/net.h"

namespace headgate {

/// One source that is never refused, and of which kind (HEADGATE_EXEMPT_KIND_*).
struct ExemptSource {
  IpPrefix prefix;
  std::uint32_t kind = HEADGATE_EXEMPT_KIND_SOURCE;
  auto operator<=>(const ExemptSource&) const = default;
};

/// What a port's requests are looked up in.
struct RequestRoutes {
  std::vector<std::pair<headgate_route_key, headgate_route>> paths;     ///< HTTP/1.1
  std::vector<std::pair<headgate_method_key, headgate_route>> methods;  ///< gRPC
};

/// All maps that agent and kernel share, opened once: pinned ones are adopted if their layout is
/// ours, else made anew. Policies are stored through a mapping, word by word; everything else goes
/// through bpf(2). Not thread-safe: it belongs to the loop.
class KernelMaps {
 public:
  /// Errors: no permission, no memory, a map that cannot be made; the text names the map.
  [[nodiscard]] static Result<std::unique_ptr<KernelMaps>> open(const PinDirectory& pins);
  /// Where no maps can be had (no right, no bpf(2)): the same in memory of our own, which no kernel
  /// reads. The agent then samples, decides and shows, and refuses nothing.
  [[nodiscard]] static Result<std::unique_ptr<KernelMaps>> detached();
  [[nodiscard]] bool is_detached() const { return detached_; }
  KernelMaps(const KernelMaps&) = delete;
  KernelMaps& operator=(const KernelMaps&) = delete;
  KernelMaps(KernelMaps&&) = delete;
  KernelMaps& operator=(KernelMaps&&) = delete;
  ~KernelMaps();

  /// fd of a map by its name in bpf/lib/maps.h; -1 = there is none.
  [[nodiscard]] int fd(const std::string& map) const;
  /// Maps whose pins were adopted and, by name, those that had another layout and were made anew.
  [[nodiscard]] bool adopted() const { return adopted_; }
  [[nodiscard]] const std::vector<std::string>& recreated() const { return recreated_; }

  // -- slots. A target or endpoint that was there before a restart gets its old slot again.
  /// Claims are counted: the same owner may claim twice (a reload opens the new before it closes
  /// the old) and the last release frees. A freed slot is not given to another owner within
  /// `quarantine`. Error: all slots in use.
  [[nodiscard]] Result<std::uint32_t> claim_target(std::uint64_t name_hash, std::uint64_t cgroup_id,
                                                   std::uint32_t netns_id, Instant now,
                                                   Duration quarantine);
  /// `route_hash`: of a route on the port, or of its rest; 0 = the port itself.
  [[nodiscard]] Result<std::uint32_t> claim_endpoint(std::uint64_t target_name_hash,
                                                     std::uint32_t target, std::uint16_t port,
                                                     std::uint8_t protocol, Instant now,
                                                     Duration quarantine,
                                                     std::uint64_t route_hash = 0);
  void release_target(std::uint32_t slot, Instant now);
  void release_endpoint(std::uint32_t slot, Instant now);
  [[nodiscard]] bool adopted_target(std::uint32_t slot) const { return target_adopted_[slot]; }
  /// Frees slots with an owner that nobody has claimed since start: what a dead agent left.
  std::size_t release_unclaimed(Instant now);

  // -- which flow belongs to which endpoint; counted, as the claims are
  [[nodiscard]] Result<> map_flow(const headgate_endpoint_key& key,
                                  const headgate_endpoint_ref& ref);
  void unmap_flow(const headgate_endpoint_key& key);
  [[nodiscard]] std::vector<std::pair<headgate_endpoint_key, headgate_endpoint_ref>> flows() const;

  // -- policies (mapped memory)
  void store(std::uint32_t endpoint, const headgate_endpoint_policy& policy);
  void store_target(std::uint32_t target, const headgate_target_policy& policy);
  void renew_lease(std::uint32_t target, Instant until);
  [[nodiscard]] headgate_endpoint_policy endpoint_policy(std::uint32_t endpoint) const;
  [[nodiscard]] headgate_target_policy target_policy(std::uint32_t target) const;
  void set_off(bool off);
  [[nodiscard]] bool off() const;

  // -- what the kernel counts
  /// Summed over CPUs, read from mapped memory.
  [[nodiscard]] headgate_counters counters(std::uint32_t endpoint) const;
  /// headgate_counters.offered alone: all that a tick needs of a target that rests.
  [[nodiscard]] std::uint64_t offered(std::uint32_t endpoint) const;
  void prefetch_offered(std::uint32_t endpoint) const;
  /// A number that changes whenever a counter of the endpoint does.
  [[nodiscard]] std::uint64_t stirred(std::uint32_t endpoint) const;
  /// Reads the states of these slots, or of all where that is cheaper (a batch).
  [[nodiscard]] Result<> read_states(std::span<const std::uint32_t> targets,
                                     std::span<const std::uint32_t> endpoints);
  [[nodiscard]] Result<> read_all_states();
  // As they were when they were read.
  [[nodiscard]] const headgate_endpoint_state& endpoint_state(std::uint32_t endpoint) const {
    return states_[endpoint];
  }
  [[nodiscard]] const headgate_target_state& target_state(std::uint32_t target) const {
    return target_states_[target];
  }

  /// Lives of the endpoint's closed connections, cumulative; the kernel goes on counting in it.
  [[nodiscard]] const headgate_life_histogram& lives(std::uint32_t endpoint) const {
    return lives_[endpoint];
  }

  /// From how many sources attempts were refused since the last call: bits set of
  /// HEADGATE_SOURCE_BITS. Clears them.
  [[nodiscard]] std::uint32_t take_source_bits(std::uint32_t endpoint);
  /// What early hooks left to the socket's gate, by enum headgate_left; cumulative, of all CPUs.
  [[nodiscard]] std::array<std::uint64_t, HEADGATE_LEFT_COUNT> left_to_socket() const;

  // -- exemptions: makes the set of `target` (or HEADGATE_EXEMPT_NODE_SET) exactly `sources`
  [[nodiscard]] Result<> set_exempt(std::uint32_t target, const std::vector<ExemptSource>& sources);

  // -- requests on live connections, by the slot of their port
  /// Makes the routes of the port exactly these, then has its requests looked at. Where they are
  /// exactly these already, after a reload or a restart, the generation stays what it is, whatever
  /// `rules` says: connections of HTTP/2 live long, and calls on those of before can be refused.
  [[nodiscard]] Result<> set_requests(std::uint32_t port, const headgate_request_port& rules,
                                      const RequestRoutes& routes);
  /// Nothing is looked at any more on that port.
  void clear_requests(std::uint32_t port);
  /// Requests and connections of unknown class, cumulative.
  using UnknownCounts = std::array<std::uint64_t, HEADGATE_UNKNOWN_COUNT>;
  [[nodiscard]] UnknownCounts unknowns(std::uint32_t port) const;

  // -- pits
  [[nodiscard]] Result<> set_pit(std::uint32_t netns_id, int family, int socket_fd);
  void clear_pit(std::uint32_t netns_id);

  // -- learned models
  [[nodiscard]] std::optional<headgate_model> model(std::uint32_t target) const;
  void store_model(std::uint32_t target, const headgate_model& model);

  [[nodiscard]] std::uint64_t update_errors() const { return update_errors_; }

 private:
  KernelMaps() = default;
  [[nodiscard]] Result<> map_memory();
  /// After each change of headgate_endpoints.
  void endpoints_changed();
  void zero_counters(std::uint32_t endpoint);
  void free_target(std::uint32_t slot, Instant now);
  void free_endpoint(std::uint32_t slot, Instant now);
  bool update(int map_fd, const void* key, const void* value);

  std::map<std::string, UniqueFd> fds_;
  bool adopted_ = false;
  bool detached_ = false;
  std::vector<std::string> recreated_;
  headgate_control* control_ = nullptr;
  headgate_endpoint_policy* policies_ = nullptr;
  headgate_target_policy* targets_ = nullptr;
  headgate_life_histogram* lives_ = nullptr;
  headgate_counters* counts_ = nullptr;  ///< [CPU][endpoint]
  headgate_source_set* sources_ = nullptr;
  std::size_t cpus_ = 1;
  std::vector<headgate_target_identity> target_ids_;
  std::vector<headgate_endpoint_identity> endpoint_ids_;
  std::vector<std::uint32_t> target_claims_;
  std::vector<std::uint32_t> endpoint_claims_;
  std::vector<bool> target_adopted_;
  std::map<std::array<std::uint32_t, 6>, int> flow_holders_;
  std::uint32_t used_endpoints_ = 0;  ///< slots [0, used) are read each tick
  std::uint32_t used_targets_ = 0;
  std::vector<headgate_endpoint_state> states_;
  std::vector<headgate_target_state> target_states_;
  std::vector<std::uint32_t> batch_keys_;
  std::map<std::uint32_t, std::vector<ExemptSource>> exempt_;
  std::uint64_t update_errors_ = 0;
};

}  // namespace headgate
