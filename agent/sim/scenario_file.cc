// SPDX-License-Identifier: Apache-2.0
#include "agent/sim/scenario_file.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "agent/config/read_file.h"
#include "agent/config/reader.h"
#include "agent/config/schema.h"

namespace headgate::sim {
namespace {

using Words = std::string_view;
constexpr std::array<Words, 4> kCriticalities{"sheddable", "sheddable_plus", "critical",
                                              "critical_plus"};
constexpr std::array<Words, 2> kQuotas{"hard", "soft"};
constexpr std::array<Words, 2> kAnswers{"late", "early"};
constexpr std::array<Words, 2> kArrivals{"poisson", "even"};
constexpr std::array<Words, 2> kCosts{"random", "even"};
constexpr std::array<Words, 2> kBooleans{"true", "false"};
constexpr std::array<Words, 2> kOom{"kill", "off"};

constexpr double kLongestS = 3600;
constexpr double kMostFactor = 1e9;
constexpr double kMostRate = 1e6;
constexpr std::size_t kMostItems = 64;
/// More requests than this in one run are a mistake: they take minutes and gigabytes.
constexpr double kMostRequests = 2e7;

constexpr Field duration(std::string_view key, std::string_view doc, double minimum_s,
                         double maximum_s) {
  return {.key = key,
          .shape = Shape::kDuration,
          .doc = doc,
          .minimum = minimum_s,
          .maximum = maximum_s};
}
constexpr Field number(std::string_view key, std::string_view doc, double minimum, double maximum) {
  return {.key = key, .shape = Shape::kNumber, .doc = doc, .minimum = minimum, .maximum = maximum};
}
constexpr Field word(std::string_view key, std::string_view doc,
                     std::span<const std::string_view> words) {
  return {.key = key, .shape = Shape::kWord, .doc = doc, .words = words};
}
constexpr Field mapping(std::string_view key, std::string_view doc, const MapSpec& map) {
  return {.key = key, .shape = Shape::kMap, .doc = doc, .map = &map};
}
constexpr Field required(Field field) {
  field.required = true;
  return field;
}

// ---------------------------------------------------------------- profiles

constexpr std::array kStepFields{
    required(duration("from", "Begin, included.", 0, kLongestS)),
    required(duration("to", "End, not included.", 0, kLongestS)),
    required(number("value", "The value between them.", 0, kMostFactor)),
};
constexpr MapSpec kStepSpec{"steps[]", kStepFields};
constexpr Field kStepItem = mapping("", "One step.", kStepSpec);
constexpr std::array kPointFields{
    required(duration("at", "When.", 0, kLongestS)),
    required(number("value", "The value then.", 0, kMostFactor)),
};
constexpr MapSpec kPointSpec{"line[]", kPointFields};
constexpr Field kPointItem = mapping("", "One point.", kPointSpec);
constexpr std::array kSineFields{
    required(number("mean", "Mean of the wave.", 0, kMostFactor)),
    required(number("amplitude", "Distance of the crest from the mean; at most the mean.", 0,
                    kMostFactor)),
    required(duration("period", "Of one wave.", 0.01, kLongestS)),
};
constexpr MapSpec kSineSpec{"sine", kSineFields};
constexpr std::array kPulseFields{
    required(number("low", "Value outside the pulses.", 0, kMostFactor)),
    required(number("high", "Value in a pulse.", 0, kMostFactor)),
    required(duration("period", "From pulse to pulse.", 0.01, kLongestS)),
    required(duration("width", "Of one pulse.", 0.001, kLongestS)),
    duration("after", "No pulse begins before.", 0, kLongestS),
};
constexpr MapSpec kPulseSpec{"pulse", kPulseFields};
constexpr std::array kProfileFields{
    Field{.key = "steps",
          .shape = Shape::kList,
          .doc = "Values of spans of time; the first that holds counts.",
          .maximum = kMostItems,
          .element = &kStepItem},
    number("otherwise", "Value where no step holds; with steps only.", 0, kMostFactor),
    Field{.key = "line",
          .shape = Shape::kList,
          .doc = "Points, linear between them.",
          .maximum = kMostItems,
          .element = &kPointItem},
    mapping("sine", "A wave.", kSineSpec),
    mapping("pulse", "Pulses.", kPulseSpec),
};
constexpr MapSpec kProfileSpec{"PROFILE", kProfileFields};
constexpr std::string_view kProfileAllowed =
    "a number, or a mapping with one of steps, line, sine, pulse";

constexpr Field profile(std::string_view key, std::string_view doc) {
  return mapping(key, doc, kProfileSpec);
}

// ---------------------------------------------------------------- the scenario

constexpr Field kNameField{.key = "name",
                           .shape = Shape::kText,
                           .doc = "Name, shown in the results.",
                           .required = true,
                           .pattern = "^[A-Za-z0-9]([A-Za-z0-9._@-]{0,98}[A-Za-z0-9])?$",
                           .allowed =
                               "1 to 100 letters, digits, '.', '_', '-', '@', with a letter "
                               "or digit at both ends"};
constexpr std::array kOverloadFields{
    required(duration("from", "Onset of the overload, for the times to protect and recover.", 0,
                      kLongestS)),
    required(duration("to", "Its end.", 0, kLongestS)),
};
constexpr MapSpec kOverloadSpec{"overload", kOverloadFields};
constexpr std::array kEndpointFields{
    kNameField,
    word("criticality", "Class; the least critical one is refused first.", kCriticalities),
    number("floor", "Share that is never taken away.", 0, 1),
    required(number("rate", "Requests per second where rate_factor is 1.", 0.01, kMostRate)),
    duration("cost", "CPU time of a request, apart from its size.", 0, 60),
    number("size_kb", "Mean size of a request.", 0, 1e6),
    duration("cost_per_kb", "CPU time per kB.", 0, 60),
    profile("rate_factor", "Factor on rate over time."),
    profile("cost_factor", "Factor on cost over time."),
    profile("size_factor", "Factor on size_kb over time."),
};
constexpr MapSpec kEndpointSpec{"endpoints[]", kEndpointFields};
constexpr Field kEndpointItem = mapping("", "One endpoint.", kEndpointSpec);
constexpr std::array kPodFields{
    number("cpu", "Limit in cores.", 0.05, 256),
    Field{.key = "workers",
          .shape = Shape::kCount,
          .doc = "Requests served at once, one core each.",
          .minimum = 1,
          .maximum = 1024},
    word("quota", "hard: CFS bandwidth control; soft: up to twice the limit is there.", kQuotas),
    profile("capacity_factor", "Share of the limit that can be had."),
    profile("background_cpu", "Cores that other work of the pod takes."),
    number("refusal_cost", "Share of a mean request's cost that a refusal costs the pod.", 0, 1),
    word("answers", "early: when the request is decoded, so that in flight tells little.",
         kAnswers),
};
constexpr MapSpec kPodSpec{"pod", kPodFields};
constexpr std::array kRequestFields{
    word("arrivals", "Spacing of the requests.", kArrivals),
    word("costs", "even: every request costs and weighs the mean.", kCosts),
    number("heavy_share", "Share of the requests that cost heavy_factor times as much.", 0, 1),
    number("heavy_factor", "See heavy_share.", 1, 1e6),
};
constexpr MapSpec kRequestSpec{"requests", kRequestFields};
constexpr std::array kClientFields{
    duration("timeout", "A later answer is worth nothing.", 0.01, 1e9),
    Field{.key = "retries",
          .shape = Shape::kCount,
          .doc = "At most, after a refusal.",
          .minimum = 0,
          .maximum = 20},
    duration("backoff", "Before the first retry; doubles.", 0.001, 600),
    word("retry_timeouts", "Whether a timeout is tried again too.", kBooleans),
};
constexpr MapSpec kClientSpec{"clients", kClientFields};
constexpr std::array kConnectionFields{
    duration("life", "Mean life of a connection.", 0.1, 1e6),
    number("requests_per_second", "Over each connection.", 0.001, 1e5),
    number("close_share", "Share of the live ones that may be closed per second.", 0, 1),
};
constexpr MapSpec kConnectionSpec{"connections", kConnectionFields};
constexpr std::array kMemoryFields{
    Field{.key = "limit",
          .shape = Shape::kSize,
          .doc = "Limit of the pod.",
          .minimum = 1048576,
          .maximum = 1e13},
    Field{.key = "base",
          .shape = Shape::kSize,
          .doc = "Use without load.",
          .minimum = 0,
          .maximum = 1e13},
    number("amplification", "Bytes of memory per byte that waits or is retained.", 0, 1e4),
    profile("drain_kb_per_second", "How fast retained data leaves."),
    profile("leak_mib_per_second", "Growth that nothing ends."),
    word("oom", "kill: above the limit the pod is killed.", kOom),
    duration("restart", "How long it is then down.", 0.001, kLongestS),
};
constexpr MapSpec kMemorySpec{"memory", kMemoryFields};
constexpr std::array kAgentFields{
    duration("tick", "From sample to sample.", 0.001, 60),
    duration("delay", "From the sample to the policy in force.", 0, 60),
    number("noise", "Noise of the usage that is read.", 0, 1),
};
constexpr MapSpec kAgentSpec{"agent", kAgentFields};
constexpr std::array kRootFields{
    kNameField,
    Field{.key = "like",
          .shape = Shape::kText,
          .doc = "A named scenario to begin with.",
          .pattern = "^.{1,100}$",
          .allowed = "the name of a scenario; see headgate simulate --list"},
    duration("duration", "Of the experiment.", 1, kLongestS),
    mapping("overload", "When there is too much.", kOverloadSpec),
    Field{.key = "endpoints",
          .shape = Shape::kList,
          .doc = "Load; at least one, unless `like` has them.",
          .maximum = 32,
          .element = &kEndpointItem},
    mapping("pod", "What serves.", kPodSpec),
    mapping("requests", "What all requests have in common.", kRequestSpec),
    mapping("clients", "What clients do when they are refused.", kClientSpec),
    mapping("connections", "Long connections: only new ones can be refused.", kConnectionSpec),
    mapping("memory", "Memory.", kMemorySpec),
    mapping("agent", "What watches.", kAgentSpec),
};
constexpr MapSpec kRootSpec{"", kRootFields};

class ScenarioReader {
 public:
  ScenarioReader(const std::string& file, std::vector<Problem>& problems)
      : reader_(file, problems) {}

