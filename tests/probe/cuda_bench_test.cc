// The bench of real GPUs, on a driver that the test builds and, where there are any, on GPUs.
#include "probe/cuda_bench.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <string_view>

#include "probe/fake_cuda.h"
#include "probe/gpu_kernels.h"
#include "support/fake_library.h"
#include "support/fault_os.h"

namespace topocoll {
namespace {

using ::testing::DoubleNear;
using testing::FakeCuda;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr GpuPlace gpu(int index) { return {GpuPlace::Kind::kGpu, index}; }
constexpr GpuPlace memory(int index) { return {GpuPlace::Kind::kMemory, index}; }

class CudaBench : public ::testing::Test {
 protected:
  void TearDown() override {
    if (!fake_->never_ends) {
      EXPECT_EQ(fake_->alive, 0) << "something was not let go of";
    }
  }
  Result<OpenedBench> open() { return open_cuda_bench(Os::real(), {0}, TOPOCOLL_FAKE_CUDA); }

  /// But for what a build without a CUDA compiler says of every GPU.
  static std::vector<std::string> notes_of(const OpenedBench& opened) {
    std::vector<std::string> notes = opened.notes;
    std::erase_if(notes, [](const std::string& note) {
      return gpu_kernels().empty() && note.ends_with("built without a CUDA compiler (nvcc)");
    });
    return notes;
  }

