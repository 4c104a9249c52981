// Cache: what a probe has measured, kept in a file for the next one. The file's name is the
// machine's make-up, and its first line says so again, with how many measurements are missing and a
// checksum of that and of the rest, which is the topology in its native JSON.
//
// Thread rule: free functions. Failure rule: a file that is missing, damaged, somebody else's or of
// another machine is an error whose text says so; nothing of it is used.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "topocoll/status.h"
#include "topocoll/topology.h"

namespace topocoll {

/// Where results are kept: the option's directory, else the user's.
Result<std::string> cache_directory(const std::optional<std::string>& option);

/// The file for a machine in `directory`.
std::string cache_path(const std::string& directory, const Topology& machine);

struct Kept {
  Topology topology;
  std::size_t missing = 0;  ///< measurements that another probe may have time or memory for
};

/// What was kept for this machine; nothing if no file is there.
Result<std::optional<Kept>> load_kept(const std::string& directory, const Topology& machine);

/// Keeps `measured`, whole or not at all.
Status keep(const std::string& directory, const Topology& measured, std::size_t missing = 0);

/// Takes over what was measured of things that are in `to` as well.
void copy_measurements(const Topology& from, Topology& to);

}  // namespace topocoll
