#include "base/os.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "support/fault_os.h"
#include "support/temporary_directory.h"

namespace topocoll {
namespace {

using namespace std::chrono_literals;
using testing::FaultOs;
using testing::TemporaryDirectory;

struct Pair {
  Fd a, b;
};
Pair socket_pair() {
  int fds[2];
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds), 0);
  return {Fd(fds[0]), Fd(fds[1])};
}

Os& os() { return Os::real(); }
TimePoint in(std::chrono::milliseconds time) { return Clock::now() + time; }
std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

std::string unique_name(const char* what) {
  return std::string("topocoll-test-") + what + "-" + to_hex(os().random_token().value());
}

TEST(Os, AMemfdCannotChangeItsSize) {
  auto fd = os().create_memfd("sealed", 3 * 4096);
  ASSERT_TRUE(fd.ok()) << fd.status().to_string();
  EXPECT_EQ(os().file_size(*fd).value(), 3u * 4096);
  EXPECT_NE(::ftruncate(fd->get(), 4096), 0);
  EXPECT_NE(::ftruncate(fd->get(), 4 * 4096), 0);
  EXPECT_NE(::fcntl(fd->get(), F_ADD_SEALS, F_SEAL_WRITE), 0) << "nor be sealed further";
  EXPECT_EQ(os().file_size(*fd).value(), 3u * 4096);
  EXPECT_NE(::fcntl(fd->get(), F_GETFD) & FD_CLOEXEC, 0);
}

TEST(Os, PopulatingGivesMemoryToWhatHasNone) {
  constexpr std::size_t kBytes = std::size_t(64) << 10;
  auto fd = os().create_memfd("populated", 4 * kBytes);
  ASSERT_TRUE(fd.ok()) << fd.status().to_string();
  EXPECT_EQ(os().allocated_bytes(*fd).value(), 0u);
  auto mapping = os().map(*fd, 4 * kBytes);
  ASSERT_TRUE(mapping.ok()) << mapping.status().to_string();
  const Status s = os().populate({mapping->data() + kBytes, kBytes});
  if (!s.ok()) GTEST_SKIP() << s.text();
  EXPECT_GE(os().allocated_bytes(*fd).value(), kBytes);
  EXPECT_EQ(os().allocated_bytes(Fd()).status().cause(), Cause::kSystem);
  EXPECT_EQ(os().populate({mapping->data() + 1, kBytes}).cause(), Cause::kSystem)
      << "within a page";
}

TEST(Os, AnUnlinkedFileLeavesNoName) {
  TemporaryDirectory directory;
  auto fd = os().create_unlinked_file(directory.path(), 8192);
  ASSERT_TRUE(fd.ok()) << fd.status().to_string();
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
  EXPECT_EQ(os().file_size(*fd).value(), 8192u);
  struct stat st {};
  ASSERT_EQ(::fstat(fd->get(), &st), 0);
  EXPECT_EQ(st.st_nlink, 0u);
  EXPECT_EQ(st.st_mode & 0777, 0600u);
}

TEST(Os, AnUnusableDirectoryIsNamedWithItsOption) {
  const auto fd = os().create_unlinked_file("/nonexistent/shm", 4096);
  EXPECT_EQ(fd.status().cause(), Cause::kSystem);
  EXPECT_NE(fd.status().text().find("/nonexistent/shm (TOPOCOLL_SHM_DIR)"), std::string::npos);
}

TEST(Os, AFullFileSystemIsAMessageWithSizeAndRoom) {
  TemporaryDirectory directory;
  if (!directory.mount_tmpfs(1 << 20)) GTEST_SKIP() << "mounting a tmpfs: " << std::strerror(errno);
  auto fd = os().create_unlinked_file(directory.path(), 8 << 20);
  ASSERT_TRUE(fd.ok()) << "a sparse file takes no room yet";
  EXPECT_TRUE(os().allocate(*fd, 0, 64 << 10, "a small part").ok());
  const Status s = os().allocate(*fd, 64 << 10, 4 << 20, "a large part");
  EXPECT_EQ(s.cause(), Cause::kResource);
  for (const char* word : {"a large part", "4 MiB", "of 1 MiB free in /", "No space left"}) {
    EXPECT_NE(s.text().find(word), std::string::npos) << word << " in: " << s.text();
  }
  EXPECT_NE(s.text().find(directory.path()), std::string::npos) << s.text();
}

