// A recorded machine, as it is and as somebody may have changed it.
// tests/machine/qemu_machine_test.py builds and records the machine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "topocoll/findings.h"
#include "topocoll/topology.h"
#include "topocoll/topology_formats.h"

namespace topocoll {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kNic = "nic:0000:23:00.0";

class Replay : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = ::testing::TempDir() + "/topocoll_replay_" + std::to_string(::getpid());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    const std::string archive =
        std::string(TOPOCOLL_TEST_DATA) + "/topologies/qemu_two_sockets.tar.bz2";
    const std::string unpack = "tar -xjf '" + archive + "' -C '" + folder_ + "'";
    if (std::system(unpack.c_str()) != 0) GTEST_SKIP() << "tar or bzip2 is missing here";
  }
  void TearDown() override { fs::remove_all(folder_); }

  [[nodiscard]] Topology discovered() const {
    const auto t = discover_topology_at(folder_ + "/machine");
    EXPECT_TRUE(t.ok()) << t.status().to_string();
    return t.ok() ? *t : Topology();
  }
  /// Writes a file of a PCI function anew.
  void set(const std::string& bdf, const std::string& file, const std::string& text) const {
    const fs::path link = folder_ + "/machine/sys/bus/pci/devices/" + bdf;
    ASSERT_TRUE(fs::exists(link / file)) << link / file;
    std::ofstream(link / file) << text << '\n';
  }
  [[nodiscard]] std::vector<Finding> findings() const { return check_topology(discovered()); }

  std::string folder_;
};

std::vector<std::string> above(const Topology& t, std::string id) {
  std::vector<std::string> path;
  for (const TopologyNode* node = t.parent(id); node != nullptr; node = t.parent(node->id)) {
    path.push_back(node->id);
  }
  return path;
}

auto finding(const std::string& code, const std::string& node) {
  return AllOf(Field(&Finding::code, code), Field(&Finding::nodes, Contains(node)));
}

TEST_F(Replay, AMachineIsFoundAsItWasBuilt) {
  const Topology t = discovered();
  ASSERT_EQ(t.of_kind(NodeKind::kNumaNode).size(), 2U);
  EXPECT_THAT(t.find("numa:0")->cpus, ElementsAre(0, 1));
  EXPECT_THAT(t.find("numa:1")->cpus, ElementsAre(2, 3));
  EXPECT_THAT(above(t, kNic), ElementsAre("bridge:0000:22:00.0", "bridge:0000:21:00.0",
                                          "bridge:0000:20:00.0", "numa:0", "package:0", "host"));
  EXPECT_THAT(above(t, "nic:0000:24:00.0"),
              ElementsAre("bridge:0000:22:01.0", "bridge:0000:21:00.0", "bridge:0000:20:00.0",
                          "numa:0", "package:0", "host"));
  EXPECT_THAT(above(t, "port:eth0"), AllOf(Contains("nic:0000:43:00.0"), Contains("numa:1")));
  EXPECT_EQ(t.of_kind(NodeKind::kNic).size(), 4U);
  EXPECT_EQ(t.of_kind(NodeKind::kNicPort).size(), 3U);
  for (const Finding& f : check_topology(t)) EXPECT_EQ(f.code, "memlock-low") << f.text;
}

TEST_F(Replay, WrongAndConflictingLocalitiesAreFound) {
  set("0000:23:00.0", "numa_node", "1");
  EXPECT_THAT(findings(), Contains(AllOf(finding("numa-conflict", kNic),
                                         Field(&Finding::evidence, HasSubstr("numa_node 1")))));
  set("0000:23:00.0", "numa_node", "7");
  EXPECT_THAT(findings(), Contains(AllOf(finding("numa-conflict", kNic),
                                         Field(&Finding::text, HasSubstr("does not exist")))));
  set("0000:23:00.0", "numa_node", "-1");
  EXPECT_THAT(findings(), Contains(finding("numa-unknown", kNic)));
  set("0000:23:00.0", "numa_node", "0");
  set("0000:23:00.0", "local_cpus", "6");  // half of each NUMA node
  EXPECT_THAT(findings(), Contains(finding("numa-conflict", kNic)));
  set("0000:23:00.0", "local_cpus", "3");
  EXPECT_THAT(findings(), Not(Contains(Field(&Finding::code, HasSubstr("numa")))));
}

