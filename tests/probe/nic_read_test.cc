// Ports that read memory, on a libibverbs that the test builds and, where there is one, on a port.
#include "probe/nic_read.h"

#ifdef TOPOCOLL_VERBS
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <future>
#include <mutex>
#include <random>
#include <thread>

#include "probe/fake_verbs.h"
#include "support/cpus.h"
#include "support/fake_library.h"
#include "support/fault_os.h"

namespace topocoll {
namespace {

using namespace std::chrono_literals;
using testing::FakeVerbs;
using testing::FaultOs;
using ::testing::HasSubstr;

class NicReadTest : public ::testing::Test {
 protected:
  void TearDown() override { EXPECT_EQ(fake_->alive, 0) << "something was not let go of"; }
  static NicRead read_of(const std::string& device) {
    return {"numa:0", 0, "port:" + device + "/1", device, 1, testing::two_cpus()[0]};
  }
  Result<Figure> measure(Os& os = Os::real()) {
    return measure_nic_read(os, read_of("fake_1"), 2ms, TOPOCOLL_FAKE_VERBS);
  }
  void expect_failure(Cause cause, const std::string& words) {
    const auto figure = measure();
    ASSERT_FALSE(figure.ok());
    EXPECT_EQ(figure.status().cause(), cause);
    EXPECT_THAT(figure.status().text(), HasSubstr(words));
  }
  void fail(const char* function, int error) {
    fake_->failing = function;
    fake_->error = error;
  }

