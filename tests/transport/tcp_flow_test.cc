#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <string>
#include <thread>
#include <utility>

#include "transport/tcp/flow.h"
#include "transport/tcp/hello.h"
#include "transport/tcp/interfaces.h"
#include "transport/tcp/socket.h"

namespace topocoll::tcp {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::Each;
using ::testing::Gt;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

std::pair<Fd, Fd> connected(const std::string& host) {
  const auto listener = listen_on(resolve(host, 0).value().front());
  EXPECT_TRUE(listener.ok()) << listener.status().to_string();
  auto client = connect_to(local_address(listener->get()).value(), deadline_after(seconds(10)));
  EXPECT_TRUE(client.ok()) << client.status().to_string();
  auto server = Os::real().accept(*listener, deadline_after(seconds(10)));
  EXPECT_TRUE(server.ok()) << server.status().to_string();
  return {std::move(*client), std::move(*server)};
}

std::pair<Result<std::vector<double>>, Result<std::vector<double>>> run(
    const std::pair<Fd, Fd>& ends, FlowDirections ours, FlowDirections theirs, milliseconds time) {
  Result<std::vector<double>> other = Status();
  std::thread peer([&] { other = run_flow(ends.second, theirs, time); });
  auto own = run_flow(ends.first, ours, time);
  peer.join();
  return {std::move(own), std::move(other)};
}

TEST(Flow, OneWayIsCountedByTheReceiver) {
  const auto ends = connected("127.0.0.1");
  const auto [sent, received] = run(ends, {true, false}, {false, true}, milliseconds(60));
  ASSERT_TRUE(sent.ok() && received.ok());
  EXPECT_THAT(*sent, IsEmpty());
  EXPECT_THAT(*received, Not(IsEmpty()));
  EXPECT_THAT(*received, Each(Gt(0.0)));
  EXPECT_LE(received->size(), kMaxSlices);
}

TEST(Flow, BothWaysAtOnceAndAgainOnTheSameConnection) {
  const auto ends = connected("127.0.0.1");
  for (int i = 0; i < 3; ++i) {
    const auto [own, other] = run(ends, {true, true}, {true, true}, milliseconds(30));
    ASSERT_TRUE(own.ok()) << own.status().to_string();
    ASSERT_TRUE(other.ok()) << other.status().to_string();
    EXPECT_THAT(*own, Not(IsEmpty()));
    EXPECT_THAT(*other, Not(IsEmpty()));
  }
}

TEST(Flow, IPv6) {
  const auto interfaces = list_interfaces().value();
  const bool has_ipv6 = std::any_of(interfaces.begin(), interfaces.end(), [](const Interface& i) {
    return i.loopback && std::any_of(i.addresses.begin(), i.addresses.end(), [](const Address& a) {
             return a.storage.ss_family == AF_INET6;
           });
  });
  if (!has_ipv6) GTEST_SKIP() << "the loopback has no IPv6 address here";
  const auto ends = connected("::1");
  const auto [sent, received] = run(ends, {true, false}, {false, true}, milliseconds(20));
  EXPECT_THAT(received.value(), Not(IsEmpty()));
}

TEST(Flow, APeerThatGoesAwayEndsIt) {
  auto ends = connected("127.0.0.1");
  ends.second.reset();
  EXPECT_EQ(run_flow(ends.first, {false, true}, seconds(5)).status().cause(), Cause::kPeerLeft);
  auto others = connected("127.0.0.1");
  others.second.reset();
  EXPECT_EQ(run_flow(others.first, {true, false}, seconds(5)).status().cause(), Cause::kPeerLeft);
}

TEST(Flow, AStreamThatStopsInTheMiddleOfAFrameIsNone) {
  const auto ends = connected("127.0.0.1");
  const std::string part(kFrameBytes / 2, '\1');
  ASSERT_TRUE(
      Os::real()
          .send_all(ends.second, std::as_bytes(std::span(part)), -1, deadline_after(seconds(10)))
          .ok());
  ::shutdown(ends.second.get(), SHUT_RDWR);
  EXPECT_EQ(run_flow(ends.first, {false, true}, milliseconds(10)).status().cause(),
            Cause::kPeerLeft);
}

TEST(Sockets, AConnectionLeavesByTheInterfaceAndAddressChosen) {
  const auto listener = listen_on(resolve("127.0.0.1", 0).value().front());
  ASSERT_TRUE(listener.ok()) << listener.status().to_string();
  const Address server = local_address(listener->get()).value();
  const Source source{"lo", resolve("127.0.0.9", 0).value().front()};
  const auto client = connect_from(source, server, deadline_after(seconds(10)));
  ASSERT_TRUE(client.ok()) << client.status().to_string();
  EXPECT_THAT(local_address(client->get())->to_string(), HasSubstr("127.0.0.9:"));
  const auto nowhere = connect_from({"no-such-if", {}}, server, deadline_after(seconds(10)));
  EXPECT_THAT(nowhere.status().text(), HasSubstr("interface no-such-if"));
}

TEST(Sockets, AddressesAreTold) {
  EXPECT_TRUE(resolve("127.3.0.1", 1)->front().is_loopback());
  EXPECT_TRUE(resolve("::1", 1)->front().is_loopback());
  EXPECT_FALSE(resolve("10.0.0.1", 1)->front().is_loopback());
  EXPECT_TRUE(resolve("fe80::1", 1)->front().is_link_local());
  EXPECT_FALSE(resolve("fd00::1", 1)->front().is_link_local());
  EXPECT_EQ(resolve("fd00::1", 1)->front().with_port(77).to_string(), "[fd00::1]:77");
  EXPECT_EQ(resolve("10.0.0.1", 1)->front().with_port(77).to_string(), "10.0.0.1:77");
}

TEST(Interfaces, TheLoopbackIsOneOfThem) {
  const auto interfaces = list_interfaces();
  ASSERT_TRUE(interfaces.ok()) << interfaces.status().to_string();
  const auto loopback = std::find_if(interfaces->begin(), interfaces->end(),
                                     [](const Interface& i) { return i.loopback; });
  ASSERT_NE(loopback, interfaces->end());
  EXPECT_TRUE(loopback->addresses.front().is_loopback());
}

TEST(Hello, IsAdmittedByVersionAndEveryByteOfTheSecret) {
  constexpr Magic kMagic = {'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'};
  const Hello expected = make_hello(kMagic, 3, "secret");
  EXPECT_EQ(answer_hello(make_hello(kMagic, 3, "secret"), expected).admission,
            Admission::kAccepted);
  EXPECT_EQ(answer_hello(make_hello(kMagic, 2, "secret"), expected).admission,
            Admission::kWrongVersion);
  for (const char* wrong : {"Secret", "secre", "secrets", ""}) {
    EXPECT_EQ(answer_hello(make_hello(kMagic, 3, wrong), expected).admission,
              Admission::kWrongSecret)
        << wrong;
  }
  Hello padded = expected;
  padded.secret.back() = 1;
  EXPECT_EQ(answer_hello(padded, expected).admission, Admission::kWrongSecret);
  EXPECT_EQ(answer_hello(expected, expected).magic, kMagic);
}

}  // namespace
}  // namespace topocoll::tcp