TEST_F(Replay, LocalitiesThatAreNonsenseAreNoFindingsAndNoCrash) {
  for (const char* text : {"", "x", "-2147483649", "99999999999999999999", "0,0", "\xff"}) {
    set("0000:23:00.0", "numa_node", text);
    set("0000:23:00.0", "local_cpus", text);
    set("0000:20:00.0", "local_cpus", text);
    const Topology t = discovered();
    EXPECT_NE(t.find(kNic), nullptr) << text;
    (void)check_topology(t);
  }
}

TEST_F(Replay, WhatWouldBeReadForEverIsRefusedByName) {
  const std::string cpu = folder_ + "/machine/sys/devices/system/cpu/";
  const auto refused = [&](const std::string& path, const std::string& why) {
    const auto t = discover_topology_at(folder_ + "/machine");
    ASSERT_FALSE(t.ok()) << path;
    EXPECT_THAT(t.status().text(), AllOf(HasSubstr("cpu/possible: "), HasSubstr(why)));
    fs::remove(path);
  };
  fs::remove(cpu + "possible");
  ASSERT_EQ(::mkfifo((cpu + "possible").c_str(), 0600), 0);
  refused(cpu + "possible", "neither a file, a directory nor a link");
  fs::create_symlink("/dev/zero", cpu + "possible");
  refused(cpu + "possible", "leads out of the recording");
  std::ofstream(cpu + "possible").put('0');
  fs::resize_file(cpu + "possible", std::uintmax_t{1} << 30);  // sparse
  refused(cpu + "possible", "larger than 64 MiB");
  fs::create_symlink("possible", cpu + "possible");  // leads nowhere: harmless
  EXPECT_TRUE(discover_topology_at(folder_ + "/machine").ok());
}

TEST_F(Replay, MoreNumaNodesAndCpusThanThereCanBeAreRefused) {
  for (const char* file : {"node/online", "cpu/possible"}) {
    const std::string path = folder_ + "/machine/sys/devices/system/" + file;
    std::ifstream in(path);
    const std::string before{std::istreambuf_iterator<char>(in), {}};
    std::ofstream(path) << "0-999999\n";
    const auto t = discover_topology_at(folder_ + "/machine");
    ASSERT_FALSE(t.ok());
    EXPECT_THAT(t.status().text(), AllOf(HasSubstr(file), HasSubstr("names number 999999")));
    std::ofstream(path) << before;
  }
  EXPECT_TRUE(discover_topology_at(folder_ + "/machine").ok());
}

TEST_F(Replay, ListsOfNodesAndCpusThatAreNoneAreRefused) {
  const std::string path = folder_ + "/machine/sys/devices/system/node/online";
  for (const char* text : {"", "x", "1-0", "1,0", "0-", "0,", "9223372036854775807x0"}) {
    std::ofstream(path) << text << "\n";
    const auto t = discover_topology_at(folder_ + "/machine");
    ASSERT_FALSE(t.ok()) << text;
    EXPECT_THAT(t.status().text(),
                HasSubstr("node/online: expected an ascending list such as 0-3,8"))
        << text;
  }
  for (const char* text : {"0-1", "0,1"}) {
    std::ofstream(path) << text << "\n";
    EXPECT_TRUE(discover_topology_at(folder_ + "/machine").ok()) << text;
  }
}

TEST_F(Replay, PackagesThatContradictEachOtherAreAnErrorThatNamesThem) {
  const std::string cpu = folder_ + "/machine/sys/devices/system/cpu/";
  for (const char* second : {"cpu2", "cpu3"}) {
    std::ofstream(cpu + second + "/topology/physical_package_id") << "0\n";
  }
  const auto t = discover_topology_at(folder_ + "/machine");
  EXPECT_THAT(t.status().text(),
              AllOf(HasSubstr("the recorded machine contradicts itself"), HasSubstr("package:0")));
}

TEST_F(Replay, HalfOfTheLanesOfALinkAreFound) {
  for (const char* bdf : {"0000:23:00.0", "0000:22:00.0"}) {
    set(bdf, "max_link_width", "16");
    set(bdf, "current_link_width", "8");
  }
  const auto found = findings();
  const auto width = std::find_if(found.begin(), found.end(),
                                  [](const Finding& f) { return f.code == "pcie-width"; });
  ASSERT_NE(width, found.end());
  EXPECT_THAT(width->nodes, ElementsAre(kNic));
  EXPECT_THAT(width->text, HasSubstr("8 of 16 PCIe lanes"));
  EXPECT_EQ(width->loss_percent, 50.0);
}

}  // namespace
}  // namespace topocoll
