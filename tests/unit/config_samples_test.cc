// SPDX-License-Identifier: Apache-2.0
// The sample ConfigMaps of deploy/kubernetes/samples: each is a configuration that the agent takes.
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include "agent/config/load.h"
#include "tests/unit/config_strategies.h"

namespace headgate {
namespace {

TEST(ConfigSamples, AreValidAndOfTheShapeOfAConfigMap) {
  int samples = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(HEADGATE_SOURCE_DIR "/deploy/kubernetes/samples")) {
    SCOPED_TRACE(entry.path().string());
    const YAML::Node map = YAML::LoadFile(entry.path().string());
    EXPECT_EQ(map["kind"].as<std::string>(), "ConfigMap");
    const auto text = map["data"]["headgate.yaml"].as<std::string>();
    const LoadedConfig loaded =
        load_config(text, entry.path().filename().string(), test::strategy_table());
    ASSERT_TRUE(loaded.valid()) << (loaded.problems.empty() ? "" : loaded.problems[0].message);
    EXPECT_TRUE(loaded.problems.empty()) << loaded.problems[0].message;
    EXPECT_EQ(loaded.config.targets.size(), 1U);
    EXPECT_EQ(loaded.config.mode, Mode::kObserve) << "a first look must not refuse";
    ++samples;
  }
  EXPECT_EQ(samples, 5);
}

}  // namespace
}  // namespace headgate
