// SPDX-License-Identifier: Apache-2.0
#include "agent/dataplane/listener_table.h"

namespace headgate {

Result<std::vector<Listener>> ListenerTable::on_port(Instant now, SockDiag& diag,
                                                     std::uint32_t netns, std::uint8_t protocol,
                                                     std::uint16_t port) {
  const std::pair key(netns, protocol);
  auto table = tables_.find(key);
  if (table == tables_.end() || now - table->second.read_at >= kGoodFor) {
    auto all = diag.listeners(protocol, 0);
    if (!all) {
      if (table != tables_.end()) {
        tables_.erase(table);
      }
      return all;
    }
    // Namespaces come and go, and what is old is of no use.
    for (auto i = tables_.begin(); i != tables_.end();) {
      i = now - i->second.read_at >= kGoodFor ? tables_.erase(i) : std::next(i);
    }
    Table fresh{now, {}};
    for (Listener& listener : *all) {
      fresh.by_port.emplace(listener.port, std::move(listener));
    }
    table = tables_.insert_or_assign(key, std::move(fresh)).first;
  }
  std::vector<Listener> out;
  const auto [first, last] = table->second.by_port.equal_range(port);
  for (auto i = first; i != last; ++i) {
    out.push_back(i->second);
  }
  return out;
}

}  // namespace headgate
