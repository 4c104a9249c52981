#include <fcntl.h>
#include <fmt/format.h>
#include <linux/futex.h>
#include <linux/mempolicy.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <ctime>
#include <system_error>
#include <thread>

#include "base/os.h"
#include "topocoll/size.h"

namespace topocoll {
namespace {

std::atomic<std::uint32_t> g_fork_generation{0};

std::string error_text(int error) { return std::generic_category().message(error); }

bool is_exhaustion(int error) {
  return error == ENOMEM || error == ENOSPC || error == EMFILE || error == ENFILE ||
         error == EDQUOT || error == EAGAIN || error == EFBIG;
}

/// Growing a file beyond RLIMIT_FSIZE (`ulimit -f`) sends SIGXFSZ to the calling thread, which ends
/// the process by default; while one of these lives the call returns EFBIG instead.
class NoFileSizeSignal {
 public:
  NoFileSizeSignal() {
    ::sigemptyset(&set_);
    ::sigaddset(&set_, SIGXFSZ);
    ::pthread_sigmask(SIG_BLOCK, &set_, &before_);
  }
  NoFileSizeSignal(const NoFileSizeSignal&) = delete;
  NoFileSizeSignal& operator=(const NoFileSizeSignal&) = delete;
  ~NoFileSizeSignal() {
    const int saved_errno = errno;
    if (::sigismember(&before_, SIGXFSZ) == 0) {
      const timespec now{};
      ::sigtimedwait(&set_, nullptr, &now);
    }
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    errno = saved_errno;
  }

 private:
  sigset_t set_{};
  sigset_t before_{};
};

int resize(int fd, std::size_t bytes) {
  const NoFileSizeSignal guard;
  return ::ftruncate(fd, static_cast<off_t>(bytes));
}

Status failure(int error, const std::string& what) {
  return Status(is_exhaustion(error) ? Cause::kResource : Cause::kSystem,
                fmt::format("{}: {}", what, error_text(error)));
}

int milliseconds_until(TimePoint deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, INT_MAX));
}

/// Waits for `events` on one descriptor; false at the deadline.
bool wait_for(int fd, short events, TimePoint deadline) {
  for (;;) {
    pollfd p{fd, events, 0};
    const int n = ::poll(&p, 1, milliseconds_until(deadline));
    if (n > 0) return true;
    if (n == 0 && Clock::now() >= deadline) return false;
    if (n < 0 && errno != EINTR) return true;  // let the call itself report what is wrong
  }
}

struct AbstractAddress {
  sockaddr_un address{};
  socklen_t length = 0;
};

Result<AbstractAddress> abstract_address(const std::string& name) {
  AbstractAddress a;
  a.address.sun_family = AF_UNIX;
  if (name.empty() || name.size() > sizeof(a.address.sun_path) - 1) {
    return Status(Cause::kInvalidArgument,
                  fmt::format("socket name of {} bytes: 1 to {} are allowed", name.size(),
                              sizeof(a.address.sun_path) - 1));
  }
  std::memcpy(a.address.sun_path + 1, name.data(), name.size());
  a.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return a;
}

/// poll() of any number of descriptors: the kernel refuses more at once than RLIMIT_NOFILE, which
/// may have been lowered since they were opened.
int poll_one_by_one(std::vector<pollfd>& polls, TimePoint deadline) {
  constexpr auto kPause = std::chrono::milliseconds(10);
  for (;;) {
    int ready = 0;
    for (pollfd& p : polls) {
      p.revents = 0;
      if (::poll(&p, 1, 0) > 0) ++ready;
    }
    if (ready > 0 || Clock::now() >= deadline) return ready;
    std::this_thread::sleep_for(std::min<Clock::duration>(kPause, deadline - Clock::now()));
  }
}

/// " in /dev/shm" for a file, even one without a name; nothing for memory without a place.
std::string directory_of(const Fd& fd) {
  char path[PATH_MAX];
  const std::string link = fmt::format("/proc/self/fd/{}", fd.get());
  const ssize_t n = ::readlink(link.c_str(), path, sizeof path);
  const std::string_view name(path, n < 0 ? 0 : static_cast<std::size_t>(n));
  if (name.empty() || name.starts_with("/memfd:")) return "";
  return fmt::format(" in {}", name.substr(0, std::max<std::size_t>(name.rfind('/'), 1)));
}

