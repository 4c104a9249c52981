#include "base/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
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

/// In a process of its own, which reads the level when it first logs.
[[noreturn]] void log_at(const char* level) {
  setenv("TOPOCOLL_LOG_LEVEL", level, 1);
  log().error("an error");
  log().warn("a warning");
  log().info("a notice");
  log().trace("a detail");
  _exit(log().enabled(LogLevel::kInfo) ? 1 : 0);
}

TEST(LogDeathTest, LevelsBelowThatOfTheEnvironmentAreSilent) {
  using ::testing::AllOf;
  using ::testing::ExitedWithCode;
  using ::testing::Not;
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(log_at("warn"), ExitedWithCode(0),
              AllOf(HasSubstr("a warning"), Not(HasSubstr("a notice"))));
  EXPECT_EXIT(log_at("trace"), ExitedWithCode(1),
              AllOf(HasSubstr("a notice"), HasSubstr("trace: a detail")));
  EXPECT_EXIT(log_at("off"), ExitedWithCode(0), Not(HasSubstr("an error")));
  EXPECT_EXIT(log_at("loud"), ExitedWithCode(0),
              AllOf(HasSubstr("a warning"), Not(HasSubstr("a notice"))));
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
