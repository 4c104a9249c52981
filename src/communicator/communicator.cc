// The public Communicator: creation, and the named forms of run().
#include "topocoll/communicator.h"

#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/log.h"
#include "base/options.h"
#include "communicator/core.h"
#include "communicator/given_plans.h"
#include "control/bootstrap.h"
#include "topocoll/version.h"

namespace topocoll {
namespace {

class ShmCommunicator final : public Communicator {
 public:
  explicit ShmCommunicator(std::shared_ptr<Core> core) : core_(std::move(core)) {}
  ~ShmCommunicator() override { static_cast<void>(core_->shutdown(std::nullopt)); }

  [[nodiscard]] int rank() const override { return core_->rank(); }
  [[nodiscard]] int size() const override { return core_->size(); }
  [[nodiscard]] CommunicatorInfo info() const override { return core_->info(); }
  [[nodiscard]] Choice choice(const Operation& op) const override { return core_->choice(op); }
  Status run(const Operation& op, Received* received) override { return core_->run(op, received); }
  std::shared_ptr<Work> enqueue(Operation op) override {
    std::vector<Operation> group;
    group.push_back(std::move(op));
    return core_->enqueue(std::move(group));
  }
  std::shared_ptr<Work> enqueue(std::vector<Operation> group) override {
    return core_->enqueue(std::move(group));
  }
  Status commit() override { return core_->commit(); }
  [[nodiscard]] std::uint64_t committed() const override { return core_->committed(); }
  [[nodiscard]] std::uint64_t sequence() const override { return core_->sequence(); }
  [[nodiscard]] Status health() const override { return core_->health(); }
  void abort(const std::string& reason) override { core_->abort(reason); }
  Status shutdown(std::optional<std::chrono::milliseconds> limit) override {
    return core_->shutdown(limit);
  }
  void set_timeout(std::chrono::milliseconds timeout) override { core_->set_timeout(timeout); }
  [[nodiscard]] std::chrono::milliseconds timeout() const override { return core_->timeout(); }

