// SPDX-License-Identifier: Apache-2.0
#include "agent/cli/options.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <sstream>

#include <boost/program_options.hpp>
#include <fmt/format.h>

#include "agent/config/quantity.h"
#include "agent/config/schema.h"
#include "agent/strategies/registry.h"
#include "agent/web/control_socket.h"
#include "agent/web/http_server.h"

namespace headgate {
namespace {

namespace po = boost::program_options;

constexpr const char* kDefaultWebAddress = "127.0.0.1:9749";
constexpr const char* kDefaultPinRoot = "/sys/fs/bpf/headgate";
constexpr const char* kDefaultCgroupRoot = "/sys/fs/cgroup";
constexpr const char* kDefaultProcRoot = "/proc";

struct VerbDoc {
  std::string_view name;
  std::string_view arguments;  ///< shown in the usage line
  std::string_view summary;
  std::string_view description;
  std::string_view examples;
};

constexpr VerbDoc kRun{
    "run", "[flags]", "run the agent",
    "Watches the targets and refuses in the kernel what they cannot serve. With --protect and "
    "--port\n"
    "it needs no configuration file, and prints the one that the flags amount to.",
    "  headgate run --config=/etc/headgate/headgate.yaml\n"
    "      protect what the file says\n"
    "  headgate run --protect=unit:otelcol.service --port=4317/grpc --observe\n"
    "      a first look at one collector: decide and count, refuse nothing\n"
    "  headgate run --protect=cgroup:/my/collector --port=4317 --port=8125/udp\n"
    "      protect a cgroup on two ports\n"
    "  headgate run --config=/etc/headgate/headgate.yaml --config.check\n"
    "      check the file and end\n"};
constexpr VerbDoc kCheck{"check", "[FILE] [flags]", "check a configuration",
                         "Reports everything that is wrong or odd in a configuration, with line "
                         "and remedy, and says which\n"
                         "stock senders lose data with the chosen forms of refusal.",
                         "  headgate check headgate.yaml\n"
                         "      exit status 0: valid, 2: not\n"
                         "  headgate check --diff headgate.yaml\n"
                         "      and what would change in the running agent\n"
                         "  headgate check --schema > headgate.schema.json\n"
                         "      a JSON schema, for editors\n"};
constexpr VerbDoc kStatus{"status", "[flags]", "show the running agent",
                          "One table of all targets and endpoints, and what is wrong, if anything.",
                          "  headgate status\n"
                          "  headgate status --json | jq '.targets[].state'\n"};
constexpr VerbDoc kTop{
    "top", "[flags]", "watch the running agent",
    "The table of `status` once a second; q ends it. Where the output is no terminal, one\n"
    "table after another is printed. NO_COLOR is respected.",
    "  headgate top\n"
    "  headgate top --once\n"};
constexpr VerbDoc kExplain{
    "explain", "TARGET [flags]", "show why a target is treated as it is",
    "Every file that is read, with its raw text; how each limit follows from them; signals, "
    "state,\n"
    "thresholds and the last refusals. Needs no running agent; asks it where there is one.\n\n"
    "TARGET is the name of a configured target, or says where to look: cgroup:/PATH (below the\n"
    "cgroup root), unit:NAME, pid:NUMBER, pod:NAMESPACE/NAME[/CONTAINER].",
    "  headgate explain otel-gateway\n"
    "  headgate explain unit:otelcol.service --json\n"
    "  headgate explain cgroup:/kubepods.slice/x --cgroup-root=./copy/cgroup "
    "--proc-root=./copy/proc\n"
    "      from a copy of another machine's files\n"};
constexpr VerbDoc kDoctor{
    "doctor", "[flags]", "find what keeps headgate from working here",
    "Looks at kernel, capabilities, limits and file systems, says what each lack costs and what "
    "to\n"
    "do about it. Changes nothing. Exit status 1 when something essential fails.",
    "  sudo headgate doctor\n"
    "  headgate doctor --json | jq '.checks[] | select(.severity != \"ok\")'\n"};
constexpr VerbDoc kReport{
    "report", "[flags]", "gather what somebody who helps would ask for",
    "Writes version, doctor, state, metrics, configuration and `explain` of the targets into a "
    "new\n"
    "directory. Secrets are masked by their looks: read it before you send it.",
    "  sudo headgate report\n"
    "  sudo headgate report --out=/tmp/headgate-report --json\n"};
constexpr VerbDoc kOff{
    "off", "[flags]", "admit everything, at once",
    "The kill switch: kernel and agent admit everything until `headgate on`, over restarts too.\n"
    "Decisions go on and can be seen.",
    "  sudo headgate off\n"};
constexpr VerbDoc kOn{"on", "[flags]", "end `off`", "Ends what `headgate off` began.",
                      "  sudo headgate on\n"};
constexpr VerbDoc kSimulate{
    "simulate", "[SCENARIO...|all] [flags]", "try strategies on a simulated pod",
    "Runs scenarios against strategies in a simulated pod: CFS bandwidth control, a queue, "
    "retries,\n"
    "background work, memory, and the kernel's own verdict with the policy that the agent would\n"
    "publish. The same seed gives the same result. Needs no agent, no kernel, no rights.\n\n"
    "Goodput is useful work over what could be done with 200 ms of buffering; peak is the most "
    "work\n"
    "admitted and not done; danger is the time in which more than 105 % of the capacity was\n"
    "admitted. With --csv one run is printed tick by tick, several as one line each.",
    "  headgate simulate --list\n"
    "      scenarios, strategies, and the keys of a scenario file\n"
    "  headgate simulate B10 CJ4-blind --strategy=adaptive,graded,None --seeds=3\n"
    "  headgate simulate --file=evening.yaml --strategy=all --plot=evening.svg\n"
    "  headgate simulate S0-seed --target=0.95 --csv > s0.csv\n"
    "  headgate simulate --fuzz=300 --seed=9000 --json | jq .goodput\n"};
constexpr VerbDoc kReplay{
    "replay", "FILE [flags]", "decide again on a recorded trace",
    "Reads a trace of `headgate record`, or a vector of the control law in CSV, and prints what a\n"
    "strategy decides on it, by default the one of the trace. The arrivals of the trace stand: "
    "this\n"
    "shows decisions, not their consequences (for those: simulate). FILE - is standard input.\n"
    "Needs no agent, no kernel, no rights.",
    "  headgate replay incident.trace\n"
    "  headgate replay incident.trace --strategy=adaptive,graded\n"
    "  headgate replay incident.trace --strategy=adaptive --param=tau_cost=3s --csv\n"};
constexpr VerbDoc kRecord{
    "record", "TARGET [flags]", "write a trace of a target of the running agent",
    "Writes what the agent sees of one target and what it decides, a line a tick (about 200 "
    "bytes),\n"
    "for `headgate replay`. TARGET is the name of a configured target. A tick in which a calm\n"
    "target was not read is not in it.",
    "  headgate record otel-gateway --duration=5m --output=incident.trace\n"
    "  headgate record otel-gateway | headgate replay - --strategy=graded\n"};
constexpr VerbDoc kClassify{
    "classify", "FILE --port=N [flags]", "show which route each request of a file belongs to",
    "Reads what a client has sent to a port, as the kernel would: the same code, packet by "
    "packet.\n"
    "Prints each request with its route, or why its class is unknown. FILE is a stream of bytes, "
    "or\n"
    "a capture (pcap, pcapng), of which all connections to the port are read; - is standard "
    "input.\n"
    "Needs no agent, no kernel, no rights.",
    "  headgate classify --config=headgate.yaml --port=4318 request.bin\n"
    "  headgate classify --config=headgate.yaml --port=4318 --cut=3,17 request.bin\n"
    "      the same in three packets\n"
    "  tcpdump -i any -w - tcp dst port 4318 | headgate classify --config=headgate.yaml "
    "--port=4318 --json -\n"};
constexpr VerbDoc kVersion{"version", "[flags]", "show the version",
                           "Version, revision and compiler.", "  headgate version --json\n"};

constexpr std::array kVerbs{kRun,      kCheck,  kStatus, kTop,      kExplain, kDoctor, kReport,
                            kSimulate, kReplay, kRecord, kClassify, kOff,     kOn,     kVersion};

std::string overview() {
  std::string text =
      "Headgate keeps overloaded collectors alive: it watches the CPU and memory of each target "
      "and\n"
      "refuses the excess in the kernel, before the collector spends anything on it.\n\n"
      "Usage: headgate VERB [flags]\n\n";
  for (const VerbDoc& verb : kVerbs) {
    text += fmt::format("  {:<10}{}\n", verb.name, verb.summary);
  }
  text +=
      "\n`headgate VERB --help` has the flags and examples of a verb.\n"
      "Exit status: 0 done, 1 failed, 2 bad usage or invalid configuration.\n\n"
      "Examples:\n"
      "  headgate run --protect=unit:otelcol.service --port=4317/grpc --observe\n"
      "  headgate doctor\n"
      "  headgate explain unit:otelcol.service\n";
  return text;
}

std::string help(const VerbDoc& verb, const po::options_description& flags) {
  std::ostringstream text;
  text << "Usage: headgate " << verb.name << ' ' << verb.arguments << "\n\n"
       << verb.description << "\n\n"
       << flags << "\nEach flag can also be given in the environment: --web.listen-address as\n"
       << "HEADGATE_WEB_LISTEN_ADDRESS. The command line wins.\n\nExamples:\n"
       << verb.examples;
  return text.str();
}

std::string environment_name(std::string_view flag) {
  std::string name = "HEADGATE_";
  for (const char c : flag) {
    name += c == '.' || c == '-' ? '_' : c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c;
  }
  return name;
}

/// In a pod, a Service named "headgate" makes the kubelet set HEADGATE_PORT=tcp://10.0.0.1:9749 and
/// the like for everybody (kubernetes.io, "Service", environment variables): not meant for us.
bool is_service_link(std::string_view value) {
  return value.starts_with("tcp://") || value.starts_with("udp://") || value.starts_with("sctp://");
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (true) {
    const auto end = text.find(separator);
    parts.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) {
      return parts;
    }
    text.remove_prefix(end + 1);
  }
}

bool is_list(std::string_view flag) {
  return flag == "protect" || flag == "port" || flag == "file" || flag == "param";
}

po::parsed_options from_environment(const po::options_description& flags,
                                    const Environment& environment) {
  po::parsed_options parsed(&flags);
  for (const auto& flag : flags.options()) {
    const std::string& name = flag->long_name();
    const auto it = environment.find(environment_name(name));
    if (name == "help" || it == environment.end() || it->second.empty() ||
        is_service_link(it->second)) {
      continue;
    }
    po::option option;
    option.string_key = name;
    option.value = is_list(name) ? split(it->second, ',') : std::vector{it->second};
    parsed.options.push_back(std::move(option));
  }
  return parsed;
}

tl::unexpected<Error> bad_usage(std::string_view verb, std::string_view what) {
  return fail(fmt::format("{}: {}; see `headgate {} --help`", verb, what, verb));
}

std::string suggest(const po::options_description& flags, std::string_view wrong) {
  std::vector<std::string_view> names;
  for (const auto& flag : flags.options()) {
    names.push_back(flag->long_name());
  }
  const auto stem = wrong.substr(std::min(wrong.find_first_not_of('-'), wrong.size()));
  const auto nearest = nearest_of(stem.substr(0, stem.find('=')), names);
  return fmt::format("the nearest is --{}", nearest.name);
}

/// What all verbs have in common: flags from the command line, then from the environment.
class Parser {
 public:
  Parser(const VerbDoc& verb, std::span<const std::string> arguments,
         const Environment& environment)
      : verb_(verb), arguments_(arguments), environment_(environment), flags_("Flags", 100, 60) {}

