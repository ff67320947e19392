// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <compare>
#include <cstdint>

namespace headgate {

/// A fraction of something, in [0, inf). Never a percentage. Values above 1 are real (a CPU burst
/// above the quota) and are not clipped.
struct Ratio {
  double value = 0;
  auto operator<=>(const Ratio&) const = default;
};

/// What `kb` means wherever it is said: the kernel charges whole kilobytes, bytes >> 10.
inline constexpr double kBytesPerKb = 1024;

/// A share in [0, 1]. Out-of-range is clamped; NaN becomes the value that lets traffic pass, which
/// the caller chooses by which constructor it uses.
class Probability {
 public:
  constexpr Probability() noexcept = default;

  /// An admitted share: NaN becomes 1, because a bad number must admit traffic.
  static constexpr Probability admitting(double p) noexcept {
    return Probability(p != p ? 1.0 : p);
  }
  /// A refused share or a floor: NaN becomes 0.
  static constexpr Probability refusing(double p) noexcept { return Probability(p != p ? 0.0 : p); }
  static constexpr Probability always() noexcept { return Probability(1.0); }
  static constexpr Probability never() noexcept { return Probability(0.0); }

  [[nodiscard]] constexpr double value() const noexcept { return p_; }
  [[nodiscard]] constexpr Probability complement() const noexcept { return Probability(1.0 - p_); }
  /// Q32 fixed point for bpf_abi.h: 0 = never, 1 << 32 = always, exactly.
  [[nodiscard]] constexpr std::uint64_t q32() const noexcept {
    return static_cast<std::uint64_t>(p_ * 4294967296.0 + 0.5);
  }
  auto operator<=>(const Probability&) const = default;

 private:
  constexpr explicit Probability(double p) noexcept : p_(p < 0 ? 0 : p > 1 ? 1 : p) {}
  double p_ = 0;
};
static_assert(Probability::always().q32() == (1ULL << 32));
static_assert(Probability::never().q32() == 0);

}  // namespace headgate
