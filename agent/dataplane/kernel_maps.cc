// SPDX-License-Identifier: Apache-2.0
#include "agent/dataplane/kernel_maps.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <string_view>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <fmt/format.h>

#include "agent/dataplane/programs.h"
#include "headgate_bpf.skel.h"

namespace headgate {
namespace {

struct SkeletonDeleter {
  void operator()(headgate_bpf* skeleton) const { headgate_bpf__destroy(skeleton); }
};
using SkeletonPtr = std::unique_ptr<headgate_bpf, SkeletonDeleter>;

/// Meaning of the policy words, kept in the map itself: a map left by an agent that meant something
/// else by them is emptied before use, never read under the new meaning.
constexpr std::uint64_t kPolicyVersion = 1;

std::size_t page_round(std::size_t bytes) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return (bytes + page - 1) / page * page;
}

/// A pinned map is ours only if its layout is the one this agent was built with.
bool same_layout(int fd, const bpf_map* map) {
  bpf_map_info info{};
  __u32 bytes = sizeof(info);
  return ::bpf_obj_get_info_by_fd(fd, &info, &bytes) == 0 && info.type == bpf_map__type(map) &&
         info.key_size == bpf_map__key_size(map) && info.value_size == bpf_map__value_size(map) &&
         info.max_entries == bpf_map__max_entries(map) && info.map_flags == bpf_map__map_flags(map);
}

/// Copies a policy word by word: each aligned 8-byte store is atomic, `flags` (the first word) goes
/// last, so that nothing is armed before its numbers are there.
template <class T>
void store_words(T* to, const T& from) {
  static_assert(sizeof(T) % sizeof(std::uint64_t) == 0);
  constexpr std::size_t kWords = sizeof(T) / sizeof(std::uint64_t);
  std::array<std::uint64_t, kWords> words{};
  std::memcpy(words.data(), &from, sizeof(T));
  auto* out = reinterpret_cast<std::uint64_t*>(to);  // NOLINT: array elements are 8-byte aligned
  for (std::size_t i = kWords; i-- > 0;) {
    __atomic_store_n(out + i, words[i], __ATOMIC_RELEASE);
  }
}

/// fd -1: memory of our own.
template <class T>
T* map_array(int fd, std::size_t elements) {
  const int flags = fd >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
  void* at =
      ::mmap(nullptr, page_round(elements * sizeof(T)), PROT_READ | PROT_WRITE, flags, fd, 0);
  return at == MAP_FAILED ? nullptr : static_cast<T*>(at);
}

template <class Identity>
std::vector<Identity> read_identities(int fd, std::uint32_t count) {
  std::vector<Identity> out(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    (void)::bpf_map_lookup_elem(fd, &i, &out[i]);
  }
  return out;
}

/// The slot that `mine` recognises, else a free one that has rested for `quarantine`; size = none.
template <class Identity, class Free, class Mine>
std::uint32_t find_slot(const std::vector<Identity>& ids, std::uint64_t now_ns,
                        std::uint64_t quarantine_ns, Free is_free, Mine mine) {
  auto rested = static_cast<std::uint32_t>(ids.size());
  for (std::uint32_t i = 0; i < ids.size(); ++i) {
    if (!is_free(ids[i])) {
      if (mine(ids[i])) {
        return i;
      }
    } else if (rested == ids.size() &&
               (ids[i].freed_at_ns == 0 || now_ns - ids[i].freed_at_ns >= quarantine_ns)) {
      rested = i;
    }
  }
  return rested;
}

bool is_free(const headgate_target_identity& id) { return id.cgroup_id == 0; }
bool is_free(const headgate_endpoint_identity& id) { return id.target_name_hash == 0; }
constexpr auto kIsFree = [](const auto& id) { return is_free(id); };

std::array<std::uint32_t, 6> words_of(const headgate_endpoint_key& key) {
  std::array<std::uint32_t, 6> out{};
  static_assert(sizeof(out) == sizeof(key));
  std::memcpy(out.data(), &key, sizeof(key));
  return out;
}

/// Values of slots [0, count) of an array map in one call; falls back to one call an element.
template <class Value>
bool read_array(int fd, std::uint32_t count, std::vector<std::uint32_t>& keys, Value* out) {
  if (count == 0) {
    return true;
  }
  keys.resize(std::max<std::size_t>(keys.size(), count));
  std::uint32_t cursor = 0;
  std::uint32_t done = count;
  if (::bpf_map_lookup_batch(fd, nullptr, &cursor, keys.data(), out, &done, nullptr) == 0 ||
      errno == ENOENT) {
    return true;
  }
  for (std::uint32_t i = 0; i < count; ++i) {
    if (::bpf_map_lookup_elem(fd, &i, out + i) != 0) {
      return false;
    }
  }
  return true;
}

}  // namespace

