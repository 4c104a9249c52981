// topocoll as a peer: topocoll_peer PAGE_FILE RANK RANKS strict|chained, one process per rank. Rank
// 0 serves the store and leaves its port in the shared page.
#include <cstdio>
#include <memory>
#include <string>

#include "harness.h"
#include "topocoll/communicator.h"
#include "topocoll/store.h"

namespace {

void check(const topocoll::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "topocoll_peer: %s\n", status.to_string().c_str());
  std::exit(1);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  const int rank = std::atoi(argv[2]);
  const int ranks = std::atoi(argv[3]);
  peers::pin(rank);
  peers::Harness harness(argv[1], rank, ranks);
  const std::string secret = argv[1];  // a fresh name in a folder that only this user may read
  std::unique_ptr<topocoll::StoreServer> server;
  if (rank == 0) {
    auto served = topocoll::serve_tcp_store("127.0.0.1", 0, secret);
    check(served.status());
    server = std::move(*served);
    harness.page().port = server->port();
  }
  while (harness.page().port == 0) ::usleep(1000);
  const auto port = static_cast<std::uint16_t>(harness.page().port);
  auto store = topocoll::connect_tcp_store("127.0.0.1", port, secret, std::chrono::seconds(60));
  check(store.status());
  topocoll::CommunicatorOptions options;
  options.rank = rank;
  options.size = ranks;
  options.store = *store;
  options.commit = std::string(argv[4]) == "strict" ? topocoll::CommitMode::kStrict
                                                    : topocoll::CommitMode::kChained;
  auto comm = topocoll::Communicator::create(options);
  check(comm.status());
  peers::serve(harness, [&](const float* in, float* out, std::size_t count) {
    check((*comm)->all_reduce(in, out, count, topocoll::DataType::kF32, topocoll::ReduceOp::kSum));
  });
  check((*comm)->shutdown());
  return 0;
}
