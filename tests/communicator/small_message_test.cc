// That an operation of up to 64 KiB makes no system call, takes no lock and allocates nothing while
// its waits stay within the spin. Each rank is a process whose thread is watched by a seccomp
// filter, in place of which the kernel raises SIGSYS, and by stand-ins for operator new and for the
// locks of pthread.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <new>

#include "base/os.h"
#include "support/ranks.h"
#include "support/sanitized.h"

namespace {
/// Of this thread.
thread_local int allocations = 0;
thread_local int locks = 0;
}  // namespace

#if !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)  // which have stand-ins of their own

// The C++ library's delete is free() of what malloc() gave. Inlined, the compiler would take that
// for an error.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  ++allocations;
  if (void* p = std::malloc(bytes == 0 ? 1 : bytes)) return p;
  throw std::bad_alloc();
}
[[gnu::noinline]] void* operator new(std::size_t bytes, std::align_val_t alignment) {
  ++allocations;
  const auto unit = static_cast<std::size_t>(alignment);
  if (void* p = std::aligned_alloc(unit, (bytes + unit - 1) / unit * unit)) return p;
  throw std::bad_alloc();
}
namespace {
using Lock = int(pthread_mutex_t*);
int count_and_lock(std::atomic<Lock*>& real, const char* name, pthread_mutex_t* mutex) {
  if (real == nullptr) real = reinterpret_cast<Lock*>(dlsym(RTLD_NEXT, name));
  ++locks;
  return real.load()(mutex);
}
}  // namespace
extern "C" int pthread_mutex_lock(pthread_mutex_t* mutex) noexcept {
  static std::atomic<Lock*> real{nullptr};
  return count_and_lock(real, "pthread_mutex_lock", mutex);
}
extern "C" int pthread_mutex_trylock(pthread_mutex_t* mutex) noexcept {
  static std::atomic<Lock*> real{nullptr};
  return count_and_lock(real, "pthread_mutex_trylock", mutex);
}

#endif

