// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace headgate::test {

/// One connection of a client that has sent a request.
class HttpExchange {
 public:
  HttpExchange(int fd, std::string head, std::string body, std::size_t number)
      : fd_(fd), head_(std::move(head)), body_(std::move(body)), number_(number) {}

  [[nodiscard]] const std::string& head() const { return head_; }
  [[nodiscard]] const std::string& body() const { return body_; }
  [[nodiscard]] std::size_t number() const { return number_; }  ///< of the request, from 0
  [[nodiscard]] bool asks_for(std::string_view part) const {
    return head_.find(part) != std::string::npos;
  }
  /// A whole answer; the connection ends behind it.
  void answer(int status, std::string_view body, std::string_view headers = "") const;
  /// The beginning of an answer that comes in pieces, and one of these.
  void begin_stream() const;
  void piece(std::string_view bytes) const;
  void end_stream() const;
  /// Bytes as they are.
  void raw(std::string_view bytes) const;
  /// Until the client goes, or for half a minute.
  void wait_for_end() const;

 private:
  int fd_;
  std::string head_;
  std::string body_;
  std::size_t number_;
};

/// A real HTTP server on a port of loopback that answers as the test says: each connection takes
/// one request, on a thread of its own.
class HttpScript {
 public:
  using Handler = std::function<void(const HttpExchange&)>;
  explicit HttpScript(Handler handler);
  ~HttpScript();
  HttpScript(const HttpScript&) = delete;
  HttpScript& operator=(const HttpScript&) = delete;
  HttpScript(HttpScript&&) = delete;
  HttpScript& operator=(HttpScript&&) = delete;

  [[nodiscard]] std::string url() const;
  /// Heads of all requests so far.
  [[nodiscard]] std::vector<std::string> heads() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace headgate::test
