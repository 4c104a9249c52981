// MPI as a peer: mpi_peer PAGE_FILE, started by mpirun.
#include <mpi.h>

#include "harness.h"

int main(int argc, char** argv) {
  // Pinned before MPI_Init by what the launcher says, so that all of MPI's memory and threads
  // follow.
  const char* rank_text = std::getenv("OMPI_COMM_WORLD_RANK");
  if (rank_text == nullptr) rank_text = std::getenv("PMI_RANK");
  if (rank_text != nullptr) peers::pin(std::atoi(rank_text));
  MPI_Init(&argc, &argv);
  int rank = 0;
  int ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (argc != 2) MPI_Abort(MPI_COMM_WORLD, 2);
  peers::pin(rank);
  {
    peers::Harness harness(argv[1], rank, ranks);
    peers::serve(harness, [](const float* in, float* out, std::size_t count) {
      MPI_Allreduce(in, out, static_cast<int>(count), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    });
  }
  MPI_Finalize();
  return 0;
}