  void text(const char* name, std::string* into, const std::string& default_value,
            const char* placeholder, const char* doc) {
    flags_.add_options()(
        name, po::value<std::string>(into)->default_value(default_value)->value_name(placeholder),
        doc);
  }
  void list(const char* name, std::vector<std::string>* into, const char* placeholder,
            const char* doc) {
    flags_.add_options()(name, po::value<std::vector<std::string>>(into)->value_name(placeholder),
                         doc);
  }
  void boolean(const char* name, bool* into, const char* doc) {
    flags_.add_options()(name, po::bool_switch(into), doc);
  }
  void socket(std::string* into) {
    text("socket", into, std::string(kDefaultSocketPath), "PATH", "the agent's unix socket");
  }
  void json(bool* into) { boolean("json", into, "print JSON"); }
  void roots(std::string* cgroup, std::string* proc) {
    text("cgroup-root", cgroup, kDefaultCgroupRoot, "DIR", "where the cgroup trees are");
    text("proc-root", proc, kDefaultProcRoot, "DIR", "where the processes are");
  }
  void kubernetes(KubernetesOptions* into) {
    text(
        "kubernetes.api-server", &into->api_server, "auto", "URL",
        "where pods are asked for, if targets are pods; auto: the server of the pod that the agent "
        "runs in; none: nowhere");
    text("kubernetes.node-name", &into->node_name, "", "NAME",
         "name of this node; the environment variable NODE_NAME if left out");
    text("kubernetes.service-account", &into->service_account,
         "/var/run/secrets/kubernetes.io/serviceaccount", "DIR", "has the files token and ca.crt");
    text("kubernetes.cri-socket", &into->cri_socket, "auto", "PATH",
         "the container runtime, which tells of pods where the API server does not; auto: that of "
         "containerd, CRI-O or cri-dockerd; none: nobody");
  }
  void pin_root(std::string* into) {
    text("pin-root", into, kDefaultPinRoot, "DIR", "directory of maps and links in bpffs");
  }
  /// One argument without a flag. Its name in messages, and where it goes.
  void positional(std::string* into) { positional_ = into; }
  /// Any number of them.
  void positionals(std::vector<std::string>* into) { positionals_ = into; }

