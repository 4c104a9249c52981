// What an RDMA port takes to read memory of its own host.
//
// Two queue pairs of the port are connected with each other; one reads a byte through the other.
// The request crosses PCIe to the port, the byte from memory to the port and back, and its
// completion once more: the NUMA node with the least time is the port's (as in Microsoft's
// inspector-topo, which finds the socket of a NIC so). Everything lies in the node's memory, and a
// CPU of the node asks.
//
// Thread rule: any thread; a thread of its own measures. Failure rule: kUnsupported without
// libibverbs, its header at build time, or the device; kSystem if a CPU cannot be had or the port
// fails or does not answer, kResource if too little memory may be locked. kTimeout if a call into
// libibverbs does not come back: its thread is left behind, and every later call of this process
// gets the same error at once, since that thread may hold the library's locks.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "base/os.h"
#include "probe/choose.h"
#include "topocoll/status.h"
#include "topocoll/topology.h"

namespace topocoll {

/// Nanoseconds of one read, from asking to its completion. The reads take `time`, and as long as
/// one of them lasts; with all that comes before them they have `patience`. A thread that is left
/// behind uses `os` whenever its call comes back.
Result<Figure> measure_nic_read(Os& os, const NicRead& read, std::chrono::milliseconds time,
                                const std::string& library = "libibverbs.so.1",
                                std::chrono::milliseconds patience = std::chrono::seconds(5));

}  // namespace topocoll
