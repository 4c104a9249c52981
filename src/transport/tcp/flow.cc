#include "transport/tcp/flow.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "transport/tcp/socket.h"

namespace topocoll::tcp {
namespace {

using std::chrono::duration;

constexpr char kMore = 1;
constexpr char kLast = 0;
/// Slices of a stream, those of the start included.
constexpr int kSlices = 40;
constexpr double kStart = 0.2;
/// How much later than agreed the last byte may come: what lies in buffers of a slow network.
constexpr std::chrono::seconds kGrace{10};

Status failure(int error) {
  const bool gone = error == EPIPE || error == ECONNRESET;
  return Status(gone ? Cause::kPeerLeft : Cause::kSystem,
                gone ? "the other end closed the connection" : error_text(error));
}

/// Frames on their way out.
class Outflow {
 public:
  Outflow(int fd, bool wanted, TimePoint end) : fd_(fd), end_(end), done_(!wanted) {}

  [[nodiscard]] bool done() const { return done_; }

  /// Sends until the socket takes no more.
  Status push() {
    for (int burst = 0; !done_ && burst < kBurst; ++burst) {
      if (sent_ == 0) frame_[0] = Clock::now() < end_ ? kMore : kLast;
      const ssize_t n =
          ::send(fd_, frame_.data() + sent_, kFrameBytes - sent_, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (n < 0 && errno == EAGAIN) return {};
      if (n < 0 && errno != EINTR) return failure(errno);
      sent_ += static_cast<std::size_t>(std::max<ssize_t>(n, 0));
      if (sent_ < kFrameBytes) continue;
      sent_ = 0;
      done_ = frame_[0] == kLast;
    }
    return {};
  }

 private:
  static constexpr int kBurst = 16;  ///< before the other direction has its turn
  int fd_;
  TimePoint end_;
  bool done_;
  std::size_t sent_ = 0;
  std::array<char, kFrameBytes> frame_{};
};

/// Frames that come in, and when.
class Inflow {
 public:
  Inflow(int fd, bool wanted, std::chrono::milliseconds time)
      : fd_(fd), slice_(time / static_cast<double>(kSlices)), done_(!wanted) {}

  [[nodiscard]] bool done() const { return done_; }

  Status pull() {
    for (int burst = 0; !done_ && burst < kBurst; ++burst) {
      const std::size_t room = kFrameBytes - have_;
      const ssize_t n = ::recv(fd_, frame_.data() + have_, room, MSG_DONTWAIT);
      if (n == 0) return failure(EPIPE);
      if (n < 0 && errno == EAGAIN) return {};
      if (n < 0 && errno != EINTR) return failure(errno);
      count(static_cast<std::size_t>(std::max<ssize_t>(n, 0)));
    }
    return {};
  }

  /// Without the start, unless there is nothing else.
  [[nodiscard]] std::vector<double> rates() const {
    std::size_t skipped = 0;
    while (skipped + 1 < rates_.size() && ends_[skipped] < kStart * kSlices) ++skipped;
    return {rates_.begin() + static_cast<std::ptrdiff_t>(skipped), rates_.end()};
  }

 private:
  void count(std::size_t bytes) {
    const TimePoint now = Clock::now();
    have_ += bytes;
    if (started_) {
      in_slice_ += bytes;
    } else {  // what was there before the clock started does not count
      started_ = true;
      first_ = since_ = now;
    }
    const duration<double> passed = now - since_;
    if (passed >= slice_ && rates_.size() < kMaxSlices) {
      rates_.push_back(static_cast<double>(in_slice_) / passed.count() / 1e9);
      ends_.push_back((now - first_) / slice_);
      since_ = now;
      in_slice_ = 0;
    }
    if (have_ < kFrameBytes) return;
    have_ = 0;
    done_ = frame_[0] == kLast;
  }

  static constexpr int kBurst = 16;
  int fd_;
  duration<double> slice_;
  bool done_;
  bool started_ = false;
  TimePoint first_;
  TimePoint since_;
  std::size_t have_ = 0;
  std::size_t in_slice_ = 0;
  std::vector<double> rates_;
  std::vector<double> ends_;  ///< in slices from the first byte
  std::array<char, kFrameBytes> frame_{};
};

}  // namespace

Result<std::vector<double>> run_flow(const Fd& socket, FlowDirections directions,
                                     std::chrono::milliseconds time) {
  time = std::clamp(time, std::chrono::milliseconds(1), kMaxFlowTime);
  // What waits in the socket when time is up has to be sent all the same: on a slow network that
  // would take longer than the stream.
  const int waiting = 2 * static_cast<int>(kFrameBytes);
  ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NOTSENT_LOWAT, &waiting, sizeof waiting);
  const TimePoint start = Clock::now();
  Outflow out(socket.get(), directions.send, start + time);
  Inflow in(socket.get(), directions.receive, time);
  const TimePoint deadline = start + time + kGrace;
  while (!out.done() || !in.done()) {
    pollfd entry{socket.get(), 0, 0};
    if (!out.done()) entry.events |= POLLOUT;
    if (!in.done()) entry.events |= POLLIN;
    if (Clock::now() >= deadline) return Status(Cause::kTimeout, "the stream did not end in time");
    if (::poll(&entry, 1, poll_timeout(deadline)) < 0 && errno != EINTR) return failure(errno);
    if (Status s = out.push(); !s.ok()) return s;
    if (Status s = in.pull(); !s.ok()) return s;
  }
  return in.rates();
}

}  // namespace topocoll::tcp
