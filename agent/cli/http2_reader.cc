// SPDX-License-Identifier: Apache-2.0
#include "agent/cli/http2_reader.h"

#include <algorithm>
#include <map>
#include <utility>

#include "agent/dataplane/hpack_huffman.h"
#include "agent/dataplane/method_keys.h"
#include "bpf/lib/http2_native.h"

namespace headgate::cli {
namespace {

/// The octets of a key, as the map of the kernel compares them.
std::pair<std::string, bool> octets_of(const headgate_method_key& key) {
  return {std::string(reinterpret_cast<const char*>(key.path), key.bytes), key.huffman != 0};
}

}  // namespace

struct Http2Reader::State {
  headgate_http2 http2{};
  headgate_http2_env env{};
  std::map<std::pair<std::string, bool>, std::size_t> methods;
  /// What the kernel keeps as the slot of a route is the number of a path here, so that the path is
  /// still known when a later request refers to it.
  struct Path {
    std::optional<std::size_t> method;
    std::optional<std::string> text;
  };
  std::vector<Path> paths;
  std::map<std::uint32_t, headgate_call> waiting;
  std::vector<Request> requests;

  void find(const headgate_method_key& key, headgate_call& call) {
    const auto octets = octets_of(key);
    Path path;
    if (const auto found = methods.find(octets); found != methods.end()) {
      path.method = found->second;
    }
    if (!octets.first.empty()) {  // else longer than any key
      path.text = octets.second ? hpack_huffman_decode(octets.first) : octets.first;
    }
    const auto known = std::find_if(paths.begin(), paths.end(), [&](const Path& other) {
      return other.method == path.method && other.text == path.text;
    });
    const auto number = static_cast<std::size_t>(known - paths.begin());
    if (number >= HEADGATE_CALL_REST) {
      return;  // more paths than there are numbers
    }
    if (known == paths.end()) {
      paths.push_back(std::move(path));
    }
    call.endpoint = static_cast<std::uint16_t>(number);
  }

  void seen() {
    Request out;
    out.offset_bytes = env.block_offset;
    const headgate_call& call = http2.hpack.call;
    if (call.endpoint < paths.size()) {
      out.method = paths[call.endpoint].method;
      out.path = paths[call.endpoint].text;
    }
    if ((call.flags & HEADGATE_CALL_NO_PATH) != 0) {
      out.reason = HEADGATE_UNKNOWN_NO_PATH;
    }
    requests.push_back(std::move(out));
  }

  static State& of(void* user) { return *static_cast<State*>(user); }
};

Http2Reader::Http2Reader(const std::vector<std::string>& methods)
    : state_(std::make_unique<State>()) {
  for (std::size_t i = 0; i < methods.size(); ++i) {
    if (method_fits(methods[i])) {
      for (const headgate_method_key& key : method_keys(0, methods[i])) {
        state_->methods.emplace(octets_of(key), i);
      }
    }
  }
  headgate_http2_env& env = state_->env;
  env.user = state_.get();
  env.find = [](void* user, const headgate_method_key* key, headgate_call* call) {
    State::of(user).find(*key, *call);
  };
  env.seen = [](void* user, const headgate_http2* /*http2*/) { State::of(user).seen(); };
  env.put = [](void* user, std::uint32_t stream, const headgate_call* call) {
    State::of(user).waiting[stream] = *call;
    return 0;
  };
  env.take = [](void* user, std::uint32_t stream, headgate_call* call) {
    const auto found = State::of(user).waiting.extract(stream);
    if (found.empty()) {
      return 0;
    }
    *call = found.mapped();
    return 1;
  };
  env.judge = [](void* /*user*/, const headgate_http2* /*http2*/,
                 const headgate_http2_judged* /*judged*/) {};
}

Http2Reader::~Http2Reader() = default;
Http2Reader::Http2Reader(Http2Reader&&) noexcept = default;

std::vector<Http2Reader::Request> Http2Reader::feed(std::span<const std::uint8_t> packet) {
  (void)headgate_http2_feed(&state_->http2, packet.data(), static_cast<__u32>(packet.size()),
                            &state_->env);
  return std::exchange(state_->requests, {});
}

std::uint32_t Http2Reader::lost() const {
  return headgate_http2_lost(&state_->http2) != 0 ? state_->http2.hpack.reason
                                                  : std::uint32_t{HEADGATE_UNKNOWN_NONE};
}

std::uint64_t Http2Reader::frame_offset_bytes() const { return state_->env.block_offset; }

bool Http2Reader::in_request() const {
  const headgate_http2& h = state_->http2;
  return lost() == HEADGATE_UNKNOWN_NONE &&
         ((h.marks & HEADGATE_HTTP2_IN_BLOCK) != 0 || h.state == HEADGATE_HTTP2_LEAD ||
          h.state == HEADGATE_HTTP2_BLOCK || (h.state == HEADGATE_HTTP2_HEAD && h.have > 0));
}

}  // namespace headgate::cli
