// Bench: times and checks rows, in step with the other ranks.
//
// Thread rule: one thread. Failure rule: the first failed operation ends the work and is returned.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "coll_perf/arguments.h"
#include "coll_perf/exchange.h"
#include "coll_perf/table.h"
#include "topocoll/communicator.h"

namespace topocoll::perf {

/// Page-aligned zeroed memory that is touched before it is used.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer();
  static Result<Buffer> of(std::size_t bytes);
  [[nodiscard]] std::byte* data() const { return data_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

/// What one row of the table is about.
struct RowKey {
  Collective test = Collective::kAllReduce;
  DataType type = DataType::kF32;
  ReduceOp op = ReduceOp::kSum;
  int root = 0;
  std::size_t bytes = 0;  ///< nominal
};

class Bench {
 public:
  /// Buffers for every row of the run.
  static Result<Bench> create(const Arguments& arguments, Communicator& communicator);

  Status warm_up(const RowKey& key);
  Result<Row> measure(const RowKey& key);
  /// What the communicator would use for this row.
  [[nodiscard]] Choice choice(const RowKey& key) const;

 private:
  Bench(const Arguments& arguments, Communicator& communicator, Buffer send, Buffer recv);

  [[nodiscard]] Exchange exchange(const RowKey& key, bool in_place) const;
  Result<Cell> measure_cell(const RowKey& key, bool in_place);
  /// Microseconds per operation on this rank; each iteration's too if they are wanted.
  Result<double> time(const Exchange& exchange, std::vector<double>* each);
  Result<std::uint64_t> check(const Exchange& exchange);
  Result<std::vector<double>> from_all(std::span<const double> mine);
  [[nodiscard]] double average(const std::vector<double>& times) const;

  const Arguments* arguments_;
  Communicator* communicator_;
  Buffer send_;
  Buffer recv_;
  std::uint64_t salt_ = 0;  // fresh data for every check
};

}  // namespace topocoll::perf