Result<std::unique_ptr<KernelMaps>> KernelMaps::open(const PinDirectory& pins) {
  route_libbpf_log();
  SkeletonPtr skeleton(headgate_bpf__open());
  if (!skeleton) {
    return sys_fail(errno, "open the BPF object");
  }
  bpf_program* program = nullptr;
  bpf_object__for_each_program(program, skeleton->obj) {
    bpf_program__set_autoload(program, false);
  }

  std::unique_ptr<KernelMaps> out(new KernelMaps());
  out->cpus_ = static_cast<std::size_t>(libbpf_num_possible_cpus());
  if (const int err =
          bpf_map__set_max_entries(skeleton->maps.headgate_counts,
                                   static_cast<std::uint32_t>(out->cpus_ * HEADGATE_MAX_ENDPOINTS));
      err != 0) {
    return sys_fail(-err, "size headgate_counts");
  }
  std::vector<std::string> to_pin;
  bpf_map* map = nullptr;
  bpf_object__for_each_map(map, skeleton->obj) {
    const std::string name = bpf_map__name(map);
    if (map == skeleton->maps.rodata || !pins.pinned()) {
      continue;
    }
    const std::string path = pins.map_path(name);
    UniqueFd pinned(::bpf_obj_get(path.c_str()));
    if (pinned && same_layout(pinned.get(), map)) {
      if (const int err = bpf_map__reuse_fd(map, pinned.get()); err != 0) {
        return sys_fail(-err, "reuse the pinned map " + path);
      }
      out->adopted_ = true;
      continue;
    }
    if (pinned || ::access(path.c_str(), F_OK) == 0) {
      out->recreated_.push_back(name);
      ::unlink(path.c_str());
    }
    to_pin.push_back(name);
  }
  if (const int err = headgate_bpf__load(skeleton.get()); err != 0) {
    return sys_fail(-err, "make the BPF maps");
  }
  bpf_object__for_each_map(map, skeleton->obj) {
    const std::string name = bpf_map__name(map);
    if (map == skeleton->maps.rodata) {
      continue;
    }
    const int fd = ::fcntl(bpf_map__fd(map), F_DUPFD_CLOEXEC, 0);
    if (fd < 0) {
      return sys_fail(errno, "dup map " + name);
    }
    out->fds_.emplace(name, UniqueFd(fd));
    if (std::find(to_pin.begin(), to_pin.end(), name) != to_pin.end() &&
        ::bpf_obj_pin(fd, pins.map_path(name).c_str()) != 0) {
      return sys_fail(errno, "pin " + pins.map_path(name));
    }
  }
  if (auto mapped = out->map_memory(); !mapped) {
    return tl::unexpected<Error>(mapped.error());
  }
  return out;
}

Result<std::unique_ptr<KernelMaps>> KernelMaps::detached() {
  std::unique_ptr<KernelMaps> out(new KernelMaps());
  out->detached_ = true;
  if (auto mapped = out->map_memory(); !mapped) {
    return tl::unexpected<Error>(mapped.error());
  }
  return out;
}

