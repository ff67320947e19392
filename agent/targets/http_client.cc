// SPDX-License-Identifier: Apache-2.0
#include "agent/targets/http_client.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <mutex>
#include <utility>

#include <curl/curl.h>
#include <fmt/format.h>

namespace headgate {
namespace {

constexpr std::size_t kMostOfARefusal = 64 * 1024;
constexpr Duration kLongestPoll = std::chrono::seconds(1);

int ms(Duration duration) {
  return static_cast<int>(std::chrono::duration_cast<std::chrono::milliseconds>(duration).count());
}

struct SlistFree {
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
};

/// Between the bytes of one transfer and its caller.
struct Transfer {
  CURL* easy = nullptr;
  const std::function<bool(std::string_view)>* on_data = nullptr;
  HttpAnswer answer;
  Instant last_byte{};
  bool enough = false;
};

std::size_t take_body(char* data, std::size_t size, std::size_t count, void* user) {
  auto& transfer = *static_cast<Transfer*>(user);
  const std::string_view bytes(data, size * count);
  transfer.last_byte = std::chrono::steady_clock::now();
  curl_easy_getinfo(transfer.easy, CURLINFO_RESPONSE_CODE, &transfer.answer.status);
  if (transfer.answer.status != 200) {
    std::string& body = transfer.answer.body;
    body.append(bytes.substr(0, kMostOfARefusal - std::min(kMostOfARefusal, body.size())));
    return bytes.size();
  }
  transfer.enough = !(*transfer.on_data)(bytes);
  return transfer.enough ? CURL_WRITEFUNC_ERROR : bytes.size();
}

/// Headers and trailers: of gRPC's, the outcome of the call.
std::size_t take_header(char* data, std::size_t size, std::size_t count, void* user) {
  auto& answer = static_cast<Transfer*>(user)->answer;
  std::string_view line(data, size * count);
  while (line.ends_with('\n') || line.ends_with('\r')) {
    line.remove_suffix(1);
  }
  constexpr std::string_view kStatus = "grpc-status: ";
  constexpr std::string_view kMessage = "grpc-message: ";
  if (line.starts_with(kStatus)) {
    int status = -1;
    line.remove_prefix(kStatus.size());
    std::from_chars(line.data(), line.data() + line.size(), status);
    answer.grpc_status = status;
  } else if (line.starts_with(kMessage)) {
    answer.grpc_message = line.substr(kMessage.size());
  }
  return size * count;
}

bool may_carry_a_token(std::string_view url) {
  constexpr std::string_view kPlain = "http://";
  if (!url.starts_with(kPlain)) {
    return url.starts_with("https://");
  }
  url.remove_prefix(kPlain.size());
  const std::string_view address = url.substr(0, url.find('/'));
  const std::string_view host = address.substr(0, address.rfind(':'));
  return host == "localhost" || host == "[::1]" ||
         (host.starts_with("127.") && host.find_first_not_of("0123456789.") == std::string::npos);
}

}  // namespace

struct HttpClient::Curl {
  CURLM* multi = nullptr;
  CURL* easy = nullptr;
  std::atomic<bool> interrupted{false};
  std::array<char, CURL_ERROR_SIZE> problem{};

  Curl() = default;
  Curl(const Curl&) = delete;
  Curl& operator=(const Curl&) = delete;
  Curl(Curl&&) = delete;
  Curl& operator=(Curl&&) = delete;
  ~Curl() {
    curl_easy_cleanup(easy);
    curl_multi_cleanup(multi);
  }
  void configure(const HttpRequest& request, Transfer& transfer, const curl_slist* headers);
  [[nodiscard]] Result<> perform(const HttpRequest& request, Transfer& transfer);
};

HttpClient::HttpClient(std::unique_ptr<Curl> curl) : curl_(std::move(curl)) {}
HttpClient::~HttpClient() = default;

Result<std::unique_ptr<HttpClient>> HttpClient::create() {
  static std::once_flag once;
  std::call_once(once, [] { (void)curl_global_init(CURL_GLOBAL_DEFAULT); });
  auto curl = std::make_unique<Curl>();
  curl->multi = curl_multi_init();
  curl->easy = curl_easy_init();
  if (curl->multi == nullptr || curl->easy == nullptr) {
    return fail("libcurl could not be set up");
  }
  return std::unique_ptr<HttpClient>(new HttpClient(std::move(curl)));
}

void HttpClient::Curl::configure(const HttpRequest& request, Transfer& transfer,
                                 const curl_slist* headers) {
  curl_easy_reset(easy);  // connections are kept
  problem[0] = '\0';
  const auto set = [this](CURLoption option, auto value) {
    (void)curl_easy_setopt(easy, option, value);
  };
  set(CURLOPT_URL, request.url.c_str());
  set(CURLOPT_PROTOCOLS_STR, "https,http");
  if (!request.unix_socket.empty()) {
    set(CURLOPT_UNIX_SOCKET_PATH, request.unix_socket.c_str());
  }
  if (request.grpc_message) {
    set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_2_PRIOR_KNOWLEDGE));
    // The second call on one connection ends with "Error in the HTTP2 framing layer" (libcurl 7.88
    // against containerd 1.6).
    set(CURLOPT_FORBID_REUSE, 1L);
    set(CURLOPT_POSTFIELDSIZE, static_cast<long>(request.grpc_message->size()));
    set(CURLOPT_POSTFIELDS, request.grpc_message->data());
    set(CURLOPT_HEADERFUNCTION, &take_header);
    set(CURLOPT_HEADERDATA, static_cast<void*>(&transfer));
  } else {
    set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
    set(CURLOPT_ACCEPT_ENCODING, "gzip");
    if (request.json) {
      set(CURLOPT_POSTFIELDSIZE, static_cast<long>(request.json->size()));
      set(CURLOPT_POSTFIELDS, request.json->data());
    }
  }
  set(CURLOPT_HTTPHEADER, headers);
  set(CURLOPT_USERAGENT, "headgate");
  set(CURLOPT_PROXY, "");  // the server is the node's own way into its cluster
  set(CURLOPT_FOLLOWLOCATION, 0L);
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_ERRORBUFFER, problem.data());
  set(CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(ms(request.connect_timeout)));
  set(CURLOPT_TIMEOUT_MS, static_cast<long>(ms(request.total_timeout)));
  set(CURLOPT_TCP_KEEPALIVE, 1L);
  set(CURLOPT_TCP_KEEPIDLE, 30L);
  set(CURLOPT_TCP_KEEPINTVL, 10L);
  set(CURLOPT_SSL_VERIFYPEER, 1L);
  set(CURLOPT_SSL_VERIFYHOST, 2L);
  if (!request.ca_file.empty()) {
    set(CURLOPT_CAINFO, request.ca_file.c_str());
    set(CURLOPT_CAPATH, static_cast<const char*>(nullptr));  // that file and nobody else
  }
  set(CURLOPT_WRITEFUNCTION, &take_body);
  set(CURLOPT_WRITEDATA, static_cast<void*>(&transfer));
}

