// What a test tells the fake libibverbs.so, through the symbol `fake_verbs_state` that it exports.
#pragma once

#include <infiniband/verbs.h>

#include <chrono>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace topocoll::testing {

struct FakeVerbs {
  std::vector<std::string> devices{"fake_0", "fake_1"};
  bool ethernet = true;
  std::uint16_t lid = 0;
  /// Last bytes of addresses; 0: an empty place of the table.
  std::vector<std::uint8_t> gids{0, 7, 8};
  std::set<int> refused_gids;        ///< by index: no connection by them
  std::set<int> silent_gids;         ///< by index: no answer by them
  std::string failing;               ///< the function that fails ...
  int error = 0;                     ///< ... with this errno
  std::string hanging;               ///< the function that does not come back ...
  std::shared_future<void> release;  ///< ... before this
  std::optional<int> listed;         ///< as many devices it says there are
  bool nameless = false;             ///< no device has a name
  bool speechless = false;           ///< no status has words
  ibv_port_state port_state = IBV_PORT_ACTIVE;
  std::chrono::milliseconds posting{0};  ///< what asking for a read takes
  int polled = 1;                        ///< completions that there are, it says, if there is one
  bool twice = false;                    ///< each completion comes again
  ibv_wc_status status = IBV_WC_SUCCESS;
  bool never_completes = false;
  bool lies = false;  ///< what is read arrives changed
  int alive = 0;      ///< objects made less objects destroyed
  /// Devices closed. For tests that cannot join a thread, and under a lock, which the thread
  /// sanitizer sees even here, where nothing is compiled for it.
  int closed = 0;
  std::shared_ptr<std::mutex> closing = std::make_shared<std::mutex>();
  int reads = 0;
  int gid_used = -1;  ///< -1: the LID
};

}  // namespace topocoll::testing
