// SPDX-License-Identifier: Apache-2.0
#include "agent/cli/classify.h"

#include <algorithm>
#include <fstream>
#include <iostream>
#include <iterator>
#include <ostream>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "agent/base/unknown_class.h"
#include "agent/cli/capture.h"
#include "agent/cli/failure.h"
#include "agent/cli/table.h"
#include "agent/config/load.h"
#include "agent/config/schema.h"

namespace headgate {
namespace cli {
namespace {

std::span<const std::uint8_t> bytes_of(std::string_view text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

Classified read_stream(std::string_view stream, const std::vector<std::uint64_t>& cuts,
                       const PortRoutes& routes) {
  StreamReader reader(routes);
  std::uint64_t from = 0;
  const auto feed = [&](std::uint64_t to) {
    // no packet is larger than what the kernel may put together (GSO_LEGACY_MAX_SIZE)
    constexpr std::uint64_t kPacketMax = 65536;
    for (; from < to; from += std::min(to - from, kPacketMax)) {
      reader.feed(bytes_of(stream.substr(from, std::min(to - from, kPacketMax))));
    }
  };
  for (const std::uint64_t cut : cuts) {
    feed(std::min<std::uint64_t>(cut, stream.size()));
  }
  feed(stream.size());
  return {{}, reader.requests(), reader.unfinished_bytes()};
}

Classified read_connection(const CapturedStream& stream, const PortRoutes& routes) {
  StreamReader reader(routes);
  if (!stream.from_start) {
    reader.give_up(HEADGATE_UNKNOWN_OLD);
  }
  for (const std::string& packet : stream.packets) {
    reader.feed(bytes_of(packet));
  }
  if (stream.gap) {
    reader.give_up(HEADGATE_UNKNOWN_OLD);
  }
  return {stream.client, reader.requests(), reader.unfinished_bytes()};
}

std::string or_dash(const std::optional<std::string>& text) { return text ? *text : "-"; }

std::string route_of(const SeenRequest& request) {
  if (request.reason != HEADGATE_UNKNOWN_NONE) {
    return "unknown";
  }
  return request.exempt ? "exempt" : request.route.value_or("none: the port's rule");
}

std::string connections_text(const std::vector<Classified>& connections) {
  std::string out;
  for (const Classified& one : connections) {
    if (!one.client.empty()) {
      out += fmt::format("{}{}\n", out.empty() ? "" : "\n", plain(one.client));
    }
    Table table({{"REQUEST", true},
                 {"OFFSET", true},
                 {"PROTOCOL"},
                 {"METHOD"},
                 {"PATH"},
                 {"ROUTE"},
                 {"WHY"}});
    for (const SeenRequest& request : one.requests) {
      std::vector<Table::Cell> row(7);
      row[0].text = std::to_string(request.number);
      row[1].text = std::to_string(request.offset_bytes);
      row[2].text = or_dash(request.protocol);
      row[3].text = or_dash(request.method);
      row[4].text = or_dash(request.path);
      row[5].text = route_of(request);
      if (request.reason != HEADGATE_UNKNOWN_NONE) {
        row[6].text =
            fmt::format("{}: {}", unknown_word(request.reason), unknown_text(request.reason));
      }
      table.add(std::move(row));
    }
    if (!one.requests.empty()) {
      out += table.render(0, false);
    }
    if (one.unfinished_bytes != 0) {
      out += fmt::format("The last {} bytes begin a request whose head does not end.\n",
                         one.unfinished_bytes);
    } else if (one.requests.empty()) {
      out += "No request.\n";
    }
  }
  return out;
}

Result<std::string> read_file(const std::string& file) {
  if (file == "-") {
    return std::string(std::istreambuf_iterator<char>(std::cin), {});
  }
  std::ifstream in(file, std::ios::binary);
  std::string bytes(std::istreambuf_iterator<char>(in), {});
  if (!in || in.bad()) {
    return fail(fmt::format("cannot read {}: no such file, or no right to", printable(file)));
  }
  return bytes;
}

/// The endpoint with this port; the first target that has it.
Result<PortRoutes> find_port(const Config& config, std::uint16_t port) {
  std::vector<std::string> ports;
  for (const TargetConfig& target : config.targets) {
    for (const EndpointConfig& endpoint : target.endpoints) {
      if (endpoint.port == port &&
          (endpoint.protocol == Protocol::kHttp || endpoint.protocol == Protocol::kGrpc)) {
        return routes_of(target, endpoint);
      }
      ports.push_back(fmt::format("{}/{}", endpoint.port, to_string(endpoint.protocol)));
    }
  }
  return fail(
      fmt::format("the configuration has no endpoint with port {} and protocol http or "
                  "grpc; it has {}",
                  port, fmt::join(ports, ", ")));
}

}  // namespace

Result<std::vector<Classified>> classify(std::string_view file, std::uint16_t port,
                                         const std::vector<std::uint64_t>& cuts,
                                         const PortRoutes& routes) {
  if (!is_capture(file)) {
    return std::vector{read_stream(file, cuts, routes)};
  }
  if (!cuts.empty()) {
    return fail("--cut is for a byte stream: a capture has its packets");
  }
  const auto streams = read_capture(file, port);
  if (!streams) {
    return tl::unexpected<Error>(streams.error());
  }
  std::vector<Classified> out;
  for (const CapturedStream& stream : *streams) {
    out.push_back(read_connection(stream, routes));
  }
  if (out.empty()) {
    return fail(fmt::format("the capture has no TCP connection to port {}", port));
  }
  return out;
}

std::string classified_json(const std::string& client, const SeenRequest& request) {
  const auto text = [](const std::optional<std::string>& value) {
    return value ? Json(*value) : Json(nullptr);
  };
  Json object{{"schema", 1},
              {"request", request.number},
              {"protocol", text(request.protocol)},
              {"route", text(request.route)},
              {"exempt", request.exempt},
              {"method", text(request.method)},
              {"path", text(request.path)},
              {"reason", nullptr},
              {"offset_bytes", request.offset_bytes}};
  if (request.reason != HEADGATE_UNKNOWN_NONE) {
    object["reason"] = unknown_word(request.reason);
  }
  if (!client.empty()) {
    object["client"] = client;
  }
  return to_text(object);
}

}  // namespace cli

int run_classify(const ClassifyOptions& options, std::span<const StrategyInfo> strategies,
                 std::ostream& out, std::ostream& err) {
  const auto failed = [&](const std::string& why, int status) {
    return cli::failed("classify", why, options.json, out, err, status);
  };
  const LoadedConfig loaded = load_config_file(options.config_path, strategies);
  if (!loaded.valid()) {
    const auto first =
        std::find_if(loaded.problems.begin(), loaded.problems.end(),
                     [](const Problem& p) { return p.severity == Problem::Severity::kError; });
    return failed(to_string(*first), kExitUsage);
  }
  const auto routes = cli::find_port(loaded.config, options.port);
  if (!routes) {
    return failed(routes.error().message, kExitUsage);
  }
  const auto file = cli::read_file(options.file);
  if (!file) {
    return failed(file.error().message, kExitFailure);
  }
  const auto connections = cli::classify(*file, options.port, options.cuts, *routes);
  if (!connections) {
    return failed(connections.error().message, kExitFailure);
  }
  if (!options.json) {
    out << cli::connections_text(*connections);
    return kExitOk;
  }
  for (const cli::Classified& one : *connections) {
    for (const cli::SeenRequest& request : one.requests) {
      out << cli::classified_json(one.client, request) << '\n';
    }
  }
  return kExitOk;
}

}  // namespace headgate
