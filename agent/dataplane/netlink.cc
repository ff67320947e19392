// SPDX-License-Identifier: Apache-2.0
#include "agent/dataplane/netlink.h"

#include <linux/netlink.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>

#include <cerrno>
#include <utility>

namespace headgate {
namespace {

// A table that changes faster than it can be read five times over is not worth a sixth attempt.
constexpr int kDumpAttempts = 5;

constexpr std::size_t align4(std::size_t length) { return (length + 3) & ~std::size_t{3}; }

struct Received {
  std::size_t bytes = 0;
  int sys_errno = 0;
  bool truncated = false;
  bool from_kernel = false;
};

Received receive(int fd, std::span<std::byte> buffer, int flags) {
  sockaddr_nl sender{};
  iovec part{buffer.data(), buffer.size()};
  msghdr message{};
  message.msg_name = &sender;
  message.msg_namelen = sizeof(sender);
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  ssize_t got = 0;
  do {
    got = ::recvmsg(fd, &message, flags);
  } while (got < 0 && errno == EINTR);
  Received result;
  if (got < 0) {
    result.sys_errno = errno;
    return result;
  }
  result.bytes = static_cast<std::size_t>(got);
  result.truncated = (message.msg_flags & MSG_TRUNC) != 0;
  // Any process may send to a netlink socket; port id 0 is the kernel (netlink(7)).
  result.from_kernel = sender.nl_pid == 0;
  return result;
}

// Calls `each` with header and payload; stops when it returns false.
template <class F>
void for_each_message(Bytes data, F each) {
  while (const auto header = front_as<nlmsghdr>(data)) {
    if (header->nlmsg_len < sizeof(nlmsghdr) || header->nlmsg_len > data.size()) {
      return;
    }
    if (!each(*header, data.subspan(align4(sizeof(nlmsghdr)),
                                    header->nlmsg_len - align4(sizeof(nlmsghdr))))) {
      return;
    }
    const std::size_t step = align4(header->nlmsg_len);
    if (step >= data.size()) {
      return;
    }
    data = data.subspan(step);
  }
}

}  // namespace

void for_each_attribute(Bytes payload, std::size_t header_bytes,
                        const std::function<void(std::uint16_t, Bytes)>& each) {
  const std::size_t begin = align4(header_bytes);
  if (begin >= payload.size()) {
    return;
  }
  Bytes data = payload.subspan(begin);
  while (const auto attribute = front_as<nlattr>(data)) {
    if (attribute->nla_len < sizeof(nlattr) || attribute->nla_len > data.size()) {
      return;
    }
    each(attribute->nla_type & NLA_TYPE_MASK,
         data.subspan(sizeof(nlattr), attribute->nla_len - sizeof(nlattr)));
    const std::size_t step = align4(attribute->nla_len);
    if (step >= data.size()) {
      return;
    }
    data = data.subspan(step);
  }
}

NetlinkSocket::NetlinkSocket(UniqueFd fd) : fd_(std::move(fd)) {}

Result<NetlinkSocket> NetlinkSocket::open(int protocol, std::uint32_t groups) {
  UniqueFd fd(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, protocol));
  if (!fd) {
    return sys_fail(errno, "open a netlink socket");
  }
  // The kernel answers a dump within the system call; the limit only keeps a fault from being a
  // hang.
  const timeval limit{5, 0};
  if (::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)) != 0) {
    return sys_fail(errno, "set the time limit of a netlink socket");
  }
  sockaddr_nl address{};
  address.nl_family = AF_NETLINK;
  address.nl_groups = groups;
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    return sys_fail(errno, "bind a netlink socket");
  }
  return NetlinkSocket(std::move(fd));
}

Result<> NetlinkSocket::dump(std::uint16_t type, Bytes request, const std::function<void()>& begin,
                             const Each& each) {
  for (int attempt = 0; attempt < kDumpAttempts; ++attempt) {
    begin();
    const Result<bool> complete = once(type, NLM_F_DUMP, request, each);
    if (!complete) {
      return tl::unexpected<Error>(complete.error());
    }
    if (*complete) {
      return {};
    }
  }
  return sys_fail(EAGAIN, "the kernel's table changed during each of 5 netlink dumps");
}