Result<> KernelMaps::map_memory() {
  control_ = map_array<headgate_control>(fd("headgate_control"), 1);
  policies_ = map_array<headgate_endpoint_policy>(fd("headgate_policies"), HEADGATE_MAX_ENDPOINTS);
  targets_ = map_array<headgate_target_policy>(fd("headgate_targets"), HEADGATE_MAX_TARGETS);
  lives_ = map_array<headgate_life_histogram>(fd("headgate_lives"), HEADGATE_MAX_ENDPOINTS);
  counts_ = map_array<headgate_counters>(fd("headgate_counts"), cpus_ * HEADGATE_MAX_ENDPOINTS);
  sources_ = map_array<headgate_source_set>(fd("headgate_sources"), HEADGATE_MAX_ENDPOINTS);
  if (control_ == nullptr || policies_ == nullptr || targets_ == nullptr || lives_ == nullptr ||
      counts_ == nullptr || sources_ == nullptr) {
    return sys_fail(errno, "map the policies into memory");
  }
  if (control_->policy_version != kPolicyVersion) {
    for (std::uint32_t i = 0; i < HEADGATE_MAX_ENDPOINTS; ++i) {
      store(i, headgate_endpoint_policy{});
    }
    for (std::uint32_t i = 0; i < HEADGATE_MAX_TARGETS; ++i) {
      store_target(i, headgate_target_policy{});
    }
    control_->policy_version = kPolicyVersion;
  }
  control_->abi_version = HEADGATE_ABI_VERSION;
  if (std::all_of(std::begin(control_->hash_key), std::end(control_->hash_key),
                  [](std::uint32_t word) { return word == 0; })) {
    // Programs that are attached already go on with the old words for an instant: tickets of
    // attempts under way are then not found. Only a new map has none.
    std::array<std::uint32_t, std::size(headgate_control{}.hash_key)> words{};
    if (::getrandom(words.data(), sizeof(words), 0) != static_cast<ssize_t>(sizeof(words))) {
      return sys_fail(errno, "random words for the hash of the flows");
    }
    std::memcpy(control_->hash_key, words.data(), sizeof(words));
  }
  target_ids_ =
      read_identities<headgate_target_identity>(fd("headgate_target_ids"), HEADGATE_MAX_TARGETS);
  endpoint_ids_ = read_identities<headgate_endpoint_identity>(fd("headgate_endpoint_ids"),
                                                              HEADGATE_MAX_ENDPOINTS);
  target_claims_.assign(HEADGATE_MAX_TARGETS, 0);
  endpoint_claims_.assign(HEADGATE_MAX_ENDPOINTS, 0);
  target_adopted_.assign(HEADGATE_MAX_TARGETS, false);
  states_.assign(HEADGATE_MAX_ENDPOINTS, headgate_endpoint_state{});
  target_states_.assign(HEADGATE_MAX_TARGETS, headgate_target_state{});
  return {};
}

KernelMaps::~KernelMaps() {
  if (control_ != nullptr) {
    ::munmap(control_, page_round(sizeof(*control_)));
  }
  if (policies_ != nullptr) {
    ::munmap(policies_, page_round(sizeof(*policies_) * HEADGATE_MAX_ENDPOINTS));
  }
  if (targets_ != nullptr) {
    ::munmap(targets_, page_round(sizeof(*targets_) * HEADGATE_MAX_TARGETS));
  }
  if (counts_ != nullptr) {
    ::munmap(counts_, page_round(sizeof(*counts_) * cpus_ * HEADGATE_MAX_ENDPOINTS));
  }
  if (lives_ != nullptr) {
    ::munmap(lives_, page_round(sizeof(*lives_) * HEADGATE_MAX_ENDPOINTS));
  }
  if (sources_ != nullptr) {
    ::munmap(sources_, page_round(sizeof(*sources_) * HEADGATE_MAX_ENDPOINTS));
  }
}

int KernelMaps::fd(const std::string& map) const {
  const auto it = fds_.find(map);
  return it == fds_.end() ? -1 : it->second.get();
}

bool KernelMaps::update(int map_fd, const void* key, const void* value) {
  if (detached_) {
    return true;
  }
  if (::bpf_map_update_elem(map_fd, key, value, BPF_ANY) == 0) {
    return true;
  }
  ++update_errors_;
  return false;
}

