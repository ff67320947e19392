// SPDX-License-Identifier: Apache-2.0
// The words for the enums of include/headgate: label values and JSON, so they are an interface.
#include "headgate/sample.h"
#include "headgate/target.h"

namespace headgate {

std::string_view to_string(Unknown reason) {
  switch (reason) {
    case Unknown::kNotRead: return "not_read";
    case Unknown::kFirstSample: return "first_sample";
    case Unknown::kMissing: return "missing";
    case Unknown::kGone: return "gone";
    case Unknown::kIo: return "io";
    case Unknown::kParse: return "parse";
    case Unknown::kUnsupported: return "unsupported";
    case Unknown::kAbsent: return "absent";
    case Unknown::kWentBack: return "went_back";
    case Unknown::kZeroInterval: return "zero_interval";
    case Unknown::kNoLimit: return "no_limit";
    case Unknown::kStale: return "stale";
    case Unknown::kImpossible: return "impossible";
    case Unknown::kCount: break;
  }
  return "?";
}

std::string_view to_string(LimitSource source) {
  switch (source) {
    case LimitSource::kUnlimited: return "unlimited";
    case LimitSource::kConfig: return "config";
    case LimitSource::kOwn: return "own";
    case LimitSource::kAncestor: return "ancestor";
    case LimitSource::kCpuset: return "cpuset";
    case LimitSource::kRequest: return "request";
    case LimitSource::kCount: break;
  }
  return "?";
}

std::string_view to_string(Criticality criticality) {
  switch (criticality) {
    case Criticality::kSheddable: return "sheddable";
    case Criticality::kSheddablePlus: return "sheddable_plus";
    case Criticality::kCritical: return "critical";
    case Criticality::kCriticalPlus: return "critical_plus";
    case Criticality::kCount: break;
  }
  return "?";
}

std::string_view to_string(Protocol protocol) {
  switch (protocol) {
    case Protocol::kTcp: return "tcp";
    case Protocol::kUdp: return "udp";
    case Protocol::kHttp: return "http";
    case Protocol::kGrpc: return "grpc";
    case Protocol::kCount: break;
  }
  return "?";
}

std::string_view to_string(State state) {
  switch (state) {
    case State::kUnknown: return "unknown";
    case State::kNormal: return "normal";
    case State::kShedding: return "shedding";
    case State::kOpen: return "open";
    case State::kCount: break;
  }
  return "?";
}

}  // namespace headgate