 private:
  std::shared_ptr<Core> core_;
};

Status check(const CommunicatorOptions& o) {
  if (o.size < 1) return Status(Cause::kInvalidArgument, fmt::format("size {} is less than 1", o.size));
  if (o.rank < 0 || o.rank >= o.size) {
    return Status(Cause::kInvalidArgument, fmt::format("rank {} is not in a group of {}", o.rank, o.size));
  }
  if (!o.job_ranks.empty() && o.job_ranks.size() != static_cast<std::size_t>(o.size)) {
    return Status(Cause::kInvalidArgument, fmt::format("job_ranks names {} ranks, the group has {}",
                                                       o.job_ranks.size(), o.size));
  }
  if (o.size > shm::kMaxRanks) {
    return Status(Cause::kUnsupported, fmt::format("{} ranks on one host: 1 to {} are supported", o.size,
                                                   shm::kMaxRanks));
  }
  if (o.timeout.count() <= 0) {
    return Status(Cause::kInvalidArgument, fmt::format("timeout {} ms is not positive", o.timeout.count()));
  }
  return {};
}

shm::Backing backing_of(ShmBacking option) {
  switch (option) {
    case ShmBacking::kMemfd: return shm::Backing::kMemfd;
    case ShmBacking::kDevShm: return shm::Backing::kFile;
    case ShmBacking::kAuto: break;
  }
  return shm::Backing::kAuto;
}

}  // namespace

Result<std::unique_ptr<Communicator>> Communicator::create(const CommunicatorOptions& given) {
  CommunicatorOptions o = given;
  BootstrapOptions meeting;
  meeting.rank = o.rank;
  meeting.size = o.size;
  meeting.store = o.store.get();
  meeting.name = o.name;
  auto settings = Options::from_environment();
  if (!settings.ok()) return decline(Os::real(), meeting, settings.status());
  if (settings->timeout) o.timeout = *settings->timeout;
  if (Status s = check(o); !s.ok()) return decline(Os::real(), meeting, std::move(s));
  const CommitMode mode = o.commit.value_or(settings->commit);
  meeting.timeout = o.timeout;
  meeting.build_tag = o.build_tag;
  auto plans = read_given_plans(settings->plan.value_or(""), o.size, settings->reproducible,
                                settings->all_reduce_algorithm);
  if (!plans.ok()) return decline(Os::real(), meeting, plans.status());
  if (o.rank == 0 && !plans->others.empty()) {
    log().info("TOPOCOLL_PLAN: this group of {} ranks uses no plan for another number of ranks: {}", o.size,
               fmt::join(plans->others, ", "));
  }
  meeting.settings = fmt::format("commit mode {}, plans {}", name(mode), plans->digest);
  meeting.host_id = settings->host_id.value_or("");
  meeting.backing = backing_of(settings->shm_backing);
  meeting.shm_directory = settings->shm_dir;
  auto assembly = bootstrap(Os::real(), meeting);
  if (!assembly.ok()) return assembly.status();

  auto core = std::make_shared<Core>(Os::real(), o, *settings, mode, std::move(*assembly));
  auto communicator = std::make_unique<ShmCommunicator>(core);
  if (Status s = core->start(std::move(plans->plans)); !s.ok()) return s;
  return std::unique_ptr<Communicator>(std::move(communicator));
}

namespace {

Operation operation(CollectiveKind kind, DataType type, const void* in, void* out, std::size_t count) {
  Operation op;
  op.kind = kind;
  op.type = type;
  op.in = in;
  op.out = out;
  op.count = count;
  return op;
}

}  // namespace

Status Communicator::all_reduce(const void* in, void* out, std::size_t count, DataType type, Reduction op) {
  Operation o = operation(CollectiveKind::kAllReduce, type, in, out, count);
  o.reduction = op;
  return run(o);
}

Status Communicator::broadcast(const void* in, void* out, std::size_t count, DataType type, int root) {
  Operation o = operation(CollectiveKind::kBroadcast, type, in, out, count);
  o.root = root;
  return run(o);
}

Status Communicator::reduce(const void* in, void* out, std::size_t count, DataType type, Reduction op,
                            int root) {
  Operation o = operation(CollectiveKind::kReduce, type, in, out, count);
  o.reduction = op;
  o.root = root;
  return run(o);
}

Status Communicator::all_gather(const void* in, void* out, std::size_t count, DataType type) {
  return run(operation(CollectiveKind::kAllGather, type, in, out, count));
}

Status Communicator::all_gather_v(ConstBlock in, std::span<const Block> out, DataType type) {
  Operation o = operation(CollectiveKind::kAllGather, type, in.data, nullptr, in.count);
  o.out_blocks.assign(out.begin(), out.end());
  return run(o);
}

Status Communicator::reduce_scatter(const void* in, void* out, std::size_t count, DataType type,
                                    Reduction op) {
  Operation o = operation(CollectiveKind::kReduceScatter, type, in, out, count);
  o.reduction = op;
  return run(o);
}

Status Communicator::reduce_scatter_v(std::span<const ConstBlock> in, Block out, DataType type,
                                      Reduction op) {
  Operation o = operation(CollectiveKind::kReduceScatter, type, nullptr, out.data, out.count);
  o.in_blocks.assign(in.begin(), in.end());
  o.reduction = op;
  return run(o);
}

Status Communicator::all_to_all(const void* in, void* out, std::size_t count, DataType type) {
  return run(operation(CollectiveKind::kAllToAll, type, in, out, count));
}

Status Communicator::all_to_all_v(std::span<const ConstBlock> in, std::span<const Block> out,
                                  DataType type) {
  Operation o = operation(CollectiveKind::kAllToAll, type, nullptr, nullptr, 0);
  o.in_blocks.assign(in.begin(), in.end());
  o.out_blocks.assign(out.begin(), out.end());
  return run(o);
}

Status Communicator::gather(const void* in, void* out, std::size_t count, DataType type, int root) {
  Operation o = operation(CollectiveKind::kGather, type, in, out, count);
  o.root = root;
  return run(o);
}

Status Communicator::gather_v(ConstBlock in, std::span<const Block> out, DataType type, int root) {
  Operation o = operation(CollectiveKind::kGather, type, in.data, nullptr, in.count);
  o.out_blocks.assign(out.begin(), out.end());
  o.root = root;
  return run(o);
}

Status Communicator::scatter(const void* in, void* out, std::size_t count, DataType type, int root) {
  Operation o = operation(CollectiveKind::kScatter, type, in, out, count);
  o.root = root;
  return run(o);
}

Status Communicator::scatter_v(std::span<const ConstBlock> in, Block out, DataType type, int root) {
  Operation o = operation(CollectiveKind::kScatter, type, nullptr, out.data, out.count);
  o.in_blocks.assign(in.begin(), in.end());
  o.root = root;
  return run(o);
}

Status Communicator::send(const void* in, std::size_t count, DataType type, int peer, int tag) {
  Operation o = operation(CollectiveKind::kSend, type, in, nullptr, count);
  o.peer = peer;
  o.tag = tag;
  return run(o);
}

Result<Communicator::Received> Communicator::recv(void* out, std::size_t count, DataType type, int peer,
                                                  int tag) {
  Operation o = operation(CollectiveKind::kRecv, type, nullptr, out, count);
  o.peer = peer;
  o.tag = tag;
  Received received;
  if (Status s = run(o, &received); !s.ok()) return s;
  return received;
}

Status Communicator::barrier() {
  return run(operation(CollectiveKind::kBarrier, DataType::kU8, nullptr, nullptr, 0));
}

}  // namespace topocoll
