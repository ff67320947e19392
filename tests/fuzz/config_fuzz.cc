// SPDX-License-Identifier: Apache-2.0
// Any bytes as a configuration: no crash, no hang, and what is valid is printed and read again.
//   cmake --preset fuzz && ninja -C build/fuzz config_fuzz
//   build/fuzz/tests/config_fuzz -dict=tests/fuzz/config.dict CORPUS tests/data/config
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "agent/config/load.h"
#include "tests/unit/config_strategies.h"

// NOLINTNEXTLINE(readability-identifier-naming): the name is libFuzzer's
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace headgate;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const LoadedConfig loaded = load_config(text, "fuzz.yaml", test::strategy_table());
  for (const Problem& problem : loaded.problems) {
    if (problem.message.empty() || to_string(problem).empty()) {
      std::abort();
    }
  }
  if (loaded.valid()) {
    const LoadedConfig again =
        load_config(to_yaml(loaded.config), "printed.yaml", test::strategy_table());
    if (!again.valid() || !(again.config == loaded.config) ||
        !diff(loaded.config, again.config).empty()) {
      for (const Problem& problem : again.problems) {
        (void)std::fprintf(stderr, "%s\n", to_string(problem).c_str());
      }
      (void)std::fprintf(stderr, "%s\n", to_yaml(loaded.config).c_str());
      std::abort();
    }
  }
  return 0;
}
