// The TCP store's server under hostile bytes: nobody else may notice, and memory stays flat.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>
#include <random>
#include <vector>

#include "transport/tcp/socket.h"
#include "control/tcp_store_server.h"
#include "control/tcp_store_wire.h"
#include "topocoll/store.h"

namespace topocoll {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using tcp_store::Hello;
using tcp_store::HelloReply;
using tcp_store::Request;
using tcp_store::RequestKind;

const std::string kSecret = "s3cret";

template <class T>
std::string bytes_of(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

std::string hello(const std::string& secret) {
  return bytes_of(tcp::make_hello(tcp_store::kMagic, tcp_store::kVersion, secret));
}

long resident_kib() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmRSS:")) return std::stol(line.substr(6));
  }
  return -1;
}

class HostileBytes : public ::testing::Test {
 protected:
  void SetUp() override { start({}); }

  void start(const tcp_store::ServerLimits& limits) {
    server_.reset();
    auto server = tcp_store::start_server("127.0.0.1", 0, kSecret, limits);
    ASSERT_TRUE(server.ok()) << server.status().to_string();
    server_ = std::move(*server);
  }

  Fd raw() {
    auto addresses = tcp::resolve("127.0.0.1", server_->port());
    auto fd = tcp::connect_to(addresses->front(), tcp::deadline_after(seconds(10)));
    EXPECT_TRUE(fd.ok()) << fd.status().to_string();
    return fd.ok() ? std::move(*fd) : Fd();
  }

  static void send(const Fd& fd, const std::string& bytes) {
    // The server may close in the middle: that is what is tested.
    for (std::size_t at = 0; at < bytes.size();) {
      const ssize_t n = ::send(fd.get(), bytes.data() + at, bytes.size() - at, MSG_NOSIGNAL);
      if (n > 0) at += static_cast<std::size_t>(n);
      if (n < 0 && errno != EAGAIN) return;
      if (n < 0) {
        ASSERT_TRUE(*tcp::wait_for(fd.get(), POLLOUT, tcp::deadline_after(seconds(10))));
      }
    }
  }

  /// Reads until the server closes; whether that happened before `timeout`.
  static bool closes(const Fd& fd, milliseconds timeout) {
    const auto deadline = tcp::deadline_after(timeout);
    char bytes[4096];
    while (true) {
      const auto ready = tcp::wait_for(fd.get(), POLLIN, deadline);
      if (!ready.ok() || !*ready) return false;
      const ssize_t n = ::recv(fd.get(), bytes, sizeof bytes, MSG_DONTWAIT);
      if (n == 0 || (n < 0 && errno != EAGAIN)) return true;
    }
  }

  Fd proven() {
    Fd fd = raw();
    send(fd, hello(kSecret));
    HelloReply reply;
    EXPECT_TRUE(*tcp::wait_for(fd.get(), POLLIN, tcp::deadline_after(seconds(10))));
    EXPECT_EQ(::recv(fd.get(), &reply, sizeof reply, 0), static_cast<ssize_t>(sizeof reply));
    EXPECT_EQ(reply.admission, tcp_store::Admission::kAccepted);
    return fd;
  }

  void expect_service() {
    auto store = connect_tcp_store("127.0.0.1", server_->port(), kSecret, seconds(10));
    ASSERT_TRUE(store.ok()) << store.status().to_string();
    EXPECT_TRUE((*store)->add("service", 1).ok());
  }

  std::unique_ptr<StoreServer> server_;
};

TEST_F(HostileBytes, RandomBytesCloseTheConnection) {
  std::mt19937 random(20260101);
  for (int i = 0; i < 200; ++i) {
    const Fd fd = raw();
    std::string noise(1 + random() % 2000, '\0');
    std::generate(noise.begin(), noise.end(), [&] { return static_cast<char>(random()); });
    if (noise[0] == tcp_store::kMagic[0]) noise[0] = 'X';
    send(fd, noise);
    EXPECT_TRUE(closes(fd, seconds(10))) << "round " << i;
  }
  expect_service();
}

