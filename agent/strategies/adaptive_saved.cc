// SPDX-License-Identifier: Apache-2.0
#include "agent/strategies/adaptive_saved.h"

#include <cmath>
#include <cstring>

namespace headgate::adaptive {
namespace {

constexpr std::uint64_t kVersion = 0x4847'4144'0000'0001;  // "HGAD", version 1

bool within(double v, double least, double most) {
  return std::isfinite(v) && v >= least && v <= most;
}

bool sound(const Saved::Header& header) {
  constexpr unsigned kSearchMost = 1000;
  return header.version == kVersion && header.shedding <= 1 && header.told <= 1 &&
         header.kept <= 1 && header.search <= kSearchMost && header.endpoints > 0 &&
         within(header.effective_share, 0.05, 1) && within(header.slow, 0, 1e6) &&
         within(header.base_bytes, -1, 1e18) && within(header.workers, 0, 1e9);
}

bool sound(const Saved::Endpoint& e) {
  const auto in_range = [](float v) { return within(static_cast<double>(v), 0, 1e9); };
  return in_range(e.per_request) && in_range(e.per_kb) && in_range(e.kb);
}

}  // namespace

std::size_t Saved::write(Header header, std::span<const Endpoint> endpoints,
                         std::span<std::byte> out) {
  if (endpoints.empty() || sizeof header + endpoints.size_bytes() > out.size()) return 0;
  header.version = kVersion;
  header.endpoints = static_cast<std::uint32_t>(endpoints.size());
  std::memcpy(out.data(), &header, sizeof header);
  std::memcpy(out.data() + sizeof header, endpoints.data(), endpoints.size_bytes());
  return sizeof header + endpoints.size_bytes();
}

std::optional<Saved> Saved::read(std::span<const std::byte> data) {
  Saved saved;
  if (data.size() < sizeof saved.header) return std::nullopt;
  std::memcpy(&saved.header, data.data(), sizeof saved.header);
  if (!sound(saved.header)) return std::nullopt;
  const std::size_t bytes = saved.header.endpoints * sizeof(Endpoint);
  if (data.size() - sizeof saved.header < bytes) return std::nullopt;
  saved.endpoints.resize(saved.header.endpoints);
  std::memcpy(saved.endpoints.data(), data.data() + sizeof saved.header, bytes);
  for (const Endpoint& e : saved.endpoints) {
    if (!sound(e)) return std::nullopt;
  }
  return saved;
}

}  // namespace headgate::adaptive
