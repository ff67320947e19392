// SPDX-License-Identifier: Apache-2.0
// JSON Schema, draft 2020-12, from the tables of schema.cc. It describes the preferred spelling:
// numbers in quotes, which the reader takes too, are marked by an editor.
#include <nlohmann/json.hpp>

#include "agent/config/load.h"
#include "agent/config/quantity.h"
#include "agent/config/schema.h"

namespace headgate {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kDurationPattern = "^(0|([0-9]+([.][0-9]+)?(ns|us|ms|s|m|h))+)$";
constexpr const char* kSizePattern = "^[0-9]+([.][0-9]+)?(Ti|Gi|Mi|Ki|T|G|M|k)?$";
constexpr const char* kCoresPattern = "^[0-9]+m$";
constexpr const char* kPortsPattern = "^[0-9]+( *- *[0-9]+)?( *, *[0-9]+( *- *[0-9]+)?)*$";

Json words_schema(std::span<const std::string_view> words) {
  Json out{{"enum", Json::array()}};
  for (const std::string_view word : words) {
    out["enum"].push_back(word);
  }
  return out;
}

Json pattern_schema(std::string_view pattern) { return {{"type", "string"}, {"pattern", pattern}}; }

Json range_schema(const char* type, double minimum, double maximum) {
  // Whole bounds as integers: they read better.
  const auto bound = [](double value) {
    const auto whole = static_cast<std::int64_t>(value);
    return static_cast<double>(whole) == value ? Json(whole) : Json(value);
  };
  return {{"type", type}, {"minimum", bound(minimum)}, {"maximum", bound(maximum)}};
}

Json schema_of(const MapSpec& spec, std::span<const StrategyInfo> strategies);

Json port_schema() {
  return Json{{"anyOf", {range_schema("integer", 1, 65535), pattern_schema(kPortsPattern)}}};
}

/// {parameters of the strategy}; `fixed_name`: as {name: NAME, ...}.
Json params_schema(const StrategyInfo& info, bool fixed_name,
                   std::span<const StrategyInfo> strategies);

Json points_schema() {
  Json out{{"type", "array"}, {"minItems", 2}, {"maxItems", kMaxPoints}};
  out["items"] = {{"type", "array"},
                  {"prefixItems",
                   {range_schema("number", kPointLevelField.minimum, kPointLevelField.maximum),
                    range_schema("number", kPointRefuseField.minimum, kPointRefuseField.maximum)}},
                  {"minItems", 2},
                  {"maxItems", 2}};
  return out;
}

Json strategy_schema(std::span<const StrategyInfo> strategies) {
  Json out{{"anyOf", Json::array()}};
  Json names = Json::array();
  Json parts = Json::array();
  bool hybrid = false;
  for (const StrategyInfo& info : strategies) {
    if (!info.built) {
      continue;
    }
    if (info.name == "hybrid") {
      hybrid = true;
      continue;
    }
    names.push_back({{"const", info.name}, {"description", info.doc}});
    parts.push_back(info.name);
  }
  out["anyOf"].push_back({{"anyOf", std::move(names)}});
  for (const StrategyInfo& info : strategies) {
    if (!info.built || info.name == "hybrid") {
      continue;
    }
    out["anyOf"].push_back(params_schema(info, /*fixed_name=*/true, strategies));
    out["anyOf"].push_back(
        {{"type", "object"},
         {"properties",
          {{std::string(info.name), params_schema(info, /*fixed_name=*/false, strategies)}}},
         {"required", {info.name}},
         {"additionalProperties", false}});
  }
  if (hybrid) {
    const Json list{
        {"type", "array"}, {"items", {{"enum", parts}}}, {"minItems", 1}, {"uniqueItems", true}};
    out["anyOf"].push_back({{"type", "object"},
                            {"properties", {{"hybrid", list}}},
                            {"required", {"hybrid"}},
                            {"additionalProperties", false}});
  }
  return out;
}

Json schema_of(const Field& field, std::span<const StrategyInfo> strategies) {
  Json out;
  switch (field.shape) {
    case Shape::kText: out = pattern_schema(field.pattern); break;
    case Shape::kWord: out = words_schema(field.words); break;
    case Shape::kNumber: out = range_schema("number", field.minimum, field.maximum); break;
    case Shape::kCount: out = range_schema("integer", field.minimum, field.maximum); break;
    case Shape::kDuration: out = pattern_schema(kDurationPattern); break;
    case Shape::kSize:
      out = {{"anyOf",
              {words_schema(field.words), range_schema("integer", field.minimum, field.maximum),
               pattern_schema(kSizePattern)}}};
      break;
    case Shape::kCores:
      out = {{"anyOf",
              {words_schema(field.words), range_schema("number", field.minimum, field.maximum),
               pattern_schema(kCoresPattern)}}};
      break;
    case Shape::kPorts:
      out = port_schema();
      out["anyOf"].push_back({{"type", "array"}, {"items", port_schema()}, {"minItems", 1}});
      break;
    case Shape::kRefuse: {
      Json forms = words_schema(field.words);
      // YAML reads a bare 429 as an integer.
      forms["enum"].push_back(429);
      forms["enum"].push_back(503);
      out = {{"anyOf", {std::move(forms)}}};
      out["anyOf"].push_back(
          {{"type", "object"},
           {"properties", {{std::string(kDeferField.key), schema_of(kDeferField, strategies)}}},
           {"required", {kDeferField.key}},
           {"additionalProperties", false}});
      break;
    }
    case Shape::kStrategy: out = strategy_schema(strategies); break;
    case Shape::kMap: out = schema_of(*field.map, strategies); break;
    case Shape::kList:
      out = {{"type", "array"},
             {"items", schema_of(*field.element, strategies)},
             {"maxItems", static_cast<std::int64_t>(field.maximum)}};
      break;
  }
  std::string doc(field.doc);
  if (field.shape == Shape::kDuration) {
    doc += " Allowed: " + allowed_text(field) + ".";
  }
  out["description"] = std::move(doc);
  if (!field.fallback.empty()) {
    const auto as_number = parse_plain_number(field.fallback);
    out["default"] = as_number ? Json(*as_number) : Json(field.fallback);
  }
  return out;
}

Json schema_of(const MapSpec& spec, std::span<const StrategyInfo> strategies) {
  Json out{{"type", "object"}, {"properties", Json::object()}};
  Json required = Json::array();
  for (const Field& field : spec.fields) {
    out["properties"][std::string(field.key)] = schema_of(field, strategies);
    if (field.required) {
      required.push_back(field.key);
    }
  }
  if (!required.empty()) {
    out["required"] = std::move(required);
  }
  out["additionalProperties"] = false;
  if (spec.exactly_one) {
    out["minProperties"] = 1;
    out["maxProperties"] = 1;
  }
  return out;
}

Json params_schema(const StrategyInfo& info, bool fixed_name,
                   std::span<const StrategyInfo> strategies) {
  Json out{{"type", "object"}, {"properties", Json::object()}, {"description", info.doc}};
  if (fixed_name) {
    out["properties"]["name"] = {{"const", info.name}};
    out["required"] = {"name"};
  }
  for (const ParamSpec& param : info.params) {
    const std::string name(param.name);
    out["properties"][name] = schema_of(field_of(param), strategies);
    out["properties"][name]["default"] =
        param.kind == ParamSpec::Kind::kWord       ? Json(param.default_word)
        : param.kind == ParamSpec::Kind::kDuration ? Json(param_text(param, param.default_value))
                                                   : Json(param.default_value);
  }
  if (info.takes_points) {
    out["properties"]["points"] = points_schema();
  }
  out["additionalProperties"] = false;
  return out;
}

}  // namespace

std::string json_schema(std::span<const StrategyInfo> strategies) {
  Json out{{"$schema", "https://json-schema.org/draft/2020-12/schema"},
           {"title", "Headgate configuration, headgate/v1"}};
  out.update(schema_of(root_spec(), strategies));
  return out.dump(2) + "\n";
}

}  // namespace headgate
