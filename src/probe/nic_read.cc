#include "probe/nic_read.h"

#ifdef TOPOCOLL_VERBS
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <span>
#include <system_error>
#include <utility>

#include "base/thread.h"
#include "probe/memory.h"
#include "probe/pair.h"
#include "probe/statistics.h"
#include "transport/shm/waiter.h"
#include "transport/verbs/verbs.h"

namespace topocoll {
namespace {

constexpr int kReadsOfSample = 16;
constexpr int kWakingReads = 64;  ///< a device that nobody uses sleeps
constexpr int kMostGids = 8;
constexpr std::chrono::milliseconds kPatience{200};  ///< retries are over sooner
/// After this no other address of the port is tried: each may take a second to be refused.
constexpr std::chrono::milliseconds kConnecting{500};
constexpr StopRule kRule{.half_width = 0.01};        ///< a NUMA hop is some per cent
constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ;

/// The port's addresses that may lead to itself. An InfiniBand port needs none: it has a LID.
std::vector<int> usable_gids(const verbs::Device& device, std::uint8_t number,
                             const ibv_port_attr& port) {
  std::vector<int> usable;
  for (int i = 0; i < std::min(port.gid_tbl_len, kMostGids); ++i) {
    const auto gid = device.gid(number, i);
    if (!gid.ok()) continue;
    const std::span<const std::uint8_t> bytes(gid->raw);
    if (std::any_of(bytes.begin(), bytes.end(), [](std::uint8_t b) { return b != 0; })) {
      usable.push_back(i);
    }
  }
  return usable;
}

/// A port that is connected with itself.
class Loopback {
 public:
  static Result<Loopback> open(Os& os, const NicRead& read, Mapping memory,
                               const std::string& library) {
    auto device = verbs::Device::open(read.device, library);
    if (!device.ok()) return device.status();
    auto region = device->register_memory({memory.data(), memory.size()}, kAccess);
    if (!region.ok()) return region.status();
    auto completions = device->make_completion_queue(2);
    if (!completions.ok()) return completions.status();
    auto asking = device->make_queue_pair(completions->get(), 1);
    if (!asking.ok()) return asking.status();
    auto answering = device->make_queue_pair(completions->get(), 1);
    if (!answering.ok()) return answering.status();
    Loopback loopback(read.to, std::move(*device), std::move(memory), std::move(*region),
                      std::move(*completions), std::move(*asking), std::move(*answering));
    if (Status s = loopback.connect(os, static_cast<std::uint8_t>(read.port)); !s.ok()) return s;
    return loopback;
  }

  /// Reads a byte and looks at it.
  Status read(Os& os) {
    auto* bytes = reinterpret_cast<volatile std::uint8_t*>(memory_.data());
    const auto sent = static_cast<std::uint8_t>(++reads_);
    bytes[kSource] = sent;
    ibv_sge target{};
    target.addr = reinterpret_cast<std::uintptr_t>(memory_.data()) + kTarget;
    target.length = 1;
    target.lkey = region_->lkey;
    ibv_send_wr request{};
    request.wr_id = reads_;
    request.sg_list = &target;
    request.num_sge = 1;
    request.opcode = IBV_WR_RDMA_READ;
    request.send_flags = IBV_SEND_SIGNALED;
    request.wr.rdma.remote_addr = reinterpret_cast<std::uintptr_t>(memory_.data()) + kSource;
    request.wr.rdma.rkey = region_->rkey;
    ibv_send_wr* refused = nullptr;
    if (const int error = ::ibv_post_send(asking_.get(), &request, &refused); error != 0) {
      return failed("ibv_post_send: " + std::generic_category().message(error));
    }
    if (Status s = await(os); !s.ok()) return s;
    if (bytes[kTarget] == sent) return {};
    return failed(fmt::format("it read {} where {} was written", bytes[kTarget], sent));
  }

 private:
  static constexpr std::size_t kSource = 0;
  static constexpr std::size_t kTarget = 128;  ///< in another cache line

