// Choose: what of a machine is measured. Of large machines each class of pairs of CPUs gives a
// random sample; memory is read from every NUMA node that has CPUs to read it, and by every RDMA
// port that is active.
//
// Thread rule: free functions. Failure rule: what is not in the topology is not chosen.
#pragma once

#include <random>
#include <string>
#include <vector>

#include "topocoll/topology.h"
#include "topology/pair_class.h"

namespace topocoll {

struct ChosenPair : CpuPair {
  bool first = false;  ///< of its class
};

/// All pairs of up to 8 usable CPUs; else up to 8 of each class, in random order. The first of each
/// class leads.
std::vector<ChosenPair> choose_pairs(const Topology& topology, std::mt19937_64& random);

/// Memory that some CPUs read together.
struct MemoryRead {
  std::string from;  ///< the NUMA node that has the memory
  int node = 0;      ///< its number
  std::string to;    ///< the reader: a CPU, another NUMA node, or what is above this one
  std::vector<int> cpus;
  bool local = false;
};

/// The readers near the memory lead: first one CPU, then all; then those from other NUMA nodes in
/// random order.
std::vector<MemoryRead> choose_memory(const Topology& topology, std::mt19937_64& random);

/// Memory that a port of an RDMA device reads, asked by a CPU near the memory.
struct NicRead {
  std::string from;    ///< the NUMA node that has the memory
  int node = 0;        ///< its number
  std::string to;      ///< the port's node
  std::string device;  ///< "mlx5_0"
  int port = 0;        ///< of the device, from 1
  int cpu = 0;
};

/// Of every active port and every NUMA node with usable CPUs, port by port.
std::vector<NicRead> choose_nic_reads(const Topology& topology, std::mt19937_64& random);

}  // namespace topocoll