Result<> HttpClient::Curl::perform(const HttpRequest& request, Transfer& transfer) {
  int running = 1;
  while (running > 0) {
    if (interrupted) {
      return fail("interrupted");
    }
    if (const CURLMcode code = curl_multi_perform(multi, &running); code != CURLM_OK) {
      return fail(curl_multi_strerror(code));
    }
    if (running == 0) {
      break;
    }
    const Duration silent = std::chrono::steady_clock::now() - transfer.last_byte;
    const Duration left = request.idle_timeout - silent;
    if (left <= Duration::zero()) {
      return fail(fmt::format("nothing came for {:.3g} s", seconds(silent)));
    }
    (void)curl_multi_poll(multi, nullptr, 0, ms(std::min(left, kLongestPoll)) + 1, nullptr);
  }
  int left = 0;
  const CURLMsg* message = curl_multi_info_read(multi, &left);
  const CURLcode code = message != nullptr ? message->data.result : CURLE_OK;
  if (code != CURLE_OK && !transfer.enough) {
    return fail(problem[0] != '\0' ? problem.data() : curl_easy_strerror(code));
  }
  return {};
}

Result<HttpAnswer> HttpClient::ask(const HttpRequest& request,
                                   const std::function<bool(std::string_view)>& on_data) {
  Transfer transfer;
  transfer.easy = curl_->easy;
  transfer.on_data = &on_data;
  transfer.last_byte = std::chrono::steady_clock::now();
  std::unique_ptr<curl_slist, SlistFree> headers(
      request.grpc_message ? curl_slist_append(nullptr, "Content-Type: application/grpc")
                           : curl_slist_append(nullptr, "Accept: application/json"));
  if (request.grpc_message) {
    curl_slist_append(headers.get(), "TE: trailers");
  }
  if (request.json) {
    curl_slist_append(headers.get(), "Content-Type: application/json");
  }
  if (!request.bearer_token.empty() && may_carry_a_token(request.url)) {
    const std::string header = "Authorization: Bearer " + request.bearer_token;
    curl_slist_append(headers.get(), header.c_str());
  }
  curl_->configure(request, transfer, headers.get());
  if (const CURLMcode code = curl_multi_add_handle(curl_->multi, curl_->easy); code != CURLM_OK) {
    return fail(curl_multi_strerror(code));
  }
  auto done = curl_->perform(request, transfer);
  curl_easy_getinfo(curl_->easy, CURLINFO_RESPONSE_CODE, &transfer.answer.status);
  curl_off_t retry_after_s = 0;
  curl_easy_getinfo(curl_->easy, CURLINFO_RETRY_AFTER, &retry_after_s);
  curl_multi_remove_handle(curl_->multi, curl_->easy);
  if (!done) {
    return tl::unexpected<Error>(done.error().within(request.url.substr(0, request.url.find('?'))));
  }
  if (retry_after_s > 0) {
    transfer.answer.retry_after = std::chrono::seconds(std::min<curl_off_t>(retry_after_s, 3600));
  }
  return std::move(transfer.answer);
}

void HttpClient::interrupt() {
  curl_->interrupted = true;
  (void)curl_multi_wakeup(curl_->multi);
}

bool HttpClient::interrupted() const { return curl_->interrupted; }

bool HttpClient::sleep(Duration duration) {
  const Instant end = std::chrono::steady_clock::now() + duration;
  while (!curl_->interrupted) {
    const Duration left = end - std::chrono::steady_clock::now();
    if (left <= Duration::zero()) {
      return true;
    }
    (void)curl_multi_poll(curl_->multi, nullptr, 0, ms(std::min(left, kLongestPoll)) + 1, nullptr);
  }
  return false;
}

}  // namespace headgate
