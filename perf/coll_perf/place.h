// Place: which rank this process is, and the store through which its ranks meet.
//
// Without --ranks the environment says who we are: torchrun's RANK and WORLD_SIZE, Open MPI's
// OMPI_COMM_WORLD_RANK and _SIZE, SLURM's SLURM_PROCID and SLURM_NTASKS, or MPICH's PMI_RANK and
// PMI_SIZE; without any of them there is one rank. SLURM_NTASKS alone, as in the shell of salloc,
// says how many ranks srun would start, and that it has not. Empty variables count as none.
// Where the ranks meet, in this order:
//
// - TOPOCOLL_STORE=host:port: rank 0 serves there, unless a store already does
// - MASTER_ADDR, MASTER_PORT, which a launcher may own itself: rank 0 serves on the port after it,
//   or, where outgoing connections may have that, on one that the job's id gives
// - neither: all ranks are on this host, and the job's id gives a port of 127.0.0.1
//
// TOPOCOLL_JOB_SECRET keeps strangers out; without it the job's id stands in, which other users of
// the machine may be able to guess.
//
// Thread rule: one thread. Failure rule: a Status that names the variable at fault.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "topocoll/status.h"
#include "topocoll/store.h"

namespace topocoll::perf {

/// How the environment is read; tests substitute their own.
using Getenv = std::function<const char*(const char*)>;

struct Rendezvous {
  std::string host = "127.0.0.1";
  std::uint16_t port = 0;
  std::string secret;
};

struct Place {
  int rank = 0;
  int size = 1;
  int local_rank = 0;
  std::string launcher;                  ///< "torchrun", "Open MPI", "SLURM", or empty
  std::string variables;                 ///< of the launcher, with their values; or empty
  std::optional<Rendezvous> rendezvous;  ///< nothing if there is one rank
};

/// Reads the environment.
Result<Place> read_place(const Getenv& getenv);

/// A wait for peers failed: if it ran out of time, the error also names the launcher's variables,
/// which a batch script has, too, that starts no ranks.
Status peers_absent(const Status& status, const std::string& variables);

/// A connection to the place's store, with the server where this rank is the one to serve.
struct Meeting {
  std::unique_ptr<StoreServer> server;
  std::shared_ptr<Store> store;
};
Result<Meeting> meet(const Place& place, std::chrono::milliseconds timeout);

}  // namespace topocoll::perf
