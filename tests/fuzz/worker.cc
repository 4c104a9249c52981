#include "fuzz/worker.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "support/sanitized.h"

#if defined(__SANITIZE_ADDRESS__)
// A large allocation is found as it is made, and freed memory is not kept so long that it counts.
extern "C" const char* __asan_default_options() {
  return "quarantine_size_mb=32:max_allocation_size_mb=1024:hard_rss_limit_mb=1024:"
         "allocator_may_return_null=0:detect_leaks=0";
}
#endif

namespace topocoll::fuzz {

constexpr std::size_t kMaxInput = std::size_t{1} << 20;
constexpr int kTooMuchMemory = 97;

struct Shared {
  std::atomic<std::uint64_t> serial{0};  ///< odd while an input is being read
  std::atomic<std::uint64_t> inputs{0};
  std::atomic<std::uint64_t> read{0};
  std::size_t bytes = 0;
  std::array<char, kMaxInput> input;
};

namespace {

Shared* share() {
  void* memory =
      ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  promise(memory != MAP_FAILED, "there is memory for an input");
  return new (memory) Shared;
}

void feed(Shared& shared, Target& target, const std::string& input) {
  shared.bytes = std::min(input.size(), kMaxInput);
  std::memcpy(shared.input.data(), input.data(), shared.bytes);
  shared.serial.fetch_add(1);
  const bool read = target.run(input.substr(0, shared.bytes));
  // A reader may have tried the input in a child of its own and survived that child's end.
  for (const int who : {RUSAGE_SELF, RUSAGE_CHILDREN}) {
    rusage usage{};
    ::getrusage(who, &usage);
    if (usage.ru_maxrss > kMaxKibibytes) ::_exit(kTooMuchMemory);
  }
  shared.serial.fetch_add(1);
  shared.inputs.fetch_add(1);
  if (read) shared.read.fetch_add(1);
}

void limit_process() {
  const rlimit none{0, 0};
  ::setrlimit(RLIMIT_CORE, &none);
  // The address sanitizer reserves terabytes, and has a limit of its own.
  const rlimit memory{2UL * kMaxKibibytes * 1024, 2UL * kMaxKibibytes * 1024};
  if (!topocoll::testing::kSanitized) ::setrlimit(RLIMIT_AS, &memory);
}

}  // namespace

Worker Worker::feeding(const MakeTarget& make, unsigned seed, std::chrono::milliseconds time) {
  Worker worker(share());
  worker.start([shared = worker.shared_, &make, seed, time] {
    const auto target = make();
    topocoll::testing::Mutator mutator(seed);
    const auto end = std::chrono::steady_clock::now() + time;
    while (std::chrono::steady_clock::now() < end) feed(*shared, *target, target->make(mutator));
  });
  return worker;
}

Worker Worker::replaying(const MakeTarget& make, const std::string& input) {
  Worker worker(share());
  worker.start([shared = worker.shared_, &make, &input] { feed(*shared, *make(), input); });
  return worker;
}

Worker::Worker(Worker&& other) noexcept
    : shared_(std::exchange(other.shared_, nullptr)),
      pid_(std::exchange(other.pid_, -1)),
      last_serial_(other.last_serial_),
      since_(other.since_),
      hung_(other.hung_),
      verdict_(std::move(other.verdict_)) {}

Worker::~Worker() {
  if (pid_ > 0) {
    kill_all();
    while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  if (shared_ != nullptr) ::munmap(shared_, sizeof(Shared));
}

void Worker::start(const std::function<void()>& body) {
  since_ = std::chrono::steady_clock::now();
  pid_ = ::fork();
  promise(pid_ >= 0, "a process can be made");
  if (pid_ == 0) {
    ::setpgid(0, 0);  // readers make children, which end with it
    limit_process();
    body();
    ::_exit(0);
  }
  ::setpgid(pid_, pid_);  // whoever comes first
}

void Worker::kill_all() const { ::kill(-pid_, SIGKILL); }

bool Worker::ended() {
  if (pid_ < 0) return true;
  int status = 0;
  const pid_t done = ::waitpid(pid_, &status, WNOHANG);
  if (done == pid_) {
    kill_all();  // children that it has left
    pid_ = -1;
    judge(status);
    return true;
  }
  const std::uint64_t serial = shared_->serial.load();
  const auto now = std::chrono::steady_clock::now();
  if (serial != last_serial_ || serial % 2 == 0) {
    last_serial_ = serial;
    since_ = now;
  } else if (now - since_ > kMaxTime && !hung_) {
    hung_ = true;
    kill_all();
  }
  return false;
}

void Worker::judge(int status) {
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return;
  const bool memory = WIFEXITED(status) && WEXITSTATUS(status) == kTooMuchMemory;
  verdict_.what = hung_ ? "hang" : memory ? "memory" : "crash";
  verdict_.input.assign(shared_->input.data(), std::min(shared_->bytes, kMaxInput));
}

std::uint64_t Worker::inputs() const { return shared_->inputs.load(); }
std::uint64_t Worker::read() const { return shared_->read.load(); }

}  // namespace topocoll::fuzz
