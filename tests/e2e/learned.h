// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include <bpf/bpf.h>

#include "headgate/bpf_abi.h"

#include "agent/base/unique_fd.h"
#include "agent/cgroup/hierarchy.h"
#include "agent/dataplane/bpffs.h"
#include "agent/signals/signals.h"
#include "agent/strategies/adaptive_saved.h"
#include "tests/support/net_lab.h"

namespace headgate::e2e {

/// What `adaptive` has learned about the target of a cgroup (its path), as the agent keeps it in
/// its pinned maps; nothing where it has not learned anything yet.
inline std::optional<adaptive::Saved> learned_about(const std::string& pin_root,
                                                    const std::string& cgroup) {
  const auto hierarchy = Hierarchy::detect("/sys/fs/cgroup", "/proc");
  const std::uint64_t identity = hierarchy ? cgroup_identity(*hierarchy, cgroup).value_or(0) : 0;
  const PinDirectory pins = PinDirectory::existing(pin_root);
  const UniqueFd ids(::bpf_obj_get(pins.map_path("headgate_target_ids").c_str()));
  const UniqueFd models(::bpf_obj_get(pins.map_path("headgate_models").c_str()));
  for (std::uint32_t slot = 0; ids && models && slot < HEADGATE_MAX_TARGETS; ++slot) {
    headgate_target_identity id{};
    headgate_model model{};
    if (::bpf_map_lookup_elem(ids.get(), &slot, &id) == 0 && id.cgroup_id == identity &&
        ::bpf_map_lookup_elem(models.get(), &slot, &model) == 0 &&
        model.bytes > SignalDeriver::kModelBytes && model.bytes <= HEADGATE_MODEL_BYTES) {
      return adaptive::Saved::read(std::as_bytes(std::span(model.data))
                                       .first(model.bytes)
                                       .subspan(SignalDeriver::kModelBytes));
    }
  }
  return std::nullopt;
}

/// Has `connect` make sixty connections a second until it is known what they cost; nothing where
/// that does not come about.
inline std::optional<adaptive::Saved> learn_costs(
    const std::function<void(const lab::ConnectOptions&)>& connect, const std::string& pin_root,
    const std::string& cgroup) {
  constexpr unsigned kEnoughWindows = 10;
  std::optional<adaptive::Saved> out;
  const bool learned = lab::eventually(
      [&] {
        lab::ConnectOptions options;
        options.attempts = 60;
        options.per_second = 60;
        connect(options);
        out = learned_about(pin_root, cgroup);
        return out && out->header.cost.windows >= kEnoughWindows;
      },
      std::chrono::seconds(40));
  return learned ? out : std::nullopt;
}

/// CPU-seconds of one connection, as the first endpoint's is known.
inline double cost_s(const adaptive::Saved& saved) {
  return saved.header.cost.factor * static_cast<double>(saved.endpoints.at(0).per_request);
}

}  // namespace headgate::e2e
