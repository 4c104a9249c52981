// Bootstrap: how the ranks of a group find each other through a Store and come to share a segment.
//
// Every rank joins (a counter in the store numbers the group's incarnations, so that a name may be used
// again on the same store), says hello (size, build, host), and waits for rank 0's table. Rank 0 compares
// the hellos, makes the segment, and hands it over a Unix socket whose name and secret are in the table.
// A rank that must give up says so under one key that all others look at while they wait.
//
// Failure rule: every rank concerned gets one error that names the missing ranks, the two builds, the
// two sizes or the two hosts; at the latest at the timeout and a second.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "base/os.h"
#include "control/monitor.h"
#include "topocoll/status.h"
#include "topocoll/store.h"
#include "transport/shm/segment.h"

namespace topocoll {

struct BootstrapOptions {
  int rank = 0;
  int size = 1;
  Store* store = nullptr;  ///< may be null if size is 1
  std::string name;
  std::chrono::milliseconds timeout{0};
  std::string build_tag;
  std::string settings;    ///< what else must be equal on all ranks, in words
  std::string host_id;  ///< empty: the kernel's boot id
  shm::Backing backing = shm::Backing::kAuto;
  std::string shm_directory = "/dev/shm";
};

/// What a rank holds when it has met the others.
struct Assembly {
  shm::Segment segment;
  std::vector<Monitor::Link> links;  ///< rank 0: to every other rank; the others: to rank 0
  std::uint64_t epoch = 1;
  std::string host_id;
};

Result<Assembly> bootstrap(Os& os, const BootstrapOptions& options);

/// For a rank that cannot take part, because of `status`: tells the others, who would else wait for it
/// until their timeout. Returns `status`.
Status decline(Os& os, const BootstrapOptions& options, Status status);

}  // namespace topocoll
