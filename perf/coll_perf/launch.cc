#include "coll_perf/launch.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <new>
#include <utility>
#include <vector>

#include "coll_perf/output.h"

namespace topocoll::perf {
namespace {

using Clock = std::chrono::steady_clock;

/// How long the other ranks have to report a failure before they are killed.
constexpr std::chrono::seconds kGrace{5};

/// What each rank reads from the launcher once its store listens.
struct Invitation {
  std::uint16_t port = 0;
  std::array<char, 32> secret{};
};

class Launcher {
 public:
  Launcher(std::string program, int ranks, const RankMain& rank_main)
      : program_(std::move(program)), ranks_(ranks), rank_main_(rank_main) {}

  Launched run();

 private:
  bool start_ranks();
  [[noreturn]] void be_rank(int rank);
  bool invite();
  void watch();
  void reap();
  void judge(int rank, int status);
  void say(const std::string& text) const { say_error(fmt::format("{}: {}\n", program_, text)); }
  void fail(int exit_status, int rank = -1) {
    if (result_.exit_status == 0) result_ = {exit_status, rank, 0};
    if (deadline_ == Clock::time_point::max()) deadline_ = Clock::now() + kGrace;
  }
  void signal_ranks(int signal) {
    signalled_ = true;
    if (group_ > 0) ::kill(-group_, signal);
  }

  const std::string program_;
  const int ranks_;
  const RankMain& rank_main_;
  pid_t parent_ = 0;
  pid_t group_ = 0;
  std::vector<pid_t> pids_;  // 0 once reaped
  int alive_ = 0;
  int pipe_[2] = {-1, -1};
  sigset_t signals_{};
  sigset_t before_{};
  std::unique_ptr<StoreServer> server_;
  bool signalled_ = false;  // ranks may die of our own signals from now on
  Launched result_;
  Clock::time_point deadline_ = Clock::time_point::max();
};

Launched Launcher::run() {
  parent_ = ::getpid();
  ::sigemptyset(&signals_);
  for (const int s : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGCHLD}) ::sigaddset(&signals_, s);
  ::sigprocmask(SIG_BLOCK, &signals_, &before_);
  if (::pipe2(pipe_, O_CLOEXEC) != 0) {
    say(fmt::format("cannot make a pipe: {}", std::strerror(errno)));
    return {1, -1, 0};
  }
  const bool started = start_ranks() && invite();
  // The write end stays open: a rank that is started late must not read an early end of file.
  ::close(pipe_[0]);
  if (!started) {
    fail(1);
    signal_ranks(SIGKILL);
  }
  watch();
  ::close(pipe_[1]);
  ::sigprocmask(SIG_SETMASK, &before_, nullptr);
  return result_;
}

bool Launcher::start_ranks() {
  for (int rank = 0; rank < ranks_; ++rank) {
    const pid_t pid = ::fork();
    if (pid == 0) be_rank(rank);
    if (pid < 0) {
      say(fmt::format("cannot start rank {}: {}", rank, std::strerror(errno)));
      return false;
    }
    if (group_ == 0) group_ = pid;
    ::setpgid(pid, group_);  // here and in the rank: whoever comes first
    pids_.push_back(pid);
    ++alive_;
  }
  return true;
}

void Launcher::be_rank(int rank) {
  ::setpgid(0, group_);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent_) ::_exit(1);  // the launcher died before the line above
  ::sigprocmask(SIG_SETMASK, &before_, nullptr);
  ::close(pipe_[1]);
  Invitation invitation;
  if (::read(pipe_[0], &invitation, sizeof invitation) != sizeof invitation) ::_exit(1);
  ::close(pipe_[0]);
  const std::string secret(invitation.secret.data(), invitation.secret.size());
  auto store = connect_tcp_store("127.0.0.1", invitation.port, secret, std::chrono::seconds(60));
  if (!store.ok()) {
    say(fmt::format("rank {}: {}", rank, store.status().to_string()));
    ::_exit(1);
  }
  int status = 1;
  try {
    status = rank_main_(rank, ranks_, std::move(*store));
  } catch (const std::bad_alloc&) {
    say(fmt::format("rank {}: out of memory; see ulimit -v and the limit of the container", rank));
  }
  std::exit(status);
}

