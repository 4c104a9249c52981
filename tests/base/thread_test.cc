#include "base/thread.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <array>
#include <csignal>
#include <cstring>
#include <string>

namespace topocoll {
namespace {

TEST(Thread, NoSignalOfTheHostProgramRunsOnIt) {
  sigset_t mask;
  sigemptyset(&mask);
  std::string name;
  auto thread = start_thread("topocoll-test", [&] {
    pthread_sigmask(SIG_SETMASK, nullptr, &mask);
    std::array<char, 16> text{};
    pthread_getname_np(pthread_self(), text.data(), text.size());
    name = text.data();
  });
  ASSERT_TRUE(thread.ok()) << thread.status().to_string();
  thread->join();
  for (const int signal : {SIGINT, SIGTERM, SIGALRM, SIGUSR1, SIGCHLD, SIGPROF}) {
    EXPECT_EQ(sigismember(&mask, signal), 1) << strsignal(signal);
  }
  EXPECT_EQ(name, "topocoll-test");
}

TEST(Thread, TheCreatorKeepsItsOwnMask) {
  sigset_t wanted, before, after;
  sigemptyset(&wanted);
  sigaddset(&wanted, SIGUSR2);
  ASSERT_EQ(pthread_sigmask(SIG_SETMASK, &wanted, &before), 0);
  auto thread = start_thread("topocoll-test", [] {});
  ASSERT_EQ(pthread_sigmask(SIG_SETMASK, &before, &after), 0);
  ASSERT_TRUE(thread.ok());
  thread->join();
  EXPECT_EQ(sigismember(&after, SIGUSR2), 1);
  EXPECT_EQ(sigismember(&after, SIGINT), 0);
}

TEST(Thread, APartThatRunsOutOfMemoryEndsThereOnly) {
  bool fed = true;
  auto thread = start_thread("topocoll-test", [&] {
    fed = has_memory_for([] { throw std::bad_alloc(); });
  });
  ASSERT_TRUE(thread.ok());
  thread->join();
  EXPECT_FALSE(fed);
  EXPECT_TRUE(has_memory_for([] {}));
}

}  // namespace
}  // namespace topocoll
