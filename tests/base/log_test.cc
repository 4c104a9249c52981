#include "base/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <string>

namespace topocoll {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;

template <class F>
std::string stderr_of(F f) {
  testing::internal::CaptureStderr();
  f();
  return testing::internal::GetCapturedStderr();
}

TEST(Log, WritesOneLineWithTimeProcessAndLevel) {
  set_log_level(LogLevel::kWarn);
  const auto line = stderr_of([] { log().warn("rank {} lost peer {}: {}", 3, 5, "reset"); });
  EXPECT_THAT(line,
              MatchesRegex("[0-9:]+\\.[0-9]+Z topocoll\\[[0-9]+\\] warning: rank 3 lost peer 5: "
                           "reset\n"));
  EXPECT_THAT(line, HasSubstr("[" + std::to_string(getpid()) + "]"));
}

TEST(Log, ControlCharactersCannotForgeALine) {
  const auto line = stderr_of([] { log().error("peer says {}", "a\n12:00 topocoll[1] x"); });
  EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1);
}

TEST(Log, LevelsBelowTheThresholdAreSilent) {
  set_log_level(LogLevel::kWarn);
  EXPECT_EQ(stderr_of([] { log().info("quiet"); }), "");
  EXPECT_FALSE(log().enabled(LogLevel::kInfo));
  set_log_level(LogLevel::kTrace);
  EXPECT_THAT(stderr_of([] { log().trace("loud"); }), HasSubstr("trace: loud"));
  set_log_level(LogLevel::kOff);
  EXPECT_EQ(stderr_of([] { log().error("nothing"); }), "");
  set_log_level(LogLevel::kWarn);
}

TEST(Log, LeavesErrnoAlone) {
  stderr_of([] {
    errno = ENOSPC;
    log().warn("x");
    EXPECT_EQ(errno, ENOSPC);
  });
}

TEST(Log, AForkedChildNamesItself) {
  const auto text = stderr_of([] {
    const pid_t child = fork();
    if (child == 0) {
      log().warn("child {}", getpid());
      _exit(0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_EQ(status, 0);
  });
  EXPECT_THAT(text, HasSubstr("child "));
  const auto pid = text.substr(text.rfind(' ') + 1);
  EXPECT_THAT(text, HasSubstr("topocoll[" + pid.substr(0, pid.size() - 1) + "]"));
}

}  // namespace
}  // namespace topocoll