Result<std::uint32_t> KernelMaps::claim_target(std::uint64_t name_hash, std::uint64_t cgroup_id,
                                               std::uint32_t netns_id, Instant now,
                                               Duration quarantine) {
  const std::uint32_t slot = find_slot(
      target_ids_, to_ktime_ns(now), static_cast<std::uint64_t>(quarantine.count()), kIsFree,
      [&](const auto& id) { return id.cgroup_id == cgroup_id && id.name_hash == name_hash; });
  if (slot == target_ids_.size()) {
    return fail(fmt::format("all {} target slots are in use", HEADGATE_MAX_TARGETS));
  }
  const bool known = !is_free(target_ids_[slot]);
  if (!known) {
    store_target(slot, headgate_target_policy{});
    const headgate_target_state state{};
    update(fd("headgate_target_states"), &slot, &state);
    const headgate_model model{};
    update(fd("headgate_models"), &slot, &model);
  }
  target_ids_[slot] = {cgroup_id, name_hash, netns_id, 0, 0};
  if (!update(fd("headgate_target_ids"), &slot, &target_ids_[slot])) {
    return sys_fail(errno, "write headgate_target_ids");
  }
  if (target_claims_[slot]++ == 0) {
    target_adopted_[slot] = known;
  }
  used_targets_ = std::max(used_targets_, slot + 1);
  return slot;
}

Result<std::uint32_t> KernelMaps::claim_endpoint(std::uint64_t target_name_hash,
                                                 std::uint32_t target, std::uint16_t port,
                                                 std::uint8_t protocol, Instant now,
                                                 Duration quarantine, std::uint64_t route_hash) {
  const std::uint32_t slot =
      find_slot(endpoint_ids_, to_ktime_ns(now), static_cast<std::uint64_t>(quarantine.count()),
                kIsFree, [&](const auto& id) {
                  return id.target_name_hash == target_name_hash && id.target == target &&
                         id.port == port && id.protocol == protocol && id.route_hash == route_hash;
                });
  if (slot == endpoint_ids_.size()) {
    return fail(fmt::format("all {} endpoint slots are in use", HEADGATE_MAX_ENDPOINTS));
  }
  if (is_free(endpoint_ids_[slot])) {
    store(slot, headgate_endpoint_policy{});
    const headgate_endpoint_state state{};
    update(fd("headgate_states"), &slot, &state);
    zero_counters(slot);
    states_[slot] = {};
  }
  endpoint_ids_[slot] = {target_name_hash, target, port, protocol, 0, route_hash, 0};
  if (!update(fd("headgate_endpoint_ids"), &slot, &endpoint_ids_[slot])) {
    return sys_fail(errno, "write headgate_endpoint_ids");
  }
  ++endpoint_claims_[slot];
  used_endpoints_ = std::max(used_endpoints_, slot + 1);
  return slot;
}

void KernelMaps::zero_counters(std::uint32_t endpoint) {
  for (std::size_t cpu = 0; cpu < cpus_; ++cpu) {
    store_words(counts_ + cpu * HEADGATE_MAX_ENDPOINTS + endpoint, headgate_counters{});
  }
}

void KernelMaps::free_target(std::uint32_t slot, Instant now) {
  store_target(slot, headgate_target_policy{});
  target_ids_[slot] = {};
  target_ids_[slot].freed_at_ns = to_ktime_ns(now);
  update(fd("headgate_target_ids"), &slot, &target_ids_[slot]);
  (void)set_exempt(slot, {});
}

void KernelMaps::free_endpoint(std::uint32_t slot, Instant now) {
  clear_requests(slot);
  store(slot, headgate_endpoint_policy{});
  endpoint_ids_[slot] = {};
  endpoint_ids_[slot].freed_at_ns = to_ktime_ns(now);
  update(fd("headgate_endpoint_ids"), &slot, &endpoint_ids_[slot]);
}