class PosixOs final : public Os {
 public:
  TimePoint now() override { return Clock::now(); }
  void yield() override { ::sched_yield(); }
  void sleep(Nanoseconds time) override { std::this_thread::sleep_for(time); }
  int pid() override { return static_cast<int>(::getpid()); }
  unsigned uid() override { return ::getuid(); }

  std::vector<int> usable_cpus() override {
    // Machines with more than 1024 CPUs need a larger set than cpu_set_t.
    std::vector<int> usable;
    for (int cpus = 1024; cpus <= (1 << 20) && usable.empty(); cpus *= 4) {
      cpu_set_t* set = CPU_ALLOC(static_cast<std::size_t>(cpus));
      if (set == nullptr) break;
      const std::size_t bytes = CPU_ALLOC_SIZE(static_cast<std::size_t>(cpus));
      if (::sched_getaffinity(0, bytes, set) == 0) {
        for (int cpu = 0; cpu < cpus; ++cpu) {
          if (CPU_ISSET_S(static_cast<std::size_t>(cpu), bytes, set)) usable.push_back(cpu);
        }
      }
      CPU_FREE(set);
    }
    return usable;
  }

  bool pin_thread(int cpu) override {
    cpu_set_t* set = CPU_ALLOC(static_cast<std::size_t>(cpu) + 1);
    if (set == nullptr) return false;
    const std::size_t bytes = CPU_ALLOC_SIZE(static_cast<std::size_t>(cpu) + 1);
    CPU_ZERO_S(bytes, set);
    CPU_SET_S(static_cast<std::size_t>(cpu), bytes, set);
    const bool pinned = ::sched_setaffinity(0, bytes, set) == 0;
    CPU_FREE(set);
    return pinned;
  }

  Status bind_memory(std::span<std::byte> memory, int node, Binding binding) override {
    constexpr std::size_t kBits = sizeof(unsigned long) * 8;
    if (node < 0) return failure(EINVAL, fmt::format("binding memory to NUMA node {}", node));
    std::vector<unsigned long> nodes(static_cast<std::size_t>(node) / kBits + 1, 0);
    nodes.back() = 1UL << (static_cast<std::size_t>(node) % kBits);
    // The kernel reads one bit less than it is told.
    const int policy = binding == Binding::kStrict ? MPOL_BIND : MPOL_PREFERRED;
    if (::syscall(SYS_mbind, memory.data(), memory.size(), policy, nodes.data(),
                  nodes.size() * kBits + 1, 0UL) == 0) {
      return {};
    }
    return failure(errno, fmt::format("binding memory to NUMA node {} (mbind)", node));
  }

  Result<Token> random_token() override {
    Token token;
    std::size_t have = 0;
    while (have < token.size()) {
      const ssize_t n = ::getrandom(token.data() + have, token.size() - have, 0);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return failure(errno, "getrandom");
      have += static_cast<std::size_t>(n);
    }
    return token;
  }

  Result<Fd> create_memfd(const std::string& name, std::size_t bytes) override {
    Fd fd(::memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!fd.valid()) return failure(errno, fmt::format("memfd_create({})", name));
    if (resize(fd.get(), bytes) != 0) {
      return failure(errno, fmt::format("shared memory {} of {} (ulimit -f may be too low)", name,
                                        size_text(bytes)));
    }
    // Sealed against shrinking, no holder of the descriptor can make a peer's access fault.
    if (::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
      return failure(errno, fmt::format("sealing {}", name));
    }
    return fd;
  }

