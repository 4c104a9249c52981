// The TCP store from the point of view of its users: threads, processes, and errors that they see.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include "support/sanitized.h"
#include "transport/tcp/socket.h"
#include "control/tcp_store_server.h"
#include "control/tcp_store_wire.h"
#include "topocoll/store.h"

namespace topocoll {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

const char* const kHost = "127.0.0.1";
const char* const kSecret = "correct horse";

std::unique_ptr<StoreServer> serve(const std::string& host = kHost, std::uint16_t port = 0) {
  auto server = serve_tcp_store(host, port, kSecret);
  EXPECT_TRUE(server.ok()) << server.status().to_string();
  return server.ok() ? std::move(*server) : nullptr;
}

std::shared_ptr<Store> connect(const StoreServer& server, const std::string& host = kHost) {
  auto store = connect_tcp_store(host, server.port(), kSecret, seconds(20));
  EXPECT_TRUE(store.ok()) << store.status().to_string();
  return store.ok() ? *store : nullptr;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(TcpStore, SetGetAddContains) {
  const auto server = serve();
  const auto a = connect(*server);
  const auto b = connect(*server);
  EXPECT_FALSE(*a->contains("k"));
  ASSERT_TRUE(a->set("k", std::string("\0\1\2", 3)).ok());
  EXPECT_EQ(*b->get("k", milliseconds(0)), std::string("\0\1\2", 3));
  EXPECT_TRUE(*b->contains("k"));
  EXPECT_EQ(*b->add("n", -5), -5);
  EXPECT_EQ(*a->add("n", 7), 2);
  EXPECT_EQ(*a->get("n", milliseconds(0)), "2");
  ASSERT_TRUE(a->set("", "empty key").ok());
  EXPECT_EQ(*b->get("", milliseconds(0)), "empty key");
  EXPECT_EQ(b->add("k", 1).status().cause(), Cause::kInvalidArgument);
}

TEST(TcpStore, LargestKeyAndValueTravelAndLargerOnesAreRefused) {
  const auto server = serve();
  const auto store = connect(*server);
  const std::string key(tcp_store::kMaxKeyBytes, 'k');
  const std::string value(tcp_store::kMaxValueBytes, 'v');
  ASSERT_TRUE(store->set(key, value).ok());
  EXPECT_EQ(*store->get(key, milliseconds(0)), value);
  EXPECT_EQ(store->set(key + "k", "").cause(), Cause::kInvalidArgument);
  EXPECT_EQ(store->set("k", value + "v").cause(), Cause::kInvalidArgument);
  EXPECT_TRUE(store->set("still", "works").ok());
}

TEST(TcpStore, GetTimesOut) {
  const auto server = serve();
  const auto store = connect(*server);
  const auto begin = Clock::now();
  const auto value = store->get("absent", milliseconds(30));
  EXPECT_EQ(value.status().cause(), Cause::kTimeout);
  EXPECT_TRUE(contains(value.status().text(), "'absent'")) << value.status().text();
  EXPECT_GE(Clock::now() - begin, milliseconds(30));
  EXPECT_TRUE(store->set("k", "the connection goes on").ok());
}

TEST(TcpStore, AWaitingGetDoesNotHoldUpOtherThreadsOfOneConnection) {
  const auto server = serve();
  const auto store = connect(*server);
  constexpr int kThreads = 8;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      // Each waits for its successor's key, so all but the last are parked when the last one sets.
      if (t + 1 < kThreads) {
        EXPECT_EQ(*store->get("key" + std::to_string(t + 1), seconds(60)), std::to_string(t + 1));
      }
      EXPECT_TRUE(store->set("key" + std::to_string(t), std::to_string(t)).ok());
    });
  }
  for (auto& t : threads) t.join();
  EXPECT_EQ(*store->get("key0", milliseconds(0)), "0");
}