void KernelMaps::release_target(std::uint32_t slot, Instant now) {
  if (target_claims_[slot] > 0 && --target_claims_[slot] == 0) {
    free_target(slot, now);
  }
}

void KernelMaps::release_endpoint(std::uint32_t slot, Instant now) {
  if (endpoint_claims_[slot] > 0 && --endpoint_claims_[slot] == 0) {
    free_endpoint(slot, now);
  }
}

std::size_t KernelMaps::release_unclaimed(Instant now) {
  std::size_t freed = 0;
  // Flows first: what points to a slot must be gone before the slot may have another owner.
  for (const auto& [key, ref] : flows()) {
    if (flow_holders_.count(words_of(key)) == 0) {
      (void)::bpf_map_delete_elem(fd("headgate_endpoints"), &key);
      endpoints_changed();
      ++freed;
    }
  }
  for (std::uint32_t i = 0; i < endpoint_ids_.size(); ++i) {
    if (!is_free(endpoint_ids_[i]) && endpoint_claims_[i] == 0) {
      free_endpoint(i, now);
      ++freed;
    }
  }
  for (std::uint32_t i = 0; i < target_ids_.size(); ++i) {
    if (!is_free(target_ids_[i]) && target_claims_[i] == 0) {
      free_target(i, now);
      ++freed;
    }
  }
  return freed;
}

Result<> KernelMaps::map_flow(const headgate_endpoint_key& key, const headgate_endpoint_ref& ref) {
  if (!update(fd("headgate_endpoints"), &key, &ref)) {
    return sys_fail(errno, "write headgate_endpoints");
  }
  endpoints_changed();
  ++flow_holders_[words_of(key)];
  return {};
}

void KernelMaps::unmap_flow(const headgate_endpoint_key& key) {
  const auto it = flow_holders_.find(words_of(key));
  if (it != flow_holders_.end() && --it->second <= 0) {
    flow_holders_.erase(it);
    (void)::bpf_map_delete_elem(fd("headgate_endpoints"), &key);
    endpoints_changed();
  }
}

void KernelMaps::endpoints_changed() {
  __atomic_fetch_add(&control_->endpoints_generation, 1, __ATOMIC_RELEASE);
}

std::vector<std::pair<headgate_endpoint_key, headgate_endpoint_ref>> KernelMaps::flows() const {
  std::vector<std::pair<headgate_endpoint_key, headgate_endpoint_ref>> out;
  const int map_fd = fd("headgate_endpoints");
  headgate_endpoint_key key{};
  headgate_endpoint_key next{};
  for (int rc = ::bpf_map_get_next_key(map_fd, nullptr, &next); rc == 0;
       rc = ::bpf_map_get_next_key(map_fd, &key, &next)) {
    headgate_endpoint_ref ref{};
    if (::bpf_map_lookup_elem(map_fd, &next, &ref) == 0) {
      out.emplace_back(next, ref);
    }
    key = next;
  }
  return out;
}

void KernelMaps::store(std::uint32_t endpoint, const headgate_endpoint_policy& policy) {
  store_words(policies_ + endpoint, policy);
}

void KernelMaps::store_target(std::uint32_t target, const headgate_target_policy& policy) {
  store_words(targets_ + target, policy);
}

void KernelMaps::renew_lease(std::uint32_t target, Instant until) {
  __atomic_store_n(&targets_[target].valid_until_ns, to_ktime_ns(until), __ATOMIC_RELEASE);
}

headgate_endpoint_policy KernelMaps::endpoint_policy(std::uint32_t endpoint) const {
  return policies_[endpoint];
}

headgate_target_policy KernelMaps::target_policy(std::uint32_t target) const {
  return targets_[target];
}

void KernelMaps::set_off(bool off) {
  __atomic_store_n(&control_->off, static_cast<__u64>(off ? 1 : 0), __ATOMIC_RELEASE);
}

bool KernelMaps::off() const { return __atomic_load_n(&control_->off, __ATOMIC_ACQUIRE) != 0; }

