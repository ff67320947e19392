// SPDX-License-Identifier: Apache-2.0
// The reader of HTTP/2 on any octets, under ASan and UBSan. The first two octets of the input say
// where the rest is cut; cut and whole must say the same.
//
//   cmake --preset fuzz && ninja -C build/fuzz http2_fuzz
//   build/fuzz/tests/http2_fuzz -max_total_time=60
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "tests/support/http2_stream.h"

// NOLINTNEXTLINE(readability-identifier-naming): libFuzzer's name
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  using headgate::http2::Judged;
  using headgate::http2::Reader;
  if (bytes < 2) {
    return 0;
  }
  const std::string octets =
      headgate::http2::settings() + std::string(reinterpret_cast<const char*>(data) + 2, bytes - 2);
  const Reader::Routes routes = {{{"/a.B/C", false}, 1}, {{"/a", false}, 2}, {{"", true}, 3}};
  Reader whole(routes);
  Reader cut(routes);
  const std::size_t first = data[0] % octets.size();
  const std::size_t second = std::max<std::size_t>(first, data[1] % octets.size());
  const bool alive = whole.feed(octets);
  const bool same =
      cut.feed(octets, {first, second}) == alive && cut.lost() == whole.lost() &&
      cut.seen == whole.seen &&
      std::equal(cut.judged.begin(), cut.judged.end(), whole.judged.begin(), whole.judged.end(),
                 [](const Judged& a, const Judged& b) { return a.same(b); });
  if (!same) {
    std::abort();
  }
  return 0;
}
