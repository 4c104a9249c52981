// Os: the one seam to the kernel and the clock. Tests substitute one that injects faults.
//
// Thread rule: implementations serve calls from any thread.
// Failure rule: a failed call returns a Status whose text names the call, the object and errno's words;
// memory and descriptor exhaustion are kResource, the rest kSystem. No call blocks beyond its deadline,
// and none raises SIGPIPE.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/fd.h"
#include "topocoll/status.h"

namespace topocoll {

using Clock = std::chrono::steady_clock;
using TimePoint = Clock::time_point;
using Nanoseconds = std::chrono::nanoseconds;

/// 128 random bits: names of sockets, proofs of identity.
using Token = std::array<std::byte, 16>;
std::string to_hex(const Token& token);
/// Compares in constant time.
bool equal(const Token& a, const Token& b);

/// What a socket's other end is, by the kernel's word.
struct PeerCredentials {
  int pid = 0;
  unsigned uid = 0;
};

/// Where memory comes from when its NUMA node has none left: nowhere, or another node.
enum class Binding : std::uint8_t { kStrict, kPreferred };

class Os {
 public:
  virtual ~Os() = default;

  virtual TimePoint now() = 0;
  virtual void yield() = 0;
  /// For waits on what cannot be waited for, such as a key in somebody else's store.
  virtual void sleep(Nanoseconds time) = 0;
  virtual int pid() = 0;
  virtual unsigned uid() = 0;
  /// CPUs that this process may run on, ascending.
  virtual std::vector<int> usable_cpus() = 0;
  /// Keeps the calling thread on one CPU; false if it may not run there.
  virtual bool pin_thread(int cpu) = 0;
  /// Lets untouched memory, from a page's start on, come from one NUMA node.
  virtual Status bind_memory(std::span<std::byte> memory, int node, Binding binding) = 0;
  virtual Result<Token> random_token() = 0;

  /// Anonymous shared memory whose size is sealed. `name` is shown in /proc only.
  virtual Result<Fd> create_memfd(const std::string& name, std::size_t bytes) = 0;
  /// The same as a file in `directory` that is unlinked before this returns.
  virtual Result<Fd> create_unlinked_file(const std::string& directory, std::size_t bytes) = 0;
  /// Makes sure that [offset, offset + bytes) has memory behind it, so that touching it cannot fault.
  /// `what` and the place are named in the error.
  virtual Status allocate(const Fd& fd, std::size_t offset, std::size_t bytes,
                          const std::string& what) = 0;
  virtual Result<Mapping> map(const Fd& fd, std::size_t bytes) = 0;
  virtual Result<std::size_t> file_size(const Fd& fd) = 0;
  /// How much of a file has memory (or disk blocks) behind it.
  virtual Result<std::size_t> allocated_bytes(const Fd& fd) = 0;
  /// Enters shared memory, from a page's start on, into this process's page table, which the first
  /// touch of each page would do otherwise. Before Linux 5.14 it fails and nothing is done.
  virtual Status populate(std::span<std::byte> memory) = 0;

  /// Sleeps while *word == expected, at most until `deadline`; may return early.
  virtual void futex_wait(std::atomic<std::uint32_t>* word, std::uint32_t expected,
                          TimePoint deadline) = 0;
  virtual void futex_wake_all(std::atomic<std::uint32_t>* word) = 0;

  /// Sockets in the abstract Unix namespace: they have no file and vanish with their process.
  virtual Result<Fd> listen_abstract(const std::string& name, int backlog) = 0;
  virtual Result<Fd> connect_abstract(const std::string& name, TimePoint deadline) = 0;
  /// Waits for a connection; kTimeout at the deadline.
  virtual Result<Fd> accept(const Fd& listener, TimePoint deadline) = 0;
  virtual Result<PeerCredentials> peer_credentials(const Fd& socket) = 0;
  /// Sends all bytes, with a descriptor beside the first if `attached` >= 0.
  virtual Status send_all(const Fd& socket, std::span<const std::byte> bytes, int attached,
                          TimePoint deadline) = 0;
  /// Receives exactly bytes.size() bytes and at most one descriptor; EOF is kPeerLeft.
  virtual Result<Fd> receive_all(const Fd& socket, std::span<std::byte> bytes,
                                 TimePoint deadline) = 0;
  /// Indices of the descriptors that are readable or at their end; empty at the deadline.
  virtual std::vector<std::size_t> wait_readable(std::span<const int> fds, TimePoint deadline) = 0;
  /// A descriptor that becomes readable by notify_event().
  virtual Result<Fd> create_event() = 0;
  virtual void notify_event(const Fd& event) = 0;

  /// The kernel itself.
  static Os& real();
};

/// How often this process has been forked, counted in the child: a communicator compares it with the
/// count at its creation to tell that it is used in a child of its process, without a system call.
std::uint32_t fork_generation();

}  // namespace topocoll
