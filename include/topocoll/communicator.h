// Communicator: a group of ranks that perform collective operations together.
//
//   CommunicatorOptions o;
//   o.rank = rank; o.size = size; o.store = store;
//   auto comm = Communicator::create(o);
//   if (!comm.ok()) fail(comm.status());
//   Status s = (*comm)->all_reduce(in, out, n, DataType::kF32, ReduceOp::kSum);
//
// Thread rule: all ranks issue the collectives of one communicator in one order; blocking calls from
// several threads are safe and are served one after the other. Different communicators are independent.
// abort(), committed() and Work may be used from any thread at any time.
// Failure rule: when an operation fails for a reason that concerns the group, every rank that stays in
// the group gets a Status with the same cause, culprits and sequence number from that operation, and
// from every later one. Outputs of a failed operation are unspecified. Errors of the caller's own
// arguments (kInvalidArgument) leave the group intact and consume no sequence number.
// A child made by fork() must not use its parent's communicators: calls return kUnsupported there.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "topocoll/export.h"
#include "topocoll/operation.h"
#include "topocoll/status.h"
#include "topocoll/store.h"
#include "topocoll/topology.h"
#include "topocoll/types.h"

namespace topocoll {

/// Ranks of one group that a host can hold.
inline constexpr int kMaxRanksPerHost = 64;

/// When a blocking call reports success.
enum class CommitMode : std::uint8_t {
  kStrict,   ///< with proof that every rank completed the operation (one confirm round)
  kChained,  ///< when the result is here; the proof arrives with the next operation, or by commit()
};

struct CommunicatorOptions {
  int rank = 0;
  int size = 1;
  std::shared_ptr<Store> store;  ///< may be null if size is 1
  /// Distinguishes groups that share a store; all ranks of a group pass the same name.
  std::string name = "default";
  /// For creation and for every operation that brings no timeout of its own.
  std::chrono::milliseconds timeout = std::chrono::minutes(30);
  /// Absent: TOPOCOLL_COMMIT decides (strict by default).
  std::optional<CommitMode> commit;
  /// Anything that must be equal on all ranks, e.g. "torch 2.11"; compared at creation.
  std::string build_tag;
  /// Where the group is a part of a job: the job's rank of each of its ranks, the same on all of
  /// them. Errors then name both. Empty: the group is the job.
  std::vector<int> job_ranks;
};

/// An operation in flight. Thread rule: any thread.
class TOPOCOLL_API Work {
 public:
  virtual ~Work() = default;
  [[nodiscard]] virtual bool done() const = 0;
  /// Waits until the operation ended, at most `timeout`, and returns its status. If the time runs out
  /// first the result is kTimeout and the operation goes on.
  virtual Status wait(std::optional<std::chrono::milliseconds> timeout = std::nullopt) = 0;
  /// The status; OK while in flight.
  [[nodiscard]] virtual Status status() const = 0;
  /// recv: the group rank that sent the message, once done; else -1.
  [[nodiscard]] virtual int source() const = 0;
  /// recv: elements received, once done.
  [[nodiscard]] virtual std::size_t count() const = 0;
  /// Calls `f` once, when the operation has ended, on the thread that ends it (or at once).
  virtual void on_done(std::function<void(const Status&)> f) = 0;
};

/// How the group moves its bytes, for people and tools.
struct CommunicatorInfo {
  std::string transport;  ///< "shm" or "self"
  std::string host_id;
  std::size_t shared_bytes = 0;  ///< size of the group's shared segment
  bool oversubscribed = false;   ///< more local ranks than cores
  double flag_latency_ns = 0;    ///< measured between ranks 0 and 1 at creation; 0 if not measured
  std::string tuning;            ///< what the start-up probe chose, in words
};

/// What the communicator would execute for one call.
struct Choice {
  std::string algorithm;  ///< the plan's name: "one_shot", "two_shot", ...
  int channels = 1;
  std::string transport;
};

class TOPOCOLL_API Communicator {
 public:
  /// Collective over the group. Fails with kTimeout and the list of missing ranks if some do not come.
  static Result<std::unique_ptr<Communicator>> create(const CommunicatorOptions& options);
  /// As shutdown().
  virtual ~Communicator() = default;

  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;
  [[nodiscard]] virtual CommunicatorInfo info() const = 0;
  [[nodiscard]] virtual Choice choice(const Operation& operation) const = 0;

