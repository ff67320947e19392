// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headgate/clock.h"

namespace headgate {

/// Text to numbers and back, for the configuration and the command line. Every parser takes the
/// whole text or nothing, and never rounds: what cannot be held exactly is not accepted.

/// An integer as people and tools write it.
struct Integer {
  std::uint64_t value = 0;
  /// Written in scientific form (`1.048576e+06`): Helm prints integers from 1e6 on like that, so
  /// it is accepted where the value is integral, and the reader is told (case C06, helm#12195).
  bool scientific = false;
};
[[nodiscard]] std::optional<Integer> parse_integer(std::string_view text);

/// Finite, decimal: "0.8", "2", "1e-3". No hexadecimal, no "nan", no "inf", no sign but '-'.
[[nodiscard]] std::optional<double> parse_plain_number(std::string_view text);
/// The shortest text that parse_plain_number() reads back to the same value.
[[nodiscard]] std::string format_number(double value);

/// "100ms", "1s", "1m30s", "1.5h": decimal numbers with units ns, us, ms, s, m, h, the largest unit
/// first, each at most once; a plain "0" needs no unit. Not negative, whole nanoseconds.
[[nodiscard]] std::optional<Duration> parse_duration(std::string_view text);
[[nodiscard]] std::string format_duration(Duration duration);

/// Bytes: "1048576", "256Mi", "1.5Gi", "2G" (Kubernetes quantities: Ki, Mi, Gi, Ti are powers of
/// 1024; k, M, G, T of 1000). Whole bytes.
[[nodiscard]] std::optional<Integer> parse_size(std::string_view text);
[[nodiscard]] std::string format_size(std::uint64_t bytes);

/// CPU cores: "2", "0.5", "1500m".
[[nodiscard]] std::optional<double> parse_cores(std::string_view text);

struct PortRange {
  std::uint32_t first = 0;
  std::uint32_t last = 0;
  [[nodiscard]] std::uint32_t count() const { return last - first + 1; }
};
/// Result of reading "4317", "4317-4318" or "4317,4320-4322" (case C12).
struct Ports {
  std::vector<PortRange> ranges;
  bool scientific = false;
  std::string problem;  ///< not empty: what is wrong with it
};
[[nodiscard]] Ports parse_ports(std::string_view text);

/// Damerau-Levenshtein distance (optimal string alignment): insertions, deletions, substitutions
/// and swaps of neighbours.
[[nodiscard]] std::size_t edit_distance(std::string_view a, std::string_view b);

}  // namespace headgate