  Loopback(std::string name, verbs::Device device, Mapping memory, verbs::Memory region,
           verbs::CompletionQueue completions, verbs::QueuePair asking, verbs::QueuePair answering)
      : name_(std::move(name)),
        device_(std::move(device)),
        memory_(std::move(memory)),
        region_(std::move(region)),
        completions_(std::move(completions)),
        asking_(std::move(asking)),
        answering_(std::move(answering)) {}

  [[nodiscard]] Status failed(const std::string& what) const {
    return {Cause::kSystem, fmt::format("{}: {}", name_, what)};
  }

  /// By the first address that carries a read.
  Status connect(Os& os, std::uint8_t number) {
    const auto port = device_.port(number);
    if (!port.ok()) return port.status();
    if (port->state != IBV_PORT_ACTIVE) {
      return failed(fmt::format("it is not active, says libibverbs (state {})",
                                static_cast<int>(port->state)));
    }
    std::vector<int> gids = usable_gids(device_, number, *port);
    if (port->link_layer != IBV_LINK_LAYER_ETHERNET && port->lid != 0) gids = {-1};
    Status status = failed("it has no address (GID or LID)");
    const TimePoint start = os.now();
    for (const int gid : gids) {
      status = connect(asking_, answering_->qp_num, number, *port, gid);
      if (status.ok()) status = connect(answering_, asking_->qp_num, number, *port, gid);
      if (status.ok()) status = read(os);
      if (status.ok() || os.now() - start > kConnecting) return status;
    }
    return status;
  }