  /// Empty optional = go on; HelpOptions = that is the command.
  [[nodiscard]] Result<std::optional<HelpOptions>> parse() {
    bool wants_help = false;
    flags_.add_options()("help,h", po::bool_switch(&wants_help), "show this");
    po::options_description all;
    all.add(flags_);
    std::vector<std::string> rest;
    all.add_options()(kRest, po::value<std::vector<std::string>>(&rest));
    po::positional_options_description everything_else;
    everything_else.add(kRest, -1);
    try {
      // No abbreviations: a flag that works today must not become ambiguous tomorrow.
      constexpr int kStyle =
          po::command_line_style::unix_style & ~po::command_line_style::allow_guessing;
      po::variables_map values;
      po::store(po::command_line_parser({arguments_.begin(), arguments_.end()})
                    .options(all)
                    .positional(everything_else)
                    .style(kStyle)
                    .run(),
                values);
      // The first one stored wins.
      po::store(from_environment(flags_, environment_), values);
      po::notify(values);
      given_ = std::move(values);
    } catch (const po::unknown_option& error) {
      return bad_usage(verb_.name, fmt::format("unknown flag '{}', {}", error.get_option_name(),
                                               suggest(flags_, error.get_option_name())));
    } catch (const po::error& error) {
      return bad_usage(verb_.name, error.what());
    }
    if (wants_help) {
      return HelpOptions{help(verb_, flags_)};
    }
    if (positionals_ != nullptr) {
      *positionals_ = std::move(rest);
      return std::nullopt;
    }
    if (rest.size() > (positional_ != nullptr ? 1U : 0U)) {
      return bad_usage(verb_.name, fmt::format("unexpected argument '{}'", rest.back()));
    }
    if (!rest.empty()) {
      *positional_ = rest.front();
    }
    return std::nullopt;
  }