namespace topocoll {
namespace {

using testing::ForkedRanks;
using testing::Report;

char* trapped = nullptr;  ///< where the text of a rank's first system call goes

/// From here on this thread's first system call ends the process, and its number is in `text`. Only
/// the clock may be read: that is a call where the kernel cannot give the time without one.
bool trap_system_calls(char (&text)[512]) {
  trapped = text;
  struct sigaction action {};
  action.sa_flags = SA_SIGINFO;
  action.sa_sigaction = [](int, siginfo_t* info, void*) {
    std::snprintf(trapped, sizeof text, "system call %d", info->si_syscall);
    _exit(0);
  };
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 2, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clock_gettime, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{static_cast<unsigned short>(std::size(filter)), filter};
  return sigaction(SIGSYS, &action, nullptr) == 0 && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) == 0;
}

/// Does `work` watched; `text` then says what it did that it should not. Does not return.
template <class Work>
[[noreturn]] void watch(char (&text)[512], const Work& work) {
  if (!trap_system_calls(text)) _exit(1);
  allocations = locks = 0;
  const bool right = work();
  const int allocated = allocations;
  const int locked = locks;
  if (allocated != 0) std::snprintf(text, sizeof text, "allocations: %d", allocated);
  if (locked != 0) std::snprintf(text, sizeof text, "locks: %d", locked);
  if (!right) std::snprintf(text, sizeof text, "an operation failed");
  _exit(0);
}

/// The text of a process that does `work` watched; "not permitted" where there is no seccomp.
template <class Work>
std::string watched(const Work& work) {
  void* p = mmap(nullptr, 512, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  auto& text = *static_cast<char(*)[512]>(p);
  const pid_t pid = fork();
  if (pid == 0) watch(text, work);
  int status = 0;
  waitpid(pid, &status, 0);
  const std::string result = status == 0 ? text : "not permitted";
  munmap(p, 512);
  return result;
}

/// Every kind that a training loop calls, on messages that go through lines, slots and the ring.
class SmallOperations {
 public:
  explicit SmallOperations(Communicator& comm) : comm_(comm), in_(kMost), out_(2 * kMost) {}

  bool operator()() {
    for (const std::size_t count : {std::size_t(2), std::size_t(256), std::size_t(2048), kMost}) {
      const std::size_t part = count / 2;
      if (!comm_.all_reduce(in_.data(), out_.data(), count, DataType::kF32, ReduceOp::kSum).ok() ||
          !comm_.broadcast(in_.data(), out_.data(), count, DataType::kF32, 1).ok() ||
          !comm_.reduce(in_.data(), out_.data(), count, DataType::kF32, ReduceOp::kMax, 0).ok() ||
          !comm_.all_gather(in_.data(), out_.data(), count, DataType::kF32).ok() ||
          !comm_.reduce_scatter(in_.data(), out_.data(), part, DataType::kBF16, ReduceOp::kAvg)
               .ok() ||
          !comm_.all_to_all(in_.data(), out_.data(), part, DataType::kF32).ok() ||
          !comm_.barrier().ok()) {
        return false;
      }
    }
    return true;
  }

 private:
  static constexpr std::size_t kMost = (64 << 10) / sizeof(float);
  Communicator& comm_;
  std::vector<float> in_, out_;
};

class SmallMessages : public ::testing::Test {
 protected:
  void SetUp() override {
    if (testing::kSanitized) GTEST_SKIP() << "a sanitizer makes calls of its own";
    if (Os::real().usable_cpus().size() < 2)
      GTEST_SKIP() << "ranks that share one core have to hand it over";
    if (watched([] { return true; }) != "") GTEST_SKIP() << "seccomp is not permitted here";
    // The longest that may be asked for: a busy machine may take a rank's core away for a while.
    ASSERT_EQ(setenv("TOPOCOLL_SPIN_US", "1000000", 1), 0);
  }
  void TearDown() override { unsetenv("TOPOCOLL_SPIN_US"); }
};

class SmallMessagesIn : public SmallMessages, public ::testing::WithParamInterface<CommitMode> {};
INSTANTIATE_TEST_SUITE_P(Modes, SmallMessagesIn,
                         ::testing::Values(CommitMode::kStrict, CommitMode::kChained));

TEST_P(SmallMessagesIn, NeitherCallNorLockNorAllocate) {
  constexpr int kWarm = 20;     // the ring is made, plans are compiled
  constexpr int kRounds = 100;  // of 28 operations; the group tries other methods meanwhile
  ForkedRanks ranks(
      2,
      [](Communicator& comm, Report& report) {
        SmallOperations operations(comm);
        for (int i = 0; i < kWarm; ++i) {
          if (!operations()) return report.note(comm.health());
        }
        watch(report.text, [&] {
          for (int i = 0; i < kRounds; ++i) {
            if (!operations()) return false;
            ++report.operations;
          }
          return comm.commit()
              .ok();  // or a peer's end might come before its last operation is proved
        });
      },
      GetParam());
  ranks.join_all();
  for (int r : {0, 1}) {
    EXPECT_STREQ(ranks.report(r).text, "") << "rank " << r;
    EXPECT_EQ(ranks.report(r).operations, std::uint64_t(kRounds)) << "rank " << r;
  }
}

TEST_F(SmallMessages, TheirWatchSeesCallsLocksAndAllocations) {
  EXPECT_EQ(watched([] { return getppid() != 0; }), "system call " + std::to_string(SYS_getppid));
  std::mutex mutex;
  EXPECT_EQ(watched([&] {
              const std::lock_guard lock(mutex);
              return true;
            }),
            "locks: 1");
  std::vector<int> numbers;
  numbers.reserve(1);
  EXPECT_EQ(watched([&] {
              numbers.assign(2, 1);
              return true;
            }),
            "allocations: 1");
}

}  // namespace
}  // namespace topocoll
