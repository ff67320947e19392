// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "headgate/hook.h"
#include "headgate/result.h"

#include "agent/hooks/remedy.h"

namespace headgate {

/// What a hook has attached, by the place (a network namespace, the slot of a target): the first
/// holder of a place attaches, the last one detaches. Keeps why it could not be had, too.
template <class Instance>
class Holders {
 public:
  [[nodiscard]] Result<> hold(std::uint32_t place,
                              const std::function<Result<Instance>()>& attach) {
    if (const auto it = held_.find(place); it != held_.end()) {
      ++it->second.holders;
      return {};
    }
    auto instance = attach();
    if (!instance) {
      note_failure(place, instance.error());
      ++attach_errors_[instance.error().sys_errno];
      return tl::unexpected<Error>(instance.error());
    }
    failed_.erase(place);
    held_.emplace(place, Held{1, std::move(*instance)});
    return {};
  }
  /// One holder less. What nobody holds any more, to be detached.
  [[nodiscard]] std::optional<Instance> release(std::uint32_t place) {
    const auto it = held_.find(place);
    if (it == held_.end() || --it->second.holders > 0) {
      return std::nullopt;
    }
    std::optional<Instance> last = std::move(it->second.instance);
    held_.erase(it);
    return last;
  }
  void release_all(const std::function<void(std::uint32_t, Instance&)>& detach) {
    for (auto& [place, held] : held_) {
      detach(place, held.instance);
    }
    held_.clear();
  }

  /// nullptr: nothing is attached there.
  [[nodiscard]] Instance* find(std::uint32_t place) {
    const auto it = held_.find(place);
    return it != held_.end() ? &it->second.instance : nullptr;
  }
  [[nodiscard]] const Instance* find(std::uint32_t place) const {
    const auto it = held_.find(place);
    return it != held_.end() ? &it->second.instance : nullptr;
  }
  void for_each(const std::function<void(std::uint32_t, const Instance&)>& visit) const {
    for (const auto& [place, held] : held_) {
      visit(place, held.instance);
    }
  }

  void note_failure(std::uint32_t place, const Error& error) { failed_[place] = error; }
  /// nullptr: nobody has tried in vain.
  [[nodiscard]] const Error* failure(std::uint32_t place) const {
    const auto it = failed_.find(place);
    return it != failed_.end() ? &it->second : nullptr;
  }
  /// Completes the status of what is not attached.
  void explain_absence(std::uint32_t place, HookStatus& out) const {
    out.mode = "off";
    if (const Error* error = failure(place); error != nullptr) {
      out.sys_errno = error->sys_errno;
      out.problem = with_remedy(*error);
    }
  }
  [[nodiscard]] const std::map<int, std::uint64_t>& attach_errors() const { return attach_errors_; }

 private:
  struct Held {
    int holders = 1;
    Instance instance;
  };
  std::map<std::uint32_t, Held> held_;
  std::map<std::uint32_t, Error> failed_;
  std::map<int, std::uint64_t> attach_errors_;
};

}  // namespace headgate