  [[nodiscard]] bool given(const char* name) const {
    return given_.count(name) != 0 && !given_[name].defaulted();
  }
  [[nodiscard]] tl::unexpected<Error> error(std::string_view what) const {
    return bad_usage(verb_.name, what);
  }

 private:
  static constexpr const char* kRest = " ";  // cannot be typed as a flag

  const VerbDoc& verb_;
  std::span<const std::string> arguments_;
  const Environment& environment_;
  po::options_description flags_;
  po::variables_map given_;
  std::string* positional_ = nullptr;
  std::vector<std::string>* positionals_ = nullptr;
};

using Arguments = std::span<const std::string>;

Result<Command> parse_run(Arguments arguments, const Environment& environment) {
  RunOptions o;
  std::string level;
  std::string format;
  std::string on_exit;
  bool no_wait = false;
  bool no_events = false;
  Parser parser(kRun, arguments, environment);
  parser.text("config", &o.config_path, std::string(kDefaultConfigPath), "FILE",
              "the configuration");
  parser.boolean("config.check", &o.config_check, "check the configuration and end");
  parser.list("protect", &o.protect, "TARGET",
              "protect this without a file: unit:NAME, cgroup:/PATH, exe:/PATH or "
              "pod:NAMESPACE/NAME; may be repeated");
  parser.list("port", &o.ports, "N[/PROTOCOL]",
              "a port of what --protect names; tcp, udp, http or grpc; may be repeated");
  parser.boolean("observe", &o.observe, "decide and count, refuse nothing");
  parser.text("web.listen-address", &o.web_listen_address, kDefaultWebAddress, "HOST:PORT",
              "metrics, health and the status page; none: no web server");
  parser.text("log.level", &level, "info", "LEVEL", "debug, info, warn or error");
  parser.text("log.format", &format, "text", "FORMAT", "text or json");
  parser.pin_root(&o.pin_root);
  parser.roots(&o.cgroup_root, &o.proc_root);
  parser.text(
      "on-exit", &on_exit, "leave", "WHAT",
      "leave: maps and links stay, the lease opens the gate, the next agent adopts them; "
      "purge: they are removed; handover: left where another agent stands by to adopt them, "
      "else removed");
  parser.kubernetes(&o.kubernetes);
  parser.boolean("kubernetes.no-events", &no_events,
                 "do not tell the API server by Events what happens to pods");
  parser.boolean("no-wait", &no_wait, "fail where another agent runs, instead of standing by");
  parser.socket(&o.socket_path);
  auto done = parser.parse();
  if (!done) return tl::unexpected<Error>(done.error());
  if (*done) return Command(std::move(**done));

  o.wait = !no_wait;
  o.events = !no_events;
  const auto parsed_level = log::parse_level(level);
  if (!parsed_level) return parser.error("--log.level: " + parsed_level.error().message);
  o.log_level = *parsed_level;
  const auto parsed_format = log::parse_format(format);
  if (!parsed_format) return parser.error("--log.format: " + parsed_format.error().message);
  o.log_format = *parsed_format;
  if (on_exit != "leave" && on_exit != "purge" && on_exit != "handover") {
    return parser.error(
        fmt::format("--on-exit: '{}' is not one of leave, purge, handover", on_exit));
  }
  o.on_exit = on_exit == "purge"      ? OnExit::kPurge
              : on_exit == "handover" ? OnExit::kHandover
                                      : OnExit::kLeave;
  if (o.web_listen_address == "none") {
    o.web_listen_address.clear();
  } else {
    const auto address = web::parse_listen_address(o.web_listen_address);
    if (!address) return parser.error("--" + address.error().message);
  }
  if (!o.protect.empty() && parser.given("config")) {
    return parser.error("--protect and --config exclude each other");
  }
  if (!o.protect.empty() && o.ports.empty()) {
    return parser.error("--protect needs a --port, for example --port=4317/grpc");
  }
  if (o.protect.empty() && !o.ports.empty()) {
    return parser.error("--port needs a --protect, for example --protect=unit:otelcol.service");
  }
  return Command(std::move(o));
}

Result<Command> parse_check(Arguments arguments, const Environment& environment) {
  CheckOptions o;
  std::string file;
  Parser parser(kCheck, arguments, environment);
  parser.text("config", &o.config_path, std::string(kDefaultConfigPath), "FILE",
              "the configuration; the same as FILE");
  parser.boolean("diff", &o.diff, "show what would change in the running agent");
  parser.boolean("schema", &o.schema, "print the JSON schema of the configuration and end");
  parser.socket(&o.socket_path);
  parser.json(&o.json);
  parser.positional(&file);
  auto done = parser.parse();
  if (!done) return tl::unexpected<Error>(done.error());
  if (*done) return Command(std::move(**done));
  if (!file.empty()) {
    o.config_path = file;
  }
  return Command(std::move(o));
}

Result<Command> parse_status(Arguments arguments, const Environment& environment) {
  StatusOptions o;
  Parser parser(kStatus, arguments, environment);
  parser.socket(&o.socket_path);
  parser.json(&o.json);
  auto done = parser.parse();
  if (!done) return tl::unexpected<Error>(done.error());
  return *done ? Command(std::move(**done)) : Command(std::move(o));
}

Result<Command> parse_top(Arguments arguments, const Environment& environment) {
  TopOptions o;
  Parser parser(kTop, arguments, environment);
  parser.boolean("once", &o.once, "print one table and end");
  parser.socket(&o.socket_path);
  auto done = parser.parse();
  if (!done) return tl::unexpected<Error>(done.error());
  return *done ? Command(std::move(**done)) : Command(std::move(o));
}

Result<Command> parse_explain(Arguments arguments, const Environment& environment) {
  ExplainOptions o;
  Parser parser(kExplain, arguments, environment);
  parser.text("config", &o.config_path, std::string(kDefaultConfigPath), "FILE",
              "where TARGET is looked up by name");
  parser.roots(&o.cgroup_root, &o.proc_root);
  parser.kubernetes(&o.kubernetes);
  parser.socket(&o.socket_path);
  parser.json(&o.json);
  parser.positional(&o.target);
  auto done = parser.parse();
  if (!done) return tl::unexpected<Error>(done.error());
  if (*done) return Command(std::move(**done));
  if (o.target.empty()) {
    return parser.error(
        "no TARGET given: a configured name, cgroup:/PATH, unit:NAME, pid:NUMBER or "
        "pod:NAMESPACE/NAME");
  }
  return Command(std::move(o));
}

Result<Command> parse_doctor(Arguments arguments, const Environment& environment) {
  DoctorOptions o;
  Parser parser(kDoctor, arguments, environment);
  parser.pin_root(&o.pin_root);
  parser.roots(&o.cgroup_root, &o.proc_root);
  parser.socket(&o.socket_path);
  parser.json(&o.json);
  auto done = parser.parse();
  if (!done) return tl::unexpected<Error>(done.error());
  return *done ? Command(std::move(**done)) : Command(std::move(o));
}

Result<Command> parse_report(Arguments arguments, const Environment& environment) {
  ReportOptions o;
  Parser parser(kReport, arguments, environment);
  parser.text("out", &o.directory, "", "DIR",
              "the directory to make (default: headgate-report- and the time)");
  parser.text("config", &o.config_path, std::string(kDefaultConfigPath), "FILE",
              "the configuration");
  parser.text("web.listen-address", &o.web_listen_address, kDefaultWebAddress, "HOST:PORT",
              "where the agent's metrics are; none: leave them out");
  parser.pin_root(&o.pin_root);
  parser.roots(&o.cgroup_root, &o.proc_root);
  parser.socket(&o.socket_path);
  parser.json(&o.json);
  auto done = parser.parse();
  if (!done) return tl::unexpected<Error>(done.error());
  if (*done) return Command(std::move(**done));
  if (o.web_listen_address == "none") {
    o.web_listen_address.clear();
  } else if (const auto address = web::parse_listen_address(o.web_listen_address); !address) {
    return parser.error("--" + address.error().message);
  }
  return Command(std::move(o));
}

/// A whole number of a flag.
Result<std::uint64_t> count_of(const Parser& parser, const char* flag, const std::string& text,
                               std::uint64_t minimum, std::uint64_t maximum) {
  const auto integer = parse_integer(text);
  if (!integer || integer->value < minimum || integer->value > maximum) {
    return parser.error(fmt::format("--{}: '{}' is not a whole number from {} to {}", flag,
                                    printable(text), minimum, maximum));
  }
  return integer->value;
}

/// --target: a share of the capacity to use.
Result<double> share_of(const Parser& parser, const std::string& text) {
  const auto share = parse_plain_number(text);
  if (!share || *share < 0.05 || *share > 1.5) {
    return parser.error(
        fmt::format("--target: '{}' is not a number from 0.05 to 1.5", printable(text)));
  }
  return *share;
}

/// --profile: true = that of the specification.
Result<bool> is_spec(const Parser& parser, const std::string& text) {
  if (text != "default" && text != "spec") {
    return parser.error(
        fmt::format("--profile: '{}' is not one of default, spec", printable(text)));
  }
  return text == "spec";
}

/// --csv, --json, or none of them.
template <class Output>
Result<Output> output_of(const Parser& parser, bool csv, bool json) {
  if (csv && json) return parser.error("--csv and --json exclude each other");
  return csv ? Output::kCsv : json ? Output::kJson : Output::kTable;
}

Result<Command> parse_simulate(Arguments arguments, const Environment& environment) {
  constexpr std::uint64_t kMostSeed = 1'000'000'000'000;
  constexpr std::uint64_t kMostRuns = 100'000;
  SimulateOptions o;
  std::string strategy;
  std::string seeds;
  std::string seed0;
  std::string seed;
  std::string fuzz;
  std::string target;
  std::string profile;
  bool csv = false;
  bool json = false;
  Parser parser(kSimulate, arguments, environment);
  parser.list("file", &o.files, "FILE", "a scenario in YAML; may be repeated");
  parser.text("strategy", &strategy, std::string(kDefaultStrategy), "NAME[,NAME]",
              "what to try; all: everything that is built");
  parser.list("param", &o.params, "NAME=VALUE",
              "a parameter of the strategies, as in the configuration; may be repeated");
  parser.text("target", &target, "0.9", "SHARE", "share of the capacity to use");
  parser.text("profile", &profile, "default", "NAME",
              "default: what ships; spec: as the published figures were made");
  parser.text("seeds", &seeds, "1", "N", "runs of each, of which the means are shown");
  parser.text("seed0", &seed0, "1", "K", "the first of their seeds");
  parser.text("fuzz", &fuzz, "0", "N", "random pods instead of scenarios");
  parser.text("seed", &seed, "9000", "K", "the first of their seeds");
  parser.boolean("csv", &csv, "print CSV");
  parser.json(&json);
  parser.text("plot", &o.plot, "", "FILE", "draw instead: FILE.svg or FILE.html");
  parser.boolean("list", &o.list, "show scenarios, strategies and the keys of a scenario file");
  parser.positionals(&o.scenarios);
  auto done = parser.parse();
  if (!done) return tl::unexpected<Error>(done.error());
  if (*done) return Command(std::move(**done));

  o.strategies = split(strategy, ',');
  const auto share = share_of(parser, target);
  if (!share) return tl::unexpected<Error>(share.error());
  o.target = *share;
  const auto spec = is_spec(parser, profile);
  if (!spec) return tl::unexpected<Error>(spec.error());
  o.spec_profile = *spec;
  const auto take = [&](const char* flag, const std::string& text, std::uint64_t minimum,
                        std::uint64_t maximum, auto& into) -> Result<> {
    const auto value = count_of(parser, flag, text, minimum, maximum);
    if (!value) return tl::unexpected<Error>(value.error());
    into = *value;
    return {};
  };
  for (const auto& taken :
       {take("seeds", seeds, 1, kMostRuns, o.seeds),
        take("seed0", seed0, 0, kMostSeed, o.first_seed), take("fuzz", fuzz, 0, kMostRuns, o.fuzz),
        take("seed", seed, 0, kMostSeed, o.fuzz_seed)}) {
    if (!taken) return tl::unexpected<Error>(taken.error());
  }
  const auto output = output_of<SimulateOptions::Output>(parser, csv, json);
  if (!output) return tl::unexpected<Error>(output.error());
  o.output = *output;
  if (!o.plot.empty() && !o.plot.ends_with(".svg") && !o.plot.ends_with(".html")) {
    return parser.error(
        fmt::format("--plot: '{}' ends neither in .svg nor in .html", printable(o.plot)));
  }
  if (!o.plot.empty() && (csv || json || parser.given("seeds"))) {
    return parser.error(
        "--plot draws one run of each: it goes with none of --csv, --json, --seeds");
  }
  if (o.fuzz > 0 && (!o.scenarios.empty() || !o.files.empty() || !o.plot.empty())) {
    return parser.error(
        "--fuzz makes its own scenarios: it goes with none of SCENARIO, --file, "
        "--plot");
  }
  if (o.fuzz == 0 && parser.given("seed")) {
    return parser.error("--seed is for --fuzz; the seeds of scenarios begin at --seed0");
  }
  return Command(std::move(o));
}

/// "3,17,18": rising.
std::optional<std::vector<std::uint64_t>> cuts_of(std::string_view text) {
  std::vector<std::uint64_t> out;
  for (const std::string& part : split(text, ',')) {
    std::uint64_t cut = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), cut);
    if (error != std::errc() || end != part.data() + part.size() || cut == 0 ||
        (!out.empty() && cut <= out.back())) {
      return std::nullopt;
    }
    out.push_back(cut);
  }
  return out;
}

