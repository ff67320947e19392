// SPDX-License-Identifier: Apache-2.0
#include "agent/targets/cri_messages.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace headgate {
namespace {

constexpr std::size_t kFrameHeader = 5;

/// One field of a message: a number, or bytes.
struct WireField {
  std::uint32_t number = 0;
  std::uint64_t value = 0;
  std::string_view bytes;
};

std::optional<std::uint64_t> take_varint(std::string_view& rest) {
  std::uint64_t value = 0;
  for (unsigned shift = 0; shift < 64 && !rest.empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(rest.front());
    rest.remove_prefix(1);
    value |= static_cast<std::uint64_t>(byte & 0x7fU) << shift;
    if ((byte & 0x80U) == 0) {
      return value;
    }
  }
  return std::nullopt;
}

/// Calls `on_field` for each; false: the text is not the wire format, or `on_field` says so.
/// https://protobuf.dev/programming-guides/encoding
template <class OnField>
bool each_field(std::string_view rest, OnField on_field) {
  constexpr std::size_t kFixed64 = 8;
  constexpr std::size_t kFixed32 = 4;
  while (!rest.empty()) {
    const auto tag = take_varint(rest);
    if (!tag || (*tag >> 3U) == 0 || (*tag >> 3U) > 0x1fffffff) {
      return false;
    }
    WireField field;
    field.number = static_cast<std::uint32_t>(*tag >> 3U);
    std::size_t length = 0;
    switch (*tag & 7U) {
      case 0: {
        const auto value = take_varint(rest);
        if (!value) {
          return false;
        }
        field.value = *value;
        break;
      }
      case 1: length = kFixed64; break;
      case 2: {
        const auto size = take_varint(rest);
        if (!size || *size > rest.size()) {
          return false;
        }
        length = *size;
        break;
      }
      case 5: length = kFixed32; break;
      default: return false;
    }
    if (length > rest.size()) {
      return false;
    }
    field.bytes = rest.substr(0, length);
    rest.remove_prefix(length);
    if (!on_field(field)) {
      return false;
    }
  }
  return true;
}

/// One entry of map<string, string>.
bool read_entry(std::string_view message, Labels& into) {
  std::string key;
  std::string value;
  const bool sound = each_field(message, [&](const WireField& f) {
    if (f.number == 1) {
      key = f.bytes;
    } else if (f.number == 2) {
      value = f.bytes;
    }
    return true;
  });
  if (sound) {
    into.insert_or_assign(std::move(key), std::move(value));
  }
  return sound;
}

bool read_sandbox(std::string_view message, CriSandbox& out) {
  out.ready = true;  // SANDBOX_READY is 0, and zeros are not sent
  return each_field(message, [&](const WireField& f) {
    switch (f.number) {
      case 1: out.id = f.bytes; return true;
      case 2:
        return each_field(f.bytes, [&](const WireField& m) {
          if (m.number == 1) {
            out.name = m.bytes;
          } else if (m.number == 2) {
            out.uid = m.bytes;
          } else if (m.number == 3) {
            out.namespace_name = m.bytes;
          } else if (m.number == 4) {
            out.attempt = m.value;
          }
          return true;
        });
      case 3: out.ready = f.value == 0; return true;
      case 5: return read_entry(f.bytes, out.labels);
      case 6: return read_entry(f.bytes, out.annotations);
      default: return true;
    }
  });
}

bool read_container(std::string_view message, CriContainer& out) {
  constexpr std::uint64_t kRunning = 1;
  return each_field(message, [&](const WireField& f) {
    switch (f.number) {
      case 1: out.id = f.bytes; return true;
      case 2: out.sandbox_id = f.bytes; return true;
      case 3:
        return each_field(f.bytes, [&](const WireField& m) {
          if (m.number == 1) {
            out.name = m.bytes;
          }
          return true;
        });
      case 6: out.running = f.value == kRunning; return true;
      default: return true;
    }
  });
}

template <class T, class Read>
Result<std::vector<T>> read_list(std::string_view message, std::string_view what, Read read) {
  std::vector<T> out;
  const bool sound = each_field(message, [&](const WireField& f) {
    if (f.number != 1) {
      return true;
    }
    T one;
    const bool good = read(f.bytes, one);
    out.push_back(std::move(one));
    return good;
  });
  if (!sound) {
    return fail(fmt::format("the container runtime's list of {} cannot be read ({} bytes)", what,
                            message.size()));
  }
  return out;
}

}  // namespace

Result<std::vector<CriSandbox>> parse_sandboxes(std::string_view message) {
  return read_list<CriSandbox>(message, "pods", read_sandbox);
}

Result<std::vector<CriContainer>> parse_containers(std::string_view message) {
  return read_list<CriContainer>(message, "containers", read_container);
}

PodList pods_of(const std::vector<CriSandbox>& sandboxes,
                const std::vector<CriContainer>& containers) {
  std::map<std::string, std::uint64_t, std::less<>> newest;  // attempt by UID
  for (const CriSandbox& sandbox : sandboxes) {
    auto& attempt = newest[sandbox.uid];
    attempt = std::max(attempt, sandbox.attempt);
  }
  PodList out;
  for (const CriSandbox& sandbox : sandboxes) {
    if (sandbox.attempt != newest[sandbox.uid] || sandbox.uid.empty() || sandbox.name.empty()) {
      continue;
    }
    Pod pod;
    pod.namespace_name = sandbox.namespace_name;
    pod.name = sandbox.name;
    pod.uid = sandbox.uid;
    pod.phase = sandbox.ready ? "Running" : "Unknown";
    pod.labels = sandbox.labels;
    std::erase_if(pod.labels,
                  [](const auto& label) { return label.first.starts_with("io.kubernetes."); });
    const auto opt_out = sandbox.annotations.find(kOptOutAnnotation);
    pod.opted_out = opt_out != sandbox.annotations.end() && opt_out->second == "false";
    for (const CriContainer& container : containers) {
      auto id = parse_container_id(container.id);
      if (container.sandbox_id != sandbox.id || !container.running || !id) {
        continue;
      }
      PodContainer one;
      one.name = container.name;
      one.id = std::move(*id);
      one.running = true;
      pod.containers.push_back(std::move(one));
    }
    out.put(std::move(pod));
  }
  return out;
}

std::string grpc_frame(std::string_view message) {
  std::string out(1, '\0');
  for (int shift = 24; shift >= 0; shift -= 8) {
    out += static_cast<char>((message.size() >> static_cast<unsigned>(shift)) & 0xffU);
  }
  out += message;
  return out;
}

Result<std::string_view> parse_grpc_frame(std::string_view body) {
  if (body.size() < kFrameHeader || body.front() != '\0') {
    return fail(fmt::format("no gRPC message ({} bytes)", body.size()));
  }
  std::size_t length = 0;
  for (std::size_t i = 1; i < kFrameHeader; ++i) {
    length = length << 8U | static_cast<unsigned char>(body[i]);
  }
  body.remove_prefix(kFrameHeader);
  if (body.size() != length) {
    return fail(fmt::format("a gRPC message of {} bytes came as {}", length, body.size()));
  }
  return body;
}

}  // namespace headgate