bool Launcher::invite() {
  Invitation invitation;
  if (::getrandom(invitation.secret.data(), invitation.secret.size(), 0) !=
      static_cast<ssize_t>(invitation.secret.size())) {
    say("cannot get random bytes");
    return false;
  }
  const std::string secret(invitation.secret.data(), invitation.secret.size());
  auto server = serve_tcp_store("127.0.0.1", 0, secret);
  if (!server.ok()) {
    say(server.status().to_string());
    return false;
  }
  server_ = std::move(*server);
  invitation.port = server_->port();
  // Smaller than PIPE_BUF, so each write and each read is whole.
  for (int rank = 0; rank < ranks_; ++rank) {
    if (::write(pipe_[1], &invitation, sizeof invitation) != sizeof invitation) return false;
  }
  return true;
}

void Launcher::watch() {
  bool killed = false;
  while (alive_ > 0) {
    const auto left = std::min<Clock::duration>(deadline_ - Clock::now(), std::chrono::hours(1));
    const auto ns = std::max<std::int64_t>(
        std::chrono::duration_cast<std::chrono::nanoseconds>(left).count(), 0);
    const timespec wait{.tv_sec = ns / 1'000'000'000, .tv_nsec = ns % 1'000'000'000};
    const int signal = ::sigtimedwait(&signals_, nullptr, &wait);
    if (signal == SIGCHLD) {
      reap();
    } else if (signal > 0) {
      signal_ranks(signal);
      fail(128 + signal);
    } else if (!killed && Clock::now() >= deadline_) {
      killed = true;
      say(fmt::format("killing the {} rank{} still running", alive_, alive_ == 1 ? "" : "s"));
      signal_ranks(SIGKILL);
      deadline_ = Clock::now() + std::chrono::hours(1);
    }
  }
}

void Launcher::reap() {
  while (true) {
    int status = 0;
    const pid_t pid = ::waitpid(-1, &status, WNOHANG);
    if (pid <= 0) return;
    for (int rank = 0; rank < static_cast<int>(pids_.size()); ++rank) {
      if (pids_[static_cast<std::size_t>(rank)] != pid) continue;
      pids_[static_cast<std::size_t>(rank)] = 0;
      --alive_;
      judge(rank, status);
    }
  }
}

void Launcher::judge(int rank, int status) {
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return;
  if (WIFSIGNALED(status)) {
    const int signal = WTERMSIG(status);
    if (!signalled_) {
      // This is why the others failed, even if some of them have been reaped before.
      say(fmt::format("rank {} was killed by signal {} ({})", rank, signal, ::strsignal(signal)));
      result_ = {1, rank, signal};
    }
    fail(1, rank);
    return;
  }
  const int exit_status = WEXITSTATUS(status);
  if (exit_status == kBrokenPipe) {
    signal_ranks(SIGKILL);  // nobody reads what they measure
  }
  fail(exit_status, rank);
}

}  // namespace

std::optional<std::string> lack_of_files(int ranks) {
  // A pipe, the store's listener and event, and a connection for each. No rank needs as many. They
  // are tried, for the caller may have left others open.
  const int needed = 4 + ranks;
  std::vector<int> opened;
  int error = 0;
  while (static_cast<int>(opened.size()) < needed && error == 0) {
    const int fd = ::eventfd(0, EFD_CLOEXEC);
    if (fd >= 0) {
      opened.push_back(fd);
    } else {
      error = errno;
    }
  }
  for (const int fd : opened) ::close(fd);
  if (error == 0) return std::nullopt;
  const auto missing = static_cast<rlim_t>(needed) - opened.size();
  rlimit limit{};
  if (error != EMFILE || ::getrlimit(RLIMIT_NOFILE, &limit) != 0) {
    return fmt::format("{} ranks need {} more open files: {}", ranks, missing,
                       std::strerror(error));
  }
  const rlim_t enough = limit.rlim_cur + missing;
  return fmt::format("{} ranks need {} open files, ulimit -n is {}: raise it (ulimit -n {})", ranks,
                     enough, limit.rlim_cur, enough);
}

Launched launch(const std::string& program, int ranks, const RankMain& rank_main) {
  if (const auto lack = lack_of_files(ranks)) {
    say_error(fmt::format("{}: {}\n", program, *lack));
    return {1, -1, 0};
  }
  std::fflush(nullptr);  // or each rank would write what is buffered once more
  return Launcher(program, ranks, rank_main).run();
}

}  // namespace topocoll::perf