TEST(TcpStore, ManyThreadsAndConnections) {
  const auto server = serve();
  std::vector<std::thread> threads;
  constexpr int kThreads = 16;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      const auto store = connect(*server);
      for (int i = 0; i < 100; ++i) {
        EXPECT_TRUE(store->add("sum", 1).ok());
        EXPECT_TRUE(
            store->set(std::to_string(t), std::string(static_cast<std::size_t>(i), 'x')).ok());
      }
      EXPECT_TRUE(store->add("done", 1).ok());
    });
  }
  for (auto& t : threads) t.join();
  const auto store = connect(*server);
  EXPECT_EQ(*store->add("sum", 0), 100 * kThreads);
  EXPECT_EQ(*store->add("done", 0), kThreads);
}

TEST(TcpStore, ProcessesMeet) {
  // The children are forked before the server has a thread, and learn the port through a pipe.
  constexpr int kChildren = 4;
  int pipe_fds[2];
  ASSERT_EQ(::pipe(pipe_fds), 0);
  std::vector<pid_t> children;
  for (int c = 0; c < kChildren; ++c) {
    const pid_t pid = ::fork();
    ASSERT_GE(pid, 0);
    if (pid == 0) {
      std::uint16_t port = 0;
      if (::read(pipe_fds[0], &port, sizeof port) != sizeof port) ::_exit(2);
      auto store = connect_tcp_store(kHost, port, kSecret, seconds(20));
      if (!store.ok() || !(*store)->set("child" + std::to_string(c), "here").ok()) ::_exit(3);
      for (int other = 0; other < kChildren; ++other) {
        if (!(*store)->get("child" + std::to_string(other), seconds(20)).ok()) ::_exit(4);
      }
      ::_exit(0);
    }
    children.push_back(pid);
  }
  const auto server = serve();
  const std::uint16_t port = server->port();
  for (int c = 0; c < kChildren; ++c) ASSERT_EQ(::write(pipe_fds[1], &port, sizeof port), 2);
  for (const pid_t pid : children) {
    int status = 0;
    ASSERT_EQ(::waitpid(pid, &status, 0), pid);
    EXPECT_EQ(status, 0);
  }
  ::close(pipe_fds[0]);
  ::close(pipe_fds[1]);
}

TEST(TcpStore, ClientWaitsForItsServer) {
  // Find a free port, then serve on it only after the client has begun.
  const std::uint16_t port = serve()->port();
  std::atomic<bool> connected{false};
  std::thread client([&] {
    auto store = connect_tcp_store(kHost, port, kSecret, seconds(60));
    EXPECT_TRUE(store.ok()) << store.status().to_string();
    connected = true;
  });
  std::this_thread::yield();
  EXPECT_FALSE(connected);
  const auto server = serve(kHost, port);
  client.join();
}

TEST(TcpStore, ConnectNamesWhatItTried) {
  const std::uint16_t port = serve()->port();
  const auto store = connect_tcp_store(kHost, port, kSecret, milliseconds(60));
  ASSERT_FALSE(store.ok());
  EXPECT_EQ(store.status().cause(), Cause::kTimeout);
  EXPECT_TRUE(contains(store.status().text(), "127.0.0.1:" + std::to_string(port)));
  EXPECT_TRUE(contains(store.status().text(), "connection refused")) << store.status().text();
}

TEST(TcpStore, WrongSecretIsRefusedAtOnce) {
  const auto server = serve();
  for (const std::string wrong : {"correct hors", "correct horse ", "x"}) {
    const auto store = connect_tcp_store(kHost, server->port(), wrong, seconds(60));
    ASSERT_FALSE(store.ok());
    EXPECT_EQ(store.status().cause(), Cause::kInvalidArgument);
    EXPECT_TRUE(contains(store.status().text(), "secret")) << store.status().text();
  }
  EXPECT_EQ(connect_tcp_store(kHost, server->port(), "", seconds(1)).status().cause(),
            Cause::kInvalidArgument);
  EXPECT_TRUE(connect(*server)->set("k", "v").ok());
}

