// SPDX-License-Identifier: Apache-2.0
// The JSON schema: current in deploy/, says what the checks say, and the shipped samples pass both.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <yaml-cpp/yaml.h>

#include "agent/config/load.h"
#include "agent/config/quantity.h"
#include "agent/strategies/registry.h"
#include "tests/unit/config_strategies.h"

namespace headgate {
namespace {

using nlohmann::json;

const std::string kRoot = HEADGATE_SOURCE_DIR;

std::string slurp(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

/// The values of a text by the core schema of YAML 1.2.
json to_json(const YAML::Node& node) {
  switch (node.Type()) {
    case YAML::NodeType::Map: {
      json out = json::object();
      for (const auto& pair : node) {
        out[pair.first.Scalar()] = to_json(pair.second);
      }
      return out;
    }
    case YAML::NodeType::Sequence: {
      json out = json::array();
      for (const auto& item : node) {
        out.push_back(to_json(item));
      }
      return out;
    }
    case YAML::NodeType::Scalar: {
      const std::string& text = node.Scalar();
      if (node.Tag() == "!") {
        return text;
      }
      if (text == "true" || text == "false") {
        return text == "true";
      }
      static const std::regex kInteger("-?[0-9]+");
      if (std::regex_match(text, kInteger)) {
        return std::stoll(text);
      }
      const auto number = parse_plain_number(text);
      return number ? json(*number) : json(text);
    }
    default: return nullptr;
  }
}
json yaml(const std::string& text) { return to_json(YAML::Load(text)); }

/// The part of JSON Schema 2020-12 that the schema uses; any other keyword fails the test.
bool accepts(const json& schema, const json& value) {
  const auto whole = [](const json& v) {
    return v.is_number() && v.get<double>() == std::floor(v.get<double>());
  };
  const std::map<std::string, std::function<bool(const json&)>> keywords{
      {"$schema", [](const json&) { return true; }},
      {"title", [](const json&) { return true; }},
      {"description", [](const json&) { return true; }},
      {"default", [](const json&) { return true; }},
      {"type",
       [&](const json& type) {
         return type == "object"    ? value.is_object()
                : type == "array"   ? value.is_array()
                : type == "string"  ? value.is_string()
                : type == "number"  ? value.is_number()
                : type == "integer" ? whole(value)
                                    : (ADD_FAILURE() << "type " << type, false);
       }},
      {"enum",
       [&](const json& words) {
         return std::find(words.begin(), words.end(), value) != words.end();
       }},
      {"const", [&](const json& word) { return value == word; }},
      {"pattern",
       [&](const json& pattern) {
         return !value.is_string() ||
                std::regex_search(value.get<std::string>(), std::regex(pattern.get<std::string>()));
       }},
      {"minimum", [&](const json& v) { return !value.is_number() || value >= v; }},
      {"maximum", [&](const json& v) { return !value.is_number() || value <= v; }},
      {"anyOf",
       [&](const json& some) {
         return std::any_of(some.begin(), some.end(),
                            [&](const json& one) { return accepts(one, value); });
       }},
      {"properties",
       [&](const json& properties) {
         bool ok = true;
         for (const auto& [key, inner] : properties.items()) {
           ok = ok && (!value.is_object() || !value.contains(key) || accepts(inner, value[key]));
         }
         return ok;
       }},
      {"additionalProperties",
       [&](const json& allowed) {
         bool ok = true;
         if (value.is_object() && allowed == false) {
           for (const auto& [key, inner] : value.items()) {
             ok = ok && schema["properties"].contains(key);
           }
         }
         return ok;
       }},
      {"required",
       [&](const json& keys) {
         return !value.is_object() || std::all_of(keys.begin(), keys.end(), [&](const json& key) {
           return value.contains(key.get<std::string>());
         });
       }},
      {"minProperties", [&](const json& n) { return !value.is_object() || value.size() >= n; }},
      {"maxProperties", [&](const json& n) { return !value.is_object() || value.size() <= n; }},
      {"minItems", [&](const json& n) { return !value.is_array() || value.size() >= n; }},
      {"maxItems", [&](const json& n) { return !value.is_array() || value.size() <= n; }},
      {"uniqueItems",
       [&](const json&) {
         return !value.is_array() ||
                std::set<json>(value.begin(), value.end()).size() == value.size();
       }},
      {"prefixItems",
       [&](const json& items) {
         bool ok = true;
         for (std::size_t i = 0; value.is_array() && i < std::min(items.size(), value.size());
              ++i) {
           ok = ok && accepts(items[i], value[i]);
         }
         return ok;
       }},
      {"items", [&](const json& inner) {
         return !value.is_array() || std::all_of(value.begin(), value.end(), [&](const json& item) {
           return accepts(inner, item);
         });
       }}};
  bool ok = true;
  for (const auto& [keyword, argument] : schema.items()) {
    const auto rule = keywords.find(keyword);
    if (rule == keywords.end()) {
      ADD_FAILURE() << "keyword " << keyword << " is not known to this test";
      return false;
    }
    ok = rule->second(argument) && ok;
  }
  return ok;
}

json test_schema() { return json::parse(json_schema(test::strategy_table())); }

TEST(ConfigSchema, TheCopyInDeployIsCurrent) {
  const std::string path = kRoot + "/deploy/headgate.schema.json";
  const std::string current = json_schema(strategies());
  if (std::getenv("HEADGATE_UPDATE_SCHEMA") != nullptr) {  // NOLINT: one thread
    std::ofstream(path) << current;
  }
  EXPECT_EQ(slurp(path), current) << "run this test once with HEADGATE_UPDATE_SCHEMA=1 and commit "
                                  << path;
}

TEST(ConfigSchema, TheShippedFilesPassCheckAndSchema) {
  const json schema = json::parse(json_schema(strategies()));
  for (const char* name : {"/deploy/headgate.yaml", "/deploy/systemd/headgate.yaml"}) {
    const LoadedConfig loaded = load_config_file(kRoot + name, strategies());
    for (const Problem& problem : loaded.problems) {
      EXPECT_EQ(problem.severity, Problem::Severity::kWarning) << to_string(problem);
    }
    EXPECT_TRUE(accepts(schema, yaml(slurp(kRoot + name)))) << name;
  }
  EXPECT_TRUE(load_config_file(kRoot + "/deploy/headgate.yaml", strategies()).problems.empty());
}

TEST(ConfigSchema, TheDefaultsOfTheLawsAreInOrder) {
  for (const StrategyInfo& info : strategies()) {
    if (!info.built || info.needs_requests || info.name == "hybrid") {
      continue;
    }
    const LoadedConfig loaded = load_config(
        "apiVersion: headgate/v1\ntargets: [{name: a, match: {cgroup: /a}, strategy: {name: " +
            std::string(info.name) + "}, endpoints: [{port: 80}]}]\n",
        "f", strategies());
    EXPECT_TRUE(loaded.problems.empty()) << info.name << ": " << to_string(loaded.problems.front());
    // ... and each default, written out, is one that the checks accept.
    const LoadedConfig again = load_config(to_yaml(loaded.config), "f", strategies());
    EXPECT_TRUE(again.problems.empty()) << to_string(again.problems.front());
    EXPECT_EQ(again.config, loaded.config) << info.name;
  }
}

TEST(ConfigSchema, AcceptsWhatTheReaderPrints) {
  const LoadedConfig loaded =
      load_config_file(kRoot + "/tests/data/config/design.yaml", test::strategy_table());
  ASSERT_TRUE(loaded.valid());
  EXPECT_TRUE(accepts(test_schema(), yaml(slurp(kRoot + "/tests/data/config/design.yaml"))));
  EXPECT_TRUE(accepts(test_schema(), yaml(to_yaml(loaded.config))));
}

class SchemaAgrees : public testing::TestWithParam<const char*> {};

TEST_P(SchemaAgrees, WithTheChecksOnWhatIsWrong) {
  const std::string text = GetParam();
  EXPECT_FALSE(load_config(text, "f", test::strategy_table()).valid()) << text;
  EXPECT_FALSE(accepts(test_schema(), yaml(text))) << text;
}

#define HEADGATE_TARGET(lines)                                                            \
  "apiVersion: headgate/v1\ntargets: [{name: a, match: {cgroup: /a}, endpoints: [{port: " \
  "80}], " lines "}]\n"
#define HEADGATE_ENDPOINT(lines) \
  "apiVersion: headgate/v1\ntargets: [{name: a, match: {cgroup: /a}, endpoints: [{" lines "}]}]\n"

INSTANTIATE_TEST_SUITE_P(
    Table, SchemaAgrees,
    testing::Values(
        "targets: []\n", "apiVersion: headgate/v2\ntargets: []\n", "apiVersion: headgate/v1\n",
        "apiVersion: headgate/v1\ntargets: []\ncolour: red\n",
        "apiVersion: headgate/v1\ntargets: []\nmode: on\n",
        "apiVersion: headgate/v1\ntargets: []\ntick: 100\n",
        "apiVersion: headgate/v1\ntargets: {}\n", HEADGATE_TARGET("target: 90%"),
        HEADGATE_TARGET("target: 1.5"), HEADGATE_TARGET("treshold: 0.8"),
        HEADGATE_TARGET("capacity: {memory: 3GB}"), HEADGATE_TARGET("capacity: {cpu: fast}"),
        HEADGATE_TARGET("memory: {shed: 2}"), HEADGATE_TARGET("exempt: {sources: [prometheus]}"),
        HEADGATE_TARGET("strategy: oracle"), HEADGATE_TARGET("strategy: {name: graded, enter: 2}"),
        HEADGATE_TARGET("strategy: {name: graded, hold: 5}"),
        HEADGATE_TARGET("strategy: {name: graded, admit: 0.5}"),
        HEADGATE_TARGET("strategy: {hybrid: []}"), HEADGATE_TARGET("strategy: hybrid"),
        HEADGATE_TARGET("strategy: {curve: {points: [[0.7, 0]]}}"),
        HEADGATE_TARGET("strategy: {curve: {points: [[0.7, 0], [0.9, 1.5]]}}"),
        HEADGATE_ENDPOINT("name: x"), HEADGATE_ENDPOINT("port: 0"),
        HEADGATE_ENDPOINT("port: 65536"), HEADGATE_ENDPOINT("port: http"),
        HEADGATE_ENDPOINT("port: 1.5e0"), HEADGATE_ENDPOINT("port: 80, protocol: htpp"),
        HEADGATE_ENDPOINT("port: 80, refuse: rst"), HEADGATE_ENDPOINT("port: 80, refuse: 500"),
        HEADGATE_ENDPOINT("port: 80, refuse: {}"), HEADGATE_ENDPOINT("port: 80, floor: 2"),
        "apiVersion: headgate/v1\ntargets: [{name: a, match: {}, endpoints: [{port: 80}]}]\n",
        "apiVersion: headgate/v1\ntargets: [{name: a, match: {unit: a.service, cgroup: /a}, "
        "endpoints: [{port: 80}]}]\n",
        "apiVersion: headgate/v1\ntargets: [{name: a, match: {unit: otelcol}, endpoints: [{port: "
        "80}]}]\n",
        "apiVersion: headgate/v1\ntargets: [{name: a, match: {cgroup: /}, endpoints: [{port: "
        "80}]}]\n"));

}  // namespace
}  // namespace headgate
