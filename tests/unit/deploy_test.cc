// SPDX-License-Identifier: Apache-2.0
// What deploy/ says about the agent is true of the agent: alerts and dashboards ask for metrics
// that exist, every alert has its page in the runbook, manifests name flags that there are.
#include <filesystem>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/source_tree.h"

namespace headgate {
namespace {

using source_tree::File;
using testing::IsEmpty;

const std::vector<File>& files() {
  static const std::vector<File> all = source_tree::read(HEADGATE_SOURCE_DIR);
  return all;
}

std::set<std::string> all_matches(const std::string& text, const std::string& pattern) {
  const std::regex regex(pattern);
  std::set<std::string> out;
  for (auto it = std::sregex_iterator(text.begin(), text.end(), regex);
       it != std::sregex_iterator(); ++it) {
    out.insert((*it)[1].str());
  }
  return out;
}

std::string text_below(const std::string& prefix, const std::string& suffix) {
  std::string out;
  for (const File& file : files()) {
    if (file.path.starts_with(prefix) && file.path.ends_with(suffix)) {
      out += file.text;
    }
  }
  return out;
}

/// Without what Prometheus adds to the name of a histogram.
std::string family_of(const std::string& metric) {
  for (const std::string suffix : {"_bucket", "_sum", "_count"}) {
    if (metric.ends_with(suffix)) {
      return metric.substr(0, metric.size() - suffix.size());
    }
  }
  return metric;
}

TEST(Deploy, AlertsAndDashboardsAskForMetricsThatExist) {
  const std::set<std::string> exported =
      all_matches(text_below("agent/web/", ".cc"), R"re("((?:headgate|process)_[a-z_]+)")re");
  ASSERT_GT(exported.size(), 30U);
  std::vector<std::string> missing;
  const std::string asked = text_below("deploy/helm/headgate/alerts/", ".yaml") +
                            text_below("deploy/helm/headgate/dashboards/", ".json");
  const std::set<std::string> metrics =
      all_matches(asked, R"re(\b((?:headgate|process)_[a-z_]+)\s*(?:\{|==|>))re");
  ASSERT_GT(metrics.size(), 20U);
  for (const std::string& metric : metrics) {
    if (!exported.contains(family_of(metric))) {
      missing.push_back(metric);
    }
  }
  EXPECT_THAT(missing, IsEmpty());
}

TEST(Deploy, EveryAlertHasItsPageInTheRunbook) {
  const std::set<std::string> alerts =
      all_matches(text_below("deploy/helm/headgate/alerts/", ".yaml"), R"re(- alert: (\w+))re");
  const std::set<std::string> pages =
      all_matches(text_below("docs/runbook.md", ""), R"re(\n## (\w+))re");
  ASSERT_FALSE(alerts.empty());
  EXPECT_EQ(alerts, pages);
}

TEST(Deploy, ManifestsNameFlagsThatThereAre) {
  const std::set<std::string> flags = all_matches(
      text_below("deploy/helm/headgate/templates/daemonset.yaml", ""), R"re(- --([a-z.-]+))re");
  ASSERT_FALSE(flags.empty());
  const std::string source = text_below("agent/cli/", ".cc") + text_below("agent/", "main.cc");
  for (const std::string& flag : flags) {
    EXPECT_NE(source.find('"' + flag), std::string::npos) << "--" << flag;
  }
}

}  // namespace
}  // namespace headgate