  Result<Fd> create_unlinked_file(const std::string& directory, std::size_t bytes) override {
    auto token = random_token();
    if (!token.ok()) return token.status();
    const std::string path = fmt::format("{}/topocoll-{}", directory, to_hex(*token));
    Fd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!fd.valid()) {
      return failure(errno,
                     fmt::format("creating shared memory in {} (TOPOCOLL_SHM_DIR)", directory));
    }
    ::unlink(path.c_str());
    if (resize(fd.get(), bytes) != 0) {
      return failure(errno, fmt::format("shared memory of {} in {} (ulimit -f may be too low)",
                                        size_text(bytes), directory));
    }
    return fd;
  }

  Status allocate(const Fd& fd, std::size_t offset, std::size_t bytes,
                  const std::string& what) override {
    for (;;) {
      if (::fallocate(fd.get(), 0, static_cast<off_t>(offset), static_cast<off_t>(bytes)) == 0) {
        return {};
      }
      if (errno == EINTR) continue;
      const int error = errno;
      struct statvfs fs {};
      std::string room;
      if (::fstatvfs(fd.get(), &fs) == 0 && fs.f_blocks != 0) {
        room = fmt::format(" ({} of {} free{})", size_text(fs.f_bavail * fs.f_frsize),
                           size_text(fs.f_blocks * fs.f_frsize), directory_of(fd));
      }
      return failure(error,
                     fmt::format("{} needs {} of shared memory{}", what, size_text(bytes), room));
    }
  }

  Result<Mapping> map(const Fd& fd, std::size_t bytes) override {
    void* p = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
    if (p == MAP_FAILED) return failure(errno, fmt::format("mapping {}", size_text(bytes)));
    return Mapping(p, bytes);
  }

  Result<std::size_t> file_size(const Fd& fd) override {
    struct stat st {};
    if (::fstat(fd.get(), &st) != 0) return failure(errno, "fstat");
    return static_cast<std::size_t>(st.st_size);
  }

  Result<std::size_t> allocated_bytes(const Fd& fd) override {
    struct stat st {};
    if (::fstat(fd.get(), &st) != 0) return failure(errno, "fstat");
    return static_cast<std::size_t>(st.st_blocks) * 512;
  }

  Status populate(std::span<std::byte> memory) override {
    constexpr int kPopulateWrite = 23;  // MADV_POPULATE_WRITE, which older headers lack
    if (::madvise(memory.data(), memory.size(), kPopulateWrite) == 0) return {};
    return failure(errno, "madvise(MADV_POPULATE_WRITE)");
  }

  void futex_wait(std::atomic<std::uint32_t>* word, std::uint32_t expected,
                  TimePoint deadline) override {
    const auto left = std::max(Nanoseconds(0), deadline - Clock::now());
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(left);
    timespec ts{static_cast<time_t>(seconds.count()), static_cast<long>((left - seconds).count())};
    ::syscall(SYS_futex, word, FUTEX_WAIT, expected, &ts, nullptr, 0);
  }

  void futex_wake_all(std::atomic<std::uint32_t>* word) override {
    ::syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
  }

  Result<Fd> listen_abstract(const std::string& name, int backlog) override {
    auto address = abstract_address(name);
    if (!address.ok()) return address.status();
    Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd.valid()) return failure(errno, "creating a unix socket");
    if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address->address), address->length) !=
            0 ||
        ::listen(fd.get(), backlog) != 0) {
      return failure(errno, fmt::format("listening on unix socket @{}", name));
    }
    return fd;
  }

  Result<Fd> connect_abstract(const std::string& name, TimePoint deadline) override {
    auto address = abstract_address(name);
    if (!address.ok()) return address.status();
    for (;;) {
      Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
      if (!fd.valid()) return failure(errno, "creating a unix socket");
      if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address->address),
                    address->length) == 0) {
        return fd;
      }
      // A full backlog answers EAGAIN at once and gives nothing to poll for.
      if ((errno != EAGAIN && errno != EINTR) || Clock::now() >= deadline) {
        return failure(errno, fmt::format("connecting to unix socket @{}", name));
      }
      ::poll(nullptr, 0, 1);
    }
  }

  Result<Fd> accept(const Fd& listener, TimePoint deadline) override {
    for (;;) {
      Fd fd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (fd.valid()) return fd;
      if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
        return failure(errno, "accept");
      if (!wait_for(listener.get(), POLLIN, deadline)) {
        return Status(Cause::kTimeout, "no connection came in time");
      }
    }
  }

  Result<PeerCredentials> peer_credentials(const Fd& socket) override {
    ucred c{};
    socklen_t length = sizeof c;
    if (::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &c, &length) != 0) {
      return failure(errno, "SO_PEERCRED");
    }
    return PeerCredentials{static_cast<int>(c.pid), c.uid};
  }

  Status send_all(const Fd& socket, std::span<const std::byte> bytes, int attached,
                  TimePoint deadline) override {
    std::size_t sent = 0;
    while (sent < bytes.size()) {
      iovec io{const_cast<std::byte*>(bytes.data()) + sent, bytes.size() - sent};
      msghdr message{};
      message.msg_iov = &io;
      message.msg_iovlen = 1;
      alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
      if (attached >= 0 && sent == 0) {
        message.msg_control = control.data();
        message.msg_controllen = control.size();
        cmsghdr* c = CMSG_FIRSTHDR(&message);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof(int));
        std::memcpy(CMSG_DATA(c), &attached, sizeof attached);
      }
      const ssize_t n = ::sendmsg(socket.get(), &message, MSG_NOSIGNAL);
      if (n > 0) {
        sent += static_cast<std::size_t>(n);
      } else if (errno == EPIPE || errno == ECONNRESET) {
        return Status(Cause::kPeerLeft, "the other end closed the connection");
      } else if (errno != EAGAIN && errno != EINTR) {
        return failure(errno, "sending on a unix socket");
      } else if (!wait_for(socket.get(), POLLOUT, deadline)) {
        return Status(Cause::kTimeout, "the other end does not take what is sent");
      }
    }
    return {};
  }

  Result<Fd> receive_all(const Fd& socket, std::span<std::byte> bytes,
                         TimePoint deadline) override {
    Fd received;
    std::size_t have = 0;
    while (have < bytes.size()) {
      iovec io{bytes.data() + have, bytes.size() - have};
      msghdr message{};
      message.msg_iov = &io;
      message.msg_iovlen = 1;
      alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
      message.msg_control = control.data();
      message.msg_controllen = control.size();
      const ssize_t n = ::recvmsg(socket.get(), &message, MSG_CMSG_CLOEXEC);
      if (n > 0) {
        have += static_cast<std::size_t>(n);
        if ((message.msg_flags & MSG_CTRUNC) != 0) {
          return failure(EMFILE, "receiving a descriptor on a unix socket");
        }
        for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
          if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS &&
              c->cmsg_len == CMSG_LEN(sizeof(int))) {
            int fd = -1;
            std::memcpy(&fd, CMSG_DATA(c), sizeof fd);
            received = Fd(fd);
          }
        }
      } else if (n == 0 || errno == ECONNRESET) {
        return Status(Cause::kPeerLeft, "the other end closed the connection");
      } else if (errno != EAGAIN && errno != EINTR) {
        return failure(errno, "receiving on a unix socket");
      } else if (!wait_for(socket.get(), POLLIN, deadline)) {
        return Status(Cause::kTimeout, "the other end sent nothing in time");
      }
    }
    return received;
  }

  std::vector<std::size_t> wait_readable(std::span<const int> fds, TimePoint deadline) override {
    std::vector<pollfd> polls;
    polls.reserve(fds.size());
    for (int fd : fds) polls.push_back({fd, POLLIN, 0});
    std::vector<std::size_t> ready;
    for (;;) {
      int n = ::poll(polls.data(), polls.size(), milliseconds_until(deadline));
      if (n < 0 && errno == EINVAL) n = poll_one_by_one(polls, deadline);
      if (n > 0) {
        for (std::size_t i = 0; i < polls.size(); ++i) {
          if (polls[i].revents != 0) ready.push_back(i);
        }
        return ready;
      }
      if (n == 0 && Clock::now() >= deadline) return ready;
    }
  }

  Result<Fd> create_event() override {
    Fd fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!fd.valid()) return failure(errno, "eventfd");
    return fd;
  }

  void notify_event(const Fd& event) override {
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t n = ::write(event.get(), &one, sizeof one);
  }
};

}  // namespace

std::string to_hex(const Token& token) {
  std::string text;
  for (std::byte b : token) text += fmt::format("{:02x}", std::to_integer<unsigned>(b));
  return text;
}

bool equal(const Token& a, const Token& b) {
  std::byte difference{0};
  for (std::size_t i = 0; i < a.size(); ++i) difference |= a[i] ^ b[i];
  return difference == std::byte{0};
}

Os& Os::real() {
  static PosixOs* const os = new PosixOs;  // never destroyed: used by threads that outlive statics
  return *os;
}

std::uint32_t fork_generation() {
  [[maybe_unused]] static const int registered = ::pthread_atfork(
      nullptr, nullptr, [] { g_fork_generation.fetch_add(1, std::memory_order_relaxed); });
  return g_fork_generation.load(std::memory_order_relaxed);
}

}  // namespace topocoll