TEST(TcpStore, SomethingElseOnThePortIsNamed) {
  auto addresses = tcp::resolve(kHost, 0);
  ASSERT_TRUE(addresses.ok());
  auto listener = tcp::listen_on(addresses->front());
  ASSERT_TRUE(listener.ok());
  const std::uint16_t port = tcp::local_address(listener->get())->port();
  std::thread other([&] {
    ASSERT_TRUE(*tcp::wait_for(listener->get(), POLLIN, tcp::deadline_after(seconds(20))));
    const Fd peer(::accept(listener->get(), nullptr, nullptr));
    const char text[] = "SSH-2.0-something else entirely";
    ASSERT_GT(::send(peer.get(), text, sizeof text, MSG_NOSIGNAL), 0);
    ASSERT_TRUE(*tcp::wait_for(peer.get(), POLLIN | POLLHUP, tcp::deadline_after(seconds(20))));
  });
  const auto store = connect_tcp_store(kHost, port, kSecret, seconds(60));
  other.join();
  ASSERT_FALSE(store.ok());
  EXPECT_EQ(store.status().cause(), Cause::kMismatch);
  EXPECT_TRUE(contains(store.status().text(), "not a topocoll store")) << store.status().text();
}

TEST(TcpStore, AServerThatEndsIsASystemErrorThatNamesIt) {
  auto server = serve();
  const std::string address = "127.0.0.1:" + std::to_string(server->port());
  const auto store = connect(*server);
  std::vector<std::thread> threads;
  std::atomic<int> failed{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      ASSERT_TRUE(store->add("ready", 1).ok());
      const auto value = store->get("never", seconds(60));
      if (value.status().cause() == Cause::kSystem) ++failed;
      EXPECT_TRUE(contains(value.status().text(), address)) << value.status().text();
    });
  }
  const auto watcher = connect(*server);
  while (*watcher->add("ready", 0) < 4) std::this_thread::yield();
  server.reset();
  for (auto& t : threads) t.join();
  EXPECT_EQ(failed, 4);
  EXPECT_EQ(store->set("k", "v").cause(), Cause::kSystem);
  EXPECT_EQ(store->contains("k").status().cause(), Cause::kSystem);
}

/// A child serves with room for a few values: its clients learn of its end, and it dies of nothing.
TEST(TcpStore, AServerOutOfMemoryClosesItsConnections) {
  if (testing::kSanitized) GTEST_SKIP() << "a sanitizer's shadow leaves no limit to set";
  int up[2];
  int down[2];
  ASSERT_EQ(::pipe(up), 0);
  ASSERT_EQ(::pipe(down), 0);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ::close(down[1]);
    const auto server = serve();
    const std::uint16_t port = server->port();
    // Not RLIMIT_AS: a thread's heap has its addresses before it has memory.
    std::ifstream statm("/proc/self/statm");
    std::size_t pages = 0;
    for (int column = 0; column < 6; ++column) statm >> pages;  // the last: data and stack
    const rlim_t bytes = pages * static_cast<rlim_t>(::getpagesize()) + (rlim_t(16) << 20);
    const rlimit limit{bytes, bytes};
    char end = 0;
    const bool ready = ::setrlimit(RLIMIT_DATA, &limit) == 0 && ::write(up[1], &port, 2) == 2;
    ::_exit(ready && ::read(down[0], &end, 1) == 0 ? 0 : 1);
  }
  ::close(down[0]);
  std::uint16_t port = 0;
  ASSERT_EQ(::read(up[0], &port, sizeof port), 2);
  const auto store = connect_tcp_store(kHost, port, kSecret, seconds(20));
  ASSERT_TRUE(store.ok()) << store.status().to_string();
  Status status;
  for (int i = 0; i < 60 && status.ok(); ++i) {
    status = (*store)->set("key" + std::to_string(i), std::string(1 << 20, 'x'));
  }
  EXPECT_EQ(status.cause(), Cause::kSystem) << status.to_string();
  ::close(down[1]);
  int ended = 0;
  ASSERT_EQ(::waitpid(child, &ended, 0), child);
  EXPECT_EQ(ended, 0) << "by signal " << WTERMSIG(ended);
  ::close(up[0]);
  ::close(up[1]);
}