Result<Command> parse_classify(Arguments arguments, const Environment& environment) {
  ClassifyOptions o;
  std::string cuts;
  std::string port;
  Parser parser(kClassify, arguments, environment);
  parser.text("config", &o.config_path, std::string(kDefaultConfigPath), "FILE",
              "the configuration");
  parser.text("port", &port, "", "N", "the port that the bytes were sent to");
  parser.text("cut", &cuts, "", "N[,N]", "where packets begin: bytes before them; one packet");
  parser.json(&o.json);
  parser.positional(&o.file);
  auto done = parser.parse();
  if (!done) return tl::unexpected<Error>(done.error());
  if (*done) return Command(std::move(**done));
  if (o.file.empty()) return parser.error("which FILE? - is standard input");
  if (port.empty()) return parser.error("to which port? --port=4318, for example");
  const auto [end, wrong] = std::from_chars(port.data(), port.data() + port.size(), o.port);
  if (wrong != std::errc() || end != port.data() + port.size() || o.port == 0) {
    return parser.error(fmt::format("--port: '{}' is no port; allowed: 1 to 65535", port));
  }
  if (!cuts.empty()) {
    const auto parsed = cuts_of(cuts);
    if (!parsed) {
      return parser.error(
          fmt::format("--cut: '{}' is no list of rising numbers above 0, like 3,17,18", cuts));
    }
    o.cuts = *parsed;
  }
  return Command(std::move(o));
}

