// SPDX-License-Identifier: Apache-2.0
#include <linux/if_addr.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <sys/socket.h>

#include <algorithm>
#include <compare>
#include <cstring>
#include <optional>
#include <set>
#include <utility>

#include "agent/dataplane/net.h"
#include "agent/dataplane/netlink.h"

namespace headgate {
namespace {

// What makes an assignment one of its own for the kernel: the same address can stand twice on an
// interface, with two prefix lengths or two peers, and on two interfaces.
struct Assignment {
  std::uint32_t interface_index = 0;
  std::uint8_t prefix_bits = 0;
  IpAddress local;
  IpAddress peer;
  // NOLINTNEXTLINE(modernize-use-nullptr): see net.h
  auto operator<=>(const Assignment&) const = default;
};

struct Parsed {
  Assignment assignment;
  bool usable = false;
};

bool read_address(std::uint8_t family, Bytes value, IpAddress& address) {
  if (family == AF_INET && value.size() == 4) {
    address.bytes[10] = address.bytes[11] = 0xff;
    std::memcpy(&address.bytes[12], value.data(), 4);
    return true;
  }
  if (family == AF_INET6 && value.size() == address.bytes.size()) {
    std::memcpy(address.bytes.data(), value.data(), value.size());
    return true;
  }
  return false;
}

std::optional<Parsed> parse(Bytes payload) {
  const auto header = front_as<ifaddrmsg>(payload);
  if (!header) {
    return std::nullopt;
  }
  std::uint32_t flags = header->ifa_flags;
  bool has_local = false;
  bool has_address = false;
  Parsed parsed;
  parsed.assignment.interface_index = header->ifa_index;
  parsed.assignment.prefix_bits = header->ifa_prefixlen;
  for_each_attribute(payload, sizeof(ifaddrmsg), [&](std::uint16_t type, Bytes value) {
    if (type == IFA_LOCAL) {
      has_local = read_address(header->ifa_family, value, parsed.assignment.local);
    } else if (type == IFA_ADDRESS) {
      has_address = read_address(header->ifa_family, value, parsed.assignment.peer);
    } else if (type == IFA_FLAGS) {
      flags = front_as<std::uint32_t>(value).value_or(flags);
    }
  });
  if (!has_local) {
    // Without a peer IPv6 sends IFA_ADDRESS alone; with one, IFA_ADDRESS is the peer's.
    if (!has_address) {
      return std::nullopt;
    }
    parsed.assignment.local = parsed.assignment.peer;
  }
  // Until duplicate detection is through (RFC 4862), and for good when it fails, the address may
  // be another machine's. The kernel sends RTM_NEWADDR again when it is through.
  const bool tentative = (flags & IFA_F_TENTATIVE) != 0 && (flags & IFA_F_OPTIMISTIC) == 0;
  parsed.usable = !tentative && (flags & IFA_F_DADFAILED) == 0 &&
                  !parsed.assignment.local.is_loopback() && !parsed.assignment.local.is_any();
  return parsed;
}

class NetlinkNodeAddresses final : public NodeAddresses {
 public:
  NetlinkNodeAddresses(NetlinkSocket events, NetlinkSocket dumps)
      : events_(std::move(events)), dumps_(std::move(dumps)) {}

  [[nodiscard]] const std::vector<IpAddress>& addresses() const override { return addresses_; }

  bool refresh() override {
    bool touched = false;
    const auto apply = [&](const NetlinkMessage& message) {
      touched = true;
      note(message);
    };
    if (!events_.read_pending(apply)) {
      stale_ = true;
    }
    if (stale_) {
      touched = true;
      // When the dump fails too, the last known list stands and the next refresh tries again.
      stale_ = !read_all().has_value();
      // What was multicast while the dump ran is newer than parts of it.
      if (!events_.read_pending(apply)) {
        stale_ = true;
      }
    }
    return touched && rebuild();
  }

  /// Errors: the first dump failed; nothing is known yet.
  [[nodiscard]] Result<> start() {
    Result<> done = read_all();
    if (done) {
      rebuild();
    }
    return done;
  }

 private:
  void note(const NetlinkMessage& message) {
    if (message.type != RTM_NEWADDR && message.type != RTM_DELADDR) {
      return;
    }
    const std::optional<Parsed> parsed = parse(message.payload);
    if (!parsed) {
      return;
    }
    if (message.type == RTM_NEWADDR && parsed->usable) {
      assignments_.insert(parsed->assignment);
    } else {
      assignments_.erase(parsed->assignment);
    }
  }

  [[nodiscard]] Result<> read_all() {
    std::set<Assignment> before = std::exchange(assignments_, {});
    ifaddrmsg request{};
    request.ifa_family = AF_UNSPEC;
    Result<> done = dumps_.dump(
        RTM_GETADDR, std::as_bytes(std::span(&request, 1)), [&] { assignments_.clear(); },
        [&](const NetlinkMessage& message) { note(message); });
    if (!done) {
      assignments_ = std::move(before);
      return tl::unexpected<Error>(done.error().within("read the node's addresses"));
    }
    return {};
  }

  bool rebuild() {
    std::vector<IpAddress> now;
    now.reserve(assignments_.size());
    for (const Assignment& assignment : assignments_) {
      now.push_back(assignment.local);
    }
    std::sort(now.begin(), now.end());
    now.erase(std::unique(now.begin(), now.end()), now.end());
    if (now == addresses_) {
      return false;
    }
    addresses_ = std::move(now);
    return true;
  }

  NetlinkSocket events_;
  NetlinkSocket dumps_;
  std::set<Assignment> assignments_;
  std::vector<IpAddress> addresses_;  // sorted, each once
  bool stale_ = false;
};

}  // namespace

Result<std::unique_ptr<NodeAddresses>> NodeAddresses::open() {
  // Subscribed before the first dump: a change in between is seen twice rather than never.
  Result<NetlinkSocket> events =
      NetlinkSocket::open(NETLINK_ROUTE, RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR);
  if (!events) {
    return tl::unexpected<Error>(events.error().within("watch the node's addresses"));
  }
  Result<NetlinkSocket> dumps = NetlinkSocket::open(NETLINK_ROUTE, 0);
  if (!dumps) {
    return tl::unexpected<Error>(dumps.error().within("read the node's addresses"));
  }
  auto addresses = std::make_unique<NetlinkNodeAddresses>(std::move(*events), std::move(*dumps));
  if (Result<> started = addresses->start(); !started) {
    return tl::unexpected<Error>(started.error());
  }
  return addresses;
}

}  // namespace headgate
