// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headgate/result.h"
#include "headgate/strategy.h"

#include "agent/config/config.h"

namespace headgate {

/// One thing wrong (or odd) in a configuration, with its place and the remedy.
struct Problem {
  enum class Severity : std::uint8_t { kError, kWarning };
  Severity severity = Severity::kError;
  std::string file;
  Place place;
  std::string key;      ///< path of the key: "targets[0].endpoints[1].port"
  std::string value;    ///< as written
  std::string message;  ///< what is wrong and what is allowed
  std::string nearest;  ///< nearest valid name, for unknown keys and words; else empty
};
/// "headgate.yaml:12:7: error: targets[0].tagret: unknown key 'tagret' (value 0.8); did you mean
/// 'target'? ..."
[[nodiscard]] std::string to_string(const Problem& problem);

/// The outcome of reading a text: valid = no problem is an error. All problems are found, not only
/// the first one.
struct LoadedConfig {
  Config config;
  std::vector<Problem> problems;
  [[nodiscard]] bool valid() const;
};

/// Reads one configuration (design, section 8). Strict: unknown and duplicate keys, values out of
/// range, overlapping endpoints are errors. `file` is used in messages only. Never throws.
[[nodiscard]] LoadedConfig load_config(std::string_view text, const std::string& file,
                                       std::span<const StrategyInfo> strategies);
/// Reads the file too; a file that cannot be read is one Problem.
[[nodiscard]] LoadedConfig load_config_file(const std::string& path,
                                            std::span<const StrategyInfo> strategies);

/// What stands behind "pod:" in a TARGET: "NAMESPACE/NAME[/CONTAINER]", or "UID[/CONTAINER]".
[[nodiscard]] Result<MatchPods> parse_pod_target(std::string_view text);

/// `--protect TARGET --port N[/PROTOCOL]`: the configuration it amounts to; each target gets all
/// the ports. TARGET: cgroup:/PATH, unit:NAME (or just NAME.service, .scope, .slice), exe:/PATH (or
/// process:/PATH), pod:NAMESPACE/NAME[/CONTAINER] or pod:UID[/CONTAINER]. N: a port, a range or a
/// list of them. With `strategies` the defaults of the strategy are written in, as load_config()
/// does. Errors name the flag.
[[nodiscard]] Result<Config> config_from_flags(const std::vector<std::string>& protect,
                                               const std::vector<std::string>& ports, Mode mode,
                                               std::span<const StrategyInfo> strategies = {});
/// The whole configuration with every default written out, valid YAML (shown at /config): read
/// again it gives an equal Config.
[[nodiscard]] std::string to_yaml(const Config& config);
/// Differences of two configurations as lines "- targets[NAME].target: 0.9" (before) and "+ ..."
/// (after), for `check --diff`. Empty = same. Targets and endpoints are told by name, not position.
[[nodiscard]] std::string diff(const Config& before, const Config& after);
/// JSON schema (draft 2020-12) of the configuration, made from the same tables as the checks.
[[nodiscard]] std::string json_schema(std::span<const StrategyInfo> strategies);

}  // namespace headgate
