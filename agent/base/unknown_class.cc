// SPDX-License-Identifier: Apache-2.0
#include "agent/base/unknown_class.h"

#include <array>

#include "headgate/bpf_abi.h"

namespace headgate {
namespace {

struct Reason {
  std::string_view word;
  std::string_view text;
};

constexpr std::array<Reason, HEADGATE_UNKNOWN_COUNT> kReasons{{
    {"", "its class is known"},
    {"not_http", "the connection begins with neither HTTP/1.1 nor HTTP/2"},
    {"tls", "TLS: nothing can be seen"},
    {"old", "its connection is older than the first packet that was looked at"},
    {"upgrade", "Upgrade or CONNECT: what follows may be another protocol"},
    {"method", "no method of RFC 9110, or not in capitals"},
    {"target", "the request target is no path, or has '..' or a bad %XX in it"},
    {"framing", "a length that servers read in different ways, or none that can be read"},
    {"syntax", "a head that servers read in different ways: folded, bare CR or LF, a stray blank"},
    {"too_long", "a head, path or header block beyond the limits"},
    {"budget", "too many small pieces in one packet"},
    {"preface", "began as HTTP/2 does and went on otherwise"},
    {"frame", "a frame that breaks RFC 9113"},
    {"hpack", "a header block that breaks RFC 7541"},
    {"no_path", "its path was not seen"},
    {"protocol", "HTTP/1.1 where HTTP/2 is configured, or the reverse"},
}};

}  // namespace

std::string_view unknown_word(std::uint32_t reason) {
  return reason < kReasons.size() ? kReasons[reason].word : "other";
}

std::string_view unknown_text(std::uint32_t reason) {
  return reason < kReasons.size() ? kReasons[reason].text : "a reason of another version";
}

}  // namespace headgate
