// Each rank brings a million copies of its own number; each gets their sum.
//
//   export TOPOCOLL_JOB_SECRET=$(head -c 16 /dev/urandom | base64)
//   ./all_reduce 0 2 29511 & ./all_reduce 1 2 29511; wait        # rank, ranks, port of the store
#include <topocoll/topocoll.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

int fail(const topocoll::Status& status) {
  std::fprintf(stderr, "%s\n", status.to_string().c_str());
  return 1;
}

int main(int argc, char** argv) {
  using namespace std::chrono_literals;
  const char* secret = std::getenv("TOPOCOLL_JOB_SECRET");
  const topocoll::Status usage(topocoll::Cause::kInvalidArgument,
                               "usage: TOPOCOLL_JOB_SECRET=... all_reduce RANK RANKS PORT");
  if (argc != 4 || !secret) return fail(usage);
  topocoll::CommunicatorOptions options;
  options.rank = std::atoi(argv[1]);
  options.size = std::atoi(argv[2]);
  const auto port = static_cast<std::uint16_t>(std::atoi(argv[3]));

  std::unique_ptr<topocoll::StoreServer> server;
  if (options.rank == 0) {
    auto made = topocoll::serve_tcp_store("127.0.0.1", port, secret);
    if (!made.ok()) return fail(made.status());
    server = std::move(made.value());
  }
  auto store = topocoll::connect_tcp_store("127.0.0.1", port, secret, 30s);
  if (!store.ok()) return fail(store.status());
  options.store = *store;
  auto group = topocoll::Communicator::create(options);
  if (!group.ok()) return fail(group.status());

  std::vector<float> x(1'000'000, static_cast<float>(options.rank + 1));
  const topocoll::Status status = (*group)->all_reduce(
      x.data(), x.data(), x.size(), topocoll::DataType::kF32, topocoll::ReduceOp::kSum);
  if (!status.ok()) return fail(status);
  std::printf("rank %d of %d: %g\n", options.rank, options.size, x.front());
}
