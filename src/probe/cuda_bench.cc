#include "probe/cuda_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <thread>
#include <utility>

#include "base/thread.h"
#include "probe/cuda_rig.h"
#include "probe/pattern.h"

namespace topocoll {
namespace {

constexpr double kChunkMs = 0.8;  ///< alone
constexpr int kChunks = 5;
constexpr std::size_t kFirstBytes = std::size_t{4} << 20;
constexpr std::size_t kLeastBytes = std::size_t{64} << 10;
constexpr int kTurns = 200;
constexpr int kLoadedTurns = 50;
constexpr int kLoadChunks = 20;
constexpr int kLoadTries = 3;
constexpr double kMostGbps = 1e6;  ///< that no link has
constexpr std::size_t kVerifiedWords = CudaRig::kMostWords;

class CudaBench : public GpuBench {
 public:
  CudaBench(Os& os, std::unique_ptr<CudaRig> rig) : os_(os), rig_(std::move(rig)) {}

  [[nodiscard]] const std::vector<BenchGpu>& gpus() const override { return rig_->gpus(); }
  [[nodiscard]] const std::vector<int>& numa_nodes() const override { return rig_->numa_nodes(); }

  Result<std::vector<double>> move(const std::vector<GpuFlow>& flows) override {
    auto transfers = sized(flows, kChunks);
    if (!transfers.ok()) return transfers.status();
    auto running = rig_->queue(*transfers, true);
    if (!running.ok()) return running.status();
    rig_->open_gate();
    if (Status s = rig_->wait(*running); !s.ok()) return s;
    return rates(*transfers, *running);
  }

  Result<double> latency_ns(GpuPlace from, GpuPlace to, const std::vector<GpuFlow>& load) override {
    if (load.empty()) return once(from, to, kTurns);
    // What is timed must end before the load does.
    for (int chunks = kLoadChunks, tries = 0; tries < kLoadTries; ++tries, chunks *= 3) {
      const auto transfers = sized(load, chunks);
      if (!transfers.ok()) return transfers.status();
      auto running = rig_->queue(*transfers, true);
      if (!running.ok()) return running.status();
      rig_->open_gate();
      auto sample = once(from, to, kLoadedTurns);
      const bool loaded = std::none_of(running->begin(), running->end(),
                                       [&](const auto& r) { return rig_->has_ended(r); });
      if (Status s = rig_->wait(*running); !s.ok()) return s;
      if (!sample.ok() || loaded) return sample;
    }
    return Status(Cause::kUnsupported, "a latency under load took longer than the load lasted");
  }

  Result<std::string> verify(const GpuFlow& flow) override {
    using Side = CudaRig::Side;
    if (Status s = rig_->can_move(flow); !s.ok()) return s;
    const std::vector<std::uint32_t> words = pattern(kVerifiedWords, pattern_);
    std::vector<std::uint32_t> spoilt(words);
    for (std::uint32_t& word : spoilt) word = ~word;
    if (Status s = rig_->put(flow.from, Side::kRead, words); !s.ok()) return s;
    if (Status s = rig_->put(flow.to, Side::kWritten, spoilt); !s.ok()) return s;
    const CudaTransfer transfer{flow, kVerifiedWords * sizeof(std::uint32_t), 1};
    auto running = rig_->queue({&transfer, 1}, false);
    if (!running.ok()) return running.status();
    if (Status s = rig_->wait(*running); !s.ok()) return s;
    const auto found = rig_->get(flow.to, Side::kWritten, kVerifiedWords);
    if (!found.ok()) return found.status();
    return difference(words, *found);
  }

  Status under_load(std::chrono::milliseconds time, const std::function<void()>& look) override {
    std::vector<GpuFlow> flows;
    for (std::size_t i = 0; i < gpus().size() && !numa_nodes().empty(); ++i) {
      const GpuPlace gpu{GpuPlace::Kind::kGpu, static_cast<int>(i)};
      const GpuPlace memory{GpuPlace::Kind::kMemory, 0};
      flows.push_back({memory, gpu, Mover::kCopyEngine});
      flows.push_back({gpu, memory, Mover::kCopyEngine});
    }
    if (flows.empty()) return {Cause::kUnsupported, "no memory takes part"};
    std::atomic<bool> looked{false};
    std::thread looker;
    const TimePoint start = os_.now();
    Status status;
    while (status.ok() && (os_.now() - start < time || !looked.load())) {
      status = move(flows).status();
      if (looker.joinable() || os_.now() - start < time / 2) continue;
      auto thread = start_thread("topocoll-look", [&] {
        static_cast<void>(has_memory_for(look));
        looked.store(true);
      });
      if (!thread.ok()) return thread.status();
      looker = std::move(*thread);
    }
    if (looker.joinable()) looker.join();
    return status;
  }

 private:
  /// Chunks that take kChunkMs alone.
  Result<std::vector<CudaTransfer>> sized(const std::vector<GpuFlow>& flows, int chunks) {
    std::vector<CudaTransfer> transfers;
    for (const GpuFlow& flow : flows) {
      const auto bytes = chunk_bytes(flow);
      if (!bytes.ok()) return bytes.status();
      transfers.push_back({flow, *bytes, chunks});
    }
    return transfers;
  }