headgate_counters KernelMaps::counters(std::uint32_t endpoint) const {
  constexpr std::size_t kWords = sizeof(headgate_counters) / sizeof(std::uint64_t);
  std::array<std::uint64_t, kWords> sum{};
  for (std::size_t cpu = 0; cpu < cpus_; ++cpu) {
    const auto* words = reinterpret_cast<const std::uint64_t*>(  // NOLINT: 8-byte words
        counts_ + cpu * HEADGATE_MAX_ENDPOINTS + endpoint);
    for (std::size_t i = 0; i < kWords; ++i) {
      sum[i] += __atomic_load_n(words + i, __ATOMIC_RELAXED);
    }
  }
  headgate_counters out{};
  std::memcpy(&out, sum.data(), sizeof(out));
  return out;
}

std::uint64_t KernelMaps::offered(std::uint32_t endpoint) const {
  std::uint64_t sum = 0;
  for (std::size_t cpu = 0; cpu < cpus_; ++cpu) {
    sum += __atomic_load_n(&counts_[cpu * HEADGATE_MAX_ENDPOINTS + endpoint].offered,
                           __ATOMIC_RELAXED);
  }
  return sum;
}

std::uint64_t KernelMaps::stirred(std::uint32_t endpoint) const {
  std::uint64_t sum = 0;
  const auto add = [&](const auto& word) { sum += __atomic_load_n(&word, __ATOMIC_RELAXED); };
  for (std::size_t cpu = 0; cpu < cpus_; ++cpu) {
    // Each verdict is a try, a repeat counts too; the rest moves with connections, payload and
    // answers.
    const headgate_counters& c = counts_[cpu * HEADGATE_MAX_ENDPOINTS + endpoint];
    add(c.tries);
    add(c.repeats);
    add(c.established);
    add(c.closed);
    add(c.payload_bytes);
    add(c.responses);
    add(c.recognized);
    add(c.unrecognized);
  }
  return sum;
}

std::uint32_t KernelMaps::take_source_bits(std::uint32_t endpoint) {
  std::uint32_t set = 0;
  for (__u64& word : sources_[endpoint].bits) {
    if (__atomic_load_n(&word, __ATOMIC_RELAXED) != 0) {
      set += static_cast<std::uint32_t>(
          std::popcount(__atomic_exchange_n(&word, __u64{0}, __ATOMIC_RELAXED)));
    }
  }
  return set;
}

std::array<std::uint64_t, HEADGATE_LEFT_COUNT> KernelMaps::left_to_socket() const {
  std::array<std::uint64_t, HEADGATE_LEFT_COUNT> out{};
  std::vector<std::uint64_t> of_cpus(cpus_);
  const int map_fd = fd("headgate_left_counts");
  for (std::uint32_t why = 0; why < HEADGATE_LEFT_COUNT; ++why) {
    if (map_fd >= 0 && ::bpf_map_lookup_elem(map_fd, &why, of_cpus.data()) == 0) {
      for (const std::uint64_t count : of_cpus) {
        out[why] += count;
      }
    }
  }
  return out;
}

void KernelMaps::prefetch_offered(std::uint32_t endpoint) const {
  for (std::size_t cpu = 0; cpu < cpus_; ++cpu) {
    __builtin_prefetch(&counts_[cpu * HEADGATE_MAX_ENDPOINTS + endpoint].offered);
  }
}

Result<> KernelMaps::read_all_states() {
  if (detached_) {
    return {};
  }
  if (!read_array(fd("headgate_states"), used_endpoints_, batch_keys_, states_.data())) {
    return sys_fail(errno, "read headgate_states");
  }
  if (!read_array(fd("headgate_target_states"), used_targets_, batch_keys_,
                  target_states_.data())) {
    return sys_fail(errno, "read headgate_target_states");
  }
  return {};
}

