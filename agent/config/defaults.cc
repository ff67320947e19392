// SPDX-License-Identifier: Apache-2.0
#include "agent/config/defaults.h"

#include <algorithm>

#include <fmt/format.h>

#include "agent/config/schema.h"

namespace headgate {

RefuseForm default_refuse(Protocol protocol) {
  return protocol == Protocol::kHttp || protocol == Protocol::kGrpc ? RefuseForm::kAuto
                                                                    : RefuseForm::kReset;
}

std::string default_endpoint_name(Protocol protocol, std::uint16_t port) {
  return fmt::format("{}-{}", to_string(protocol), port);
}

std::optional<std::string> below_cgroup_mount(std::string_view path) {
  constexpr std::string_view kMount = "/sys/fs/cgroup";
  if (!path.starts_with(kMount) || (path.size() > kMount.size() && path[kMount.size()] != '/')) {
    return std::nullopt;
  }
  return path.size() > kMount.size() ? std::string(path.substr(kMount.size())) : "/...";
}

void set_default_params(StrategyConfig& strategy, std::span<const StrategyInfo> strategies) {
  const auto info = std::find_if(strategies.begin(), strategies.end(),
                                 [&](const StrategyInfo& i) { return i.name == strategy.name; });
  if (info == strategies.end()) {
    return;
  }
  for (const ParamSpec& param : info->params) {
    const std::string name(param.name);
    if (param.kind == ParamSpec::Kind::kWord) {
      strategy.params.words.emplace(name, param.default_word);
      strategy.shown[name] = strategy.params.words[name];
    } else {
      strategy.params.numbers.emplace(name, param.default_value);
      strategy.shown[name] = param_text(param, strategy.params.numbers[name]);
    }
  }
}

}  // namespace headgate