  Scenario read(const YamlNode& node);

 private:
  void begin(const Map& map, Scenario& s);
  void read_endpoints(const Map& map, Scenario& s);
  void read_endpoint(const YamlNode& node, const std::string& path, Scenario& s);
  void read_pod(const Map& root, Scenario& s);
  void read_requests(const Map& root, Scenario& s);
  void read_clients(const Map& root, Scenario& s);
  void read_connections(const Map& root, Scenario& s);
  void read_memory(const Map& root, Scenario& s);
  void read_agent(const Map& root, Scenario& s);
  void check(const Map& map, const Scenario& s);

  void seconds_of(const Map& map, std::string_view key, double& out);
  void profile_of(const Map& map, std::string_view key, Profile& out);
  std::optional<Profile> read_form(const Map& map);
  std::optional<Profile> read_steps(const Map& map);
  std::optional<Profile> read_line(const Map& map);
  void order(const Map& map, std::string_view later, double earlier_s, double later_s,
             std::string_view earlier);

  Reader reader_;
};

void ScenarioReader::seconds_of(const Map& map, std::string_view key, double& out) {
  if (const auto v = reader_.value(map, key)) out = seconds(v->duration);
}

void ScenarioReader::order(const Map& map, std::string_view later, double earlier_s, double later_s,
                           std::string_view earlier) {
  if (later_s > earlier_s) return;
  reader_.error(map.place_of(later), map.path_of(later), fmt::format("{:g}s", later_s),
                fmt::format("is not after {} ({:g}s)", earlier, earlier_s));
}

std::optional<Profile> ScenarioReader::read_steps(const Map& map) {
  Profile::Steps form;
  reader_.number(map, "otherwise", form.otherwise);
  const auto* items = reader_.list(map, "steps");
  if (items == nullptr) return std::nullopt;
  for (std::size_t i = 0; i < items->size(); ++i) {
    const auto item =
        reader_.map((*items)[i], fmt::format("{}[{}]", map.path_of("steps"), i), kStepSpec);
    if (!item) continue;
    Profile::Step one;
    seconds_of(*item, "from", one.from_s);
    seconds_of(*item, "to", one.to_s);
    reader_.number(*item, "value", one.value);
    if (item->find("from") != nullptr && item->find("to") != nullptr) {
      order(*item, "to", one.from_s, one.to_s, "from");
    }
    form.steps.push_back(one);
  }
  return Profile(std::move(form));
}

std::optional<Profile> ScenarioReader::read_line(const Map& map) {
  Profile::Line form;
  const auto* items = reader_.list(map, "line");
  if (items == nullptr) return std::nullopt;
  if (items->empty()) {
    reader_.error(map.place_of("line"), map.path_of("line"), "[]",
                  "the list is empty; allowed: at least one point");
  }
  for (std::size_t i = 0; i < items->size(); ++i) {
    const auto item =
        reader_.map((*items)[i], fmt::format("{}[{}]", map.path_of("line"), i), kPointSpec);
    if (!item) continue;
    Profile::Point one;
    seconds_of(*item, "at", one.at_s);
    reader_.number(*item, "value", one.value);
    if (!form.points.empty() && item->find("at") != nullptr) {
      order(*item, "at", form.points.back().at_s, one.at_s, "the point before");
    }
    form.points.push_back(one);
  }
  return Profile(std::move(form));
}

std::optional<Profile> ScenarioReader::read_form(const Map& map) {
  if (map.find("steps") != nullptr) return read_steps(map);
  if (map.find("line") != nullptr) return read_line(map);
  if (const auto sine = reader_.map(map, "sine")) {
    Profile::Sine form;
    reader_.number(*sine, "mean", form.mean);
    reader_.number(*sine, "amplitude", form.amplitude);
    seconds_of(*sine, "period", form.period_s);
    if (form.amplitude > form.mean) {
      reader_.error(sine->place_of("amplitude"), sine->path_of("amplitude"),
                    fmt::format("{:g}", form.amplitude),
                    fmt::format("is more than mean ({:g}): the wave would be negative", form.mean));
    }
    return Profile(form);
  }
  if (const auto pulse = reader_.map(map, "pulse")) {
    Profile::Pulse form;
    reader_.number(*pulse, "low", form.low);
    reader_.number(*pulse, "high", form.high);
    seconds_of(*pulse, "period", form.period_s);
    seconds_of(*pulse, "width", form.width_s);
    seconds_of(*pulse, "after", form.after_s);
    return Profile(form);
  }
  return std::nullopt;
}

void ScenarioReader::profile_of(const Map& parent, std::string_view key, Profile& out) {
  const YamlNode* node = parent.find(key);
  if (node == nullptr) return;
  const std::string path = parent.path_of(key);
  if (node->kind == YamlNode::Kind::kScalar) {
    if (const auto v = reader_.value(*node, path, number(key, "", 0, kMostFactor))) out = v->number;
    return;
  }
  if (node->kind != YamlNode::Kind::kMap) {
    reader_.wrong_kind(*node, path, std::string(kProfileAllowed));
    return;
  }
  const auto map = reader_.map(*node, path, kProfileSpec);
  if (!map) return;
  const std::size_t forms = map->values.size() - (map->find("otherwise") != nullptr ? 1 : 0);
  if (forms != 1) {
    reader_.error(
        node->place, path, value_text(*node),
        fmt::format("has {} of steps, line, sine, pulse; allowed: {}", forms, kProfileAllowed));
    return;
  }
  if (map->find("otherwise") != nullptr && map->find("steps") == nullptr) {
    reader_.error(map->place_of("otherwise"), map->path_of("otherwise"), "",
                  "stands beside steps only");
    return;
  }
  if (auto form = read_form(*map)) out = std::move(*form);
}

void ScenarioReader::begin(const Map& map, Scenario& s) {
  const auto like = reader_.value(map, "like");
  if (!like) return;
  const Scenario* found = find_scenario(like->text);
  if (found != nullptr) {
    s = *found;
    return;
  }
  std::vector<std::string_view> names;
  for (const Scenario& named : named_scenarios()) names.emplace_back(named.name);
  const Nearest nearest = nearest_of(like->text, names);
  reader_.error(map.place_of("like"), map.path_of("like"), printable(like->text),
                fmt::format("there is no scenario '{}'{} See headgate simulate --list",
                            printable(like->text), suggestion(nearest)),
                std::string(nearest.name));
}

Scenario ScenarioReader::read(const YamlNode& node) {
  Scenario s;
  const auto map = reader_.map(node, "", kRootSpec);
  if (!map) return s;
  begin(*map, s);
  reader_.text(*map, "name", s.name);
  s.doc = "from a file";
  seconds_of(*map, "duration", s.duration_s);
  if (const auto overload = reader_.map(*map, "overload")) {
    seconds_of(*overload, "from", s.overload_from_s);
    seconds_of(*overload, "to", s.overload_to_s);
    order(*overload, "to", s.overload_from_s, s.overload_to_s, "from");
  }
  read_pod(*map, s);
  read_endpoints(*map, s);
  read_requests(*map, s);
  read_clients(*map, s);
  read_connections(*map, s);
  read_memory(*map, s);
  read_agent(*map, s);
  check(*map, s);
  return s;
}

void ScenarioReader::read_endpoints(const Map& map, Scenario& s) {
  const auto* items = reader_.list(map, "endpoints");
  if (items == nullptr) {
    if (s.endpoints.empty() && map.find("endpoints") == nullptr) {
      reader_.error(map.place, "endpoints", "",
                    "is missing; add at least one, or begin with a named scenario by `like`");
    }
    return;
  }
  s.endpoints.clear();
  if (items->empty()) {
    reader_.error(map.place_of("endpoints"), "endpoints", "[]",
                  "the list is empty; allowed: at least one endpoint");
  }
  for (std::size_t i = 0; i < items->size(); ++i) {
    read_endpoint((*items)[i], fmt::format("endpoints[{}]", i), s);
  }
}

void ScenarioReader::read_endpoint(const YamlNode& node, const std::string& path, Scenario& s) {
  const auto map = reader_.map(node, path, kEndpointSpec);
  if (!map) return;
  EndpointLoad e;
  reader_.text(*map, "name", e.name);
  if (const auto v = reader_.value(*map, "criticality")) {
    const auto at = std::find(kCriticalities.begin(), kCriticalities.end(), v->text);
    e.criticality = static_cast<Criticality>(at - kCriticalities.begin());
  }
  reader_.number(*map, "floor", e.floor);
  reader_.number(*map, "rate", e.rate_per_s);
  seconds_of(*map, "cost", e.cost_s);
  reader_.number(*map, "size_kb", e.size_kb);
  seconds_of(*map, "cost_per_kb", e.cost_per_kb_s);
  profile_of(*map, "rate_factor", e.rate);
  profile_of(*map, "cost_factor", e.cost);
  profile_of(*map, "size_factor", e.size);
  if (!(e.mean_cost_s() > 0)) {
    reader_.error(map->place, map->path, "",
                  "requests cost nothing; give cost, or cost_per_kb and size_kb");
  }
  s.endpoints.push_back(std::move(e));
}

void ScenarioReader::read_pod(const Map& root, Scenario& s) {
  const auto map = reader_.map(root, "pod");
  if (!map) return;
  reader_.number(*map, "cpu", s.capacity_cores);
  if (const auto v = reader_.value(*map, "workers")) {
    s.workers = static_cast<std::size_t>(v->integer);
  }
  if (const auto v = reader_.value(*map, "quota")) s.hard_quota = v->text == "hard";
  profile_of(*map, "capacity_factor", s.capacity);
  profile_of(*map, "background_cpu", s.background_cores);
  reader_.number(*map, "refusal_cost", s.refusal_cost);
  if (const auto v = reader_.value(*map, "answers")) s.async_ack = v->text == "early";
}

void ScenarioReader::read_requests(const Map& root, Scenario& s) {
  const auto map = reader_.map(root, "requests");
  if (!map) return;
  if (const auto v = reader_.value(*map, "arrivals")) s.even_arrivals = v->text == "even";
  if (const auto v = reader_.value(*map, "costs")) s.even_costs = v->text == "even";
  reader_.number(*map, "heavy_share", s.heavy_share);
  reader_.number(*map, "heavy_factor", s.heavy_factor);
}

void ScenarioReader::read_clients(const Map& root, Scenario& s) {
  const auto map = reader_.map(root, "clients");
  if (!map) return;
  seconds_of(*map, "timeout", s.timeout_s);
  if (const auto v = reader_.value(*map, "retries")) s.retries = static_cast<int>(v->integer);
  seconds_of(*map, "backoff", s.retry_backoff_s);
  if (const auto v = reader_.value(*map, "retry_timeouts")) s.retry_timeouts = v->text == "true";
}

void ScenarioReader::read_connections(const Map& root, Scenario& s) {
  const auto map = reader_.map(root, "connections");
  if (!map) return;
  Connections c = s.connections.value_or(Connections{});
  seconds_of(*map, "life", c.life_s);
  reader_.number(*map, "requests_per_second", c.requests_per_s);
  reader_.number(*map, "close_share", c.close_share_per_s);
  s.connections = c;
}

void ScenarioReader::read_memory(const Map& root, Scenario& s) {
  constexpr double kMib = 1024 * 1024;
  const auto map = reader_.map(root, "memory");
  if (!map) return;
  if (const auto v = reader_.value(*map, "limit")) {
    s.memory_limit_mib = static_cast<double>(v->integer) / kMib;
  }
  if (const auto v = reader_.value(*map, "base")) {
    s.memory_base_mib = static_cast<double>(v->integer) / kMib;
  }
  if (const auto v = reader_.value(*map, "amplification")) s.memory_per_kb_mib = v->number / 1024;
  profile_of(*map, "drain_kb_per_second", s.drain_kb_per_s);
  profile_of(*map, "leak_mib_per_second", s.leak_mib_per_s);
  if (const auto v = reader_.value(*map, "oom")) s.oom_kills = v->text == "kill";
  seconds_of(*map, "restart", s.restart_s);
  if (s.memory_base_mib >= s.memory_limit_mib) {
    const std::string_view key = map->find("base") != nullptr ? "base" : "limit";
    reader_.error(map->place_of(key), map->path_of(key), fmt::format("{:g} MiB", s.memory_base_mib),
                  fmt::format("base is not below limit ({:g} MiB)", s.memory_limit_mib));
  }
}

void ScenarioReader::read_agent(const Map& root, Scenario& s) {
  const auto map = reader_.map(root, "agent");
  if (!map) return;
  seconds_of(*map, "tick", s.tick_s);
  seconds_of(*map, "delay", s.delay_s);
  reader_.number(*map, "noise", s.noise);
}

/// What holds between keys.
void ScenarioReader::check(const Map& map, const Scenario& s) {
  if (s.has_overload() && s.overload_from_s >= s.duration_s) {
    reader_.error(map.place_of("overload"), "overload", fmt::format("{:g}s", s.overload_from_s),
                  fmt::format("begins after the experiment has ended ({:g}s)", s.duration_s));
  }
  double requests = 0;
  for (const EndpointLoad& e : s.endpoints) {
    for (double at_s = 0; at_s < s.duration_s; at_s += 0.1) {
      requests += e.rate_per_s * e.rate.at(at_s) * 0.1;
    }
  }
  if (requests > kMostRequests) {
    reader_.error(map.place_of("endpoints"), "endpoints", fmt::format("{:g}", requests),
                  fmt::format("that many requests are offered in all; allowed: at most {:g}. Lower "
                              "rate, rate_factor or duration",
                              kMostRequests));
  }
}

void describe(const MapSpec& map, std::size_t depth, std::string& out) {
  for (const Field& field : map.fields) {
    const std::string key = std::string(2 * depth, ' ') + std::string(field.key);
    const bool is_profile = field.map == &kProfileSpec;
    const std::string allowed = is_profile                    ? "a profile"
                                : field.shape == Shape::kMap  ? "a mapping"
                                : field.shape == Shape::kList ? "a list"
                                                              : allowed_text(field);
    out += fmt::format("  {:<24}{}{} ({})\n", key, field.required ? "Required. " : "", field.doc,
                       allowed);
    const MapSpec* inner = field.shape == Shape::kList ? field.element->map : field.map;
    if (inner != nullptr && !is_profile) describe(*inner, depth + 1, out);
  }
}

}  // namespace

bool LoadedScenario::valid() const {
  return std::none_of(problems.begin(), problems.end(),
                      [](const Problem& p) { return p.severity == Problem::Severity::kError; });
}

LoadedScenario load_scenario(std::string_view text, const std::string& file) {
  LoadedScenario out;
  const auto node = parse_yaml(text, file, out.problems);
  if (node) out.scenario = ScenarioReader(file, out.problems).read(*node);
  return out;
}

LoadedScenario load_scenario_file(const std::string& path) {
  const auto text = read_small_file(path, true);
  if (text) return load_scenario(*text, path);
  LoadedScenario out;
  out.problems.push_back({Problem::Severity::kError, path, {}, "", "", text.error().message, ""});
  return out;
}

std::string scenario_file_help() {
  std::string out = "Keys of a scenario file:\n";
  describe(kRootSpec, 0, out);
  out += "Keys of a profile, a number over time (a plain number is one too):\n";
  describe(kProfileSpec, 0, out);
  return out;
}

}  // namespace headgate::sim
