#include "control/monitor.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <vector>

#include "support/fault_os.h"
#include "support/group.h"

namespace topocoll {
namespace {

using shm::liveness;
using shm::Liveness;
using testing::eventually;
using testing::FaultOs;
using testing::ShmGroup;

struct Wire {
  Fd near, far;
};
Wire make_wire() {
  int fds[2];
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds), 0);
  return {Fd(fds[0]), Fd(fds[1])};
}

/// Collects what a monitor tells.
class Ends {
 public:
  Monitor::OnEnd callback() {
    return [this](int rank) {
      const std::lock_guard lock(mutex_);
      ranks_.push_back(rank);
    };
  }
  std::vector<int> sorted() {
    const std::lock_guard lock(mutex_);
    std::vector<int> copy = ranks_;
    std::sort(copy.begin(), copy.end());
    return copy;
  }

 private:
  std::mutex mutex_;
  std::vector<int> ranks_;
};

std::vector<Monitor::Link> links_of(std::vector<Wire>& wires) {
  std::vector<Monitor::Link> links;
  for (std::size_t i = 0; i < wires.size(); ++i) {
    links.push_back({static_cast<int>(i) + 1, std::move(wires[i].near)});
  }
  return links;
}

TEST(Monitor, HoldsTheLockFromStartToStop) {
  ShmGroup group(2);
  Ends ends;
  Monitor monitor;
  ASSERT_TRUE(monitor.start(Os::real(), group[0].block(0), {}, ends.callback()).ok());
  EXPECT_EQ(liveness(group[1].block(0)), Liveness::kAlive);
  EXPECT_EQ(hold_alive_lock(group[1].block(0)).cause(), Cause::kInternal)
      << "held when start returns";
  group[0].block(0).state.store(shm::RankState::kLeft);
  monitor.stop();
  EXPECT_EQ(liveness(group[1].block(0)), Liveness::kLeft);
  monitor.stop();
}

TEST(Monitor, TellsOfEachEndOnce) {
  ShmGroup group(4);
  std::vector<Wire> wires;
  for (int i = 0; i < 3; ++i) wires.push_back(make_wire());
  Ends ends;
  Monitor monitor;
  ASSERT_TRUE(monitor.start(Os::real(), group[0].block(0), links_of(wires), ends.callback()).ok());
  wires[1].far.reset();
  EXPECT_TRUE(eventually([&] { return ends.sorted() == std::vector<int>{2}; }));
  wires[0].far.reset();
  wires[2].far.reset();
  EXPECT_TRUE(eventually([&] { return ends.sorted() == std::vector<int>{1, 2, 3}; }));
  monitor.stop();
  EXPECT_EQ(ends.sorted(), (std::vector<int>{1, 2, 3}));
}

TEST(Monitor, SeveralEndsAtOnceAreAllTold) {
  ShmGroup group(4);
  std::vector<Wire> wires;
  for (int i = 0; i < 3; ++i) wires.push_back(make_wire());
  wires[0].far.reset();
  wires[2].far.reset();
  Ends ends;
  Monitor monitor;
  ASSERT_TRUE(monitor.start(Os::real(), group[0].block(0), links_of(wires), ends.callback()).ok());
  EXPECT_TRUE(eventually([&] { return ends.sorted() == std::vector<int>{1, 3}; }));
  wires[1].far.reset();
  EXPECT_TRUE(eventually([&] { return ends.sorted() == std::vector<int>{1, 2, 3}; }));
}

TEST(Monitor, ItsOwnEndIsSeenByThePeers) {
  ShmGroup group(2);
  Wire wire = make_wire();
  Ends here, there;
  Monitor other;
  {
    Monitor monitor;
    std::vector<Monitor::Link> links;
    links.push_back({1, std::move(wire.near)});
    ASSERT_TRUE(
        monitor.start(Os::real(), group[0].block(0), std::move(links), here.callback()).ok());
    std::vector<Monitor::Link> back;
    back.push_back({0, std::move(wire.far)});
    ASSERT_TRUE(other.start(Os::real(), group[1].block(1), std::move(back), there.callback()).ok());
    EXPECT_TRUE(there.sorted().empty());
  }
  EXPECT_TRUE(eventually([&] { return there.sorted() == std::vector<int>{0}; }));
  EXPECT_TRUE(here.sorted().empty());
}

TEST(Monitor, ATakenLockIsAnError) {
  ShmGroup group(1);
  Monitor first, second;
  ASSERT_TRUE(first.start(Os::real(), group[0].block(0), {}, [](int) {}).ok());
  EXPECT_EQ(second.start(Os::real(), group[0].block(0), {}, [](int) {}).cause(), Cause::kInternal);
  second.stop();
  EXPECT_EQ(liveness(group[0].block(0)), Liveness::kAlive) << "still the first one's";
}

TEST(Monitor, ErrorsOfTheKernelAreHandedOn) {
  ShmGroup group(1);
  FaultOs os;
  os.fail("create_event", Status(Cause::kResource, "eventfd: Too many open files"));
  Monitor monitor;
  EXPECT_EQ(monitor.start(os, group[0].block(0), {}, [](int) {}).cause(), Cause::kResource);
  EXPECT_TRUE(hold_alive_lock(group[0].block(0)).ok()) << "nothing was taken";
}

TEST(Monitor, AForkedChildStopsNothing) {
  ShmGroup group(1);
  Monitor monitor;
  ASSERT_TRUE(monitor.start(Os::real(), group[0].block(0), {}, [](int) {}).ok());
  const pid_t child = ::fork();
  if (child == 0) {
    monitor.stop();
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(liveness(group[0].block(0)), Liveness::kAlive) << "the parent's watch goes on";
  EXPECT_NE(hold_alive_lock(group[0].block(0)).cause(), Cause::kOk);
}

}  // namespace
}  // namespace topocoll
