// SPDX-License-Identifier: Apache-2.0
#include "agent/dataplane/kernel_maps.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <fmt/format.h>

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

template <class T>
T* map_array(int fd, std::size_t elements) {
  void* at =
      ::mmap(nullptr, page_round(elements * sizeof(T)), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
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

/// A slot for `matches`, else a free one that has rested for `quarantine`; count = none.
template <class Identity, class Free, class Matches>
std::uint32_t find_slot(const std::vector<Identity>& ids, const std::vector<bool>& claimed,
                        std::uint64_t now_ns, std::uint64_t quarantine_ns, Free free,
                        Matches matches) {
  auto best = static_cast<std::uint32_t>(ids.size());
  for (std::uint32_t i = 0; i < ids.size(); ++i) {
    if (claimed[i]) {
      continue;
    }
    if (!free(ids[i]) && matches(ids[i])) {
      return i;
    }
    const bool rested = ids[i].freed_at_ns == 0 || now_ns - ids[i].freed_at_ns >= quarantine_ns;
    if (free(ids[i]) && rested && best == ids.size()) {
      best = i;
    }
  }
  return best;
}

}  // namespace

Result<std::unique_ptr<KernelMaps>> KernelMaps::open(const PinDirectory& pins) {
  SkeletonPtr skeleton(headgate_bpf__open());
  if (!skeleton) {
    return sys_fail(errno, "open the BPF object");
  }
  bpf_program* program = nullptr;
  bpf_object__for_each_program(program, skeleton->obj) {
    bpf_program__set_autoload(program, false);
  }

  std::unique_ptr<KernelMaps> out(new KernelMaps());
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

Result<> KernelMaps::map_memory() {
  control_ = map_array<headgate_control>(fd("headgate_control"), 1);
  policies_ = map_array<headgate_endpoint_policy>(fd("headgate_policies"), HEADGATE_MAX_ENDPOINTS);
  targets_ = map_array<headgate_target_policy>(fd("headgate_targets"), HEADGATE_MAX_TARGETS);
  if (control_ == nullptr || policies_ == nullptr || targets_ == nullptr) {
    return sys_fail(errno, "map the policies into memory");
  }
  if (control_->policy_version != kPolicyVersion) {
    for (std::uint32_t i = 0; i < HEADGATE_MAX_ENDPOINTS; ++i) {
      store(i, headgate_endpoint_policy{});
    }
    for (std::uint32_t i = 0; i < HEADGATE_MAX_TARGETS; ++i) {
      store(i, headgate_target_policy{});
    }
    control_->policy_version = kPolicyVersion;
  }
  control_->abi_version = HEADGATE_ABI_VERSION;
  target_ids_ =
      read_identities<headgate_target_identity>(fd("headgate_target_ids"), HEADGATE_MAX_TARGETS);
  endpoint_ids_ = read_identities<headgate_endpoint_identity>(fd("headgate_endpoint_ids"),
                                                              HEADGATE_MAX_ENDPOINTS);
  target_claimed_.assign(HEADGATE_MAX_TARGETS, false);
  endpoint_claimed_.assign(HEADGATE_MAX_ENDPOINTS, false);
  counters_.assign(HEADGATE_MAX_ENDPOINTS, headgate_counters{});
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
}

int KernelMaps::fd(const std::string& map) const {
  const auto it = fds_.find(map);
  return it == fds_.end() ? -1 : it->second.get();
}

bool KernelMaps::update(int map_fd, const void* key, const void* value) {
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
      target_ids_, target_claimed_, to_ktime_ns(now),
      static_cast<std::uint64_t>(quarantine.count()),
      [](const auto& id) { return id.cgroup_id == 0; },
      [&](const auto& id) { return id.cgroup_id == cgroup_id && id.name_hash == name_hash; });
  if (slot == target_ids_.size()) {
    return fail(fmt::format("all {} target slots are in use", HEADGATE_MAX_TARGETS));
  }
  const bool known = target_ids_[slot].cgroup_id != 0;
  target_claimed_[slot] = true;
  target_ids_[slot] = {cgroup_id, name_hash, netns_id, 0, 0};
  if (!known) {
    store(slot, headgate_target_policy{});
    const headgate_target_state state{};
    update(fd("headgate_target_states"), &slot, &state);
    const headgate_model model{};
    update(fd("headgate_models"), &slot, &model);
  }
  if (!update(fd("headgate_target_ids"), &slot, &target_ids_[slot])) {
    return sys_fail(errno, "write headgate_target_ids");
  }
  return slot;
}

Result<std::uint32_t> KernelMaps::claim_endpoint(std::uint64_t target_name_hash,
                                                 std::uint32_t target, std::uint16_t port,
                                                 std::uint8_t protocol, Instant now,
                                                 Duration quarantine) {
  const std::uint32_t slot = find_slot(
      endpoint_ids_, endpoint_claimed_, to_ktime_ns(now),
      static_cast<std::uint64_t>(quarantine.count()),
      [](const auto& id) { return id.target_name_hash == 0; },
      [&](const auto& id) {
        return id.target_name_hash == target_name_hash && id.target == target && id.port == port &&
               id.protocol == protocol;
      });
  if (slot == endpoint_ids_.size()) {
    return fail(fmt::format("all {} endpoint slots are in use", HEADGATE_MAX_ENDPOINTS));
  }
  const bool known = endpoint_ids_[slot].target_name_hash != 0;
  endpoint_claimed_[slot] = true;
  used_endpoints_ = std::max(used_endpoints_, slot + 1);
  endpoint_ids_[slot] = {target_name_hash, target, port, protocol, 0, 0, 0};
  if (!known) {
    store(slot, headgate_endpoint_policy{});
    const headgate_endpoint_state state{};
    update(fd("headgate_states"), &slot, &state);
    zero_counters(slot);
  }
  if (!update(fd("headgate_endpoint_ids"), &slot, &endpoint_ids_[slot])) {
    return sys_fail(errno, "write headgate_endpoint_ids");
  }
  return slot;
}

void KernelMaps::zero_counters(std::uint32_t endpoint) {
  const auto cpus = static_cast<std::size_t>(libbpf_num_possible_cpus());
  const std::vector<headgate_counters> zero(cpus);
  update(fd("headgate_counts"), &endpoint, zero.data());
}

void KernelMaps::release_target(std::uint32_t slot, Instant now) {
  store(slot, headgate_target_policy{});
  target_ids_[slot] = {};
  target_ids_[slot].freed_at_ns = to_ktime_ns(now);
  target_claimed_[slot] = false;
  update(fd("headgate_target_ids"), &slot, &target_ids_[slot]);
}

void KernelMaps::release_endpoint(std::uint32_t slot, Instant now) {
  store(slot, headgate_endpoint_policy{});
  endpoint_ids_[slot] = {};
  endpoint_ids_[slot].freed_at_ns = to_ktime_ns(now);
  endpoint_claimed_[slot] = false;
  update(fd("headgate_endpoint_ids"), &slot, &endpoint_ids_[slot]);
}

std::size_t KernelMaps::release_unclaimed(Instant now) {
  std::size_t freed = 0;
  std::vector<bool> orphan(endpoint_ids_.size(), false);
  for (std::uint32_t i = 0; i < endpoint_ids_.size(); ++i) {
    if (endpoint_ids_[i].target_name_hash != 0 && !endpoint_claimed_[i]) {
      release_endpoint(i, now);
      orphan[i] = true;
      ++freed;
    }
  }
  for (std::uint32_t i = 0; i < target_ids_.size(); ++i) {
    if (target_ids_[i].cgroup_id != 0 && !target_claimed_[i]) {
      release_target(i, now);
      (void)set_exempt(i, {});
      ++freed;
    }
  }
  for (const auto& [key, ref] : flows()) {
    const bool by_address = (ref.flags & HEADGATE_REF_BY_ADDRESS) != 0;
    if (!by_address && ref.endpoint < orphan.size() && orphan[ref.endpoint]) {
      unmap_flow(key);
      ++freed;
    }
  }
  return freed;
}

Result<> KernelMaps::map_flow(const headgate_endpoint_key& key, const headgate_endpoint_ref& ref) {
  if (!update(fd("headgate_endpoints"), &key, &ref)) {
    return sys_fail(errno, "write headgate_endpoints");
  }
  return {};
}

void KernelMaps::unmap_flow(const headgate_endpoint_key& key) {
  (void)::bpf_map_delete_elem(fd("headgate_endpoints"), &key);
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

void KernelMaps::store(std::uint32_t target, const headgate_target_policy& policy) {
  store_words(targets_ + target, policy);
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

namespace {

void add_words(headgate_counters& sum, const headgate_counters& part) {
  constexpr std::size_t kWords = sizeof(headgate_counters) / sizeof(std::uint64_t);
  std::array<std::uint64_t, kWords> a{};
  std::array<std::uint64_t, kWords> b{};
  std::memcpy(a.data(), &sum, sizeof(sum));
  std::memcpy(b.data(), &part, sizeof(part));
  for (std::size_t i = 0; i < kWords; ++i) {
    a[i] += b[i];
  }
  std::memcpy(&sum, a.data(), sizeof(sum));
}

}  // namespace

Result<> KernelMaps::read_counters() {
  const auto cpus = static_cast<std::size_t>(libbpf_num_possible_cpus());
  const std::size_t stride = cpus * sizeof(headgate_counters);
  if (used_endpoints_ == 0) {
    return {};
  }
  batch_.resize(std::max(batch_.size(), used_endpoints_ * (stride + sizeof(std::uint32_t))));
  std::byte* values = batch_.data() + used_endpoints_ * sizeof(std::uint32_t);
  const int map_fd = fd("headgate_counts");
  if (batch_works_) {
    std::uint32_t cursor = 0;
    std::uint32_t count = used_endpoints_;
    if (::bpf_map_lookup_batch(map_fd, nullptr, &cursor, batch_.data(), values, &count, nullptr) !=
            0 &&
        errno != ENOENT) {
      batch_works_ = false;  // older kernels have no batch for per-CPU arrays: one call an element
    }
  }
  for (std::uint32_t i = 0; i < used_endpoints_; ++i) {
    std::byte* at = values + i * stride;
    if (!batch_works_ && ::bpf_map_lookup_elem(map_fd, &i, at) != 0) {
      return sys_fail(errno, "read headgate_counts");
    }
    headgate_counters sum{};
    for (std::size_t cpu = 0; cpu < cpus; ++cpu) {
      headgate_counters part{};
      std::memcpy(&part, at + cpu * sizeof(part), sizeof(part));
      add_words(sum, part);
    }
    counters_[i] = sum;
  }
  return {};
}

std::optional<headgate_endpoint_state> KernelMaps::endpoint_state(std::uint32_t endpoint) const {
  headgate_endpoint_state state{};
  if (::bpf_map_lookup_elem(fd("headgate_states"), &endpoint, &state) != 0) {
    return std::nullopt;
  }
  return state;
}

std::optional<headgate_target_state> KernelMaps::target_state(std::uint32_t target) const {
  headgate_target_state state{};
  if (::bpf_map_lookup_elem(fd("headgate_target_states"), &target, &state) != 0) {
    return std::nullopt;
  }
  return state;
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
