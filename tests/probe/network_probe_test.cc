// The network probe over the loopback; tests/tools/probe_net_test.cc has networks with faults.
#include "topocoll/network_probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "probe/network_session.h"
#include "probe/network_topology.h"
#include "probe/network_wire.h"
#include "transport/tcp/socket.h"

namespace topocoll {
namespace {

using namespace network_probe;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr const char* kSecret = "of this job";

class NetworkProbe : public ::testing::Test {
 protected:
  void SetUp() override { ::setenv("TOPOCOLL_JOB_SECRET", kSecret, 1); }
  void TearDown() override {
    stop();
    ::unsetenv("TOPOCOLL_JOB_SECRET");
  }

  void serve(const std::string& on) {
    auto listener = NetworkListener::start({{on}, 0});
    ASSERT_TRUE(listener.ok()) << listener.status().to_string();
    listener_ = std::move(*listener);
    thread_ = std::thread([this] { EXPECT_TRUE(listener_->serve(seconds(60)).ok()); });
  }
  void stop() {
    if (!thread_.joinable()) return;
    listener_->stop();
    thread_.join();
  }
  [[nodiscard]] std::string address() const { return listener_->addresses().front(); }
  [[nodiscard]] tcp::Address server() const {
    const std::string text = address();
    return tcp::resolve("127.0.0.1",
                        static_cast<std::uint16_t>(std::stoi(text.substr(text.rfind(':') + 1))))
        ->front();
  }
  [[nodiscard]] Result<Fd> raw() const {
    return tcp::connect_to(server(), tcp::deadline_after(seconds(10)));
  }
  [[nodiscard]] Fd connected() const {
    auto fd = raw();
    EXPECT_TRUE(fd.ok()) << fd.status().to_string();
    return fd.ok() ? std::move(*fd) : Fd();
  }
  [[nodiscard]] Result<NetworkReport> probe() const {
    return probe_network({{address()}, {}, milliseconds(20), milliseconds(5000)});
  }

