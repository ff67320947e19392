// SPDX-License-Identifier: Apache-2.0
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include <boost/program_options.hpp>
#include <fmt/format.h>

#include "deploy/demo/clock.h"
#include "deploy/demo/director.h"
#include "deploy/demo/report.h"

namespace headgate::demo {
namespace {

constexpr int kUsage = 2;
constexpr int kFailure = 1;

struct CommandLine {
  Options options;
  std::string subject = "pushgateway";
  std::string otelcol_binary, otelcol_config, gomemlimit;
  std::string only, out, json, refuse;
  std::size_t units = 0;  ///< 0 = the subject's own
};

/// An exit status when there is nothing more to do.
std::optional<int> parse(int argc, char** argv, CommandLine& line) {
  namespace po = boost::program_options;
  Options& o = line.options;
  po::options_description described("Options");
  described.add_options()("help", "this text")(
      "subject", po::value(&line.subject)->default_value("pushgateway"), "pushgateway or otelcol")(
      "only", po::value(&line.only), "unprotected or protected: do this run alone")(
      "headgate", po::value(&o.headgate), "the agent's binary")(
      "seconds-scale", po::value(&o.seconds_scale)->default_value(1),
      "stretch every phase, 0.3 to 10")("seed", po::value(&o.seed)->default_value(1),
                                        "of the arrivals")(
      "units", po::value(&line.units)->default_value(0),
      "series or spans in a request (slow machines: fewer); 0 = as many as suit the subject")(
      "strategy", po::value(&o.protection.strategy)->default_value("adaptive"),
      "of the protected run, as in the configuration: NAME, or {name: NAME, parameters...}")(
      "refuse", po::value(&line.refuse),
      "form of a refusal: reset (default), auto, or {defer: 8s}; with --keepalive 429 (default) "
      "or 503, with --grpc grpc-exhausted")(
      "grpc", "with --subject otelcol: unary gRPC calls on connections that are kept")(
      "keepalive", "clients keep their connections and push to two classes of routes")(
      "work-directory", po::value(&o.work_directory)->required(), "for logs and configuration")(
      "gomemlimit", po::value(&line.gomemlimit),
      "with --subject otelcol: GOMEMLIMIT of the collector, 200MiB say")(
      "otelcol-binary", po::value(&line.otelcol_binary), "with --subject otelcol")(
      "otelcol-config", po::value(&line.otelcol_config), "with --subject otelcol")(
      "out", po::value(&line.out), "write the HTML page here")("json", po::value(&line.json),
                                                               "write the figures here");
  const auto usage = [](std::string_view what) {
    fmt::print(stderr, "headgate-demo: {}\n", what);
    return kUsage;
  };
  try {
    po::variables_map given;
    po::store(po::parse_command_line(argc, argv, described), given);
    if (given.count("help") != 0) {
      std::cout << "headgate-demo: started by deploy/demo/run\n\n" << described;
      return 0;
    }
    po::notify(given);
    if (given.count("keepalive") != 0 && given.count("grpc") != 0) {
      return usage("--keepalive and --grpc: one of them");
    }
    o.traffic = given.count("keepalive") != 0 ? Traffic::kKeepAlive
                : given.count("grpc") != 0    ? Traffic::kGrpc
                                              : Traffic::kConnections;
  } catch (const std::exception& e) {
    return usage(e.what());
  }
  if (line.subject != "pushgateway" && line.subject != "otelcol") {
    return usage(fmt::format("--subject {}: pushgateway or otelcol", line.subject));
  }
  if (line.subject == "otelcol" && (line.otelcol_binary.empty() || line.otelcol_config.empty())) {
    return usage("--subject otelcol needs --otelcol-binary and --otelcol-config");
  }
  if (o.traffic == Traffic::kKeepAlive && line.subject != "pushgateway") {
    return usage("--keepalive is for --subject pushgateway");
  }
  if (o.traffic == Traffic::kGrpc && line.subject != "otelcol") {
    return usage("--grpc is for --subject otelcol");
  }
  if (!line.only.empty() && line.only != "unprotected" && line.only != "protected") {
    return usage(fmt::format("--only {}: unprotected or protected", line.only));
  }
  o.run_unprotected = line.only != "protected";
  o.run_protected = line.only != "unprotected";
  if (o.run_protected && o.headgate.empty()) {
    return usage("the protected run needs --headgate FILE (or --only unprotected)");
  }
  if (!(o.seconds_scale >= 0.3 && o.seconds_scale <= 10)) {
    return usage(fmt::format("--seconds-scale {}: 0.3 to 10", o.seconds_scale));
  }
  return std::nullopt;
}

bool write_text(const std::string& file, const std::string& text) {
  std::ofstream out(file);
  out << text;
  if (!out.flush()) {
    fmt::print(stderr, "headgate-demo: cannot write {}\n", file);
    return false;
  }
  return true;
}

int run(int argc, char** argv) {
  CommandLine line;
  if (const auto status = parse(argc, argv, line)) {
    return *status;
  }
  if (geteuid() != 0) {
    fmt::print(stderr, "headgate-demo: needs root (network namespaces, cgroups, BPF)\n");
    return kFailure;
  }
  struct sigaction action {};
  action.sa_handler = [](int) { request_stop(); };
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    sigaction(number, &action, nullptr);
  }
  ::signal(SIGPIPE, SIG_IGN);
  // The script that started this dies without a word when it is killed: then tidy up all the same.
  prctl(PR_SET_PDEATHSIG, SIGTERM);

  const std::string_view host = "10.77.0.1";
  Subject subject = line.subject == "otelcol" ? otelcol(host, line.otelcol_binary,
                                                        line.otelcol_config, line.options.traffic)
                                              : pushgateway(host, line.options.traffic);
  line.options.protection.refuse = line.refuse.empty() ? subject.refuse : line.refuse;
  if (!line.gomemlimit.empty()) {
    subject.environment.push_back("GOMEMLIMIT=" + line.gomemlimit);
  }
  if (line.options.protection.refuse == "503") {
    subject.refused_status = 503;
  }
  if (line.units > 0) {
    subject.light = line.units;
    subject.heavy = 5 * line.units;
  }
  const auto outcomes = direct(subject, line.options);
  if (!outcomes) {
    fmt::print(stderr, "headgate-demo: {}\n", outcomes.error().message);
    return stop_requested() ? 130 : kFailure;
  }
  const Verdict verdict =
      judge(outcomes->unprotected, outcomes->with_headgate, outcomes->calibration,
            line.options.limits, line.options.protection);
  print_table(*outcomes, verdict, line.options.limits);
  bool written = true;
  if (!line.out.empty()) {
    written = write_text(line.out, html_report(*outcomes, verdict, line.options));
    if (written) {
      const bool both = outcomes->unprotected && outcomes->with_headgate;
      fmt::print("{} as plots: {}\n", both ? "The two runs" : "The run", line.out);
    }
  }
  if (!line.json.empty()) {
    written = write_text(line.json, json_report(*outcomes, verdict, line.options)) && written;
  }
  return written ? verdict.exit_status() : kFailure;
}

}  // namespace
}  // namespace headgate::demo

int main(int argc, char** argv) { return headgate::demo::run(argc, argv); }