  /// `gid`: the address of both ends; -1: their LID.
  Status connect(const verbs::QueuePair& pair, std::uint32_t peer, std::uint8_t number,
                 const ibv_port_attr& port, int gid) {
    ibv_qp_attr reset{};
    reset.qp_state = IBV_QPS_RESET;  // an address before this one may have been refused
    if (Status s = device_.modify(pair, reset, IBV_QP_STATE); !s.ok()) return s;
    ibv_qp_attr init{};
    init.qp_state = IBV_QPS_INIT;
    init.port_num = number;
    init.qp_access_flags = IBV_ACCESS_REMOTE_READ;
    if (Status s = device_.modify(
            pair, init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
        !s.ok()) {
      return s;
    }
    ibv_qp_attr receive{};
    receive.qp_state = IBV_QPS_RTR;
    receive.path_mtu = port.active_mtu;
    receive.dest_qp_num = peer;
    receive.max_dest_rd_atomic = 1;
    receive.min_rnr_timer = 12;
    receive.ah_attr.port_num = number;
    receive.ah_attr.dlid = port.lid;
    if (gid >= 0) {
      const auto address = device_.gid(number, gid);
      if (!address.ok()) return address.status();
      receive.ah_attr.is_global = 1;
      receive.ah_attr.grh.dgid = *address;
      receive.ah_attr.grh.sgid_index = static_cast<std::uint8_t>(gid);
      receive.ah_attr.grh.hop_limit = 64;
    }
    if (Status s =
            device_.modify(pair, receive,
                           IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                               IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
        !s.ok()) {
      return s;
    }
    ibv_qp_attr send{};
    send.qp_state = IBV_QPS_RTS;
    send.timeout = 12;   // 4.096 us * 2^12 = 17 ms
    send.retry_cnt = 3;  // then the read fails: 7 would be for ever on some devices
    send.max_rd_atomic = 1;
    return device_.modify(pair, send,
                          IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                              IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
  }

  Status await(Os& os) {
    const TimePoint start = os.now();
    ibv_wc done{};
    for (std::uint32_t i = 1;; ++i) {
      const int count = ::ibv_poll_cq(completions_.get(), 1, &done);
      if (count < 0) return failed("ibv_poll_cq failed");
      if (count > 1) {
        return failed(fmt::format("ibv_poll_cq gave {} completions where one was wanted", count));
      }
      if (count == 1) break;
      shm::relax();
      if (i % 1024 == 0 && os.now() - start > kPatience) {
        return failed(fmt::format("a read did not end within {} ms", kPatience.count()));
      }
    }
    // One that comes twice would end the next read before its time.
    if (done.wr_id != reads_) {
      return failed(fmt::format("a completion of read {} came while read {} was awaited",
                                done.wr_id, reads_));
    }
    if (done.status == IBV_WC_SUCCESS) return {};
    return failed("a read failed: " + device_.words(done.status));
  }

  // In the order in which they need each other.
  std::string name_;
  verbs::Device device_;
  Mapping memory_;
  verbs::Memory region_;
  verbs::CompletionQueue completions_;
  verbs::QueuePair asking_;
  verbs::QueuePair answering_;
  std::uint64_t reads_ = 0;
};

/// On the calling thread, which runs at the memory.
Result<Figure> measure(Os& os, const NicRead& read, std::chrono::milliseconds time,
                       const std::string& library) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  auto memory = make_node_memory(os, page, read.node, true);
  if (!memory.ok()) return memory.status();
  auto port = Loopback::open(os, read, std::move(*memory), library);
  if (!port.ok()) return port.status();
  const TimePoint end = os.now() + time;
  const auto sample = [&](int most) -> Result<double> {
    const TimePoint start = os.now();
    int reads = 0;
    while (reads < most && (reads == 0 || os.now() < end)) {
      if (Status s = port->read(os); !s.ok()) return s;
      ++reads;
    }
    return std::max(nanoseconds_since(os, start), 1.0) / reads;
  };
  auto ns = sample(kWakingReads);
  if (!ns.ok()) return ns.status();
  StopRule rule = kRule;
  rule.time = std::max(std::chrono::duration_cast<std::chrono::milliseconds>(end - os.now()),
                       std::chrono::milliseconds(0));
  Sampler sampler(os, rule);
  // So slow a port was awake for most of it, and there is no time for another read.
  if (os.now() >= end) sampler.add(*ns);
  while (!sampler.done()) {
    ns = sample(kReadsOfSample);
    if (!ns.ok()) return ns.status();
    sampler.add(*ns);
  }
  return sampler.take(Better::kLower);
}

/// What each library gets that has not come back from a call.
struct Silent {
  std::mutex mutex;
  std::map<std::string, Status> libraries;
};

Silent& silent() {
  static Silent silent;
  return silent;
}

Status silence_of(const std::string& library) {
  const std::lock_guard lock(silent().mutex);
  const auto found = silent().libraries.find(library);
  return found == silent().libraries.end() ? Status() : found->second;
}

}  // namespace

Result<Figure> measure_nic_read(Os& os, const NicRead& read, std::chrono::milliseconds time,
                                const std::string& library, std::chrono::milliseconds patience) {
  if (Status s = silence_of(library); !s.ok()) return s;
  // Copies, since this thread may be gone when a call comes back.
  const auto run = [&os, read, time, library]() -> Result<Figure> {
    if (os.pin_thread(read.cpu)) return measure(os, read, time, library);
    return Status(Cause::kSystem,
                  fmt::format("CPU {}: no thread may run there any more", read.cpu));
  };
  const auto task = std::make_shared<std::packaged_task<Result<Figure>()>>(run);
  auto figure = task->get_future();
  auto thread = start_thread("topocoll-probe", [task] { (*task)(); });
  if (!thread.ok()) return thread.status();
  if (figure.wait_for(patience) != std::future_status::ready) {
    thread->detach();
    Status s(Cause::kTimeout, fmt::format("{}: libibverbs did not answer within {} ms; no port is "
                                          "measured after that",
                                          read.to, patience.count()));
    const std::lock_guard lock(silent().mutex);
    silent().libraries.emplace(library, s);
    return s;
  }
  thread->join();
  try {
    return figure.get();
  } catch (const std::bad_alloc&) {
    return Status(Cause::kResource, read.to + ": out of memory");
  }
}

}  // namespace topocoll

#else

namespace topocoll {

Result<Figure> measure_nic_read(Os& /*os*/, const NicRead& read, std::chrono::milliseconds /*time*/,
                                const std::string& /*library*/,
                                std::chrono::milliseconds /*patience*/) {
  return Status(Cause::kUnsupported,
                read.device + ": topocoll was built without libibverbs (Debian: libibverbs-dev)");
}

}  // namespace topocoll
#endif