TEST(Os, AllocatedMemoryIsSharedBetweenMappings) {
  auto fd = os().create_memfd("shared", 8192);
  ASSERT_TRUE(fd.ok());
  ASSERT_TRUE(os().allocate(*fd, 4096, 4096, "the second page").ok());
  struct stat st {};
  ASSERT_EQ(::fstat(fd->get(), &st), 0);
  EXPECT_EQ(st.st_blocks * 512, 4096) << "that page and no other";
  auto a = os().map(*fd, 8192);
  auto b = os().map(*fd, 8192);
  ASSERT_TRUE(a.ok() && b.ok());
  a->data()[5000] = std::byte{9};
  EXPECT_EQ(b->data()[5000], std::byte{9});
}

TEST(Os, DescriptorsRunningOutIsAResourceError) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit few = before;
  few.rlim_cur = 64;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  std::vector<Fd> all;
  Status s;
  while (s.ok() && all.size() <= 64) {
    auto event = os().create_event();
    s = event.status();
    if (event.ok()) all.push_back(std::move(*event));
  }
  EXPECT_EQ(os().create_memfd("one more", 4096).status().cause(), Cause::kResource);
  EXPECT_EQ(os().listen_abstract(unique_name("more"), 1).status().cause(), Cause::kResource);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(s.cause(), Cause::kResource);
  EXPECT_NE(s.text().find("Too many open files"), std::string::npos) << s.text();
}

TEST(Os, AFileSizeLimitIsAnErrorAndNoSignal) {
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit limit{4096, 4096};
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) ::_exit(2);
    const auto memory = Os::real().create_memfd("test", 1 << 20);
    const auto file = Os::real().create_unlinked_file("/tmp", 1 << 20);
    if (memory.ok() || file.ok()) ::_exit(3);
    if (memory.status().cause() != Cause::kResource || file.status().cause() != Cause::kResource)
      ::_exit(4);
    sigset_t pending;
    sigset_t blocked;
    if (::sigpending(&pending) != 0 || ::sigismember(&pending, SIGXFSZ) != 0) ::_exit(5);
    if (::pthread_sigmask(SIG_BLOCK, nullptr, &blocked) != 0 ||
        ::sigismember(&blocked, SIGXFSZ) != 0)
      ::_exit(6);
    ::_exit(memory.status().text().find("ulimit -f") == std::string::npos ? 7 : 0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(Os, BytesAndADescriptorTravelTogether) {
  Pair p = socket_pair();
  auto memory = os().create_memfd("travels", 4096);
  ASSERT_TRUE(memory.ok());
  const std::string text = "take this";
  ASSERT_TRUE(os().send_all(p.a, bytes_of(text), memory->get(), in(5s)).ok());
  ASSERT_TRUE(os().send_all(p.a, bytes_of(text), -1, in(5s)).ok());
  std::string got(text.size(), ' ');
  auto fd = os().receive_all(p.b, std::as_writable_bytes(std::span(got)), in(5s));
  ASSERT_TRUE(fd.ok());
  EXPECT_EQ(got, text);
  ASSERT_TRUE(fd->valid());
  EXPECT_EQ(os().file_size(*fd).value(), 4096u);
  EXPECT_NE(::fcntl(fd->get(), F_GETFD) & FD_CLOEXEC, 0);
  auto none = os().receive_all(p.b, std::as_writable_bytes(std::span(got)), in(5s));
  ASSERT_TRUE(none.ok());
  EXPECT_FALSE(none->valid());
}

TEST(Os, LongMessagesPassInPieces) {
  Pair p = socket_pair();
  std::vector<std::byte> data(5 << 20);
  for (std::size_t i = 0; i < data.size(); ++i)
    data[i] = static_cast<std::byte>(i * 2654435761u >> 24);
  std::thread sender([&] { EXPECT_TRUE(os().send_all(p.a, data, -1, in(30s)).ok()); });
  std::vector<std::byte> got(data.size());
  EXPECT_TRUE(os().receive_all(p.b, got, in(30s)).ok());
  sender.join();
  EXPECT_EQ(got, data);
}

TEST(Os, TheEndOfAConnectionIsPeerLeftAndNoSignal) {
  Pair p = socket_pair();
  std::array<std::byte, 10> half{};
  ASSERT_TRUE(os().send_all(p.a, std::span(half).first(4), -1, in(1s)).ok());
  p.a.reset();
  EXPECT_EQ(os().receive_all(p.b, half, in(1s)).status().cause(), Cause::kPeerLeft);
  EXPECT_EQ(os().send_all(p.b, half, -1, in(1s)).cause(), Cause::kPeerLeft);
}

TEST(Os, DeadlinesAreHonoured) {
  Pair p = socket_pair();
  auto listener = os().listen_abstract(unique_name("deadline"), 4);
  ASSERT_TRUE(listener.ok());
  std::array<std::byte, 10> some{};
  const std::vector<std::byte> much(8 << 20);
  std::atomic<std::uint32_t> word{1};
  const std::array<int, 2> fds{p.a.get(), p.b.get()};
  const std::vector<std::function<void()>> calls{
      [&] { EXPECT_EQ(os().receive_all(p.a, some, in(40ms)).status().cause(), Cause::kTimeout); },
      [&] { EXPECT_EQ(os().accept(*listener, in(40ms)).status().cause(), Cause::kTimeout); },
      [&] { EXPECT_TRUE(os().wait_readable(fds, in(40ms)).empty()); },
      [&] { EXPECT_EQ(os().send_all(p.a, much, -1, in(40ms)).cause(), Cause::kTimeout); },
      [&] {
        const TimePoint until = in(40ms);
        while (Clock::now() < until) os().futex_wait(&word, 1, until);
      },
  };
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const TimePoint start = Clock::now();
    calls[i]();
    EXPECT_GE(Clock::now() - start, 39ms) << i;
    EXPECT_LT(Clock::now() - start, 5s) << i;
  }
  EXPECT_EQ(os().accept(*listener, Clock::now() - 1s).status().cause(), Cause::kTimeout);
}