TEST_F(HostileBytes, AHelloWithAWrongFieldIsRefused) {
  std::vector<std::string> hellos = {hello("S3cret"), hello("s3cretx"), hello("")};
  Hello long_secret = tcp::make_hello(tcp_store::kMagic, tcp_store::kVersion, "");
  long_secret.secret_bytes = ~0U;
  hellos.push_back(bytes_of(long_secret));
  Hello padded;
  std::memcpy(&padded, hello(kSecret).data(), sizeof padded);
  padded.secret[200] = 1;
  hellos.push_back(bytes_of(padded));
  Hello version;
  std::memcpy(&version, hello(kSecret).data(), sizeof version);
  version.version = 2;
  hellos.push_back(bytes_of(version));
  for (const std::string& bytes : hellos) {
    const Fd fd = raw();
    send(fd,
         bytes + bytes_of(Request{.kind = RequestKind::kAdd, .key_bytes = 1, .argument = 1}) + "x");
    EXPECT_TRUE(closes(fd, seconds(10)));
  }
  auto store = connect_tcp_store("127.0.0.1", server_->port(), kSecret, seconds(10));
  ASSERT_TRUE(store.ok());
  EXPECT_FALSE(*(*store)->contains("x")) << "nothing after a refused hello may be obeyed";
}

TEST_F(HostileBytes, LengthsThatDoNotFitCloseTheConnection) {
  const std::uint32_t most = ~0U;
  const std::vector<Request> requests = {
      {.kind = RequestKind::kSet, .key_bytes = most, .value_bytes = most},
      {.kind = RequestKind::kSet, .key_bytes = 1, .value_bytes = most},
      {.kind = RequestKind::kGet, .key_bytes = most, .argument = 1},
      {.kind = RequestKind::kSet, .key_bytes = tcp_store::kMaxKeyBytes + 1},
      {.kind = RequestKind::kSet, .value_bytes = tcp_store::kMaxValueBytes + 1},
      {.kind = RequestKind::kGet, .key_bytes = 1, .value_bytes = 1},
      {.kind = static_cast<RequestKind>(0)},
      {.kind = static_cast<RequestKind>(most)},
  };
  for (const Request& request : requests) {
    const Fd fd = proven();
    send(fd, bytes_of(request));
    EXPECT_TRUE(closes(fd, seconds(10)));
  }
  const Fd fd = proven();
  send(fd, std::string(64, '\xff'));  // every length field 2^64-1
  EXPECT_TRUE(closes(fd, seconds(10)));
  expect_service();
}

TEST_F(HostileBytes, MutatedFramesHarmNobodyElse) {
  std::mt19937 random(7);
  const std::string good =
      bytes_of(Request{.kind = RequestKind::kSet, .key_bytes = 3, .value_bytes = 5}) + "keyvalue" +
      bytes_of(Request{.kind = RequestKind::kGet, .key_bytes = 3}) + "key";
  for (int i = 0; i < 300; ++i) {
    const Fd fd = proven();
    std::string bytes = good + good;
    for (int flips = 0; flips < 4; ++flips) {
      bytes[random() % bytes.size()] ^= static_cast<char>(1U << (random() % 8));
    }
    send(fd, bytes.substr(0, 1 + random() % bytes.size()));
  }
  expect_service();
}

TEST_F(HostileBytes, ASlowHelloIsCutOff) {
  start({.hello_timeout = milliseconds(100)});
  const Fd silent = raw();
  const Fd trickle = raw();
  const std::string bytes = hello(kSecret);
  const auto begin = Clock::now();
  // One byte at a time keeps the connection busy, but not alive.
  for (std::size_t i = 0; !closes(trickle, milliseconds(10)); ++i) {
    ASSERT_LT(Clock::now() - begin, seconds(10));
    send(trickle, bytes.substr(std::min(i, bytes.size() - 2), 1));
  }
  EXPECT_TRUE(closes(silent, seconds(10)));
  expect_service();
}