Result<Command> parse_replay(Arguments arguments, const Environment& environment) {
  ReplayOptions o;
  std::string strategy;
  std::string target;
  std::string profile;
  bool csv = false;
  bool json = false;
  std::vector<std::string> files;
  Parser parser(kReplay, arguments, environment);
  parser.text("strategy", &strategy, "", "NAME[,NAME]", "what decides; default: as in the trace");
  parser.list("param", &o.params, "NAME=VALUE",
              "a parameter of the strategies, as in the configuration; may be repeated");
  parser.text("target", &target, "", "SHARE",
              "share of the capacity to use; default: as in the trace");
  parser.text("profile", &profile, "default", "NAME",
              "default: what ships; spec: as the published vectors were made");
  parser.boolean("csv", &csv, "print a line a tick, in the columns of the vectors");
  parser.json(&json);
  parser.positionals(&files);
  auto done = parser.parse();
  if (!done) return tl::unexpected<Error>(done.error());
  if (*done) return Command(std::move(**done));
  if (files.size() != 1) {
    return parser.error(files.empty() ? "which FILE? - is standard input" : "one FILE at a time");
  }
  o.file = files.front();
  if (!strategy.empty()) o.strategies = split(strategy, ',');
  if (!target.empty()) {
    const auto share = share_of(parser, target);
    if (!share) return tl::unexpected<Error>(share.error());
    o.target = *share;
  }
  const auto spec = is_spec(parser, profile);
  if (!spec) return tl::unexpected<Error>(spec.error());
  o.spec_profile = *spec;
  const auto output = output_of<ReplayOptions::Output>(parser, csv, json);
  if (!output) return tl::unexpected<Error>(output.error());
  o.output = *output;
  return Command(std::move(o));
}