TEST(TcpStore, PortInUse) {
  const auto server = serve();
  const auto second = serve_tcp_store(kHost, server->port(), kSecret);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().cause(), Cause::kSystem);
  EXPECT_TRUE(contains(second.status().text(), "127.0.0.1:" + std::to_string(server->port())));
  EXPECT_TRUE(contains(second.status().text(), "in use")) << second.status().text();
}

TEST(TcpStore, AFreedPortCanBeServedAgain) {
  auto server = serve();
  const std::uint16_t port = server->port();
  const auto store = connect(*server);
  ASSERT_TRUE(store->set("k", "v").ok());
  server.reset();  // closes first, so its side of the connection lingers in TIME_WAIT
  server = serve(kHost, port);
  EXPECT_FALSE(*connect(*server)->contains("k"));
}

TEST(TcpStore, Ipv6) {
  auto server = serve_tcp_store("::1", 0, kSecret);
  if (!server.ok() && contains(server.status().text(), "assign requested address")) {
    GTEST_SKIP() << "this machine has no IPv6 loopback: " << server.status().text();
  }
  ASSERT_TRUE(server.ok()) << server.status().to_string();
  const auto store = connect(**server, "::1");
  EXPECT_TRUE(store->set("k", "v").ok());
  server->reset();
  EXPECT_TRUE(contains(store->set("k", "v").text(), "[::1]:"));
}

TEST(TcpStore, LocalhostBindsOneAddressAndIsReached) {
  const auto server = serve("localhost");
  EXPECT_TRUE(connect(*server, "localhost")->set("k", "v").ok());
}

TEST(TcpStore, RefusesToListenEverywhere) {
  for (const std::string host : {"0.0.0.0", "::", "::ffff:0.0.0.0", ""}) {
    const auto server = serve_tcp_store(host, 0, kSecret);
    ASSERT_FALSE(server.ok()) << host;
    EXPECT_EQ(server.status().cause(), Cause::kInvalidArgument) << server.status().to_string();
  }
  EXPECT_FALSE(serve_tcp_store("no.such.host.invalid", 0, kSecret).ok());
  EXPECT_EQ(serve_tcp_store(kHost, 0, "").status().cause(), Cause::kInvalidArgument);
}

TEST(TcpStore, AChildOfForkIsToldToConnectAgain) {
  const auto server = serve();
  const auto store = connect(*server);
  const pid_t pid = ::fork();
  ASSERT_GE(pid, 0);
  if (pid == 0) ::_exit(store->set("k", "v").cause() == Cause::kUnsupported ? 0 : 1);
  int status = 0;
  ASSERT_EQ(::waitpid(pid, &status, 0), pid);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(store->set("k", "v").ok());
}

TEST(TcpStore, TheStoreHasAMemoryCap) {
  tcp_store::ServerLimits limits;
  limits.stored_bytes = 64 * 1024;
  auto server = tcp_store::start_server(kHost, 0, kSecret, limits);
  ASSERT_TRUE(server.ok());
  const auto store = connect(**server);
  const std::string half(40 * 1024, 'x');
  ASSERT_TRUE(store->set("a", half).ok());
  EXPECT_EQ(store->set("b", half).cause(), Cause::kResource);
  EXPECT_FALSE(*store->contains("b"));
  EXPECT_TRUE(store->set("a", half).ok()) << "overwriting needs no more room";
  EXPECT_TRUE(store->set("a", "").ok());
  EXPECT_TRUE(store->set("b", half).ok());
  Status last;
  int keys = 0;
  while (last.ok() && keys < 10000) last = store->add("n" + std::to_string(keys++), 1).status();
  EXPECT_EQ(last.cause(), Cause::kResource) << "small entries count too";
}

TEST(TcpStore, LeavesNothingBehind) {
  const auto open_files = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
  };
  const auto before = open_files();
  for (int i = 0; i < 20; ++i) {
    const auto server = serve();
    const auto store = connect(*server);
    EXPECT_TRUE(store->set("k", "v").ok());
  }
  EXPECT_EQ(open_files(), before);
}

}  // namespace
}  // namespace topocoll