TEST_F(HostileBytes, AFloodOfSilentConnectionsKeepsNobodyOut) {
  start({.connections = 64, .unproven_connections = 16, .hello_timeout = seconds(600)});
  std::vector<Fd> flood;
  for (int i = 0; i < 300; ++i) flood.push_back(raw());
  expect_service();
  int closed = 0;
  for (const Fd& fd : flood) closed += closes(fd, milliseconds(0)) ? 1 : 0;
  EXPECT_GE(closed, 300 - 16);
}

TEST_F(HostileBytes, ProvenConnectionsAreNotEvicted) {
  start({.connections = 8, .unproven_connections = 4});
  std::vector<Fd> members;
  for (int i = 0; i < 8; ++i) members.push_back(proven());
  const Fd ninth = raw();
  EXPECT_TRUE(closes(ninth, seconds(10)));
  for (const Fd& fd : members) EXPECT_FALSE(closes(fd, milliseconds(0)));
  members.pop_back();
  expect_service();
}

TEST_F(HostileBytes, TooManyWaitsAreRefused) {
  start({.waits_per_connection = 10});
  const Fd fd = proven();
  for (std::uint64_t id = 1; id <= 11; ++id) {
    send(fd, bytes_of(Request{
                 .kind = RequestKind::kGet, .key_bytes = 1, .id = id, .argument = 1 << 30}) +
                 "k");
  }
  tcp_store::Reply reply;
  ASSERT_TRUE(*tcp::wait_for(fd.get(), POLLIN, tcp::deadline_after(seconds(10))));
  ASSERT_EQ(::recv(fd.get(), &reply, sizeof reply, 0), static_cast<ssize_t>(sizeof reply));
  EXPECT_EQ(reply.id, 11U);
  EXPECT_EQ(reply.answer, tcp_store::Answer::kTooManyWaits);
}

TEST_F(HostileBytes, MemoryStaysFlat) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the address sanitizer keeps what is freed";
#endif
  auto store = connect_tcp_store("127.0.0.1", server_->port(), kSecret, seconds(10));
  ASSERT_TRUE(store.ok());
  const std::string value(tcp_store::kMaxValueBytes, 'v');
  ASSERT_TRUE((*store)->set("big", value).ok());
  const auto round = [&] {
    for (int i = 0; i < 50; ++i) {
      const Fd half = raw();
      send(half, hello(kSecret).substr(0, 200));
      // Claims the largest value, sends a part of it.
      const Fd partial = proven();
      send(partial, bytes_of(Request{.kind = RequestKind::kSet,
                                     .key_bytes = 1,
                                     .value_bytes = tcp_store::kMaxValueBytes}) +
                        "k" + std::string(100000, 'x'));
      // Asks for much and reads nothing.
      const Fd greedy = proven();
      std::string gets;
      for (int g = 0; g < 200; ++g) {
        gets += bytes_of(Request{.kind = RequestKind::kGet, .key_bytes = 3}) + "big";
      }
      send(greedy, gets);
      expect_service();
    }
  };
  round();
  const long before = resident_kib();
  round();
  round();
  EXPECT_LT(resident_kib() - before, 16 * 1024);
}

TEST_F(HostileBytes, RunningOutOfDescriptorsDoesNotEndTheService) {
  auto store = connect_tcp_store("127.0.0.1", server_->port(), kSecret, seconds(10));
  ASSERT_TRUE(store.ok());
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  {
    // Client and server share this process's table, so each connection costs two descriptors.
    std::vector<Fd> mine;
    rlimit low = before;
    low.rlim_cur = 96;
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &low), 0);
    auto addresses = tcp::resolve("127.0.0.1", server_->port());
    while (true) {
      auto fd = tcp::connect_to(addresses->front(), tcp::deadline_after(seconds(10)));
      if (!fd.ok()) break;
      mine.push_back(std::move(*fd));
    }
    EXPECT_TRUE((*store)->add("n", 1).ok());
  }
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  expect_service();
}

}  // namespace
}  // namespace topocoll