Result<> NetlinkSocket::ask(std::uint16_t type, Bytes request, const Each& each) {
  const Result<bool> complete = once(type, NLM_F_ACK, request, each);
  if (!complete) {
    return tl::unexpected<Error>(complete.error());
  }
  return *complete ? Result<>() : sys_fail(EAGAIN, "netlink request");
}

Result<bool> NetlinkSocket::once(std::uint16_t type, std::uint16_t flags, Bytes request,
                                 const Each& each) {
  const std::uint32_t sequence = ++sequence_;
  nlmsghdr header{};
  header.nlmsg_len = static_cast<std::uint32_t>(sizeof(header) + request.size());
  header.nlmsg_type = type;
  header.nlmsg_flags = static_cast<std::uint16_t>(NLM_F_REQUEST | flags);
  header.nlmsg_seq = sequence;
  std::array<iovec, 2> parts{
      iovec{&header, sizeof(header)},
      iovec{const_cast<std::byte*>(request.data()), request.size()}};  // NOLINT: only read
  sockaddr_nl kernel{};
  kernel.nl_family = AF_NETLINK;
  msghdr message{};
  message.msg_name = &kernel;
  message.msg_namelen = sizeof(kernel);
  message.msg_iov = parts.data();
  message.msg_iovlen = parts.size();
  ssize_t sent = 0;
  do {
    sent = ::sendmsg(fd_.get(), &message, 0);
  } while (sent < 0 && errno == EINTR);
  if (sent < 0) {
    return sys_fail(errno, "send a netlink request");
  }

  const auto buffer = std::make_unique_for_overwrite<Buffer>();
  bool done = false;
  bool interrupted = false;
  int kernel_errno = 0;
  while (!done) {
    const Received got = receive(fd_.get(), *buffer, 0);
    if (got.sys_errno == ENOBUFS) {
      interrupted = true;
      continue;
    }
    if (got.sys_errno != 0) {
      return sys_fail(got.sys_errno, "read the answer of netlink");
    }
    if (!got.from_kernel) {
      continue;
    }
    if (got.truncated) {
      return sys_fail(EMSGSIZE, "read the answer of netlink");
    }
    for_each_message(Bytes(*buffer).first(got.bytes), [&](const nlmsghdr& h, Bytes payload) {
      if (h.nlmsg_seq != sequence) {
        return true;  // the rest of a dump that was given up
      }
      if ((h.nlmsg_flags & NLM_F_DUMP_INTR) != 0) {
        interrupted = true;
      }
      if (h.nlmsg_type == NLMSG_ERROR || h.nlmsg_type == NLMSG_DONE) {
        // Both begin with an int: a negative errno, or 0 at the end of a good answer.
        kernel_errno = -front_as<int>(payload).value_or(0);
        done = true;
        return false;
      }
      if (h.nlmsg_type != NLMSG_NOOP) {
        each({h.nlmsg_type, payload});
      }
      return true;
    });
  }
  if (kernel_errno == EINTR || kernel_errno == EAGAIN) {
    return false;
  }
  if (kernel_errno > 0) {
    return sys_fail(kernel_errno, "netlink request");
  }
  return !interrupted;
}

bool NetlinkSocket::read_pending(const Each& each) {
  const auto buffer = std::make_unique_for_overwrite<Buffer>();
  bool complete = true;
  while (true) {
    const Received got = receive(fd_.get(), *buffer, MSG_DONTWAIT);
    if (got.sys_errno == EAGAIN) {
      return complete;
    }
    if (got.sys_errno == ENOBUFS) {
      complete = false;
      continue;
    }
    if (got.sys_errno != 0) {
      return false;
    }
    if (!got.from_kernel) {
      continue;
    }
    complete = complete && !got.truncated;
    for_each_message(Bytes(*buffer).first(got.bytes), [&](const nlmsghdr& h, Bytes payload) {
      each({h.nlmsg_type, payload});
      return true;
    });
  }
}

}  // namespace headgate
