// SPDX-License-Identifier: Apache-2.0
// Any bytes as what a client sends: no crash, no hang, the same requests wherever it is cut.
//   cmake --preset fuzz && ninja -C build/fuzz http1_fuzz && build/fuzz/tests/http1_fuzz CORPUS
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "headgate/bpf_abi.h"

#include "tests/unit/http1_streams.h"

// NOLINTNEXTLINE(readability-identifier-naming): the name is libFuzzer's
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace headgate;
  if (size < 2) {
    return 0;
  }
  const std::string_view stream(reinterpret_cast<const char*>(data) + 2, size - 2);
  const auto whole = test::read_whole(stream);
  for (const cli::SeenRequest& request : whole) {
    if (request.reason == HEADGATE_UNKNOWN_BUDGET) {
      return 0;  // a limit of packets: cut otherwise there is more
    }
    if (request.offset_bytes > stream.size()) {
      std::abort();
    }
  }
  const std::size_t first = data[0] * stream.size() / 255;
  const std::size_t second = first + data[1] * (stream.size() - first) / 255;
  if (test::read_cut(stream, {first, second}) != whole) {
    std::abort();
  }
  return 0;
}
