#include "control/parked_gets.h"

#include <utility>

namespace topocoll::tcp_store {

void ParkedGets::add(ParkedGet get, TimePoint deadline) {
  const std::uint64_t arrival = next_++;
  const auto due = due_.emplace(deadline, arrival);
  ++per_connection_[get.connection];
  key_of_[arrival] = get.key;
  const std::string key = get.key;
  by_key_[key].emplace(arrival, Entry{.get = std::move(get), .due = due});
}

void ParkedGets::forget(const Entry& entry) {
  key_of_.erase(entry.due->second);
  due_.erase(entry.due);
  const auto counter = per_connection_.find(entry.get.connection);
  if (--counter->second == 0) per_connection_.erase(counter);
}

std::vector<ParkedGet> ParkedGets::take_key(const std::string& key) {
  std::vector<ParkedGet> taken;
  auto node = by_key_.extract(key);
  if (node.empty()) return taken;
  for (auto& [arrival, entry] : node.mapped()) {
    forget(entry);
    taken.push_back(std::move(entry.get));
  }
  return taken;
}

std::vector<ParkedGet> ParkedGets::take_due(TimePoint now) {
  std::vector<ParkedGet> taken;
  while (!due_.empty() && due_.begin()->first <= now) {
    const std::uint64_t arrival = due_.begin()->second;
    const auto waiting = by_key_.find(key_of_.at(arrival));
    auto node = waiting->second.extract(arrival);
    if (waiting->second.empty()) by_key_.erase(waiting);
    forget(node.mapped());
    taken.push_back(std::move(node.mapped().get));
  }
  return taken;
}

void ParkedGets::remove_connection(std::uint64_t connection) {
  if (count(connection) == 0) return;
  for (auto waiting = by_key_.begin(); waiting != by_key_.end();) {
    auto& entries = waiting->second;
    for (auto entry = entries.begin(); entry != entries.end();) {
      if (entry->second.get.connection == connection) {
        forget(entry->second);
        entry = entries.erase(entry);
      } else {
        ++entry;
      }
    }
    waiting = entries.empty() ? by_key_.erase(waiting) : std::next(waiting);
  }
}

std::size_t ParkedGets::count(std::uint64_t connection) const {
  const auto found = per_connection_.find(connection);
  return found == per_connection_.end() ? 0 : found->second;
}

TimePoint ParkedGets::next_deadline() const {
  return due_.empty() ? TimePoint::max() : due_.begin()->first;
}

}  // namespace topocoll::tcp_store
