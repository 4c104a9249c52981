#include "probe/gpu_ports.h"

#include <cstddef>
#include <numeric>

#include "base/index.h"

namespace topocoll {
namespace {

/// One side of a GPU: stores to its peers, or theirs to it.
class Port {
 public:
  Port(const std::vector<std::vector<double>>& alone_gbps, int gpu, bool out,
       const JointRates& rates)
      : alone_gbps_(alone_gbps), gpu_(gpu), out_(out), rates_(rates) {
    const int count = static_cast<int>(alone_gbps.size());
    for (int step = 1; step < count; ++step) {
      const int peer = (gpu + step) % count;
      if (alone(peer) > 0) peers_.push_back(peer);
    }
  }

  Status find(bool& shared, double& gbps) {
    if (peers_.size() < 2) {
      if (!peers_.empty()) gbps = alone(peers_.front());
      return Status();
    }
    const std::vector<int> two(peers_.begin(), peers_.begin() + 2);
    shared = true;
    for (int times = 0; shared && times < 2; ++times) {
      auto together = measure(two);
      if (!together.ok()) return together.status();
      shared = *together < kSharedBelow * (alone(two[0]) + alone(two[1]));
    }
    auto all = measure(peers_);
    if (!all.ok()) return all.status();
    gbps = *all;
    return Status();
  }

 private:
  [[nodiscard]] double alone(int peer) const {
    return out_ ? alone_gbps_[at(gpu_)][at(peer)] : alone_gbps_[at(peer)][at(gpu_)];
  }
  Result<double> measure(const std::vector<int>& peers) {
    std::vector<GpuFlow> flows;
    for (const int peer : peers) {
      flows.push_back({{GpuPlace::Kind::kGpu, out_ ? gpu_ : peer},
                       {GpuPlace::Kind::kGpu, out_ ? peer : gpu_},
                       Mover::kStores});
    }
    auto each = rates_(flows);
    if (!each.ok()) return each.status();
    return std::accumulate(each->begin(), each->end(), 0.0);
  }

  const std::vector<std::vector<double>>& alone_gbps_;
  int gpu_;
  bool out_;
  const JointRates& rates_;
  std::vector<int> peers_;
};

}  // namespace

Result<std::vector<GpuPort>> infer_ports(const std::vector<std::vector<double>>& alone_gbps,
                                         const JointRates& rates) {
  std::vector<GpuPort> ports(alone_gbps.size());
  for (int g = 0; g < static_cast<int>(ports.size()); ++g) {
    GpuPort& port = ports[at(g)];
    Status s = Port(alone_gbps, g, true, rates).find(port.shared_out, port.out_gbps);
    if (s.ok()) s = Port(alone_gbps, g, false, rates).find(port.shared_in, port.in_gbps);
    if (!s.ok()) return s;
  }
  return ports;
}

}  // namespace topocoll
