#include "coll_perf/bench.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>
#include <numeric>
#include <utility>

namespace topocoll::perf {
namespace {

/// Microseconds of elapsed time, or of processor time of this process.
double clock_us(bool cpu_time) {
  timespec now{};
  ::clock_gettime(cpu_time ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) * 1e-3;
}

}  // namespace

Buffer::Buffer(Buffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Buffer::~Buffer() {
  if (data_ != nullptr) ::munmap(data_, bytes_);
}

Result<Buffer> Buffer::of(std::size_t bytes) {
  Buffer buffer;
  buffer.bytes_ = std::max<std::size_t>(bytes, 1);
  void* memory = ::mmap(nullptr, buffer.bytes_, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (memory == MAP_FAILED) {
    return Status(Cause::kResource, fmt::format("cannot allocate a buffer of {} bytes: {}", bytes,
                                                std::strerror(errno)));
  }
  buffer.data_ = static_cast<std::byte*>(memory);
  return buffer;
}

Result<Bench> Bench::create(const Arguments& a, Communicator& communicator) {
  std::size_t send = 0;
  std::size_t recv = 0;
  std::size_t largest = 1;
  for (const Collective test : a.tests) {
    for (const DataType type : a.types) {
      const std::size_t element = size_of(type);
      const Shape shape = shape_of(test, a.max_bytes, element, communicator.size());
      const std::size_t both = std::max(shape.send, shape.recv) * element;
      send = std::max(send, shape.send * element);
      recv = std::max(recv, both);
      largest = std::max(largest, element);
    }
  }
  const std::size_t shift = static_cast<std::size_t>(a.unalign) * largest;
  auto send_buffer = Buffer::of(send + shift);
  if (!send_buffer.ok()) return send_buffer.status();
  auto recv_buffer = Buffer::of(recv + shift);
  if (!recv_buffer.ok()) return recv_buffer.status();
  return Bench(a, communicator, std::move(*send_buffer), std::move(*recv_buffer));
}

Bench::Bench(const Arguments& arguments, Communicator& communicator, Buffer send, Buffer recv)
    : arguments_(&arguments),
      communicator_(&communicator),
      send_(std::move(send)),
      recv_(std::move(recv)) {}

Exchange Bench::exchange(const RowKey& key, bool in_place) const {
  const std::size_t element = size_of(key.type);
  Subject subject{.test = key.test,
                  .shape = shape_of(key.test, key.bytes, element, communicator_->size()),
                  .type = key.type,
                  .op = key.op,
                  .root = key.root,
                  .rank = communicator_->rank(),
                  .ranks = communicator_->size(),
                  .in_place = in_place};
  const std::size_t shift = static_cast<std::size_t>(arguments_->unalign) * element;
  return Exchange(subject, send_.data() + shift, recv_.data() + shift);
}

Choice Bench::choice(const RowKey& key) const {
  return communicator_->choice(exchange(key, false).first_operation());
}

Status Bench::warm_up(const RowKey& key) {
  const Exchange e = exchange(key, false);
  for (int i = 0; i < arguments_->warmup; ++i) {
    if (Status s = e.issue(*communicator_, arguments_->aggregate); !s.ok()) return s;
  }
  return {};
}

Result<Row> Bench::measure(const RowKey& key) {
  Row row{.test = key.test,
          .shape = shape_of(key.test, key.bytes, size_of(key.type), communicator_->size()),
          .type = key.type,
          .op = reduces(key.test) ? std::optional(key.op) : std::nullopt,
          .root = has_root(key.test) ? key.root : -1,
          .out_of_place = {},
          .in_place = {}};
  auto out_of_place = measure_cell(key, false);
  if (!out_of_place.ok()) return out_of_place.status();
  row.out_of_place = std::move(*out_of_place);
  if (has_in_place(key.test)) {
    auto in_place = measure_cell(key, true);
    if (!in_place.ok()) return in_place.status();
    row.in_place = std::move(*in_place);
  }
  return row;
}

Result<Cell> Bench::measure_cell(const RowKey& key, bool in_place) {
  const Exchange e = exchange(key, in_place);
  e.fill(++salt_);
  std::vector<double> each;
  auto mine = time(e, arguments_->per_iteration ? &each : nullptr);
  if (!mine.ok()) return mine.status();
  auto times = from_all(std::span<const double>(&*mine, 1));
  if (!times.ok()) return times.status();
  Cell cell;
  cell.time_us = average(*times);
  const Shape shape = shape_of(key.test, key.bytes, size_of(key.type), communicator_->size());
  cell.algbw = cell.time_us > 0 ? shape.traffic_bytes / cell.time_us * 1e-3 : 0;
  cell.busbw = cell.algbw * shape.bus_factor;
  if (arguments_->per_iteration) {
    auto all = from_all(each);
    if (!all.ok()) return all.status();
    std::vector<std::vector<double>> per_rank;
    for (auto at = all->begin(); at != all->end(); at += static_cast<std::ptrdiff_t>(each.size())) {
      per_rank.emplace_back(at, at + static_cast<std::ptrdiff_t>(each.size()));
    }
    cell.iterations = iteration_stats(per_rank);
  }
  if (arguments_->checks > 0) {
    auto wrong = check(e);
    if (!wrong.ok()) return wrong.status();
    cell.wrong = *wrong;
  }
  return cell;
}

Result<double> Bench::time(const Exchange& e, std::vector<double>* each) {
  const Arguments& a = *arguments_;
  if (Status s = communicator_->barrier(); !s.ok()) return s;
  const double begin = clock_us(a.cpu_time);
  double last = begin;
  for (int i = 0; i < a.iterations; ++i) {
    if (Status s = e.issue(*communicator_, a.aggregate); !s.ok()) return s;
    if (a.blocking == 1) {
      if (Status s = communicator_->barrier(); !s.ok()) return s;
    }
    if (each != nullptr) {
      const double now = clock_us(a.cpu_time);
      if (i >= a.per_iteration_skip) each->push_back((now - last) / a.aggregate);
      last = now;
    }
  }
  return (clock_us(a.cpu_time) - begin) / a.iterations / a.aggregate;
}

Result<std::uint64_t> Bench::check(const Exchange& e) {
  double wrong = 0;
  for (int i = 0; i < arguments_->checks; ++i) {
    e.fill(++salt_);
    // Nobody may see a peer's data of the last check.
    if (Status s = communicator_->barrier(); !s.ok()) return s;
    if (Status s = e.issue(*communicator_, 1); !s.ok()) return s;
    wrong += static_cast<double>(e.wrong(salt_));
  }
  auto all = from_all(std::span<const double>(&wrong, 1));
  if (!all.ok()) return all.status();
  return static_cast<std::uint64_t>(std::accumulate(all->begin(), all->end(), 0.0));
}

Result<std::vector<double>> Bench::from_all(std::span<const double> mine) {
  std::vector<double> all(mine.size() * static_cast<std::size_t>(communicator_->size()));
  if (Status s = communicator_->all_gather(mine.data(), all.data(), mine.size(), DataType::kF64);
      !s.ok()) {
    return s;
  }
  return all;
}

double Bench::average(const std::vector<double>& times) const {
  switch (arguments_->average) {
    case 0:
      return times.front();
    case 2:
      return *std::min_element(times.begin(), times.end());
    case 3:
      return *std::max_element(times.begin(), times.end());
    default:
      return std::accumulate(times.begin(), times.end(), 0.0) / static_cast<double>(times.size());
  }
}

}  // namespace topocoll::perf
