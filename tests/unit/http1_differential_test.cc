// SPDX-License-Identifier: Apache-2.0
// bpf/lib/http1.h against http_parser, the parser that Node.js had before llhttp: on streams of
// generated requests and on what becomes of them when bytes are changed, at every cut.
#include <http_parser.h>
#include <rapidcheck.h>

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "bpf/lib/http1.h"
#include "tests/unit/http1_streams.h"

namespace headgate {
namespace {

struct Request {
  std::string method;
  std::string target;
  bool operator==(const Request&) const = default;
};

struct Reference {
  std::vector<Request> requests;  ///< whose head is whole
  bool failed = false;
};

Reference reference(std::string_view stream) {
  Reference out;
  std::string target;
  struct Context {
    Reference* out;
    std::string target;
  } context{&out, {}};
  http_parser parser{};
  http_parser_init(&parser, HTTP_REQUEST);
  parser.data = &context;
  http_parser_settings settings{};
  http_parser_settings_init(&settings);
  settings.on_message_begin = [](http_parser* p) {
    static_cast<Context*>(p->data)->target.clear();
    return 0;
  };
  settings.on_url = [](http_parser* p, const char* at, std::size_t bytes) {
    static_cast<Context*>(p->data)->target.append(at, bytes);
    return 0;
  };
  settings.on_headers_complete = [](http_parser* p) {
    auto* c = static_cast<Context*>(p->data);
    c->out->requests.push_back({http_method_str(static_cast<http_method>(p->method)), c->target});
    return 0;
  };
  const std::size_t read = http_parser_execute(&parser, &settings, stream.data(), stream.size());
  out.failed = read != stream.size() || HTTP_PARSER_ERRNO(&parser) != HPE_OK;
  return out;
}

/// The path that our reader shows for a target; nothing where it is none.
std::optional<std::string> path_of(const std::string& target) {
  const auto seen = test::read_whole("GET " + target + " HTTP/1.1\r\n\r\n");
  return seen.empty() ? std::nullopt : seen[0].path;
}

/// Ours gives up earlier; what it has seen until then must be what the reference sees.
void compare(const std::string& stream) {
  const Reference expected = reference(stream);
  const auto whole = test::read_whole(stream);
  std::size_t known = 0;
  bool gave_up = false;
  for (const cli::SeenRequest& seen : whole) {
    gave_up = gave_up || !seen.method;
    if (gave_up || known == expected.requests.size()) {
      break;
    }
    const Request& request = expected.requests[known];
    RC_ASSERT(seen.method == request.method);
    if (seen.path) {
      RC_ASSERT(seen.path == path_of(request.target));
    }
    ++known;
  }
  const bool ended = !whole.empty() && whole.back().reason != HEADGATE_UNKNOWN_NONE &&
                     whole.back().reason != HEADGATE_UNKNOWN_TARGET;
  if (!expected.failed && !ended) {
    RC_ASSERT(whole.size() == expected.requests.size());
  }
  if (!ended) {
    RC_ASSERT(whole.size() >= expected.requests.size());
  }
  RC_ASSERT(test::read_by_bytes(stream) == whole);
  for (std::size_t cut = 0; cut <= stream.size(); ++cut) {
    RC_ASSERT(test::read_cut(stream, {cut}) == whole);
  }
}

rc::Gen<std::string> body() {
  return rc::gen::oneOf(rc::gen::container<std::string>(rc::gen::arbitrary<char>()),
                        rc::gen::just(std::string("GET /v1/logs HTTP/1.1\r\nHost: y\r\n\r\n")),
                        rc::gen::just(std::string("0\r\n\r\nPOST /x HTTP/1.1\r\n\r\n")));
}

std::string chunked(const std::string& bytes) {
  std::string out;
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t size = *rc::gen::inRange<std::size_t>(1, bytes.size() - at + 1);
    char digits[20];
    (void)snprintf(digits, sizeof(digits), *rc::gen::arbitrary<bool>() ? "%zx" : "0%zX", size);
    out += digits;
    out += *rc::gen::element(std::string(), std::string(";a"), std::string(";a=\"b c\""),
                             std::string(";a=\"b\\\"\tc\""), std::string(";a=b;c"));
    out += "\r\n" + bytes.substr(at, size) + "\r\n";
    at += size;
  }
  return out + "0\r\n" +
         *rc::gen::element(std::string(), std::string("T: u\r\n"),
                           std::string("Content-Length: 4\r\nA: b\r\n")) +
         "\r\n";
}

std::string request() {
  const std::string method =
      *rc::gen::element<std::string>("GET", "POST", "PUT", "DELETE", "HEAD", "PATCH", "OPTIONS");
  const std::string target =
      *rc::gen::element<std::string>("/", "/v1/traces", "/v1/traces?a=b", "//v1/./metrics/",
                                     "/v1/%74races", "http://h:1/v1/x", "/a/../b", "/healthz", "*");
  std::string head = method + " " + target + " HTTP/1." + *rc::gen::element('0', '1', '1') + "\r\n";
  for (int i = *rc::gen::inRange(0, 4); i > 0; --i) {
    head += *rc::gen::element<std::string>(
        "Host: x\r\n", "Content-Type: application/x-protobuf\r\n", "Accept:\r\n",
        "Connection: keep-alive\r\n", "X-Content-Length: 7\r\n", "User-Agent:  a b\t c \r\n",
        "Content-Lengthy: 3\r\n", "X: \xc3\xa4\r\n", "Expect: 100-continue\r\n",
        "x_b3_traceid.long-name: 1\r\n",
        "User-Agent: a client with a long name/1.2.3 (and \xff more)\t\r\n");
  }
  const bool old = head.find("HTTP/1.0") != std::string::npos;
  if (old) {
    head += "Connection: keep-alive\r\n";  // else the reference stops there
  }
  switch (*rc::gen::inRange(0, old ? 2 : 3)) {
    case 0: return head + "\r\n";
    case 1: {
      const std::string bytes = *body();
      return head + "content-LENGTH: " + std::to_string(bytes.size()) + " \r\n\r\n" + bytes;
    }
    default: return head + "Transfer-Encoding: chunked\r\n\r\n" + chunked(*body());
  }
}

RC_GTEST_PROP(Http1Differential, WholeRequestsAreSeenAsTheReferenceSeesThem, ()) {
  std::string stream;
  std::size_t count = 0;
  for (int i = *rc::gen::inRange(1, 4); i > 0; --i, ++count) {
    stream += (*rc::gen::arbitrary<bool>() ? "" : "\r\n") + request();
  }
  RC_ASSERT(test::read_whole(stream).size() == count);
  RC_ASSERT(reference(stream).requests.size() == count);
  compare(stream);
}

RC_GTEST_PROP(Http1Differential, BrokenOnesAreNeverSeenOtherwise, ()) {
  std::string stream = request() + request();
  for (int i = *rc::gen::inRange(1, 4); i > 0; --i) {
    const std::size_t at = *rc::gen::inRange<std::size_t>(0, stream.size());
    switch (*rc::gen::inRange(0, 3)) {
      case 0:
        stream[at] = *rc::gen::element('\r', '\n', ' ', ':', '0', '9', ';', 'A', '\t', '%');
        break;
      case 1: stream.erase(at, *rc::gen::inRange<std::size_t>(1, 5)); break;
      default:
        stream.insert(at, *rc::gen::element<std::string>("\r\n", " ", "Content-Length: 3\r\n",
                                                         "\r\n\r\n", "0", "chunked"));
    }
  }
  compare(stream);
}

}  // namespace
}  // namespace headgate
