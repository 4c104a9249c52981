#include "probe/network_topology.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace topocoll::network_probe {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::SizeIs;

Host host(const std::string& name, const std::vector<std::string>& interfaces) {
  Host result{name, {}};
  for (const std::string& interface : interfaces) {
    InterfaceFacts& facts = result.description.interface[result.description.interfaces++];
    facts.name = to_text<16>(interface);
    facts.mbit = 1000;
  }
  return result;
}

Measurement measured(double gbps, double both_gbps) {
  Measurement m;
  m.reached = 1;
  m.latency_ns = to_samples({20'000});
  m.forward_gbps = m.backward_gbps = to_samples(std::vector<double>(9, gbps));
  m.forward_both_gbps = m.backward_both_gbps = to_samples(std::vector<double>(9, both_gbps));
  return m;
}

Measurement failed(const std::string& reason) {
  Measurement m;
  m.reason = to_text<512>(reason);
  return m;
}

TEST(NetworkTopology, DirectionsThatShareACapacityAreAGroup) {
  const auto topology = [](double both) {
    return to_topology({host("a", {"eth0"}), host("b", {"eth0"})},
                       {to_pair("a/port:eth0", "b/port:eth0", measured(0.1, both))});
  };
  EXPECT_THAT(topology(0.1).groups, IsEmpty());
  const Topology shared = topology(0.05);
  ASSERT_THAT(shared.groups, SizeIs(1));
  EXPECT_NEAR(*shared.groups[0].bandwidth_gbps.measured, 0.1, 1e-9);
  EXPECT_TRUE(topology_from_json(to_json(shared)).ok());
}

TEST(NetworkTopology, SlowerTogetherBySomeAccountsOnlyIsNoGroup) {
  Measurement m = measured(0.1, 0.05);
  m.forward_gbps = m.backward_gbps = to_samples({0.04, 0.04, 0.1, 0.1, 0.1, 0.12});
  const Topology t = to_topology({host("a", {"eth0"}), host("b", {"eth0"})},
                                 {to_pair("a/port:eth0", "b/port:eth0", m)});
  EXPECT_THAT(t.groups, IsEmpty());
}

TEST(NetworkTopology, APortIsUnreachedIfNoPortOfTheHostAnswersIt) {
  const Topology t = to_topology({host("a", {"eth0", "eth1"}), host("b", {"eth0", "eth1"})},
                                 {to_pair("a/port:eth0", "b/port:eth0", measured(0.1, 0.1)),
                                  to_pair("a/port:eth0", "b/port:eth1", failed("no route")),
                                  to_pair("a/port:eth1", "b/port:eth0", failed("no answer")),
                                  to_pair("a/port:eth1", "b/port:eth1", measured(0.1, 0.1))});
  for (const TopologyNode& node : t.nodes) EXPECT_FALSE(node.attributes.contains("unreached b"));
  const Topology cut = to_topology({host("a", {"eth0", "eth1"}), host("b", {"eth0"})},
                                   {to_pair("a/port:eth0", "b/port:eth0", measured(0.1, 0.1)),
                                    to_pair("a/port:eth1", "b/port:eth0", failed("no answer"))});
  EXPECT_THAT(cut.find("a/port:eth1")->attributes,
              Contains(Pair("unreached b", HasSubstr("b/port:eth0 (no answer)"))));
  EXPECT_FALSE(cut.find("b/port:eth0")->attributes.contains("unreached a"));
  EXPECT_TRUE(topology_from_json(to_json(cut)).ok());
}

}  // namespace
}  // namespace topocoll::network_probe