  /// Performs one operation and waits for it. recv: `received` (if given) gets source, tag and count.
  struct Received {
    int source = -1;
    int tag = 0;
    std::size_t count = 0;
  };
  virtual Status run(const Operation& operation, Received* received = nullptr) = 0;
  /// Queues an operation; queued operations start in the order of their calls, send and recv at once.
  virtual std::shared_ptr<Work> enqueue(Operation operation) = 0;
  /// Queues a group that ends as one: point-to-point operations of a group may be in any order.
  virtual std::shared_ptr<Work> enqueue(std::vector<Operation> group) = 0;

  /// Strict proof for everything issued so far by this rank; all ranks must call it alike.
  virtual Status commit() = 0;
  /// Highest sequence number that this rank knows to be committed on every rank.
  [[nodiscard]] virtual std::uint64_t committed() const = 0;
  /// Sequence number of the last collective issued by this rank; 0 before the first.
  [[nodiscard]] virtual std::uint64_t sequence() const = 0;
  /// OK, or the Status with which the group ended.
  [[nodiscard]] virtual Status health() const = 0;

  /// Ends the group's epoch on every rank with cause kAborted; wakes all waiting threads.
  virtual void abort(const std::string& reason) = 0;
  /// Waits up to `limit` (absent: TOPOCOLL_DRAIN_MS) for queued operations and sent messages, then
  /// leaves the group. Idempotent.
  virtual Status shutdown(std::optional<std::chrono::milliseconds> limit = std::nullopt) = 0;

  /// The limit of operations that bring none of their own.
  virtual void set_timeout(std::chrono::milliseconds timeout) = 0;
  [[nodiscard]] virtual std::chrono::milliseconds timeout() const = 0;

  // The named forms of run(); see Operation for shapes.
  Status all_reduce(const void* in, void* out, std::size_t count, DataType type, Reduction op);
  Status broadcast(const void* in, void* out, std::size_t count, DataType type, int root);
  Status reduce(const void* in, void* out, std::size_t count, DataType type, Reduction op, int root);
  Status all_gather(const void* in, void* out, std::size_t count, DataType type);
  Status all_gather_v(ConstBlock in, std::span<const Block> out, DataType type);
  Status reduce_scatter(const void* in, void* out, std::size_t count, DataType type, Reduction op);
  Status reduce_scatter_v(std::span<const ConstBlock> in, Block out, DataType type, Reduction op);
  Status all_to_all(const void* in, void* out, std::size_t count, DataType type);
  Status all_to_all_v(std::span<const ConstBlock> in, std::span<const Block> out, DataType type);
  Status gather(const void* in, void* out, std::size_t count, DataType type, int root);
  Status gather_v(ConstBlock in, std::span<const Block> out, DataType type, int root);
  Status scatter(const void* in, void* out, std::size_t count, DataType type, int root);
  Status scatter_v(std::span<const ConstBlock> in, Block out, DataType type, int root);
  Status send(const void* in, std::size_t count, DataType type, int peer, int tag = 0);
  Result<Received> recv(void* out, std::size_t count, DataType type, int peer, int tag = 0);
  Status barrier();

  /// The machines of all ranks as one graph, the same bytes on every rank: what each discovers,
  /// with what an earlier probe has kept (see probe.h); nothing is measured. One host is as it is
  /// alone; of several each is a subtree whose ids begin with its host id and a slash. A host's
  /// attribute `ranks` lists its ranks. All ranks call it alike, as a collective. kMismatch names
  /// two ranks that see one host differently; an error of one rank is every rank's.
  Result<Topology> topology();
};

}  // namespace topocoll