  testing::FakeLibrary<FakeCuda> fake_{TOPOCOLL_FAKE_CUDA, "fake_cuda_state"};
};

TEST_F(CudaBench, NamesGpusByAddressAndUuid) {
  const auto opened = open();
  ASSERT_TRUE(opened.ok()) << opened.status().to_string();
  ASSERT_EQ(opened->bench->gpus().size(), 2u);
  EXPECT_EQ(opened->bench->gpus()[1].bdf, "0000:4f:00.0");
  EXPECT_EQ(opened->bench->gpus()[1].uuid, "GPU-01010101-0101-0101-0101-010101010101");
  EXPECT_EQ(opened->devices[0].architecture, 90);
  EXPECT_EQ(opened->devices[0].multiprocessors, 4);
  EXPECT_TRUE(opened->devices[0].gpudirect_rdma);
  EXPECT_THAT(opened->bench->numa_nodes(), ::testing::ElementsAre(0));
  EXPECT_THAT(notes_of(*opened), IsEmpty());
}

/// Every flow that there is, and what the fake's links carry.
TEST_F(CudaBench, GivesWhatEachFlowCarries) {
  const auto opened = open();
  ASSERT_TRUE(opened.ok()) << opened.status().to_string();
  if (gpu_kernels().empty()) GTEST_SKIP() << "built without a CUDA compiler";
  for (const auto& [flow, gbps] :
       {std::pair<GpuFlow, double>{{gpu(0), gpu(1), Mover::kStores}, 300},
        {{gpu(0), gpu(1), Mover::kLoads}, 200},
        {{gpu(1), gpu(0), Mover::kCopyEngine}, 400},
        {{memory(0), gpu(0), Mover::kLoads}, 200},
        {{gpu(0), memory(0), Mover::kStores}, 300},
        {{memory(0), gpu(1), Mover::kCopyEngine}, 50},
        {{gpu(1), memory(0), Mover::kCopyEngine}, 50}}) {
    const auto sample = opened->bench->move({flow});
    ASSERT_TRUE(sample.ok()) << sample.status().to_string();
    ASSERT_EQ(sample->size(), 1u);
    EXPECT_THAT(sample->front(), DoubleNear(gbps, 1e-3 * gbps));
    EXPECT_GT(fake_->held, 0) << "nothing was held until all was queued";
  }
}

/// The slower of two ends later: what the faster one moves alone afterwards does not count.
TEST_F(CudaBench, CountsWhatMovesWhileAllFlowsRun) {
  const auto opened = open();
  ASSERT_TRUE(opened.ok()) << opened.status().to_string();
  const GpuFlow there{gpu(0), gpu(1), Mover::kCopyEngine};
  const GpuFlow back{gpu(1), gpu(0), Mover::kCopyEngine};
  ASSERT_TRUE(opened->bench->move({there}).ok());
  ASSERT_TRUE(opened->bench->move({back}).ok());
  fake_->slow_device = 1;  // from now on at half its rate
  const auto sample = opened->bench->move({there, back});
  ASSERT_TRUE(sample.ok()) << sample.status().to_string();
  EXPECT_THAT((*sample)[0], DoubleNear(400, 1));
  EXPECT_THAT((*sample)[1], DoubleNear(200, 1));
}

TEST_F(CudaBench, TimesFlagsOneWayAndReadsOfMemory) {
  const auto opened = open();
  ASSERT_TRUE(opened.ok()) << opened.status().to_string();
  if (gpu_kernels().empty()) GTEST_SKIP() << "built without a CUDA compiler";
  const auto flags = opened->bench->latency_ns(gpu(0), gpu(1), {});
  ASSERT_TRUE(flags.ok()) << flags.status().to_string();
  EXPECT_EQ(*flags, 1000);
  for (const auto& [from, to] : {std::pair{memory(0), gpu(1)}, {gpu(1), memory(0)}}) {
    const auto read = opened->bench->latency_ns(from, to, {});
    ASSERT_TRUE(read.ok()) << read.status().to_string();
    EXPECT_EQ(*read, 700);
  }
  const auto loaded = opened->bench->latency_ns(gpu(0), gpu(1), {{gpu(0), gpu(1), Mover::kStores}});
  EXPECT_TRUE(loaded.ok()) << loaded.status().to_string();
}

TEST_F(CudaBench, TellsWhatArrivesWrong) {
  const auto opened = open();
  ASSERT_TRUE(opened.ok()) << opened.status().to_string();
  const GpuFlow flow{gpu(0), gpu(1), Mover::kCopyEngine};
  auto wrong = opened->bench->verify(flow);
  ASSERT_TRUE(wrong.ok()) << wrong.status().to_string();
  EXPECT_EQ(*wrong, "");
  fake_->lies_at_byte = 64;
  wrong = opened->bench->verify(flow);
  ASSERT_TRUE(wrong.ok()) << wrong.status().to_string();
  EXPECT_EQ(*wrong, "1 of 262144 words differ, the first at byte 64");
  fake_->lies_at_byte = -1;
  fake_->loses_copies = true;  // what was there before does not pass for what was sent
  wrong = opened->bench->verify(flow);
  ASSERT_TRUE(wrong.ok()) << wrong.status().to_string();
  EXPECT_THAT(*wrong, HasSubstr("262144 of 262144 words differ"));
}

TEST_F(CudaBench, LooksWhileLinksAreBusy) {
  const auto opened = open();
  ASSERT_TRUE(opened.ok()) << opened.status().to_string();
  int looks = 0;
  const Status s = opened->bench->under_load(std::chrono::milliseconds(20), [&] { ++looks; });
  EXPECT_TRUE(s.ok()) << s.to_string();
  EXPECT_EQ(looks, 1);
}

TEST_F(CudaBench, DoesWithoutPeerAccess) {
  fake_->peers = false;
  const auto opened = open();
  ASSERT_TRUE(opened.ok()) << opened.status().to_string();
  const auto stores = opened->bench->move({{gpu(0), gpu(1), Mover::kStores}});
  EXPECT_EQ(stores.status().cause(), Cause::kUnsupported) << stores.status().to_string();
  EXPECT_TRUE(opened->bench->move({{gpu(0), gpu(1), Mover::kCopyEngine}}).ok());
}

TEST_F(CudaBench, TakesLessMemoryWhereThereIsLess) {
  fake_->free_bytes = std::size_t{40} << 20;  // buffers of 16 MiB at the most
  const auto opened = open();
  ASSERT_TRUE(opened.ok()) << opened.status().to_string();
  EXPECT_TRUE(opened->bench->move({{gpu(0), gpu(1), Mover::kCopyEngine}}).ok());
}

TEST_F(CudaBench, LeavesOutAGpuWithoutMemoryAndSaysSo) {
  fake_->full_device = 0;
  const auto opened = open();
  ASSERT_TRUE(opened.ok()) << opened.status().to_string();
  ASSERT_EQ(opened->bench->gpus().size(), 1u);
  EXPECT_EQ(opened->bench->gpus()[0].bdf, "0000:4f:00.0");
  EXPECT_THAT(notes_of(*opened),
              ::testing::ElementsAre("gpu:0000:4e:00.0: cuMemAlloc: fake error 2"));
}

TEST_F(CudaBench, SaysWhyThereIsNone) {
  fake_->init = 100;
  auto opened = open();
  EXPECT_EQ(opened.status().cause(), Cause::kUnsupported);
  EXPECT_THAT(opened.status().text(), HasSubstr("cuInit: fake error 100"));
  *fake_ = FakeCuda();
  fake_->devices = 0;
  EXPECT_THAT(open().status().text(), HasSubstr("no GPU"));
  opened = open_cuda_bench(Os::real(), {0}, "libcuda-is-not-here.so");
  EXPECT_EQ(opened.status().cause(), Cause::kUnsupported);
  EXPECT_THAT(opened.status().text(), HasSubstr("no CUDA driver"));
}

/// Each of the driver's functions fails in its turn: an error that names it, and nothing is kept.
TEST_F(CudaBench, PassesOnWhatTheDriverSays) {
  for (const char* function : {"cuDeviceGetCount", "cuMemHostRegister", "cuStreamCreate",
                               "cuMemcpyHtoDAsync", "cuMemHostGetDevicePointer"}) {
    *fake_ = FakeCuda();
    fake_->broken = function;
    EXPECT_THAT(open().status().text(), HasSubstr(function));
    EXPECT_EQ(fake_->alive, 0) << function;
  }
  for (const char* function : {"cuEventRecord", "cuMemcpyPeerAsync", "cuStreamWaitValue32"}) {
    *fake_ = FakeCuda();
    const auto opened = open();
    ASSERT_TRUE(opened.ok()) << opened.status().to_string();
    fake_->broken = function;
    const auto moved = opened->bench->move({{gpu(0), gpu(1), Mover::kCopyEngine}});
    EXPECT_EQ(moved.status().cause(), Cause::kSystem) << function;
    EXPECT_THAT(moved.status().text(), HasSubstr(function));
  }
}

constexpr std::array kFunctions = {"cuDeviceGetCount",
                                   "cuDeviceGet",
                                   "cuDeviceGetPCIBusId",
                                   "cuDeviceGetUuid",
                                   "cuDeviceGetAttribute",
                                   "cuDeviceCanAccessPeer",
                                   "cuDevicePrimaryCtxRetain",
                                   "cuDevicePrimaryCtxRelease",
                                   "cuCtxPushCurrent",
                                   "cuCtxEnablePeerAccess",
                                   "cuMemAlloc",
                                   "cuMemFree",
                                   "cuMemHostRegister",
                                   "cuMemHostUnregister",
                                   "cuMemHostGetDevicePointer",
                                   "cuMemcpyHtoDAsync",
                                   "cuMemcpyDtoHAsync",
                                   "cuMemcpyPeerAsync",
                                   "cuStreamCreate",
                                   "cuStreamDestroy",
                                   "cuStreamQuery",
                                   "cuStreamWaitValue32",
                                   "cuEventCreate",
                                   "cuEventDestroy",
                                   "cuEventRecord",
                                   "cuEventQuery",
                                   "cuEventElapsedTime",
                                   "cuModuleLoadData",
                                   "cuModuleUnload",
                                   "cuModuleGetFunction",
                                   "cuLaunchKernel"};

/// Does what a probe does; the worst of its ends.
Status use(GpuBench& bench) {
  const GpuFlow there{gpu(0), gpu(1), Mover::kStores};
  const GpuFlow up{gpu(0), memory(0), Mover::kCopyEngine};
  const GpuFlow down{memory(0), gpu(1), Mover::kLoads};
  std::vector<Status> ends = {
      bench.verify(there).status(),
      bench.move({there, up, down}).status(),
      bench.move({{gpu(1), gpu(0), Mover::kCopyEngine}}).status(),
      bench.latency_ns(gpu(0), gpu(1), {}).status(),
      bench.latency_ns(memory(0), gpu(1), {there}).status(),
      bench.under_load(std::chrono::milliseconds(1), [] {}),
  };
  for (const Cause cause : {Cause::kTimeout, Cause::kSystem, Cause::kUnsupported}) {
    for (const Status& s : ends) {
      if (s.cause() == cause) return s;
    }
  }
  return {};
}

/// All of them, from the first call on or later, on each device or one: errors, and nothing is kept
/// but what a stream that cannot be asked may still use.
TEST_F(CudaBench, OutlivesEveryFunctionsFailure) {
  for (const char* function : kFunctions) {
    for (const auto& [works, device] : {std::pair{0, -1}, {0, 1}, {3, -1}, {40, -1}}) {
      SCOPED_TRACE(fmt::format("{} after {} calls, device {}", function, works, device));
      *fake_ = FakeCuda();
      fake_->free_bytes = std::size_t{40} << 20;
      fake_->broken = function;
      fake_->works = works;
      fake_->broken_device = device;
      auto opened = open();
      Status end = opened.ok() ? use(*opened->bench) : opened.status();
      EXPECT_TRUE(end.ok() || !end.text().empty());
      opened = Status(Cause::kUnsupported, "let go of");
      const bool asked = std::string_view(function) != "cuStreamQuery";
      EXPECT_TRUE(fake_->alive == 0 || !asked) << fake_->alive;
    }
  }
  fake_->alive = 0;
}

/// Clocks that stand still, run backwards or say nothing that could be.
TEST_F(CudaBench, BelievesNoImpossibleTimes) {
  const GpuFlow flow{gpu(0), gpu(1), Mover::kCopyEngine};
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const double clock : {0.0, -1.0, 1e-9, 1e-40, kInfinity, std::nan("")}) {
    const auto opened = open();
    ASSERT_TRUE(opened.ok()) << opened.status().to_string();
    ASSERT_TRUE(opened->bench->move({flow}).ok());
    for (const GpuFlow& fresh : {flow, GpuFlow{gpu(1), gpu(0), Mover::kCopyEngine}}) {
      fake_->clock = clock;
      const auto moved = opened->bench->move({fresh});
      EXPECT_EQ(moved.status().cause(), Cause::kUnsupported) << clock;
      EXPECT_THAT(moved.status().text(), HasSubstr("the driver says that a transfer"));
      fake_->clock = 1;
      EXPECT_TRUE(opened->bench->move({flow}).ok()) << "it can go on";
    }
  }
  const auto opened = open();
  ASSERT_TRUE(opened.ok()) << opened.status().to_string();
  if (gpu_kernels().empty()) GTEST_SKIP() << "built without a CUDA compiler";
  for (const long answer : {0L, 60'000'000'001L, std::numeric_limits<long>::max()}) {
    fake_->answer_ns = answer;
    for (const auto& [from, to] : {std::pair{gpu(0), gpu(1)}, {memory(0), gpu(1)}}) {
      const auto timed = opened->bench->latency_ns(from, to, {});
      EXPECT_EQ(timed.status().cause(), Cause::kUnsupported) << answer;
    }
  }
}

TEST_F(CudaBench, CopiesWhereTheDriverTellsOfNoProcessors) {
  fake_->multiprocessors = 0;
  const auto opened = open();
  ASSERT_TRUE(opened.ok()) << opened.status().to_string();
  EXPECT_TRUE(opened->bench->move({{gpu(0), gpu(1), Mover::kCopyEngine}}).ok());
  const auto stores = opened->bench->move({{gpu(0), gpu(1), Mover::kStores}});
  EXPECT_EQ(stores.status().cause(), Cause::kUnsupported) << stores.status().to_string();
}

TEST_F(CudaBench, TakesFromOneToSixteenGpus) {
  for (const int devices : {1, 16}) {
    *fake_ = FakeCuda();
    fake_->devices = devices;
    fake_->free_bytes = std::size_t{40} << 20;
    const auto opened = open();
    ASSERT_TRUE(opened.ok()) << opened.status().to_string();
    std::vector<GpuFlow> flows;
    for (int g = 0; g < devices; ++g) flows.push_back({gpu(g), memory(0), Mover::kCopyEngine});
    const auto moved = opened->bench->move(flows);
    ASSERT_TRUE(moved.ok()) << moved.status().to_string();
    EXPECT_EQ(moved->size(), flows.size());
    const GpuPlace none = gpu(devices);
    EXPECT_EQ(opened->bench->move({{none, gpu(0), Mover::kLoads}}).status().cause(),
              Cause::kInvalidArgument);
    for (const GpuPlace& place : {none, memory(1)}) {
      const GpuPlace other = place == none ? memory(0) : gpu(0);
      EXPECT_EQ(opened->bench->latency_ns(place, other, {}).status().cause(),
                Cause::kInvalidArgument);
    }
  }
}

/// Addresses that are none, or that two devices share, are the topology's to judge.
TEST_F(CudaBench, PassesOddAddressesOn) {
  for (const std::string id : {"", "\x01\xff", "4e:00.0", "FFFFFFFF:FF:FF.F"}) {
    *fake_ = FakeCuda();
    fake_->bus_id = id.empty() ? std::string(1, '\0') : id;
    const auto opened = open();
    ASSERT_TRUE(opened.ok()) << opened.status().to_string();
    EXPECT_EQ(opened->bench->gpus()[0].bdf, opened->bench->gpus()[1].bdf);
  }
}

/// Time passes quickly.
class HastyOs : public testing::FaultOs {
 public:
  TimePoint now() override { return time_ += std::chrono::milliseconds(100); }

