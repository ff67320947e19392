// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "headgate/strategy.h"

#include "agent/sim/guard.h"

namespace headgate::sim {

/// The verdict as the kernel makes it (bpf/lib/verdict.h), fed with the words that the agent
/// publishes: what is simulated is what runs.
class KernelGate {
 public:
  explicit KernelGate(std::size_t endpoints);
  ~KernelGate();
  KernelGate(const KernelGate&) = delete;
  KernelGate& operator=(const KernelGate&) = delete;
  KernelGate(KernelGate&&) = delete;
  KernelGate& operator=(KernelGate&&) = delete;

  void publish(const Decision& decision, double now_s, Duration lease);
  void see_load(const Guard::Load& load);
  [[nodiscard]] bool admits(const Attempt& attempt);

 private:
  struct Words;
  std::unique_ptr<Words> words_;
};

}  // namespace headgate::sim