Result<Command> parse_record(Arguments arguments, const Environment& environment) {
  RecordOptions o;
  std::string duration;
  std::vector<std::string> targets;
  Parser parser(kRecord, arguments, environment);
  parser.text("duration", &duration, "60s", "DURATION", "0s: until it is interrupted");
  parser.text("output", &o.output, "", "FILE", "default: standard output");
  parser.socket(&o.socket_path);
  parser.positionals(&targets);
  auto done = parser.parse();
  if (!done) return tl::unexpected<Error>(done.error());
  if (*done) return Command(std::move(**done));
  if (targets.size() != 1) {
    return parser.error(targets.empty() ? "which TARGET? `headgate status` lists them"
                                        : "one TARGET at a time");
  }
  o.target = targets.front();
  const auto length = parse_duration(duration);
  if (!length || *length < Duration::zero()) {
    return parser.error(
        fmt::format("--duration: '{}' is no duration such as 90s or 5m", printable(duration)));
  }
  o.duration_s = seconds(*length);
  return Command(std::move(o));
}

Result<Command> parse_switch(const VerbDoc& verb, Arguments arguments,
                             const Environment& environment) {
  SwitchOptions o;
  o.off = verb.name == kOff.name;
  Parser parser(verb, arguments, environment);
  parser.pin_root(&o.pin_root);
  parser.socket(&o.socket_path);
  parser.json(&o.json);
  auto done = parser.parse();
  if (!done) return tl::unexpected<Error>(done.error());
  return *done ? Command(std::move(**done)) : Command(std::move(o));
}
Result<Command> parse_off(Arguments arguments, const Environment& environment) {
  return parse_switch(kOff, arguments, environment);
}
Result<Command> parse_on(Arguments arguments, const Environment& environment) {
  return parse_switch(kOn, arguments, environment);
}

Result<Command> parse_version(Arguments arguments, const Environment& environment) {
  VersionOptions o;
  Parser parser(kVersion, arguments, environment);
  parser.json(&o.json);
  auto done = parser.parse();
  if (!done) return tl::unexpected<Error>(done.error());
  return *done ? Command(std::move(**done)) : Command(std::move(o));
}

