// get() requests that wait in the TCP store's server for their key or their deadline.
//
// Thread rule: one thread. Failure rule: none; every request is taken exactly once, or removed with
// its connection.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/os.h"

namespace topocoll::tcp_store {

struct ParkedGet {
  std::uint64_t connection = 0;
  std::uint64_t request = 0;
  std::string key;
};

class ParkedGets {
 public:
  void add(ParkedGet get, TimePoint deadline);
  /// The requests for `key`, in the order of their arrival.
  std::vector<ParkedGet> take_key(const std::string& key);
  /// The requests whose deadline is not after `now`.
  std::vector<ParkedGet> take_due(TimePoint now);
  void remove_connection(std::uint64_t connection);
  /// How many requests of this connection wait.
  [[nodiscard]] std::size_t count(std::uint64_t connection) const;
  /// The earliest deadline, or the clock's end.
  [[nodiscard]] TimePoint next_deadline() const;

 private:
  struct Entry {
    ParkedGet get;
    std::multimap<TimePoint, std::uint64_t>::iterator due;
  };
  using ByKey = std::map<std::string, std::map<std::uint64_t, Entry>>;

  void forget(const Entry& entry);

  std::uint64_t next_ = 0;
  ByKey by_key_;                                 // key, then arrival
  std::map<std::uint64_t, std::string> key_of_;  // arrival to key
  std::multimap<TimePoint, std::uint64_t> due_;  // deadline to arrival
  std::map<std::uint64_t, std::size_t> per_connection_;
};

}  // namespace topocoll::tcp_store
