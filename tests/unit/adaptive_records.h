// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "headgate/strategy.h"

#include "agent/strategies/registry.h"

namespace headgate::test {

/// A table of numbers with names over the columns.
class Csv {
 public:
  explicit Csv(const std::string& path) {
    std::ifstream file(path);
    std::string line;
    if (!std::getline(file, line)) return;
    std::istringstream header(line);
    for (std::string name; std::getline(header, name, ',');) {
      index_[name] = names_.size();
      names_.push_back(name);
    }
    while (std::getline(file, line)) {
      std::vector<double> row;
      std::istringstream fields(line);
      for (std::string field; std::getline(fields, field, ',');) row.push_back(std::stod(field));
      if (row.size() == names_.size()) rows_.push_back(std::move(row));
    }
  }
  [[nodiscard]] std::size_t rows() const { return rows_.size(); }
  [[nodiscard]] bool has(const std::string& name) const { return index_.count(name) != 0; }
  [[nodiscard]] double at(std::size_t row, const std::string& name) const {
    return rows_[row][index_.at(name)];
  }
  [[nodiscard]] const std::vector<std::string>& names() const { return names_; }

 private:
  std::vector<std::string> names_;
  std::map<std::string, std::size_t> index_;
  std::vector<std::vector<double>> rows_;
};

inline Params with_profile(const char* profile) {
  Params params;
  params.words["profile"] = profile;
  return params;
}

/// Feeds a strategy one row after the other of a reference vector (tests/data/gold/README.md).
class GoldReplay {
 public:
  static constexpr double kCores = 2;
  static constexpr double kBytesPerKb = 1024;

  GoldReplay(const Csv& csv, std::string_view strategy, const Params& params)
      : csv_(csv), strategy_(find_strategy(strategy)->make(params)) {
    while (csv.has("off" + std::to_string(endpoints_.size()))) endpoints_.emplace_back();
    constexpr double kFloors[] = {0, 0.2, 0.5, 0.8};
    for (std::size_t i = 0; endpoints_.size() == 4 && i < 4; ++i) {
      endpoints_[i].criticality = static_cast<Criticality>(i);
      endpoints_[i].floor = Probability::refusing(kFloors[i]);
    }
    signals_.at = Instant(std::chrono::seconds(1000));
    signals_.interval = std::chrono::milliseconds(100);
    signals_.capacity_cores = kCores;
  }

  void step(std::size_t row) {
    const auto number = [&](const std::string& name) { return csv_.at(row, name); };
    const auto count = [&](const std::string& name) {
      return static_cast<std::uint64_t>(std::llround(number(name)));
    };
    const auto bytes = [&](const std::string& name) {
      return static_cast<std::uint64_t>(std::llround(number(name) * kBytesPerKb));
    };
    signals_.at += signals_.interval;
    signals_.cpu = signals_.cpu_fast = signals_.cpu_slow = Ratio{number("u")};
    signals_.periods = count("nper");
    signals_.throttled_periods = count("nthr");
    signals_.cpu_pressure = Ratio{number("psi")};
    signals_.memory = Ratio{number("mem")};
    for (std::size_t i = 0; i < endpoints_.size(); ++i) {
      const std::string n = std::to_string(i);
      EndpointActivity& activity = endpoints_[i].activity;
      activity.offered = count("off" + n);
      activity.admitted = count("adm" + n);
      activity.offered_bytes = bytes("offKB" + n);
      activity.admitted_bytes = bytes("admKB" + n);
      activity.sizes_known = true;
    }
    decision_ = Decision{};
    decision_.endpoints.resize(endpoints_.size());
    strategy_->decide({.signals = signals_, .endpoints = endpoints_}, decision_);
    internals_.clear();
    for (const Strategy::Threshold& value : strategy_->internals()) {
      internals_[std::string(value.name)] = value.value;
    }
  }
  [[nodiscard]] const Decision& decision() const { return decision_; }
  [[nodiscard]] double internal(const std::string& name) const { return internals_.at(name); }
  [[nodiscard]] std::size_t endpoints() const { return endpoints_.size(); }

 private:
  const Csv& csv_;
  std::unique_ptr<Strategy> strategy_;
  std::vector<EndpointInput> endpoints_;
  Signals signals_;
  Decision decision_;
  std::map<std::string, double> internals_;
};

}  // namespace headgate::test
