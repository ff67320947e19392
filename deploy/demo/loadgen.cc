// SPDX-License-Identifier: Apache-2.0
#include "deploy/demo/loadgen.h"

#include <sys/mman.h>

#include <cerrno>
#include <memory>
#include <new>
#include <utility>

#include "deploy/demo/client.h"
#include "deploy/demo/clock.h"

namespace headgate::demo {

std::string_view to_string(Outcome outcome) {
  switch (outcome) {
    case Outcome::kNotSent: return "not_sent";
    case Outcome::kPending: return "pending";
    case Outcome::kOk: return "ok";
    case Outcome::kRefused: return "refused";
    case Outcome::kReset: return "reset";
    case Outcome::kConnectTimeout: return "connect_timeout";
    case Outcome::kAnswerTimeout: return "answer_timeout";
    case Outcome::kHttpError: return "http_error";
    case Outcome::kLocal: return "local";
  }
  return "?";
}

namespace {

std::unique_ptr<Client> make_client(const LoadTarget& target, std::span<Record> records,
                                    Client::Ended ended) {
  return target.traffic == Traffic::kGrpc ? make_grpc_client(target, records, std::move(ended))
                                          : make_http_client(target, records, std::move(ended));
}

const std::vector<std::string>& requests_of(const LoadTarget& target, PhaseKind kind,
                                            bool critical) {
  if (critical) {
    return target.critical;
  }
  switch (kind) {
    case PhaseKind::kCost: return target.heavy;
    case PhaseKind::kJump: return target.jump;
    case PhaseKind::kCalm:
    case PhaseKind::kOverload: break;
  }
  return target.light;
}

}  // namespace

Result<SharedRecords> SharedRecords::create(std::size_t count) {
  void* memory = mmap(nullptr, count * sizeof(Record), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    return sys_fail(errno, "memory for the records of the load");
  }
  auto* data = static_cast<Record*>(memory);
  std::uninitialized_default_construct_n(data, count);
  return SharedRecords(data, count);
}

SharedRecords::SharedRecords(SharedRecords&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), count_(std::exchange(other.count_, 0)) {}

SharedRecords::~SharedRecords() {
  if (data_ != nullptr) {
    munmap(data_, count_ * sizeof(Record));
  }
}

Result<> run_open_loop(const LoadTarget& target, const std::vector<Phase>& phases,
                       const std::vector<Arrival>& arrivals, std::int64_t start_ns,
                       std::span<Record> records) {
  const std::unique_ptr<Client> client = make_client(target, records, nullptr);
  if (auto opened = client->open(); !opened) {
    return opened;
  }
  std::size_t next = 0;
  const auto due_ns = [&](std::size_t i) {
    return start_ns + std::int64_t{arrivals[i].at_us} * 1000;
  };
  while (next < arrivals.size() || !client->idle()) {
    while (next < arrivals.size() && due_ns(next) <= now_ns()) {
      const Arrival& arrival = arrivals[next];
      const std::vector<std::string>& requests =
          requests_of(target, phases[arrival.phase].kind, arrival.critical);
      client->start(next, due_ns(next), requests[arrival.group]);
      ++next;
    }
    const std::int64_t far = now_ns() + 1'000'000'000;
    if (auto waited = client->wait(next < arrivals.size() ? due_ns(next) : far); !waited) {
      return waited;
    }
  }
  return {};
}

Result<> run_closed_loop(const LoadTarget& target, bool heavy, std::size_t concurrency,
                         double seconds, std::span<Record> records) {
  // Light ones of both classes, as they come in the calm phases.
  std::vector<std::string> requests = heavy ? target.heavy : target.light;
  if (!heavy) {
    requests.insert(requests.end(), target.critical.begin(), target.critical.end());
  }
  const std::int64_t end_ns = now_ns() + static_cast<std::int64_t>(seconds * 1e9);
  std::size_t next = 0;
  std::size_t free_clients = concurrency;
  const std::unique_ptr<Client> client =
      make_client(target, records, [&](std::size_t) { ++free_clients; });
  if (auto opened = client->open(); !opened) {
    return opened;
  }
  while (now_ns() < end_ns || !client->idle()) {
    while (free_clients > 0 && next < records.size() && now_ns() < end_ns) {
      --free_clients;
      client->start(next, now_ns(), requests[next % requests.size()]);
      ++next;
    }
    if (auto waited = client->wait(now_ns() + 10'000'000); !waited) {
      return waited;
    }
  }
  return {};
}

}  // namespace headgate::demo
