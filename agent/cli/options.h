// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "headgate/result.h"

#include "agent/base/log.h"

namespace headgate {

inline constexpr int kExitOk = 0;
inline constexpr int kExitFailure = 1;
inline constexpr int kExitUsage = 2;  ///< bad usage, invalid configuration

inline constexpr std::string_view kDefaultConfigPath = "/etc/headgate/headgate.yaml";

/// What happens to maps and links in the kernel when the agent ends in order.
enum class OnExit : std::uint8_t {
  kLeave,     ///< they stay, the lease opens the gate, the next agent adopts them
  kPurge,     ///< they go
  kHandover,  ///< they stay where another agent stands by to adopt them, else they go
};

/// Who tells of this node's pods.
struct KubernetesOptions {
  std::string api_server;       ///< "auto", "none" or a URL
  std::string node_name;        ///< "": $NODE_NAME
  std::string service_account;  ///< directory with token and ca.crt
  std::string cri_socket;       ///< "auto", "none" or a path
};

struct RunOptions {
  std::string config_path{kDefaultConfigPath};  ///< not used where `protect` has something
  bool config_check = false;                    ///< check the configuration and end
  std::vector<std::string> protect;
  std::vector<std::string> ports;
  bool observe = false;            ///< whatever the configuration says
  std::string web_listen_address;  ///< valid, or empty: no web server
  log::Level log_level = log::Level::kInfo;
  log::Format log_format = log::Format::kText;
  std::string pin_root;
  std::string cgroup_root;
  std::string proc_root;
  OnExit on_exit = OnExit::kLeave;
  bool wait = true;    ///< wait in standby while another agent runs
  bool events = true;  ///< tell the API server what happens to pods
  KubernetesOptions kubernetes;
  std::string socket_path;
};

struct CheckOptions {
  std::string config_path;
  std::string socket_path;
  bool diff = false;
  bool schema = false;
  bool json = false;
};

struct StatusOptions {
  std::string socket_path;
  bool json = false;
};

struct TopOptions {
  std::string socket_path;
  bool once = false;
};

struct ExplainOptions {
  std::string target;
  std::string config_path;
  std::string cgroup_root;
  std::string proc_root;
  std::string socket_path;
  KubernetesOptions kubernetes;
  bool json = false;
};

struct DoctorOptions {
  std::string pin_root;
  std::string cgroup_root;
  std::string proc_root;
  std::string socket_path;
  bool json = false;
};

struct ReportOptions {
  std::string directory;  ///< empty: named after the time
  std::string config_path;
  std::string web_listen_address;  ///< empty: no metrics
  std::string pin_root;
  std::string cgroup_root;
  std::string proc_root;
  std::string socket_path;
  bool json = false;
};

struct SwitchOptions {
  bool off = false;  ///< which of the two verbs
  std::string pin_root;
  std::string socket_path;
  bool json = false;
};

struct VersionOptions {
  bool json = false;
};

struct SimulateOptions {
  enum class Output : std::uint8_t { kTable, kCsv, kJson };
  std::vector<std::string> scenarios;   ///< names, or "all"; empty = all, or only the files
  std::vector<std::string> files;       ///< scenarios in YAML
  std::vector<std::string> strategies;  ///< names, or "all"
  std::vector<std::string> params;      ///< NAME=VALUE
  std::uint64_t first_seed = 1;
  std::size_t seeds = 1;
  double target = 0.9;
  bool spec_profile = false;
  Output output = Output::kTable;
  std::string plot;      ///< file, or empty
  std::size_t fuzz = 0;  ///< random scenarios; 0 = the named ones
  std::uint64_t fuzz_seed = 0;
  bool list = false;
};

struct ReplayOptions {
  enum class Output : std::uint8_t { kTable, kCsv, kJson };
  std::string file;                     ///< a trace; "-" = standard input
  std::vector<std::string> strategies;  ///< empty = that of the trace
  std::vector<std::string> params;      ///< NAME=VALUE
  std::optional<double> target;         ///< empty = that of the trace
  bool spec_profile = false;
  Output output = Output::kTable;
};

struct ClassifyOptions {
  std::string config_path{};
  std::uint16_t port = 0;
  std::string file{};                 ///< a byte stream or a capture; "-" = standard input
  std::vector<std::uint64_t> cuts{};  ///< where packets begin; rising
  bool json = false;
};

struct RecordOptions {
  std::string target;
  std::string socket_path;
  std::string output;      ///< file; empty = standard output
  double duration_s = 60;  ///< 0 = until it is interrupted
};

/// Asked for help: print and exit 0.
struct HelpOptions {
  std::string text;
};

using Command =
    std::variant<HelpOptions, RunOptions, CheckOptions, StatusOptions, TopOptions, ExplainOptions,
                 DoctorOptions, ReportOptions, SwitchOptions, SimulateOptions, ReplayOptions,
                 RecordOptions, ClassifyOptions, VersionOptions>;

using Environment = std::map<std::string, std::string, std::less<>>;

/// `headgate VERB [flags]`. Each flag can also be given as HEADGATE_ and its name in capitals, '.'
/// and '-' as '_' (--web.listen-address: HEADGATE_WEB_LISTEN_ADDRESS); the command line wins. A
/// list has commas there. Errors are bad usage (exit 2), without the "headgate: " in front; an
/// unknown verb or flag names the nearest one.
[[nodiscard]] Result<Command> parse_command_line(std::span<const std::string> arguments,
                                                 const Environment& environment);

/// headgate(8) in the language of man(7), made of the same texts as --help; `headgate help --man`.
[[nodiscard]] std::string man_page();

/// The process's own.
[[nodiscard]] Environment read_environment();

}  // namespace headgate
