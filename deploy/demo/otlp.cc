// SPDX-License-Identifier: Apache-2.0
#include "deploy/demo/otlp.h"

#include <array>
#include <cstdint>
#include <iterator>
#include <string_view>

#include <fmt/format.h>

namespace headgate::demo {
namespace {

// Spread-out bits for ids (splitmix64): OTLP wants ids that are not all zero and differ.
std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

constexpr std::string_view kSpanName = "GET /user/{id}";
constexpr unsigned kSpanKindServer = 2;

struct Span {
  std::array<std::uint64_t, 2> trace_id{};
  std::uint64_t span_id = 0;
  std::uint64_t begin_ns = 0, end_ns = 0;
  std::string url, client_address;
};

Span make_span(std::size_t group, std::size_t i) {
  static constexpr std::array<std::string_view, 4> kPages = {"cart", "orders", "profile", "search"};
  const std::uint64_t seed = mix(group * 1'000'003 + i);
  Span span;
  span.trace_id = {seed, mix(seed)};
  span.span_id = mix(seed + 1);
  span.begin_ns = 1'700'000'000'000'000'000 + i * 1'000'000;
  span.end_ns = span.begin_ns + 42'000'000;
  span.url = fmt::format("https://shop.example/user/{}/{}", 10'000 + seed % 90'000,
                         kPages[i % kPages.size()]);
  span.client_address = fmt::format("192.0.2.{}", seed % 256);
  return span;
}

// ---------------------------------------------------------------- protobuf.dev: encoding

enum WireType : unsigned { kVarint = 0, kFixed64 = 1, kLengthDelimited = 2 };

void put_varint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) {
    out.push_back(static_cast<char>(value | 0x80));
  }
  out.push_back(static_cast<char>(value));
}

void put_tag(std::string& out, unsigned field, WireType type) {
  put_varint(out, field << 3 | type);
}

void put_bytes(std::string& out, unsigned field, std::string_view bytes) {
  put_tag(out, field, kLengthDelimited);
  put_varint(out, bytes.size());
  out += bytes;
}

void put_octets(std::string& out, std::uint64_t value, bool big_endian) {
  for (unsigned i = 0; i < 8; ++i) {
    out.push_back(static_cast<char>(value >> (8 * (big_endian ? 7 - i : i))));
  }
}

void put_fixed64(std::string& out, unsigned field, std::uint64_t value) {
  put_tag(out, field, kFixed64);
  put_octets(out, value, /*big_endian=*/false);
}

std::string id_octets(std::initializer_list<std::uint64_t> words) {
  std::string out;
  for (const std::uint64_t word : words) {
    put_octets(out, word, /*big_endian=*/true);
  }
  return out;
}

/// KeyValue of opentelemetry/proto/common/v1/common.proto.
void put_attribute(std::string& out, unsigned field, std::string_view key, std::string_view text) {
  std::string value, pair;
  put_bytes(value, 1, text);
  put_bytes(pair, 1, key);
  put_bytes(pair, 2, value);
  put_bytes(out, field, pair);
}

}  // namespace

std::string otlp_trace_json(std::size_t group, std::size_t spans) {
  static constexpr std::string_view kAttribute = R"({{"key":"{}","value":{{"stringValue":"{}"}}}})";
  std::string json = fmt::format(
      R"({{"resourceSpans":[{{"resource":{{"attributes":[{}]}},"scopeSpans":[{{"spans":[)",
      fmt::format(kAttribute, "service.name", fmt::format("shop-{}", group)));
  for (std::size_t i = 0; i < spans; ++i) {
    const Span span = make_span(group, i);
    fmt::format_to(std::back_inserter(json),
                   R"({}{{"traceId":"{:016x}{:016x}","spanId":"{:016x}","name":"{}","kind":{},)"
                   R"("startTimeUnixNano":"{}","endTimeUnixNano":"{}","attributes":[{},{},{}]}})",
                   i == 0 ? "" : ",", span.trace_id[0], span.trace_id[1], span.span_id, kSpanName,
                   kSpanKindServer, span.begin_ns, span.end_ns,
                   fmt::format(kAttribute, "url.full", span.url),
                   fmt::format(kAttribute, "http.request.method", "GET"),
                   fmt::format(kAttribute, "client.address", span.client_address));
  }
  return json + "]}]}]}";
}

std::string otlp_trace_protobuf(std::size_t group, std::size_t spans) {
  // Fields of opentelemetry/proto/trace/v1/trace.proto.
  std::string scope_spans, resource, resource_spans, request;
  for (std::size_t i = 0; i < spans; ++i) {
    const Span span = make_span(group, i);
    std::string out;
    put_bytes(out, 1, id_octets({span.trace_id[0], span.trace_id[1]}));
    put_bytes(out, 2, id_octets({span.span_id}));
    put_bytes(out, 5, kSpanName);
    put_tag(out, 6, kVarint);
    put_varint(out, kSpanKindServer);
    put_fixed64(out, 7, span.begin_ns);
    put_fixed64(out, 8, span.end_ns);
    put_attribute(out, 9, "url.full", span.url);
    put_attribute(out, 9, "http.request.method", "GET");
    put_attribute(out, 9, "client.address", span.client_address);
    put_bytes(scope_spans, 2, out);
  }
  put_attribute(resource, 1, "service.name", fmt::format("shop-{}", group));
  put_bytes(resource_spans, 1, resource);
  put_bytes(resource_spans, 2, scope_spans);
  put_bytes(request, 1, resource_spans);
  return request;
}

std::string grpc_message(const std::string& message) {
  std::string out(1, '\0');
  for (unsigned shift = 32; shift > 0; shift -= 8) {
    out.push_back(static_cast<char>(message.size() >> (shift - 8)));
  }
  return out + message;
}

}  // namespace headgate::demo
