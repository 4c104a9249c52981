// A virtual machine with two H200, as topo record and topo probe found it on 2026-11-30: no switch
// in sight, neither of PCIe nor of NVLink.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "topocoll/findings.h"
#include "topocoll/topology.h"
#include "topocoll/topology_formats.h"

namespace topocoll {
namespace {

namespace fs = std::filesystem;
using ::testing::Each;
using ::testing::Field;
using ::testing::HasSubstr;

constexpr const char* kFirst = "gpu:0000:00:06.0";
constexpr const char* kSecond = "gpu:0000:00:07.0";
const std::string kData = std::string(TOPOCOLL_TEST_DATA) + "/topologies/h200_vm_2gpu";

const TopologyEdge* edge(const Topology& t, const std::string& from, const std::string& to,
                         const std::string& kind) {
  const auto found = std::find_if(t.edges.begin(), t.edges.end(), [&](const TopologyEdge& e) {
    return e.kind == kind && e.from == from && e.to == to;
  });
  return found == t.edges.end() ? nullptr : &*found;
}

Topology probed() {
  std::ifstream file(kData + ".json");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const auto t = topology_from_json(text);
  EXPECT_TRUE(t.ok()) << t.status().to_string();
  return t.ok() ? *t : Topology();
}

class H200Record : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = ::testing::TempDir() + "/topocoll_h200_" + std::to_string(::getpid());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    const std::string unpack = "tar -xjf '" + kData + ".tar.bz2' -C '" + folder_ + "'";
    if (std::system(unpack.c_str()) != 0) GTEST_SKIP() << "tar or bzip2 is missing here";
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string folder_;
};

TEST_F(H200Record, ShowsWhatNvmlSaid) {
  const auto t = discover_topology_at(folder_ + "/machine");
  ASSERT_TRUE(t.ok()) << t.status().to_string();
  for (const char* gpu : {kFirst, kSecond}) {
    ASSERT_NE(t->find(gpu), nullptr) << gpu;
    EXPECT_EQ(t->find(gpu)->label, "NVIDIA H200");
    EXPECT_EQ(t->find(gpu)->uuid, "") << "a recording names no card";
    const TopologyEdge* up = edge(*t, gpu, "nvswitch:hidden", "nvlink");
    ASSERT_NE(up, nullptr);
    EXPECT_EQ(up->count, 18);
    EXPECT_NEAR(*up->bandwidth_gbps.declared, 18 * 26.562, 1e-9);
    EXPECT_FALSE(up->bandwidth_gbps.measured);
  }
  const auto findings = check_topology(*t);
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].code, "flat-tree");
  EXPECT_EQ(findings[0].severity, Severity::kWarning) << "nothing was measured";
}

TEST_F(H200Record, AFileThatIsNoAnswerOfNvmlIsNamed) {
  std::ofstream(folder_ + "/machine/topocoll/gpus/0000:00:07.0") << "{\"bdf\": 7}";
  const auto t = discover_topology_at(folder_ + "/machine");
  EXPECT_EQ(t.status().cause(), Cause::kInvalidArgument);
  EXPECT_THAT(t.status().text(), HasSubstr("/topocoll/gpus/0000:00:07.0: bdf"));
}

TEST(H200Probe, MeasuresWhatIsHidden) {
  const Topology t = probed();
  const TopologyEdge* pair = edge(t, kFirst, kSecond, "transfer");
  ASSERT_NE(pair, nullptr);
  EXPECT_EQ(pair->fault, "");
  EXPECT_NEAR(*pair->bandwidth_gbps.measured, 368, 1);
  EXPECT_NEAR(*pair->figures.at(kCopyEngineGbps).measured, 393, 1);
  EXPECT_NEAR(*pair->latency_ns.measured, 700, 20);
  // All at once is what the link to the switch carries.
  const TopologyEdge* up = edge(t, kFirst, "nvswitch:hidden", "nvlink");
  ASSERT_NE(up, nullptr);
  EXPECT_NEAR(*up->bandwidth_gbps.measured, 364, 1);
  const auto findings = check_topology(t);
  EXPECT_THAT(findings, Each(Field(&Finding::severity, Severity::kInfo)));
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_THAT(findings[0].text, HasSubstr("measured: no two GPUs share a link"));
}

/// What NCCL 2.28.9 started with on that machine.
TEST(H200Probe, IsAMachineToNccl) {
  const auto written = to_nccl_xml(probed());
  ASSERT_TRUE(written.ok()) << written.status().to_string();
  const std::string& xml = *written;
  for (const char* address : {"0000:00:06.0", "0000:00:07.0"}) {
    EXPECT_THAT(xml, HasSubstr("<pci busid=\"" + std::string(address) + "\" class=\"0x030200\""));
  }
  EXPECT_THAT(xml, HasSubstr("<gpu sm=\"90\">\n        <nvlink target=\"fffffff:ff:ff.0\" "
                             "count=\"18\" tclass=\"0x068000\"/>"));
  const auto back = import_topology(xml, "xml");
  ASSERT_TRUE(back.ok()) << back.status().to_string();
  EXPECT_NE(edge(*back, kFirst, "nvswitch:hidden", "nvlink"), nullptr);
}

}  // namespace
}  // namespace topocoll