Result<> KernelMaps::read_states(std::span<const std::uint32_t> targets,
                                 std::span<const std::uint32_t> endpoints) {
  // One call an element costs about three elements of a batch.
  if (3 * (targets.size() + endpoints.size()) > used_targets_ + used_endpoints_) {
    return read_all_states();
  }
  if (detached_) {
    return {};
  }
  const int states_fd = fd("headgate_states");
  for (const std::uint32_t slot : endpoints) {
    if (::bpf_map_lookup_elem(states_fd, &slot, &states_[slot]) != 0) {
      return sys_fail(errno, "read headgate_states");
    }
  }
  const int targets_fd = fd("headgate_target_states");
  for (const std::uint32_t slot : targets) {
    if (::bpf_map_lookup_elem(targets_fd, &slot, &target_states_[slot]) != 0) {
      return sys_fail(errno, "read headgate_target_states");
    }
  }
  return {};
}

namespace {

headgate_exempt_key exempt_key(std::uint32_t target, const IpPrefix& prefix) {
  headgate_exempt_key key{};
  key.prefix_bits = 32 + prefix.bits;
  key.target = target;
  std::memcpy(key.address, prefix.address.bytes.data(), sizeof(key.address));
  return key;
}

}  // namespace

Result<> KernelMaps::set_exempt(std::uint32_t target, const std::vector<ExemptSource>& sources) {
  const int map_fd = fd("headgate_exempt");
  if (exempt_.find(target) == exempt_.end()) {
    // The first time since start: whatever a former agent left for this slot goes.
    std::vector<ExemptSource>& known = exempt_[target];
    headgate_exempt_key key{};
    headgate_exempt_key next{};
    for (int rc = ::bpf_map_get_next_key(map_fd, nullptr, &next); rc == 0;
         rc = ::bpf_map_get_next_key(map_fd, &key, &next)) {
      if (next.target == target && next.prefix_bits >= 32) {
        ExemptSource source;
        source.prefix.bits = next.prefix_bits - 32;
        std::memcpy(source.prefix.address.bytes.data(), next.address, sizeof(next.address));
        (void)::bpf_map_lookup_elem(map_fd, &next, &source.kind);
        known.push_back(source);
      }
      key = next;
    }
  }
  std::vector<ExemptSource>& known = exempt_[target];
  for (const ExemptSource& source : sources) {
    if (std::find(known.begin(), known.end(), source) == known.end()) {
      const headgate_exempt_key key = exempt_key(target, source.prefix);
      if (!update(map_fd, &key, &source.kind)) {
        return sys_fail(errno, "write headgate_exempt");
      }
    }
  }
  for (const ExemptSource& source : known) {
    const bool kept = std::any_of(sources.begin(), sources.end(), [&](const ExemptSource& wanted) {
      return wanted.prefix == source.prefix;
    });
    if (!kept) {
      const headgate_exempt_key key = exempt_key(target, source.prefix);
      (void)::bpf_map_delete_elem(map_fd, &key);
    }
  }
  known = sources;
  return {};
}

namespace {

/// The entries of `port` that are not in `keep`.
template <class Key>
std::vector<Key> others(int map_fd, std::uint32_t port,
                        const std::vector<std::pair<Key, headgate_route>>& keep) {
  std::vector<Key> out;
  Key key{};
  Key next{};
  for (int rc = ::bpf_map_get_next_key(map_fd, nullptr, &next); rc == 0;
       rc = ::bpf_map_get_next_key(map_fd, &key, &next)) {
    const bool kept = std::any_of(keep.begin(), keep.end(), [&](const auto& entry) {
      return std::memcmp(&entry.first, &next, sizeof(next)) == 0;
    });
    if (next.port == port && !kept) {
      out.push_back(next);
    }
    key = next;
  }
  return out;
}

/// Deletes them.
template <class Key>
void prune(int map_fd, std::uint32_t port,
           const std::vector<std::pair<Key, headgate_route>>& keep) {
  for (const Key& one : others(map_fd, port, keep)) {
    (void)::bpf_map_delete_elem(map_fd, &one);
  }
}

/// Are the entries of `port` exactly these already?
template <class Key>
bool has_exactly(int map_fd, std::uint32_t port,
                 const std::vector<std::pair<Key, headgate_route>>& wanted) {
  return std::all_of(wanted.begin(), wanted.end(),
                     [&](const auto& entry) {
                       headgate_route there{};
                       return ::bpf_map_lookup_elem(map_fd, &entry.first, &there) == 0 &&
                              there.endpoint == entry.second.endpoint &&
                              there.flags == entry.second.flags;
                     }) &&
         others(map_fd, port, wanted).empty();
}

}  // namespace

