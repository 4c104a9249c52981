#include "probe/cuda_rig.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <mutex>
#include <utility>

#include "probe/gpu_kernels.h"
#include "probe/memory.h"
#include "probe/pattern.h"

namespace topocoll {
namespace {

using cuda::Current;
using cuda::DeviceAddress;
using std::chrono::milliseconds;

/// Larger than any cache on the way, and long enough beside a launch. The driver may have less.
constexpr std::size_t kGpuBytes = std::size_t{256} << 20;
constexpr std::size_t kLeastGpuBytes = std::size_t{16} << 20;
constexpr std::size_t kMemoryBytes = std::size_t{64} << 20;
constexpr std::size_t kGateBytes = std::size_t{2} << 20;
constexpr std::size_t kStagingAt = std::size_t{1} << 20;  ///< in the gate's memory, to its end
constexpr std::size_t kStagingBytes = kGateBytes - kStagingAt;
static_assert(CudaRig::kMostWords * sizeof(std::uint32_t) == kStagingBytes);
/// On a GPU, each on a line of its own: the flags and the results of a leader and of the other. A
/// line is near some processors and far from others (by 15 % of a latency on an H200), so flags
/// take turns over lines of many pages.
constexpr std::size_t kFlagStride = 4096 + 256;
constexpr std::size_t kFlagLines = 16;
constexpr std::size_t kFlagsBytes = kFlagLines * kFlagStride;
constexpr std::array<std::size_t, 2> kFlagAt = {0, kFlagsBytes};
constexpr std::array<std::size_t, 2> kResultAt = {2 * kFlagsBytes, 2 * kFlagsBytes + 256};
constexpr std::size_t kWordsBytes = kResultAt[1] + 256;
constexpr std::size_t kPieceBytes = 16;
constexpr unsigned kThreads = 512;
constexpr std::uint32_t kWarm = 20;
constexpr std::uint64_t kPatienceNs = 500'000'000;
constexpr milliseconds kPatience{5000};
constexpr std::uint64_t kMostNs = 60'000'000'000;  ///< far beyond any patience
/// The words that are read one after the other are 128 bytes apart, and few: what is timed is the
/// way there, not the translation of addresses. They lie at the end of the room that is read.
constexpr std::uint32_t kChaseWords = 64;
constexpr std::uint32_t kChaseStride = 32;
constexpr std::size_t kChaseBytes = std::size_t{64} << 10;
constexpr std::size_t kReadBytes = kMemoryBytes / 2 - kChaseBytes;
/// Of each GPU's streams the first two are not for transfers.
constexpr std::array<std::size_t, 2> kOwnStream = {0, 1};
constexpr std::size_t kFirstStream = 2;

}  // namespace

struct CudaRig::Gpu {
  cuda::DeviceFacts facts;
  std::shared_ptr<const cuda::Context> context;
  cuda::Module module;
  cuda::FunctionHandle copy = nullptr;
  cuda::FunctionHandle turns = nullptr;
  cuda::FunctionHandle chase = nullptr;
  std::size_t bytes = 0;
  cuda::DeviceMemory out;  ///< what others read
  cuda::DeviceMemory in;   ///< where others write
  cuda::DeviceMemory words;
  std::vector<cuda::Stream> streams;
  std::vector<cuda::Event> events;
  std::size_t events_used = 0;
};

/// Memory of this process that all GPUs use.
struct CudaRig::Memory {
  int node = -1;
  Mapping mapping;
  cuda::HostRegistration registration;
  std::vector<DeviceAddress> address;  ///< for each GPU
};

CudaRig::CudaRig(Os& os) : os_(os) {}

Result<std::unique_ptr<CudaRig>> CudaRig::open(Os& os, const std::vector<int>& numa_nodes,
                                               const std::string& library) {
  auto driver = cuda::Driver::load(library);
  if (!driver.ok()) return driver.status();
  auto devices = (*driver)->devices();
  if (!devices.ok()) return devices.status();
  std::unique_ptr<CudaRig> rig(new CudaRig(os));
  rig->driver_ = *driver;
  for (const cuda::DeviceFacts& device : *devices) {
    const Status s = rig->add_gpu(*driver, device);
    if (!s.ok()) rig->notes_.push_back(fmt::format("gpu:{}: {}", device.bdf, s.text()));
  }
  if (rig->gpu_.empty()) {
    return Status(Cause::kUnsupported, rig->notes_.empty() ? "CUDA shows this process no GPU"
                                                           : "no GPU: " + rig->notes_.front());
  }
  if (Status s = rig->make_gate(); !s.ok()) return s;
  for (const int node : numa_nodes) {
    const Status s = rig->add_memory(node);
    if (!s.ok()) rig->notes_.push_back(fmt::format("numa:{}: {}", node, s.text()));
  }
  rig->enable_peers(**driver);
  if (Status s = rig->fill_buffers(); !s.ok()) return s;
  if (Status s = rig->try_kernels(); !s.ok()) return s;
  return rig;
}

CudaRig::~CudaRig() {
  if (stuck_.ok()) return;
  // Reachable to the end of the process, so that nobody takes it for lost.
  static std::mutex mutex;
  static auto* const kept = new std::vector<std::shared_ptr<void>>;
  const std::lock_guard<std::mutex> lock(mutex);
  for (auto& gpu : gpu_) kept->emplace_back(std::move(gpu));
  for (auto& memory : memory_) kept->emplace_back(std::move(memory));
  kept->emplace_back(std::move(gate_));
}

Status CudaRig::add_gpu(const std::shared_ptr<const cuda::Driver>& driver,
                        const cuda::DeviceFacts& device) {
  auto gpu = std::make_unique<Gpu>();
  gpu->facts = device;
  auto context = cuda::Context::open(driver, device.device);
  if (!context.ok()) return context.status();
  gpu->context = *context;
  Status room;
  for (gpu->bytes = kGpuBytes; gpu->bytes >= kLeastGpuBytes; gpu->bytes /= 2) {
    auto out = cuda::allocate(*context, gpu->bytes);
    auto in =
        out.ok() ? cuda::allocate(*context, gpu->bytes) : Result<cuda::DeviceMemory>(out.status());
    room = in.status();
    if (!room.ok()) continue;
    gpu->out = std::move(*out);
    gpu->in = std::move(*in);
    break;
  }
  if (!room.ok()) return room;
  auto words = cuda::allocate(*context, kWordsBytes);
  if (!words.ok()) return words.status();
  gpu->words = std::move(*words);
  if (Status s = load_kernels(*gpu); !s.ok()) {
    notes_.push_back(
        fmt::format("gpu:{}: only its copy engine is measured: {}", device.bdf, s.text()));
  }
  names_.push_back({device.bdf, device.uuid});
  devices_.push_back(device);
  gpu_.push_back(std::move(gpu));
  return {};
}

Status CudaRig::load_kernels(Gpu& gpu) {
  if (gpu_kernels().empty()) {
    return {Cause::kUnsupported, "topocoll was built without a CUDA compiler (nvcc)"};
  }
  if (gpu.facts.multiprocessors < 1) {
    return {Cause::kUnsupported, "the driver does not say how many processors it has"};
  }
  auto module = cuda::load_module(gpu.context, gpu_kernels().data());
  if (!module.ok()) return module.status();
  const Current current(*gpu.context);
  std::array<std::pair<const char*, cuda::FunctionHandle>, 3> functions = {
      {{"topocoll_copy", nullptr}, {"topocoll_turns", nullptr}, {"topocoll_chase", nullptr}}};
  for (auto& [name, function] : functions) {
    Status s = driver_->check(driver_->api().module_function(&function, module->get(), name),
                              "cuModuleGetFunction");
    if (!s.ok()) return s;
  }
  gpu.module = std::move(*module);
  gpu.copy = functions[0].second;
  gpu.turns = functions[1].second;
  gpu.chase = functions[2].second;
  return {};
}

/// Memory that GPUs may use has the same content for all, and an address for each.
Status CudaRig::add_memory(int node) {
  auto memory = std::make_unique<Memory>();
  memory->node = node;
  const bool gate = node < 0;
  auto mapping = make_node_memory(os_, gate ? kGateBytes : kMemoryBytes, std::max(node, 0),
                                  gate || node_numbers_.empty());
  if (!mapping.ok()) return mapping.status();
  memory->mapping = std::move(*mapping);
  auto registration =
      cuda::register_host(gpu_.front()->context, memory->mapping.data(), memory->mapping.size());
  if (!registration.ok()) return registration.status();
  memory->registration = std::move(*registration);
  for (const auto& gpu : gpu_) {
    const Current current(*gpu->context);
    DeviceAddress address = 0;
    Status s = driver_->check(driver_->api().host_address(&address, memory->mapping.data(), 0),
                              "cuMemHostGetDevicePointer");
    if (!s.ok()) return s;
    memory->address.push_back(address);
  }
  if (gate) {
    std::memset(memory->mapping.data(), 0, kGateBytes);
    gate_ = std::move(memory);
    return {};
  }
  memory_.push_back(std::move(memory));
  node_numbers_.push_back(node);
  return {};
}

Status CudaRig::make_gate() { return add_memory(-1); }

void CudaRig::enable_peers(const cuda::Driver& driver) {
  access_.assign(gpu_.size(), std::vector<bool>(gpu_.size(), false));
  for (std::size_t a = 0; a < gpu_.size(); ++a) {
    for (std::size_t b = 0; b < gpu_.size(); ++b) {
      if (a == b || !driver.can_access(gpu_[a]->facts.device, gpu_[b]->facts.device)) continue;
      const Current current(*gpu_[a]->context);
      const cuda::Return code = driver.api().enable_peer_access(gpu_[b]->context->handle(), 0);
      access_[a][b] = code == cuda::kSuccess || code == cuda::kPeerAccessAlreadyEnabled;
      if (access_[a][b]) continue;
      notes_.push_back(fmt::format("gpu:{} to gpu:{}: {}", gpu_[a]->facts.bdf, gpu_[b]->facts.bdf,
                                   driver.check(code, "cuCtxEnablePeerAccess").text()));
    }
  }
}

/// No zeros: some links and memories compress, and run faster on them.
Status CudaRig::fill_buffers() {
  std::uint32_t state = 1;
  const std::vector<std::uint32_t> words = pattern(kMostWords, state);
  const auto bytes = std::as_bytes(std::span(words));
  for (const auto& memory : memory_) {
    std::byte* const data = memory->mapping.data();
    for (std::size_t at = 0; at < kMemoryBytes; at += bytes.size()) {
      std::memcpy(data + at, bytes.data(), bytes.size());
    }
    for (std::uint32_t i = 0; i < kChaseWords; ++i) {
      // 27 has no factor in common with 64: all words come by before the first comes again.
      const std::uint32_t next = (i + 27) % kChaseWords * kChaseStride;
      std::memcpy(data + kReadBytes + std::size_t{i} * kChaseStride * sizeof next, &next,
                  sizeof next);
    }
  }
  for (auto& gpu : gpu_) {
    for (std::size_t at = 0; at < gpu->bytes; at += bytes.size()) {
      if (Status s = write(*gpu, gpu->out.get() + at, bytes); !s.ok()) return s;
    }
  }
  return {};
}

/// The driver may load a kernel at its first launch and wait for the GPU to be idle meanwhile,
/// which it never is behind the gate.
Status CudaRig::try_kernels() {
  for (auto& gpu : gpu_) {
    if (gpu->copy == nullptr) continue;
    const auto s = stream(*gpu, kOwnStream[0]);
    if (!s.ok()) return s.status();
    DeviceAddress to = gpu->in.get();
    DeviceAddress from = gpu->out.get();
    DeviceAddress result = gpu->words.get() + kResultAt[0];
    std::size_t pieces = 1;
    int leads = 0;
    std::uint32_t none = 0;
    std::uint64_t patience = 0;
    std::array<void*, 3> copy = {&to, &from, &pieces};
    std::array<void*, 7> turns = {&to, &to, &leads, &none, &none, &patience, &result};
    std::array<void*, 4> chase = {&from, &none, &none, &result};
    if (Status l = launch(*gpu, gpu->copy, 1, 1, *s, copy); !l.ok()) return l;
    if (Status l = launch(*gpu, gpu->turns, 1, 1, *s, turns); !l.ok()) return l;
    if (Status l = launch(*gpu, gpu->chase, 1, 1, *s, chase); !l.ok()) return l;
    if (Status d = drain(*gpu, *s); !d.ok()) return d;
  }
  return {};
}

int CudaRig::executor(const GpuFlow& flow) const {
  const bool at_target = flow.mover == Mover::kLoads || flow.from.kind == GpuPlace::Kind::kMemory;
  return at_target ? flow.to.index : flow.from.index;
}

Status CudaRig::can_move(const GpuFlow& flow) const {
  const bool from_gpu = flow.from.kind == GpuPlace::Kind::kGpu;
  const bool to_gpu = flow.to.kind == GpuPlace::Kind::kGpu;
  const auto there = [&](const GpuPlace& place) {
    const std::size_t count = place.kind == GpuPlace::Kind::kGpu ? gpu_.size() : memory_.size();
    return place.index >= 0 && static_cast<std::size_t>(place.index) < count;
  };
  if (!there(flow.from) || !there(flow.to) || (!from_gpu && !to_gpu) || flow.from == flow.to) {
    return {Cause::kInvalidArgument, "a flow leads from or to a GPU, and not to where it starts"};
  }
  if (flow.mover == Mover::kCopyEngine) return {};
  // Processors of the one end use the memory of the other.
  const GpuPlace& at = flow.mover == Mover::kStores ? flow.from : flow.to;
  const GpuPlace& other = flow.mover == Mover::kStores ? flow.to : flow.from;
  if (at.kind != GpuPlace::Kind::kGpu) {
    return {Cause::kUnsupported, "memory has no processors that load or store"};
  }
  const Gpu& gpu = *gpu_[static_cast<std::size_t>(at.index)];
  if (gpu.copy == nullptr) return {Cause::kUnsupported, "there are no kernels"};
  if (other.kind != GpuPlace::Kind::kGpu) return {};
  const auto a = static_cast<std::size_t>(at.index);
  const auto b = static_cast<std::size_t>(other.index);
  if (access_[a][b]) return {};
  return {Cause::kUnsupported,
          fmt::format("gpu:{} cannot use memory of gpu:{} (CUDA allows no peer access)",
                      gpu.facts.bdf, gpu_[b]->facts.bdf)};
}

std::size_t CudaRig::buffer_bytes(const GpuFlow& flow) const {
  const auto of = [&](const GpuPlace& place) {
    if (place.kind == GpuPlace::Kind::kMemory) return kReadBytes;
    return gpu_[static_cast<std::size_t>(place.index)]->bytes;
  };
  return std::min(of(flow.from), of(flow.to));
}

DeviceAddress CudaRig::address(const GpuPlace& place, Side side, int gpu) const {
  const auto i = static_cast<std::size_t>(place.index);
  if (place.kind == GpuPlace::Kind::kGpu) {
    return side == Side::kRead ? gpu_[i]->out.get() : gpu_[i]->in.get();
  }
  return memory_[i]->address[static_cast<std::size_t>(gpu)] +
         (side == Side::kRead ? 0 : kMemoryBytes / 2);
}

std::byte* CudaRig::host_address(const GpuPlace& place, Side side) const {
  return memory_[static_cast<std::size_t>(place.index)]->mapping.data() +
         (side == Side::kRead ? 0 : kMemoryBytes / 2);
}

Result<cuda::StreamHandle> CudaRig::stream(Gpu& gpu, std::size_t number) {
  while (gpu.streams.size() <= number) {
    auto made = cuda::make_stream(gpu.context);
    if (!made.ok()) return made.status();
    gpu.streams.push_back(std::move(*made));
  }
  return gpu.streams[number].get();
}

Result<cuda::EventHandle> CudaRig::event(Gpu& gpu) {
  if (gpu.events_used == gpu.events.size()) {
    auto made = cuda::make_event(gpu.context);
    if (!made.ok()) return made.status();
    gpu.events.push_back(std::move(*made));
  }
  return gpu.events[gpu.events_used++].get();
}

Status CudaRig::launch(Gpu& gpu, cuda::FunctionHandle function, unsigned blocks, unsigned threads,
                       cuda::StreamHandle stream, std::span<void*> parameters) {
  const Current current(*gpu.context);
  return driver_->check(driver_->api().launch(function, blocks, 1, 1, threads, 1, 1, 0, stream,
                                              parameters.data(), nullptr),
                        "cuLaunchKernel");
}

Status CudaRig::copy_chunk(const GpuFlow& flow, std::size_t bytes, Gpu& gpu,
                           cuda::StreamHandle stream) {
  const int self = executor(flow);
  DeviceAddress to = address(flow.to, Side::kWritten, self);
  DeviceAddress from = address(flow.from, Side::kRead, self);
  if (flow.mover != Mover::kCopyEngine) {
    std::size_t pieces = bytes / kPieceBytes;
    std::array<void*, 3> parameters = {&to, &from, &pieces};
    return launch(gpu, gpu.copy, static_cast<unsigned>(gpu.facts.multiprocessors), kThreads, stream,
                  parameters);
  }
  const Current current(*gpu.context);
  const auto& api = driver_->api();
  if (flow.from.kind == GpuPlace::Kind::kMemory) {
    return driver_->check(
        api.copy_to_device(to, host_address(flow.from, Side::kRead), bytes, stream),
        "cuMemcpyHtoDAsync");
  }
  if (flow.to.kind == GpuPlace::Kind::kMemory) {
    return driver_->check(
        api.copy_to_host(host_address(flow.to, Side::kWritten), from, bytes, stream),
        "cuMemcpyDtoHAsync");
  }
  const auto& peer = *gpu_[static_cast<std::size_t>(flow.to.index)];
  return driver_->check(
      api.copy_peer(to, peer.context->handle(), from, gpu.context->handle(), bytes, stream),
      "cuMemcpyPeerAsync");
}

Result<std::vector<CudaRig::Running>> CudaRig::queue(std::span<const CudaTransfer> transfers,
                                                     bool held) {
  if (!stuck_.ok()) return stuck_;
  for (const CudaTransfer& t : transfers) {
    if (Status s = can_move(t.flow); !s.ok()) return s;
  }
  if (held) ++gate_value_;
  std::vector<std::size_t> used(gpu_.size(), kFirstStream);
  for (auto& gpu : gpu_) gpu->events_used = 0;
  std::vector<Running> all;
  const auto queue_one = [&](const CudaTransfer& t) -> Status {
    const auto self = static_cast<std::size_t>(executor(t.flow));
    Gpu& gpu = *gpu_[self];
    const auto s = stream(gpu, used[self]++);
    if (!s.ok()) return s.status();
    all.push_back({&gpu, *s, {}});
    const auto record = [&]() -> Status {
      const auto e = event(gpu);
      if (!e.ok()) return e.status();
      const Current current(*gpu.context);
      Status recorded = driver_->check(driver_->api().event_record(*e, *s), "cuEventRecord");
      if (recorded.ok()) all.back().events.push_back(*e);
      return recorded;
    };
    if (held) {
      const Current current(*gpu.context);
      Status waits = driver_->check(driver_->api().stream_wait_value(
                                        *s, gate_->address[self], gate_value_, cuda::kWaitAtLeast),
                                    "cuStreamWaitValue32");
      if (!waits.ok()) return waits;
    }
    Status status = record();
    for (int i = 0; i < t.chunks && status.ok(); ++i) {
      status = copy_chunk(t.flow, t.bytes, gpu, *s);
      if (status.ok()) status = record();
    }
    return status;
  };
  for (const CudaTransfer& t : transfers) {
    if (Status s = queue_one(t); !s.ok()) {
      open_gate();  // what is queued must not wait for ever
      static_cast<void>(wait(all));
      return s;
    }
  }
  return all;
}

void CudaRig::open_gate() {
  auto* const word = reinterpret_cast<std::uint32_t*>(gate_->mapping.data());
  std::atomic_ref(*word).store(gate_value_, std::memory_order_release);
}

Status CudaRig::wait(const std::vector<Running>& running) {
  for (const Running& r : running) {
    if (Status s = drain(*r.gpu, r.stream); !s.ok()) return s;
  }
  return {};
}

Status CudaRig::drain(Gpu& gpu, cuda::StreamHandle stream) {
  if (!stuck_.ok()) return stuck_;
  const Current current(*gpu.context);
  const TimePoint start = os_.now();
  for (;;) {
    const cuda::Return code = driver_->api().stream_query(stream);
    if (code != cuda::kNotReady) {
      Status s = driver_->check(code, "cuStreamQuery");
      // After a failure on the device the context answers nothing else.
      if (!s.ok()) stuck_ = s.annotated("gpu:" + gpu.facts.bdf);
      return stuck_;
    }
    if (os_.now() - start > kPatience) {
      stuck_ = Status(Cause::kTimeout, fmt::format("gpu:{} has not ended a transfer within {} ms",
                                                   gpu.facts.bdf, kPatience.count()));
      return stuck_;
    }
    os_.yield();
  }
}

bool CudaRig::has_ended(const Running& running) const {
  const Current current(*running.gpu->context);
  return driver_->api().event_query(running.events.back()) != cuda::kNotReady;
}

Result<std::vector<double>> CudaRig::chunk_ends_ms(const Running& running) const {
  const Current current(*running.gpu->context);
  std::vector<double> ends;
  for (std::size_t i = 1; i < running.events.size(); ++i) {
    float ms = 0;
    Status s = driver_->check(
        driver_->api().event_elapsed_ms(&ms, running.events.front(), running.events[i]),
        "cuEventElapsedTime");
    if (!s.ok()) return s;
    ends.push_back(ms);
  }
  return ends;
}

Status CudaRig::write(Gpu& gpu, DeviceAddress to, std::span<const std::byte> bytes) {
  if (!stuck_.ok()) return stuck_;
  const auto s = stream(gpu, kOwnStream[0]);
  if (!s.ok()) return s.status();
  std::byte* const staging = gate_->mapping.data() + kStagingAt;
  std::memcpy(staging, bytes.data(), bytes.size());
  const Current current(*gpu.context);
  Status copied = driver_->check(driver_->api().copy_to_device(to, staging, bytes.size(), *s),
                                 "cuMemcpyHtoDAsync");
  return copied.ok() ? drain(gpu, *s) : copied;
}

Status CudaRig::read(Gpu& gpu, DeviceAddress from, std::span<std::byte> bytes) {
  if (!stuck_.ok()) return stuck_;
  const auto s = stream(gpu, kOwnStream[0]);
  if (!s.ok()) return s.status();
  std::byte* const staging = gate_->mapping.data() + kStagingAt;
  const Current current(*gpu.context);
  Status status = driver_->check(driver_->api().copy_to_host(staging, from, bytes.size(), *s),
                                 "cuMemcpyDtoHAsync");
  if (status.ok()) status = drain(gpu, *s);
  if (status.ok()) std::memcpy(bytes.data(), staging, bytes.size());
  return status;
}

Status CudaRig::put(const GpuPlace& place, Side side, std::span<const std::uint32_t> words) {
  const auto bytes = std::as_bytes(words);
  if (place.kind == GpuPlace::Kind::kGpu) {
    return write(*gpu_[static_cast<std::size_t>(place.index)], address(place, side, place.index),
                 bytes);
  }
  std::memcpy(host_address(place, side), bytes.data(), bytes.size());
  return {};
}

Result<std::vector<std::uint32_t>> CudaRig::get(const GpuPlace& place, Side side,
                                                std::size_t words) {
  std::vector<std::uint32_t> found(words);
  const auto bytes = std::as_writable_bytes(std::span(found));
  if (place.kind == GpuPlace::Kind::kMemory) {
    std::memcpy(bytes.data(), host_address(place, side), bytes.size());
    return found;
  }
  Status s =
      read(*gpu_[static_cast<std::size_t>(place.index)], address(place, side, place.index), bytes);
  if (!s.ok()) return s;
  return found;
}

/// What a kernel that has ended wrote as its result.
Result<double> CudaRig::result_of(Gpu& gpu, DeviceAddress result) {
  std::uint64_t ns = 0;
  if (Status s = read(gpu, result, std::as_writable_bytes(std::span(&ns, 1))); !s.ok()) return s;
  if (ns > kMostNs) {
    return Status(Cause::kUnsupported,
                  fmt::format("gpu:{} has a clock that says {} ns", gpu.facts.bdf, ns));
  }
  if (ns > 0) return static_cast<double>(ns);
  return Status(Cause::kUnsupported, fmt::format("gpu:{} had no answer within {} ms", gpu.facts.bdf,
                                                 kPatienceNs / 1'000'000));
}

Result<double> CudaRig::time_turns(int leader, int other, int turns) {
  const std::array<int, 2> index = {leader, other};
  std::array<Gpu*, 2> gpu{};
  std::array<cuda::StreamHandle, 2> streams{};
  for (std::size_t i = 0; i < 2; ++i) {
    gpu[i] = gpu_[static_cast<std::size_t>(index[i])].get();
    if (gpu[i]->turns == nullptr) return Status(Cause::kUnsupported, "there are no kernels");
    const auto s = stream(*gpu[i], kOwnStream[i]);
    if (!s.ok()) return s.status();
    streams[i] = *s;
    if (Status zeroed = write(*gpu[i], gpu[i]->words.get(), std::vector<std::byte>(kWordsBytes));
        !zeroed.ok()) {
      return zeroed;
    }
  }
  const std::size_t line = flag_line_++ % kFlagLines * kFlagStride;
  for (std::size_t i = 0; i < 2; ++i) {
    DeviceAddress mine = gpu[i]->words.get() + kFlagAt[i] + line;
    DeviceAddress theirs = gpu[1 - i]->words.get() + kFlagAt[1 - i] + line;
    int leads = i == 0 ? 1 : 0;
    std::uint32_t warm = kWarm;
    auto timed = static_cast<std::uint32_t>(turns);
    std::uint64_t patience = kPatienceNs;
    DeviceAddress result = gpu[i]->words.get() + kResultAt[i];
    std::array<void*, 7> parameters = {&mine, &theirs, &leads, &warm, &timed, &patience, &result};
    // If the second cannot be launched, the first runs out of patience.
    Status launched = launch(*gpu[i], gpu[i]->turns, 1, 1, streams[i], parameters);
    if (!launched.ok()) return launched;
  }
  for (std::size_t i = 0; i < 2; ++i) {
    if (Status s = drain(*gpu[i], streams[i]); !s.ok()) return s;
  }
  return result_of(*gpu[0], gpu[0]->words.get() + kResultAt[0]);
}

Result<double> CudaRig::time_reads(int gpu_index, int memory, int steps) {
  Gpu& gpu = *gpu_[static_cast<std::size_t>(gpu_index)];
  if (gpu.chase == nullptr) return Status(Cause::kUnsupported, "there are no kernels");
  const auto s = stream(gpu, kOwnStream[0]);
  if (!s.ok()) return s.status();
  DeviceAddress words =
      address({GpuPlace::Kind::kMemory, memory}, Side::kRead, gpu_index) + kReadBytes;
  std::uint32_t warm = kWarm;
  auto timed = static_cast<std::uint32_t>(steps);
  DeviceAddress result = gpu.words.get() + kResultAt[0];
  std::array<void*, 4> parameters = {&words, &warm, &timed, &result};
  if (Status l = launch(gpu, gpu.chase, 1, 1, *s, parameters); !l.ok()) return l;
  if (Status d = drain(gpu, *s); !d.ok()) return d;
  return result_of(gpu, result);
}

}  // namespace topocoll