TEST(Os, AbstractSocketsMeetByName) {
  const std::string name = unique_name("meet");
  EXPECT_EQ(os().connect_abstract(name, in(100ms)).status().cause(), Cause::kSystem)
      << "nobody there";
  auto listener = os().listen_abstract(name, 4);
  ASSERT_TRUE(listener.ok());
  EXPECT_FALSE(os().listen_abstract(name, 4).ok()) << "the name is taken";
  auto client = os().connect_abstract(name, in(1s));
  ASSERT_TRUE(client.ok());
  auto server = os().accept(*listener, in(1s));
  ASSERT_TRUE(server.ok());
  for (const Fd* end : {&*client, &*server}) {
    auto who = os().peer_credentials(*end);
    ASSERT_TRUE(who.ok());
    EXPECT_EQ(who->pid, os().pid());
    EXPECT_EQ(who->uid, os().uid());
  }
  for (const std::string& bad : {std::string(), std::string(200, 'x')}) {
    EXPECT_EQ(os().listen_abstract(bad, 4).status().cause(), Cause::kInvalidArgument);
  }
}

TEST(Os, AFullBacklogIsWaitedForUntilTheDeadline) {
  const std::string name = unique_name("backlog");
  auto listener = os().listen_abstract(name, 1);
  ASSERT_TRUE(listener.ok());
  std::vector<Fd> waiting;
  Status s;
  while (s.ok() && waiting.size() < 100) {
    auto c = os().connect_abstract(name, in(20ms));
    s = c.status();
    if (c.ok()) waiting.push_back(std::move(*c));
  }
  EXPECT_EQ(s.cause(), Cause::kResource) << s.to_string();
  std::thread later([&] { EXPECT_TRUE(os().accept(*listener, in(5s)).ok()); });
  EXPECT_TRUE(os().connect_abstract(name, in(10s)).ok());
  later.join();
}

TEST(Os, ReadableMeansBytesAnEventOrTheEnd) {
  Pair p = socket_pair();
  Pair q = socket_pair();
  auto event = os().create_event();
  ASSERT_TRUE(event.ok());
  const std::array<int, 3> fds{event->get(), p.a.get(), q.a.get()};
  using Indices = std::vector<std::size_t>;
  EXPECT_EQ(os().wait_readable(fds, Clock::now()), Indices{});
  p.b.reset();
  EXPECT_EQ(os().wait_readable(fds, in(5s)), Indices{1});
  os().notify_event(*event);
  os().notify_event(*event);
  EXPECT_EQ(os().wait_readable(fds, in(5s)), (Indices{0, 1}));
}