  testing::FakeLibrary<FakeVerbs> fake_{TOPOCOLL_FAKE_VERBS, "fake_verbs_state"};
};

TEST_F(NicReadTest, ReadsByTheFirstAddressThatThereIs) {
  const auto figure = measure();
  ASSERT_TRUE(figure.ok()) << figure.status().to_string();
  EXPECT_GT(*figure->measured, 0);
  EXPECT_GE(figure->spread->samples, 1);
  // The last sample has fewer if its time is over.
  EXPECT_LE(fake_->reads, 1 + 64 + 16 * figure->spread->samples);
  EXPECT_GT(fake_->reads, 1 + 16 * (figure->spread->samples - 1));
  EXPECT_EQ(fake_->gid_used, 1);
}

/// Each read takes longer than the whole series may.
TEST_F(NicReadTest, ASlowPortIsReadOnceInItsTime) {
  fake_->posting = 30ms;
  const auto figure = measure();
  ASSERT_TRUE(figure.ok()) << figure.status().to_string();
  EXPECT_GE(*figure->measured, 30e6);
  EXPECT_EQ(figure->spread->samples, 1);
  EXPECT_EQ(fake_->reads, 1 + 1) << "one connects, and one is the figure";
}

/// Waking takes part of the time, and a sample what is left of it.
TEST_F(NicReadTest, ASeriesEndsWithinASample) {
  fake_->posting = 5ms;
  const auto figure = measure_nic_read(Os::real(), read_of("fake_1"), 20ms, TOPOCOLL_FAKE_VERBS);
  ASSERT_TRUE(figure.ok()) << figure.status().to_string();
  EXPECT_LE(fake_->reads, 1 + 4);
}

TEST_F(NicReadTest, TakesAnotherAddressWhereOneIsRefused) {
  fake_->refused_gids = {1};
  ASSERT_TRUE(measure().ok());
  EXPECT_EQ(fake_->gid_used, 2);
  fake_->refused_gids = {1, 2};
  expect_failure(Cause::kSystem, "fake_1: ibv_modify_qp: Connection timed out");
}

TEST_F(NicReadTest, TakesAnotherAddressWhereOneDoesNotAnswer) {
  fake_->silent_gids = {1};
  ASSERT_TRUE(measure().ok());
  EXPECT_EQ(fake_->gid_used, 2);
  fake_->silent_gids = {1, 2};
  expect_failure(Cause::kSystem, "a read failed: transport retry counter exceeded");
}

/// Each that does not answer takes as long as a read may.
TEST_F(NicReadTest, NotAllAddressesAreTriedWhereThatTakesTooLong) {
  fake_->gids = {1, 2, 3, 4, 5, 6, 7, 8};
  fake_->never_completes = true;
  expect_failure(Cause::kSystem, "a read did not end within 200 ms");
  EXPECT_LE(fake_->reads, 3);
}

TEST_F(NicReadTest, APortThatIsNotActiveIsNotRead) {
  fake_->port_state = IBV_PORT_DOWN;
  expect_failure(Cause::kSystem, "port:fake_1/1: it is not active, says libibverbs (state 1)");
  EXPECT_EQ(fake_->reads, 0);
}

TEST_F(NicReadTest, AnInfinibandPortHasALid) {
  fake_->ethernet = false;
  fake_->lid = 3;
  ASSERT_TRUE(measure().ok());
  EXPECT_EQ(fake_->gid_used, -1);
  fake_->gids = {0};
  fake_->ethernet = true;
  expect_failure(Cause::kSystem, "it has no address (GID or LID)");
}

TEST_F(NicReadTest, EveryFailureNamesDeviceAndCall) {
  for (const char* function :
       {"ibv_get_device_list", "ibv_open_device", "ibv_alloc_pd", "ibv_reg_mr", "ibv_create_cq",
        "ibv_create_qp", "ibv_query_port", "ibv_modify_qp"}) {
    fail(function, EACCES);
    expect_failure(Cause::kSystem, std::string("fake_1: ") + function + ": Permission denied");
  }
  fail("post_send", ENOMEM);
  expect_failure(Cause::kSystem, "port:fake_1/1: ibv_post_send: Cannot allocate memory");
  fail("ibv_reg_mr", ENOMEM);
  expect_failure(Cause::kResource, "ulimit -l");
}

TEST_F(NicReadTest, AReadThatFailsOrLiesIsNoFigure) {
  fake_->status = IBV_WC_RETRY_EXC_ERR;
  expect_failure(Cause::kSystem, "port:fake_1/1: a read failed: transport retry counter exceeded");
  fake_->status = IBV_WC_SUCCESS;
  fake_->lies = true;
  fake_->gids = {7};
  expect_failure(Cause::kSystem, "port:fake_1/1: it read 17 where 1 was written");
}

TEST_F(NicReadTest, AReadThatNeverEndsIsOver) {
  fake_->never_completes = true;
  fake_->gids = {7};
  expect_failure(Cause::kSystem, "a read did not end within 200 ms");
  fail("poll_cq", 0);
  expect_failure(Cause::kSystem, "ibv_poll_cq failed");
}

TEST_F(NicReadTest, CompletionsThatNobodyAskedForAreFailures) {
  fake_->gids = {7};
  fake_->twice = true;
  expect_failure(Cause::kSystem, "a completion of read 1 came while read 2 was awaited");
  fake_->twice = false;
  fake_->polled = 100;
  expect_failure(Cause::kSystem, "ibv_poll_cq gave 100 completions where one was wanted");
}

TEST_F(NicReadTest, TheLibraryMayHaveNoWords) {
  fake_->status = IBV_WC_WR_FLUSH_ERR;
  fake_->speechless = true;
  expect_failure(Cause::kSystem, "a read failed: no words for it (status 5)");
  fake_->nameless = true;
  expect_failure(Cause::kUnsupported, "fake_1: libibverbs does not list it (2 devices)");
}

/// One that has hung once is never asked again, so each function has a library of its own.
TEST_F(NicReadTest, ALibraryThatDoesNotComeBackIsLeftAlone) {
  namespace fs = std::filesystem;
  for (const char* function : {"ibv_get_device_list", "ibv_modify_qp", "poll_cq"}) {
    const std::string library =
        fmt::format("{}/topocoll_{}_{}.so", ::testing::TempDir(), function, ::getpid());
    fs::copy_file(TOPOCOLL_FAKE_VERBS, library, fs::copy_options::overwrite_existing);
    const testing::FakeLibrary<FakeVerbs> fake(library.c_str(), "fake_verbs_state");
    std::promise<void> release;
    fake->hanging = function;
    fake->release = release.get_future().share();
    const auto hung = measure_nic_read(Os::real(), read_of("fake_1"), 2ms, library, 300ms);
    EXPECT_EQ(hung.status().cause(), Cause::kTimeout) << function;
    EXPECT_THAT(hung.status().text(),
                HasSubstr("port:fake_1/1: libibverbs did not answer within 300 ms"));
    const auto after = measure_nic_read(Os::real(), read_of("fake_0"), 2ms, library);
    EXPECT_EQ(after.status().text(), hung.status().text()) << "not asked, and one note for all";
    fs::remove(library);
    release.set_value();
    const auto closed = [&] {
      const std::lock_guard lock(*fake->closing);
      return fake->closed;
    };
    for (int i = 0; i < 5000 && closed() == 0; ++i) std::this_thread::sleep_for(1ms);
    ASSERT_EQ(closed(), 1) << "the thread that was left behind goes on, once";
    EXPECT_EQ(fake->alive, 0);
  }
  EXPECT_TRUE(measure().ok()) << "another library";
}

TEST_F(NicReadTest, WhatIsNotThereIsUnsupported) {
  fake_->listed = -1;
  expect_failure(Cause::kUnsupported, "fake_1: libibverbs does not list it (0 devices)");
  fake_->listed.reset();
  fake_->devices = {"other_0"};
  expect_failure(Cause::kUnsupported, "fake_1: libibverbs does not list it (1 device)");
  const auto none = measure_nic_read(Os::real(), read_of("fake_1"), 2ms, "libnothing.so.9");
  EXPECT_EQ(none.status().cause(), Cause::kUnsupported);
  EXPECT_THAT(none.status().text(), HasSubstr("no libibverbs"));
  const auto wrong = measure_nic_read(Os::real(), read_of("fake_1"), 2ms, "libm.so.6");
  EXPECT_THAT(wrong.status().text(), HasSubstr("libm.so.6: it lacks the function ibv_"));
}

TEST_F(NicReadTest, ACpuThatIsGoneIsNamed) {
  NicRead read = read_of("fake_1");
  read.cpu = 1 << 20;
  const auto figure = measure_nic_read(Os::real(), read, 2ms, TOPOCOLL_FAKE_VERBS);
  EXPECT_EQ(figure.status().cause(), Cause::kSystem);
  EXPECT_THAT(figure.status().text(), HasSubstr("CPU 1048576"));
}

TEST(NicReadOnThisMachine, EveryActivePortReadsOrSaysWhyNot) {
  std::mt19937_64 random(1);
  const auto reads = choose_nic_reads(discover_topology().value(), random);
  if (reads.empty()) GTEST_SKIP() << "this machine has no active RDMA port";
  for (const NicRead& read : reads) {
    const auto figure = measure_nic_read(Os::real(), read, 20ms);
    if (figure.ok()) {
      EXPECT_GT(*figure->measured, 100) << read.to;
    } else {
      EXPECT_THAT(figure.status().text(), HasSubstr(read.device));
    }
  }
}

}  // namespace
}  // namespace topocoll
#endif