using VerbParser = Result<Command> (*)(Arguments, const Environment&);
constexpr std::array<VerbParser, kVerbs.size()> kParsers{
    parse_run,      parse_check,  parse_status,   parse_top,    parse_explain,
    parse_doctor,   parse_report, parse_simulate, parse_replay, parse_record,
    parse_classify, parse_off,    parse_on,       parse_version};

std::optional<std::size_t> find_verb(std::string_view name) {
  for (std::size_t i = 0; i < kVerbs.size(); ++i) {
    if (kVerbs[i].name == name) {
      return i;
    }
  }
  return std::nullopt;
}

std::string unknown_verb(std::string_view name) {
  std::vector<std::string_view> names;
  for (const VerbDoc& verb : kVerbs) {
    names.push_back(verb.name);
  }
  return fmt::format("unknown verb '{}', the nearest is '{}'; see `headgate --help`", name,
                     nearest_of(name, names).name);
}

/// A text as it is, in roff: what begins a line with '.' or "'" would be a request, and '\\' and
/// '-' have meanings (man(7), groff_char(7)).
std::string roff(std::string_view text) {
  std::string out;
  bool line_begins = true;
  for (const char c : text) {
    if (line_begins && (c == '.' || c == '\'')) {
      out += "\\&";
    }
    line_begins = c == '\n';
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else {
      out += c;
    }
  }
  return out;
}

std::string as_it_is(std::string_view text) { return ".nf\n" + roff(text) + "\n.fi\n"; }

}  // namespace

std::string man_page() {
  std::string page =
      ".TH HEADGATE 8 \"\" \"Headgate\" \"System Administration\"\n.SH NAME\n"
      "headgate \\- keep overloaded collectors alive\n.SH SYNOPSIS\n.B headgate\n.I VERB\n"
      "[flags]\n.SH DESCRIPTION\n";
  page += roff(
      "Headgate watches the CPU and memory of each target against the limits of its own cgroup, "
      "and "
      "refuses the excess of new connections in the kernel, before the target spends anything on "
      "it.\nWhat it refuses is bounded by a lease in the kernel: when the agent stops, traffic "
      "flows "
      "again.\n");
  page += ".SH VERBS\n";
  for (std::size_t i = 0; i < kVerbs.size(); ++i) {
    const std::array<std::string, 1> help_flag{"--help"};
    const auto text = kParsers[i](help_flag, {});
    page += fmt::format(".SS {}\n", kVerbs[i].name);
    page += as_it_is(std::get<HelpOptions>(*text).text);
  }
  page += ".SH EXIT STATUS\n" + roff("0 done, 1 failed, 2 bad usage or invalid configuration.\n");
  page += ".SH FILES\n" +
          as_it_is(fmt::format("{}  the configuration\n{}  the agent's socket\n{}  pinned maps and "
                               "links",
                               kDefaultConfigPath, kDefaultSocketPath, kDefaultPinRoot));
  page +=
      ".SH SIGNALS\n" +
      roff(
          "SIGHUP reads the configuration again, SIGUSR1 writes the state to the log, SIGTERM and "
          "SIGINT end the agent: it renews the leases once more, and the pinned maps and links "
          "stay for the next one (see --on-exit).\n");
  page += ".SH METRICS\n" +
          roff(fmt::format("http://{}/metrics, in the text format of Prometheus; each has a HELP "
                           "line.\n",
                           kDefaultWebAddress));
  page += ".SH SEE ALSO\n" + roff("bpftool(8), cgroups(7), systemd.resource-control(5)\n");
  return page;
}

Result<Command> parse_command_line(std::span<const std::string> arguments,
                                   const Environment& environment) {
  if (arguments.empty()) {
    return fail("no verb given\n\n" + overview());
  }
  const std::string& first = arguments.front();
  const auto rest = arguments.subspan(1);
  if (first == "--help" || first == "-h" || (first == "help" && rest.empty())) {
    return Command(HelpOptions{overview()});
  }
  if (first == "--version") {
    return Command(VersionOptions{});
  }
  if (first == "help" && rest.front() == "--man") {
    return Command(HelpOptions{man_page()});
  }
  if (first == "help") {
    const auto verb = find_verb(rest.front());
    if (!verb) {
      return fail(unknown_verb(rest.front()));
    }
    const std::array<std::string, 1> help_flag{"--help"};
    return kParsers[*verb](help_flag, {});
  }
  if (first.starts_with('-')) {
    return fail(
        fmt::format("'{}' stands before the verb; flags follow it, as in "
                    "`headgate run {}`; see `headgate --help`",
                    first, first));
  }
  const auto verb = find_verb(first);
  if (!verb) {
    return fail(unknown_verb(first));
  }
  return kParsers[*verb](rest, environment);
}

Environment read_environment() {
  Environment environment;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const auto equals = text.find('=');
    if (equals != std::string_view::npos) {
      environment.emplace(text.substr(0, equals), text.substr(equals + 1));
    }
  }
  return environment;
}

}  // namespace headgate
