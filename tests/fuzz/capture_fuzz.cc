// SPDX-License-Identifier: Apache-2.0
// Any bytes as a capture file: no crash, no hang, and no byte that is not in the file.
//   cmake --preset fuzz && ninja -C build/fuzz capture_fuzz && build/fuzz/tests/capture_fuzz CORPUS
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "agent/cli/capture.h"

// NOLINTNEXTLINE(readability-identifier-naming): the name is libFuzzer's
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace headgate;
  const std::string_view file(reinterpret_cast<const char*>(data), size);
  if (!cli::is_capture(file)) {
    return 0;
  }
  const auto streams = cli::read_capture(file, 4318);
  std::size_t bytes = 0;
  if (streams) {
    for (const cli::CapturedStream& stream : *streams) {
      for (const std::string& packet : stream.packets) {
        bytes += packet.size();
      }
    }
  }
  if (bytes > size) {
    std::abort();
  }
  return 0;
}