Result<> KernelMaps::set_requests(std::uint32_t port, const headgate_request_port& rules,
                                  const RequestRoutes& routes) {
  if (detached_) {
    return {};
  }
  const int paths_fd = fd("headgate_routes");
  const int methods_fd = fd("headgate_methods");
  headgate_request_port written = rules;
  headgate_request_port before{};
  if (::bpf_map_lookup_elem(fd("headgate_request_ports"), &port, &before) == 0) {
    if (has_exactly(paths_fd, port, routes.paths) &&
        has_exactly(methods_fd, port, routes.methods)) {
      written.generation = before.generation;
    } else if (static_cast<__u8>(written.generation) == static_cast<__u8>(before.generation)) {
      ++written.generation;  // the kernel compares this octet only
    }
  }
  for (const auto& [key, route] : routes.paths) {
    if (!update(paths_fd, &key, &route)) {
      return sys_fail(errno, "write headgate_routes");
    }
  }
  for (const auto& [key, route] : routes.methods) {
    if (!update(methods_fd, &key, &route)) {
      return sys_fail(errno, "write headgate_methods");
    }
  }
  prune(paths_fd, port, routes.paths);
  prune(methods_fd, port, routes.methods);
  if (!update(fd("headgate_request_ports"), &port, &written)) {
    return sys_fail(errno, "write headgate_request_ports");
  }
  return {};
}

void KernelMaps::clear_requests(std::uint32_t port) {
  const int ports_fd = fd("headgate_request_ports");
  headgate_request_port rules{};
  if (detached_ || ::bpf_map_lookup_elem(ports_fd, &port, &rules) != 0) {
    return;
  }
  (void)::bpf_map_delete_elem(ports_fd, &port);
  prune<headgate_route_key>(fd("headgate_routes"), port, {});
  prune<headgate_method_key>(fd("headgate_methods"), port, {});
  for (std::uint32_t reason = 0; reason < HEADGATE_UNKNOWN_COUNT; ++reason) {
    const headgate_unknown_key unknown{port, reason};
    (void)::bpf_map_delete_elem(fd("headgate_unknowns"), &unknown);
  }
}

KernelMaps::UnknownCounts KernelMaps::unknowns(std::uint32_t port) const {
  UnknownCounts out{};
  for (std::uint32_t reason = 0; reason < out.size() && !detached_; ++reason) {
    const headgate_unknown_key key{port, reason};
    (void)::bpf_map_lookup_elem(fd("headgate_unknowns"), &key, &out[reason]);
  }
  return out;
}

Result<> KernelMaps::set_pit(std::uint32_t netns_id, int family, int socket_fd) {
  const headgate_pit_key key{netns_id, static_cast<__u32>(family)};
  const std::uint64_t value = static_cast<std::uint64_t>(socket_fd);
  if (!update(fd("headgate_pits"), &key, &value)) {
    return sys_fail(errno, "write headgate_pits");
  }
  return {};
}

void KernelMaps::clear_pit(std::uint32_t netns_id) {
  for (const int family : {AF_INET, AF_INET6}) {
    const headgate_pit_key key{netns_id, static_cast<__u32>(family)};
    (void)::bpf_map_delete_elem(fd("headgate_pits"), &key);
  }
}

std::optional<headgate_model> KernelMaps::model(std::uint32_t target) const {
  headgate_model model{};
  if (::bpf_map_lookup_elem(fd("headgate_models"), &target, &model) != 0 || model.bytes == 0) {
    return std::nullopt;
  }
  return model;
}

void KernelMaps::store_model(std::uint32_t target, const headgate_model& model) {
  update(fd("headgate_models"), &target, &model);
}

}  // namespace headgate
