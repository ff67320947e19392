// SPDX-License-Identifier: Apache-2.0
#include "agent/config/config.h"

#include <algorithm>

namespace headgate {

std::string_view to_string(Mode mode) {
  switch (mode) {
    case Mode::kEnforce: return "enforce";
    case Mode::kObserve: return "observe";
    case Mode::kOff: return "off";
  }
  return "?";
}

std::string_view to_string(RefuseForm form) {
  switch (form) {
    case RefuseForm::kAuto: return "auto";
    case RefuseForm::kReset: return "reset";
    case RefuseForm::kDefer: return "defer";
    case RefuseForm::kDrop: return "drop";
    case RefuseForm::kHttp429: return "429";
    case RefuseForm::kHttp503: return "503";
    case RefuseForm::kGrpcExhausted: return "grpc-exhausted";
  }
  return "?";
}

bool Config::operator==(const Config& other) const {
  return mode == other.mode && tick == other.tick && lease == other.lease && xdp == other.xdp &&
         targets == other.targets;
}

RefuseForm connection_form(const EndpointConfig& endpoint) {
  return refuses_requests(endpoint.refuse.form) ? RefuseForm::kAuto : endpoint.refuse.form;
}

bool sees_requests(const EndpointConfig& endpoint) {
  return !endpoint.routes.empty() || refuses_requests(endpoint.refuse.form);
}

Mode effective_mode(const Config& config, const TargetConfig& target) {
  static_assert(Mode::kEnforce < Mode::kObserve && Mode::kObserve < Mode::kOff);
  return std::max(config.mode, target.mode.value_or(config.mode));
}

}  // namespace headgate