  Result<std::size_t> chunk_bytes(const GpuFlow& flow) {
    for (const auto& [known, bytes] : chunk_bytes_) {
      if (known == flow) return bytes;
    }
    if (Status s = rig_->can_move(flow); !s.ok()) return s;
    // The second try starts from what the first woke.
    std::size_t bytes = kFirstBytes;
    for (int i = 0; i < 2; ++i) {
      const std::vector<CudaTransfer> alone = {{flow, bytes, 2}};
      auto running = rig_->queue(alone, false);
      if (!running.ok()) return running.status();
      if (Status s = rig_->wait(*running); !s.ok()) return s;
      const auto gbps = rates(alone, *running);
      if (!gbps.ok()) return gbps.status();
      bytes = std::clamp(static_cast<std::size_t>(gbps->front() * kChunkMs * 1e6), kLeastBytes,
                         rig_->buffer_bytes(flow)) /
              kLeastBytes * kLeastBytes;
    }
    chunk_bytes_.emplace_back(flow, bytes);
    return bytes;
  }

  /// What each moved until the first of them had ended, by the ends of its chunks.
  Result<std::vector<double>> rates(const std::vector<CudaTransfer>& transfers,
                                    const std::vector<CudaRig::Running>& running) {
    std::vector<std::vector<double>> ends;
    for (const auto& r : running) {
      auto ms = rig_->chunk_ends_ms(r);
      if (!ms.ok()) return ms.status();
      if (!is_plausible(*ms)) {
        return Status(Cause::kUnsupported,
                      "the driver says that a transfer took no time, or none that can be");
      }
      ends.push_back(std::move(*ms));
    }
    double window = ends.front().back();
    for (const auto& ms : ends) window = std::min(window, ms.back());
    std::vector<double> gbps;
    for (std::size_t i = 0; i < ends.size(); ++i) {
      double chunks = 0;
      double before = 0;
      for (const double end : ends[i]) {
        chunks += std::clamp((window - before) / std::max(end - before, 1e-9), 0.0, 1.0);
        before = end;
      }
      gbps.push_back(chunks * static_cast<double>(transfers[i].bytes) / (window * 1e6));
      if (gbps.back() > kMostGbps) {
        return Status(Cause::kUnsupported,
                      fmt::format("the driver says that a transfer had {:.3g} GB/s", gbps.back()));
      }
    }
    return gbps;
  }

  /// Numbers from 0 on that do not fall.
  static bool is_plausible(const std::vector<double>& ms) {
    double before = 0;
    for (const double end : ms) {
      if (!std::isfinite(end) || end < before) return false;
      before = end;
    }
    return before > 0;
  }

  Result<double> once(GpuPlace from, GpuPlace to, int turns) {
    const bool between = from.kind == to.kind;
    if (!between) {
      const GpuFlow read = to.kind == GpuPlace::Kind::kGpu ? GpuFlow{from, to, Mover::kLoads}
                                                           : GpuFlow{to, from, Mover::kLoads};
      if (Status s = rig_->can_move(read); !s.ok()) return s;
      const auto ns = rig_->time_reads(read.to.index, read.from.index, turns);
      return ns.ok() ? Result<double>(*ns / turns) : ns;
    }
    if (Status s = rig_->can_move({from, to, Mover::kStores}); !s.ok()) return s;
    if (Status s = rig_->can_move({to, from, Mover::kStores}); !s.ok()) return s;
    const auto ns = rig_->time_turns(from.index, to.index, turns);
    return ns.ok() ? Result<double>(*ns / turns / 2) : ns;
  }

  static std::string difference(const std::vector<std::uint32_t>& sent,
                                const std::vector<std::uint32_t>& found) {
    std::size_t differ = 0;
    std::size_t first = 0;
    for (std::size_t i = 0; i < sent.size(); ++i) {
      if (sent[i] == found[i]) continue;
      if (differ++ == 0) first = i;
    }
    if (differ == 0) return "";
    return fmt::format("{} of {} words differ, the first at byte {}", differ, sent.size(),
                       first * sizeof(std::uint32_t));
  }

  Os& os_;
  std::unique_ptr<CudaRig> rig_;
  std::vector<std::pair<GpuFlow, std::size_t>> chunk_bytes_;
  std::uint32_t pattern_ = 1;  ///< no two transfers carry the same words
};

}  // namespace

Result<OpenedBench> open_cuda_bench(Os& os, const std::vector<int>& numa_nodes,
                                    const std::string& library) {
  auto rig = CudaRig::open(os, numa_nodes, library);
  if (!rig.ok()) return rig.status();
  OpenedBench opened{nullptr, (*rig)->devices(), (*rig)->notes()};
  opened.bench = std::make_unique<CudaBench>(os, std::move(*rig));
  return opened;
}

}  // namespace topocoll
