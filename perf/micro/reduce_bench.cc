// How fast one core reduces: micro_reduce [TYPE] [OP]
//
// One row per type, operation, number of sources and mode; one column per size of a source. Up to
// 1 KiB the figures are ns per call, above GB/s of all bytes read and written. The fastest of several
// rounds counts: on a shared machine the others measure the neighbours.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "collectives/cpu/reduce.h"
#include "hwy/highway.h"

namespace topocoll {
namespace {

constexpr std::size_t kSizes[] = {8, 32, 64, 256, 1024, 16 << 10, 256 << 10, 4 << 20, 64 << 20};
constexpr std::size_t kMaxBytes = 64 << 20;
constexpr std::size_t kNanosecondsUpTo = 1024;

enum class Mode { kPlain, kInPlace, kStream, kMirror, kMirrorStream };
constexpr const char* kModeNames[] = {"", "in place", "stream", "mirror", "mirror+stream"};

struct Row {
  DataType type;
  ReduceOp op;
  int sources;
  Mode mode;
};

double seconds_per_call(ReduceFunction function, const ReduceCall& call, std::size_t touched) {
  using Clock = std::chrono::steady_clock;
  const std::size_t calls = std::clamp<std::size_t>((4 << 20) / (touched + 64), 1, 20000);
  double best = 1e9;
  for (int round = 0; round < 8; ++round) {
    const auto start = Clock::now();
    for (std::size_t i = 0; i < calls; ++i) function(call);
    const std::chrono::duration<double> took = Clock::now() - start;
    best = std::min(best, took.count() / static_cast<double>(calls));
  }
  return best;
}

class Bench {
 public:
  /// Every source is its own stretch of memory, at least as large as the largest size needs.
  explicit Bench(int max_sources) : buffers_(static_cast<std::size_t>(max_sources) + 2) {}

  void print_header() const {
    std::printf("%-8s %-10s %7s %-14s", "type", "op", "sources", "mode");
    for (const std::size_t bytes : kSizes) {
      std::printf(" %8s", (bytes < 1024 ? std::to_string(bytes) + " B"
                           : bytes < (1 << 20) ? std::to_string(bytes >> 10) + " KiB"
                                               : std::to_string(bytes >> 20) + " MiB")
                              .c_str());
    }
    std::printf("\n%42s", "");
    for (const std::size_t bytes : kSizes) {
      std::printf(" %8s", bytes <= kNanosecondsUpTo ? "ns" : "GB/s");
    }
    std::printf("\n");
  }

  void print_row(const Row& row) {
    const ReduceFunction function = reduce_function(row.type, row.op);
    if (function == nullptr) return;
    std::printf("%-8s %-10s %7d %-14s", std::string(name(row.type)).c_str(),
                std::string(name(row.op)).c_str(), row.sources,
                kModeNames[static_cast<int>(row.mode)]);
    for (const std::size_t bytes : kSizes) {
      if (bytes * static_cast<std::size_t>(row.sources) > 4 * kMaxBytes) break;
      std::printf(" %8.1f", measure(function, row, bytes));
      std::fflush(stdout);
    }
    std::printf("\n");
  }

 private:
  std::vector<unsigned char>& buffer(int k, std::size_t bytes) {
    auto& b = buffers_[static_cast<std::size_t>(k)];
    if (b.size() < bytes + 64) b.assign(bytes + 64, static_cast<unsigned char>(0x3C));
    return b;
  }

  double measure(ReduceFunction function, const Row& row, std::size_t bytes) {
    std::vector<const void*> sources;
    const std::vector<double> factors(static_cast<std::size_t>(row.sources), 0.5);
    for (int k = 0; k < row.sources; ++k) sources.push_back(buffer(k, bytes).data());
    ReduceCall call{.target = buffer(row.sources, bytes).data(),
                    .sources = sources.data(),
                    .num_sources = row.sources,
                    .count = bytes / size_of(row.type),
                    .factors = factors.data(),
                    .divisor = row.sources};
    if (row.mode == Mode::kInPlace) call.target = buffer(0, bytes).data();
    call.stream_target = row.mode == Mode::kStream || row.mode == Mode::kMirrorStream;
    const bool mirrored = row.mode == Mode::kMirror || row.mode == Mode::kMirrorStream;
    if (mirrored) call.mirror = buffer(row.sources + 1, bytes).data();
    const std::size_t touched =
        bytes * (static_cast<std::size_t>(row.sources) + (mirrored ? 2 : 1));
    const double seconds = seconds_per_call(function, call, touched);
    return bytes <= kNanosecondsUpTo ? seconds * 1e9 : static_cast<double>(touched) / seconds / 1e9;
  }

  std::vector<std::vector<unsigned char>> buffers_;
};

std::vector<Row> all_rows() {
  std::vector<Row> rows;
  for (int type = 0; type < kNumDataTypes; ++type) {
    for (int op = 0; op < kNumReduceOps; ++op) {
      rows.push_back({static_cast<DataType>(type), static_cast<ReduceOp>(op), 2, Mode::kPlain});
    }
  }
  for (const DataType type : {DataType::kF32, DataType::kBF16}) {
    for (const int sources : {1, 2, 3, 4, 8, 64}) {
      for (const Mode mode : {Mode::kPlain, Mode::kInPlace, Mode::kStream, Mode::kMirror,
                              Mode::kMirrorStream}) {
        rows.push_back({type, ReduceOp::kSum, sources, mode});
      }
    }
  }
  return rows;
}

int run(int argc, char** argv) {
  const auto type = argc > 1 ? parse_data_type(argv[1]) : std::nullopt;
  const auto op = argc > 2 ? parse_reduce_op(argv[2]) : std::nullopt;
  if ((argc > 1 && !type) || (argc > 2 && !op) || argc > 3) {
    std::fprintf(stderr, "usage: micro_reduce [TYPE] [OP]\n");
    return 2;
  }
  std::printf("SIMD target: %s\n",
              hwy::TargetName(hwy::SupportedTargets() & -hwy::SupportedTargets()));
  Bench bench(64);
  bench.print_header();
  for (const Row& row : all_rows()) {
    if ((!type || row.type == *type) && (!op || row.op == *op)) bench.print_row(row);
  }
  return 0;
}

}  // namespace
}  // namespace topocoll

int main(int argc, char** argv) { return topocoll::run(argc, argv); }