  std::unique_ptr<NetworkListener> listener_;
  std::thread thread_;
};

TEST_F(NetworkProbe, LatencyAndBandwidthOneWayAndBothWays) {
  serve("127.0.0.1");
  const auto report = probe();
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  ASSERT_THAT(report->pairs, SizeIs(1));
  const NetworkPair& pair = report->pairs[0];
  EXPECT_EQ(pair.failure, "");
  EXPECT_EQ(pair.latency_ns.spread->samples, static_cast<int>(kMaxSamples));
  for (const Figure* figure : {&pair.latency_ns, &pair.forward_gbps, &pair.backward_gbps,
                               &pair.forward_both_gbps, &pair.backward_both_gbps}) {
    ASSERT_TRUE(figure->measured && figure->spread);
    EXPECT_GT(*figure->measured, 0);
    EXPECT_LE(figure->spread->low, *figure->measured);
    EXPECT_GE(figure->spread->high, *figure->measured);
  }
  // Both ends are this machine, and told apart.
  EXPECT_NE(pair.from, pair.to);
  EXPECT_THAT(pair.to, HasSubstr("@127.0.0.1/port:lo"));
  const auto saved = topology_from_json(to_json(report->topology));
  ASSERT_TRUE(saved.ok()) << saved.status().to_string();
  int edges = 0;
  for (const TopologyEdge& edge : saved->edges) {
    if (edge.kind != "network") continue;
    ++edges;
    EXPECT_TRUE(edge.bandwidth_gbps.measured && !edge.bandwidth_gbps.declared);
    EXPECT_TRUE(edge.latency_ns.measured);
  }
  EXPECT_EQ(edges, 2);
  EXPECT_THAT(render_text(*report), HasSubstr(pair.from + " - " + pair.to));
}

TEST_F(NetworkProbe, APeerThatIsGivenTwiceIsRefused) {
  serve("127.0.0.1");
  const auto report = probe_network({{address(), address()}, {}, milliseconds(20)});
  EXPECT_THAT(report.status().text(), HasSubstr("is given twice"));
}

TEST_F(NetworkProbe, ListensOnTheChosenAddressAlone) {
  serve("127.0.0.1");
  const auto port = server().port();
  const auto other = tcp::resolve("127.0.0.2", port)->front();
  EXPECT_FALSE(tcp::connect_to(other, tcp::deadline_after(seconds(5))).ok());
}

TEST_F(NetworkProbe, AnAddressThatIsTakenIsNamed) {
  const auto taken = tcp::listen_on(tcp::resolve("127.0.0.1", 0)->front());
  ASSERT_TRUE(taken.ok());
  const auto port = tcp::local_address(taken->get())->port();
  if (!tcp::listen_on(tcp::resolve("::1", port)->front()).ok()) GTEST_SKIP() << "no ::1 here";
  ::testing::internal::CaptureStderr();
  const auto listener = NetworkListener::start({{"lo"}, port});
  const std::string said = ::testing::internal::GetCapturedStderr();
  ASSERT_TRUE(listener.ok()) << listener.status().to_string();
  EXPECT_THAT(said, HasSubstr("cannot listen on 127.0.0.1:" + std::to_string(port)));
}

TEST_F(NetworkProbe, AnotherSecretIsRefusedByName) {
  serve("127.0.0.1");
  ::setenv("TOPOCOLL_JOB_SECRET", "of another", 1);
  EXPECT_THAT(probe().status().text(), HasSubstr("TOPOCOLL_JOB_SECRET to the same on both"));
  ::unsetenv("TOPOCOLL_JOB_SECRET");
  EXPECT_THAT(probe().status().text(), HasSubstr("TOPOCOLL_JOB_SECRET is not set"));
  EXPECT_THAT(NetworkListener::start({{"127.0.0.1"}, 0}).status().text(),
              HasSubstr("TOPOCOLL_JOB_SECRET is not set"));
}

TEST_F(NetworkProbe, HostileProbersCloseTheirConnectionAndNoOther) {
  serve("127.0.0.1");
  const TimePoint deadline = tcp::deadline_after(seconds(20));
  const auto closes = [&](const Fd& fd) {
    const auto more = receive_struct<Description>(fd, deadline);
    EXPECT_EQ(more.status().cause(), Cause::kPeerLeft);
  };
  const auto noise = raw();
  ASSERT_TRUE(send_struct(*noise, std::array<char, 8>{'G', 'E', 'T', ' ', '/'}, deadline).ok());
  closes(*noise);
  const auto admitted = [&] {
    auto fd = raw();
    EXPECT_TRUE(send_struct(*fd, tcp::make_hello(kMagic, kVersion, kSecret), deadline).ok());
    EXPECT_TRUE(receive_struct<tcp::HelloReply>(*fd, deadline).ok());
    return std::move(*fd);
  };
  for (const Command& command :
       {Command{static_cast<CommandKind>(99), 0, 0}, Command{CommandKind::kSend, 0, 0},
        Command{CommandKind::kBoth, 4'000'000'000U, 0}}) {
    const Fd fd = admitted();
    ASSERT_TRUE(send_struct(fd, command, deadline).ok());
    closes(fd);
  }
  const Fd fd = admitted();
  Order order;
  order.from = to_text<16>("no-such-if");
  order.flow_milliseconds = 10;
  ASSERT_TRUE(send_struct(fd, Command{CommandKind::kMeasure, 0, 0}, deadline).ok());
  ASSERT_TRUE(send_struct(fd, order, deadline).ok());
  closes(fd);
  EXPECT_TRUE(probe().ok());
}

TEST_F(NetworkProbe, ConnectionsThatProveNothingKeepNobodyOut) {
  serve("127.0.0.1");
  std::vector<Fd> silent;
  for (int i = 0; i < 200; ++i) silent.push_back(connected());
  const auto report = probe();
  EXPECT_TRUE(report.ok()) << report.status().to_string();
  const auto oldest = receive_struct<Command>(silent.front(), tcp::deadline_after(seconds(2)));
  EXPECT_EQ(oldest.status().cause(), Cause::kPeerLeft);
}

/// Processor time of this process, with all its threads.
std::chrono::duration<double> processor_time() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return seconds(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
         std::chrono::microseconds(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

TEST_F(NetworkProbe, OutOfDescriptorsItPausesAndServesAgain) {
  serve("127.0.0.1");
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit tight{64, before.rlim_max};
  ::testing::internal::CaptureStderr();
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &tight), 0);
  std::vector<Fd> taken;
  for (Fd fd(::dup(STDERR_FILENO)); fd.valid(); fd = Fd(::dup(STDERR_FILENO))) {
    taken.push_back(std::move(fd));
  }
  taken.pop_back();  // for this end of a connection, so that none is left for the other
  const auto waits = raw();
  const auto start = processor_time();
  std::this_thread::sleep_for(milliseconds(500));
  const auto spent = processor_time() - start;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  taken.clear();
  const auto report = probe();
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_TRUE(waits.ok()) << waits.status().to_string();
  EXPECT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_LT(spent, milliseconds(100)) << "it spins";
  const std::size_t at = said.find("cannot take more connections");
  ASSERT_NE(at, std::string::npos) << said;
  EXPECT_EQ(said.find("cannot take more connections", at + 1), std::string::npos) << said;
}

TEST_F(NetworkProbe, AListenerThatIsFullIsNotSaidToBeSilent) {
  serve("127.0.0.1");
  const TimePoint deadline = tcp::deadline_after(seconds(20));
  std::vector<Fd> served;
  for (int i = 0; i < 64; ++i) {
    served.push_back(connected());
    ASSERT_TRUE(
        send_struct(served.back(), tcp::make_hello(kMagic, kVersion, kSecret), deadline).ok());
    ASSERT_TRUE(receive_struct<tcp::HelloReply>(served.back(), deadline).ok());
  }
  const std::string text = probe().status().text();
  EXPECT_THAT(text, HasSubstr("closed the connection: it serves as many probers as it can"));
  EXPECT_THAT(text, ::testing::Not(HasSubstr("does not answer")));
  served.clear();
}

/// A listener that says what it likes.
template <class Answer>
Result<NetworkReport> probe_hostile(const Answer& answer) {
  const auto listener = tcp::listen_on(tcp::resolve("127.0.0.1", 0)->front());
  std::thread server([&] {
    const TimePoint deadline = tcp::deadline_after(seconds(20));
    auto fd = Os::real().accept(*listener, deadline);
    const tcp::HelloReply welcome{kMagic, kVersion, tcp::Admission::kAccepted};
    if (fd.ok() && receive_struct<tcp::Hello>(*fd, deadline).ok() &&
        send_struct(*fd, welcome, deadline).ok()) {
      answer(*fd, deadline);
    }
  });
  const std::string address = tcp::local_address(listener->get())->to_string();
  auto report = probe_network({{address}, {"lo"}, milliseconds(20), milliseconds(2000)});
  server.join();
  return report;
}

TEST_F(NetworkProbe, HostileListenersAreErrorsThatNameThem) {
  const auto describing = [](const Description& description) {
    return [description](const Fd& fd, TimePoint deadline) {
      if (receive_struct<Command>(fd, deadline).ok()) (void)send_struct(fd, description, deadline);
    };
  };
  Description many;
  many.interfaces = ~0U;
  EXPECT_THAT(probe_hostile(describing(many)).status().text(),
              HasSubstr("names 4294967295 interfaces, 32 are allowed"));
  Description twice;
  twice.interfaces = 2;
  twice.interface[0].name = twice.interface[1].name = to_text<16>("eth0");
  EXPECT_THAT(probe_hostile(describing(twice)).status().text(), HasSubstr("'eth0'"));
  EXPECT_THAT(probe_hostile([](const Fd&, TimePoint) {}).status().text(), HasSubstr("127.0.0.1"));
  Description odd;  // addresses that are none: a pair that is not reached
  odd.interfaces = 1;
  odd.host = to_text<256>("\x1b[31m");
  odd.interface[0].name = to_text<16>("eth0");
  odd.interface[0].address[0] = to_text<48>("localhost");
  odd.interface[0].address[1].fill('1');
  odd.interface[0].port = 70'000;
  const auto report = probe_hostile(describing(odd));
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  ASSERT_THAT(report->pairs, SizeIs(1));
  EXPECT_THAT(report->pairs[0].failure, HasSubstr("the peer names port 70000"));
  EXPECT_EQ(render_text(*report).find('\x1b'), std::string::npos);
  EXPECT_TRUE(topology_from_json(to_json(report->topology)).ok());
}

TEST_F(NetworkProbe, SamplesOfAPeerAreTakenForNoMoreThanTheyAre) {
  Samples samples = to_samples({1, 2, 3});
  EXPECT_THAT(from_samples(samples, kGbps), SizeIs(3));
  samples.value[0] = -1;
  samples.value[1] = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(from_samples(samples, kGbps), ::testing::ElementsAre(3.0));
  samples.count = ~0U;
  EXPECT_LE(from_samples(samples, kGbps).size(), kMaxSamples);
  EXPECT_EQ(to_samples(std::vector<double>(1000, 1.0)).count, kMaxSamples);
}

TEST_F(NetworkProbe, FiguresThatNoNetworkHasAreNotTaken) {
  const Samples absurd = to_samples({1e308, 1e15, 5e-324, -1});
  EXPECT_THAT(from_samples(absurd, kLatencyNs), ::testing::IsEmpty());
  Measurement all;
  all.reached = 1;
  all.latency_ns = to_samples({1e308, 5000});
  all.forward_gbps = all.backward_gbps = to_samples({1e308, 20});
  all.forward_both_gbps = all.backward_both_gbps = to_samples({1e308, 1e308});
  Host a{"a", {}};
  Host b{"b", {}};
  for (Host* host : {&a, &b}) {
    host->description.interfaces = 1;
    host->description.interface[0].name = to_text<16>("eth0");
  }
  const NetworkPair pair = to_pair("a/port:eth0", "b/port:eth0", all);
  EXPECT_EQ(pair.latency_ns.measured, 5000);
  EXPECT_EQ(pair.forward_gbps.measured, 20);
  EXPECT_FALSE(pair.forward_both_gbps.measured);
  const auto saved = topology_from_json(to_json(to_topology({a, b}, {pair})));
  EXPECT_TRUE(saved.ok()) << saved.status().to_string();
}

TEST_F(NetworkProbe, APeerWithAnotherSecretHasAnswered) {
  serve("127.0.0.1");
  ::setenv("TOPOCOLL_JOB_SECRET", "of another job", 1);
  const std::string text = probe().status().text();
  EXPECT_THAT(text, HasSubstr("peer " + address() + " (" + address() +
                              "): the listener has another secret"));
  EXPECT_THAT(text, ::testing::Not(HasSubstr("does not answer")));
  EXPECT_THAT(text, ::testing::Not(HasSubstr("probe-net --listen")));
}

TEST_F(NetworkProbe, BadRequestsAreRefused) {
  const auto refused = [](const NetworkProbeRequest& request) {
    return probe_network(request).status().text();
  };
  EXPECT_THAT(refused({}), HasSubstr("0 peers"));
  EXPECT_THAT(refused({{"h:0"}}), HasSubstr("peer 'h:0': expected HOST, HOST:PORT"));
  EXPECT_THAT(refused({{"h:x"}}), HasSubstr("expected HOST"));
  EXPECT_THAT(refused({{"[::1]5"}}), HasSubstr("expected HOST"));
  EXPECT_THAT(refused({{"127.0.0.1:1"}}),
              HasSubstr("does not answer (127.0.0.1:1: connection refused)"));
  EXPECT_THAT(refused({{"h"}, {}, milliseconds(0)}), HasSubstr("a stream of 0 ms"));
  EXPECT_THAT(refused({{"h"}, {}, milliseconds(20), milliseconds(60'000)}), HasSubstr("60000 ms"));
  EXPECT_THAT(NetworkListener::start({{"no-such-if"}, 0}).status().text(),
              HasSubstr("'no-such-if' is no interface of this machine"));
}

}  // namespace
}  // namespace topocoll