TEST(Os, MoreDescriptorsThanTheLimitAllowsAreWaitedFor) {
  std::vector<Pair> pairs;
  std::vector<int> fds;
  for (int i = 0; i < 4; ++i) fds.push_back(pairs.emplace_back(socket_pair()).a.get());
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit low = before;
  low.rlim_cur = 2;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &low), 0);
  const auto nothing = os().wait_readable(fds, in(30ms));
  pairs[2].b.reset();
  const auto one = os().wait_readable(fds, in(5s));
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_TRUE(nothing.empty());
  EXPECT_EQ(one, std::vector<std::size_t>{2});
}

TEST(Os, AFutexWakesItsSleepers) {
  std::atomic<std::uint32_t> word{0};
  std::thread sleeper([&] {
    while (word.load() == 0) os().futex_wait(&word, 0, in(30s));
  });
  word.store(1);
  os().futex_wake_all(&word);
  sleeper.join();
  const TimePoint start = Clock::now();
  os().futex_wait(&word, 0, in(30s));
  EXPECT_LT(Clock::now() - start, 10s) << "the word differs from what was expected: no sleep";
}

TEST(Os, TokensDiffer) {
  const Token a = os().random_token().value();
  const Token b = os().random_token().value();
  EXPECT_FALSE(equal(a, b));
  EXPECT_TRUE(equal(a, a));
  for (std::size_t i = 0; i < a.size(); ++i) {
    Token c = a;
    c[i] ^= std::byte{1};
    EXPECT_FALSE(equal(a, c)) << i;
  }
  Token d{};
  d[0] = std::byte{0x0f};
  d[15] = std::byte{0xa0};
  EXPECT_EQ(to_hex(d), "0f0000000000000000000000000000a0");
}

TEST(Os, UsableCpusAreThoseOfTheAffinity) {
  const std::vector<int> cpus = os().usable_cpus();
  ASSERT_FALSE(cpus.empty());
  EXPECT_TRUE(std::is_sorted(cpus.begin(), cpus.end()));
  std::thread([&] {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<std::size_t>(cpus.back()), &one);
    ASSERT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
    EXPECT_EQ(os().usable_cpus(), std::vector<int>{cpus.back()});
  }).join();
}

TEST(Os, AForkCountsInTheChildAlone) {
  const std::uint32_t before = fork_generation();
  const pid_t child = ::fork();
  if (child == 0) ::_exit(fork_generation() == before + 1 ? 0 : 1);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_EQ(fork_generation(), before);
}

TEST(FaultOs, ScriptsHitTheCallsThatTheyName) {
  FaultOs fake;
  fake.fail("create_event", Status(Cause::kResource, "none left"), {.from = 2, .to = 3});
  EXPECT_TRUE(fake.create_event().ok());
  EXPECT_EQ(fake.create_event().status().text(), "none left");
  EXPECT_EQ(fake.create_event().status().text(), "none left");
  EXPECT_TRUE(fake.create_event().ok());
  EXPECT_EQ(fake.calls("create_event"), 4);
  EXPECT_THROW(fake.fail("now", Status(Cause::kSystem, "")), std::invalid_argument);
}

TEST(FaultOs, TheClockMovesByHandAndWaitsFollowIt) {
  FaultOs fake;
  fake.set_clock(TimePoint{} + 10s);
  EXPECT_EQ(fake.now(), TimePoint{} + 10s);
  fake.advance(5s);
  EXPECT_EQ(fake.now(), TimePoint{} + 15s);
  const TimePoint start = Clock::now();
  EXPECT_TRUE(fake.wait_readable({}, TimePoint{} + 3600s).empty());
  EXPECT_LT(Clock::now() - start, 10s);
}

TEST(Os, MemoryIsBoundToANodeThatIsThere) {
  constexpr std::size_t kBytes = 1 << 16;
  void* address =
      ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(address, MAP_FAILED);
  const Mapping memory(address, kBytes);
  const std::span<std::byte> all(memory.data(), kBytes);
  const Status bound = Os::real().bind_memory(all, 0, Binding::kStrict);
  if (!bound.ok()) GTEST_SKIP() << bound.text();
  std::memset(memory.data(), 1, kBytes);
  for (const int node : {-1, 700, 1 << 20}) {
    const Status s = Os::real().bind_memory(all, node, Binding::kPreferred);
    EXPECT_NE(s.text().find("NUMA node " + std::to_string(node)), std::string::npos) << s.text();
  }
}

}  // namespace
}  // namespace topocoll