 private:
  TimePoint time_{};
};

/// A link that hangs: the wait ends, and so does everything after it.
TEST_F(CudaBench, DoesNotWaitForEverForAGpu) {
  HastyOs os;
  auto opened = open_cuda_bench(os, {0}, TOPOCOLL_FAKE_CUDA);
  ASSERT_TRUE(opened.ok()) << opened.status().to_string();
  const GpuFlow flow{gpu(0), gpu(1), Mover::kCopyEngine};
  ASSERT_TRUE(opened->bench->move({flow}).ok());
  fake_->never_ends = true;
  const auto moved = opened->bench->move({flow});
  EXPECT_EQ(moved.status().cause(), Cause::kTimeout) << moved.status().to_string();
  EXPECT_THAT(moved.status().text(), HasSubstr("gpu:0000:4e:00.0 has not ended a transfer"));
  EXPECT_EQ(opened->bench->verify(flow).status().cause(), Cause::kTimeout);
  const int alive = fake_->alive;
  opened->bench.reset();
  EXPECT_EQ(fake_->alive, alive) << "freeing memory of a GPU that hangs would hang too";
}

/// On the machine's own GPUs.
class CudaBenchHere : public ::testing::Test {
 protected:
  void SetUp() override {
    auto opened = open_cuda_bench(Os::real(), {0});
    if (!opened.ok()) GTEST_SKIP() << opened.status().text();
    if (opened->bench->gpus().size() < 2) GTEST_SKIP() << "one GPU";
    for (const std::string& note : opened->notes) std::printf("note: %s\n", note.c_str());
    bench_ = std::move(opened->bench);
  }
  std::unique_ptr<GpuBench> bench_;
};

TEST_F(CudaBenchHere, MovesDataUnharmedEveryWayItCan) {
  for (const Mover mover : {Mover::kCopyEngine, Mover::kStores, Mover::kLoads}) {
    for (const auto& [from, to] :
         {std::pair{gpu(0), gpu(1)}, {gpu(1), gpu(0)}, {memory(0), gpu(0)}, {gpu(1), memory(0)}}) {
      const auto wrong = bench_->verify({from, to, mover});
      if (wrong.status().cause() == Cause::kUnsupported) continue;
      ASSERT_TRUE(wrong.ok()) << wrong.status().to_string();
      EXPECT_EQ(*wrong, "");
      const auto sample = bench_->move({{from, to, mover}});
      ASSERT_TRUE(sample.ok()) << sample.status().to_string();
      EXPECT_GT(sample->front(), 0.1);
    }
  }
}

TEST_F(CudaBenchHere, TimesFlagsIdleAndLoaded) {
  const auto idle = bench_->latency_ns(gpu(0), gpu(1), {});
  if (idle.status().cause() == Cause::kUnsupported) GTEST_SKIP() << idle.status().text();
  ASSERT_TRUE(idle.ok()) << idle.status().to_string();
  const auto loaded = bench_->latency_ns(gpu(0), gpu(1), {{gpu(0), gpu(1), Mover::kStores}});
  ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
  EXPECT_GT(*idle, 100);
  EXPECT_LT(*idle, 1e6);
  EXPECT_GT(*loaded, *idle / 2);
}

}  // namespace
}  // namespace topocoll
