// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "agent/strategies/adaptive_cost.h"

namespace headgate::adaptive {

/// What outlives the agent, so that a restart under overload is no cold start.
struct Saved {
  struct Header {
    std::uint64_t version;
    std::int64_t at_ns;
    CostModel::State cost;
    double effective_share, slow, base_bytes, workers;
    std::uint32_t search, shedding, told, kept;
    std::uint32_t endpoints, reserved;
  };
  struct Endpoint {
    float per_request, per_kb, kb;
  };
  Header header{};
  std::vector<Endpoint> endpoints;

  /// Bytes written; 0 where there is nothing to save, or no room for it. Version and number of
  /// endpoints of the header are filled in.
  static std::size_t write(Header header, std::span<const Endpoint> endpoints,
                           std::span<std::byte> out);
  /// Nothing where it is not of this kind, or a value is not sound.
  static std::optional<Saved> read(std::span<const std::byte> data);
};

}  // namespace headgate::adaptive
