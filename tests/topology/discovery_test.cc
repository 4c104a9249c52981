#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "topocoll/topology.h"
#include "topology/hwloc_reader.h"

namespace topocoll {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<int> kernel_affinity() {
  cpu_set_t set;
  CPU_ZERO(&set);
  EXPECT_EQ(sched_getaffinity(0, sizeof set, &set), 0);
  std::vector<int> cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  return cpus;
}

/// A sanitizer may have threads of its own.
void confine_all_threads(const cpu_set_t& cpus) {
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    EXPECT_EQ(sched_setaffinity(std::stoi(task.path().filename()), sizeof cpus, &cpus), 0);
  }
}

std::map<std::string, std::string> parents(const Topology& t) {
  std::map<std::string, std::string> result;
  for (const TopologyEdge& edge : t.edges) {
    if (!is_tree_edge(edge)) continue;
    EXPECT_TRUE(result.emplace(edge.to, edge.from).second) << edge.to << " has two parents";
  }
  return result;
}

/// What holds for every machine.
void expect_sound(const Topology& t) {
  std::map<std::string, const TopologyNode*> ids;
  for (const TopologyNode& node : t.nodes) {
    EXPECT_TRUE(ids.emplace(node.id, &node).second) << node.id;
    EXPECT_TRUE(std::is_sorted(node.cpus.begin(), node.cpus.end()));
    EXPECT_GT(node.size_bytes.value_or(1), 0U) << node.id;
    EXPECT_EQ(node.level.has_value(), node.kind == NodeKind::kCache) << node.id;
  }
  const auto parent = parents(t);
  for (const TopologyNode& node : t.nodes) {
    if (node.kind == NodeKind::kHost) continue;
    ASSERT_TRUE(parent.contains(node.id)) << node.id;
    ASSERT_TRUE(ids.contains(parent.at(node.id)));
    const TopologyNode* above = ids.at(parent.at(node.id));
    EXPECT_TRUE(
        std::includes(above->cpus.begin(), above->cpus.end(), node.cpus.begin(), node.cpus.end()))
        << above->id << " does not have the CPUs of " << node.id;
  }
}

TEST(Discovery, AgreesWithTheKernel) {
  const auto t = discover_topology();
  ASSERT_TRUE(t.ok()) << t.status().to_string();
  expect_sound(*t);
  ASSERT_FALSE(t->nodes.empty());
  EXPECT_EQ(t->nodes[0].id, "host");
  EXPECT_EQ(t->nodes[0].cpus, kernel_affinity());
  std::vector<int> cpus;
  for (const TopologyNode* cpu : t->of_kind(NodeKind::kCpu)) {
    cpus.insert(cpus.end(), cpu->cpus.begin(), cpu->cpus.end());
    EXPECT_EQ(cpu->id, "cpu:" + std::to_string(cpu->os_index.value_or(-1)));
  }
  std::sort(cpus.begin(), cpus.end());
  EXPECT_EQ(cpus, kernel_affinity());
  EXPECT_LE(static_cast<long>(cpus.size()), sysconf(_SC_NPROCESSORS_ONLN));
  std::array<char, 256> name{};
  ASSERT_EQ(gethostname(name.data(), name.size() - 1), 0);
  EXPECT_EQ(t->host, name.data());
}

TEST(Discovery, MemoryAndCachesAgreeWithTheKernel) {
  const Topology t = discover_topology().value();
  std::uint64_t memory = 0;
  for (const TopologyNode* numa : t.of_kind(NodeKind::kNumaNode)) {
    std::ifstream info("/sys/devices/system/node/node" + std::to_string(*numa->os_index) +
                       "/meminfo");
    std::string word;
    while (info && word != "MemTotal:") info >> word;
    std::uint64_t kib = 0;
    if (info >> kib) {
      EXPECT_EQ(numa->size_bytes, kib * 1024);
    }
    memory += numa->size_bytes.value_or(0);
  }
  const auto all =
      static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
  const bool gap = static_cast<double>(memory) < 0.9 * all;
  EXPECT_EQ(
      std::count_if(t.notes.begin(), t.notes.end(),
                    [](const std::string& n) { return n.find("the system as a whole") != n.npos; }),
      gap ? 1 : 0);
  const long l2 = sysconf(_SC_LEVEL2_CACHE_SIZE);
  for (const TopologyNode* cache : t.of_kind(NodeKind::kCache)) {
    if (cache->level != 2 || l2 <= 0) continue;
    EXPECT_EQ(cache->size_bytes, static_cast<std::uint64_t>(l2));
  }
}

TEST(Discovery, FollowsTheAffinityAndKeepsNames) {
  const std::vector<int> all = kernel_affinity();
  if (all.size() < 2) GTEST_SKIP() << "one CPU only";
  const Topology whole = discover_topology().value();
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  cpu_set_t last;
  CPU_ZERO(&last);
  CPU_SET(all.back(), &last);
  confine_all_threads(last);
  const auto confined = discover_topology();
  const std::vector<int> after = kernel_affinity();
  confine_all_threads(before);
  ASSERT_TRUE(confined.ok());
  EXPECT_THAT(confined->nodes[0].cpus, ElementsAre(all.back()));
  EXPECT_THAT(after, ElementsAre(all.back()));  // discovery itself moved nothing
  expect_sound(*confined);
  EXPECT_THAT(confined->notes, Contains(HasSubstr("this process may use 1 of")));
  ASSERT_EQ(confined->nodes.size(), whole.nodes.size());
  for (std::size_t i = 0; i < whole.nodes.size(); ++i) {
    EXPECT_EQ(confined->nodes[i].id, whole.nodes[i].id);
  }
  EXPECT_NE(confined->fingerprint(), whole.fingerprint());
  EXPECT_EQ(discover_topology().value().fingerprint(), whole.fingerprint());
}

TEST(Discovery, TakesMilliseconds) {
  auto fastest = std::chrono::steady_clock::duration::max();  // the machine may be busy
  for (int i = 0; i < 5; ++i) {
    const auto start = std::chrono::steady_clock::now();
    ASSERT_TRUE(discover_topology().ok());
    fastest = std::min(fastest, std::chrono::steady_clock::now() - start);
  }
  EXPECT_LT(fastest, std::chrono::milliseconds(300));
}

TEST(Discovery, ThreadsMayDiscoverAtOnce) {
  std::vector<std::thread> threads;
  std::vector<std::string> prints(4);
  for (std::string& print : prints) {
    threads.emplace_back([&print] { print = discover_topology().value().fingerprint(); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& print : prints) EXPECT_EQ(print, prints[0]);
}

TEST(Discovery, AChildForkedDuringADiscoveryMayDiscover) {
  std::atomic<bool> stop{false};
  std::thread other([&] {
    while (!stop.load()) {
      static_cast<void>(discover_topology());
      // Locks are not fair: without a pause fork() would wait for its turn for seconds.
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  });
  int failed = 0;
  for (int i = 0; i < 20; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(20);
      ::_exit(discover_topology().ok() ? 0 : 1);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) ++failed;
  }
  stop.store(true);
  other.join();
  EXPECT_EQ(failed, 0) << "children that hung or failed";
}

TEST(Discovery, SaysWhenTheEnvironmentReplacesTheMachine) {
  ASSERT_EQ(setenv("HWLOC_SYNTHETIC", "pack:1 core:3 pu:1", 1), 0);
  const auto t = discover_topology();
  unsetenv("HWLOC_SYNTHETIC");
  ASSERT_TRUE(t.ok());
  EXPECT_EQ(t->of_kind(NodeKind::kCore).size(), 3U);
  EXPECT_THAT(t->notes, Contains(HasSubstr("HWLOC_* variable")));
}

TEST(Discovery, AFlatTopologyStandsInWithoutHwloc) {
  const Topology t = flat_topology("here", {0, 1, 5}, "why");
  expect_sound(t);
  EXPECT_EQ(t.host, "here");
  EXPECT_EQ(render_text(t), "here  cpus 0-1,5\n└─ 3 × cpu  cpus 0-1,5\nnote: why\n");
}

TEST(Synthetic, TwoPackagesWithThreads) {
  const Topology t = synthetic_topology("pack:2 numa:1 l3:1 core:4 pu:2").value();
  expect_sound(t);
  EXPECT_EQ(t.host, "synthetic");
  const auto parent = parents(t);
  EXPECT_EQ(parent.at("package:1"), "host");
  EXPECT_EQ(parent.at("numa:1"), "package:1");
  EXPECT_EQ(parent.at("l3:8"), "numa:1");
  EXPECT_EQ(parent.at("core:10"), "l3:8");
  EXPECT_EQ(parent.at("cpu:11"), "core:10");
  EXPECT_THAT(t.find("core:10")->cpus, ElementsAre(10, 11));
  EXPECT_EQ(t.find("l3:8")->level, 3);
  EXPECT_EQ(t.find("numa:1")->os_index, 1);
}

TEST(Synthetic, OneNumaNodeAbovePackages) {
  const Topology t = synthetic_topology("pack:2 core:2 pu:1").value();
  expect_sound(t);
  const auto parent = parents(t);
  EXPECT_EQ(parent.at("numa:0"), "host");
  EXPECT_EQ(parent.at("package:0"), "numa:0");
  EXPECT_EQ(parent.at("package:1"), "numa:0");
  EXPECT_THAT(t.notes, ElementsAre("caches: the system reports none"));
}

TEST(Synthetic, GroupsAndSeveralMemoriesOfOnePackage) {
  const Topology t =
      synthetic_topology("pack:2 group:2 [numa(memory=1GB)] [numa(memory=2GB)] core:2 pu:1")
          .value();
  expect_sound(t);
  const auto parent = parents(t);
  EXPECT_EQ(t.of_kind(NodeKind::kNumaNode).size(), 8U);
  EXPECT_EQ(parent.at("numa:0"), "package:0");
  EXPECT_EQ(parent.at("numa:1"), "package:0");
  EXPECT_EQ(parent.at("core:0"), "numa:0");
  EXPECT_EQ(parent.at("core:2"), "numa:2");
  EXPECT_EQ(t.find("numa:1")->size_bytes, 2'000'000'000U);
}

TEST(Synthetic, HugeMachines) {
  const auto start = std::chrono::steady_clock::now();
  const Topology t = synthetic_topology("pack:8 numa:4 l3:4 core:16 pu:2").value();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
  expect_sound(t);
  EXPECT_EQ(t.of_kind(NodeKind::kCpu).size(), 4096U);
  EXPECT_LT(render_text(t).size(), 40000U);
}

TEST(Synthetic, BadDescriptionsAreRefused) {
  const auto text = [](const std::string& d) {
    const auto t = synthetic_topology(d);
    EXPECT_EQ(t.status().cause(), Cause::kInvalidArgument) << d;
    return t.status().text();
  };
  EXPECT_THAT(text(""), HasSubstr("hwloc expects"));
  EXPECT_THAT(text("nonsense"), HasSubstr("hwloc expects"));
  EXPECT_THAT(text("pack:2 core:"), HasSubstr("hwloc expects"));
  EXPECT_THAT(text("pack:0 core:1 pu:1"), HasSubstr("hwloc expects"));
  EXPECT_THAT(text("pack:1000 core:1000 pu:1000"), HasSubstr("more than 65536 CPUs"));
  EXPECT_THAT(text("1000 1000"), HasSubstr("more than 65536 CPUs"));
  EXPECT_THAT(text("pack:99999999999999999999 pu:1"), HasSubstr("more than 65536 CPUs"));
  EXPECT_THAT(text(std::string(2000, '1')), HasSubstr("2000 bytes, 1024 are allowed"));
}

TEST(Synthetic, MemoryStandsAboveTheCacheThatSharesItsCpus) {
  const Topology t = synthetic_topology("pack:1 numa:2 l3:1 core:1 pu:1").value();
  expect_sound(t);
  const auto parent = parents(t);
  EXPECT_EQ(parent.at("numa:1"), "package:0");
  EXPECT_EQ(parent.at("l3:1"), "numa:1");
  EXPECT_EQ(parent.at("core:1"), "l3:1");
}

class Hwloc : public ::testing::Test {
 protected:
  /// Loads a synthetic machine that a test then dresses up through hwloc itself.
  void load(const char* description) {
    hwloc_topology_t raw = nullptr;
    ASSERT_EQ(hwloc_topology_init(&raw), 0);
    hwloc_.reset(raw);
    ASSERT_EQ(hwloc_topology_set_synthetic(raw, description), 0);
    ASSERT_EQ(hwloc_topology_load(raw), 0);
  }
  HwlocTopology hwloc_;
};

TEST_F(Hwloc, CpusThatAreNotUsableKeepTheirNodes) {
  load("pack:1 numa:1 core:2 pu:2");
  const HwlocBitmap usable(hwloc_bitmap_alloc());
  hwloc_bitmap_set_range(usable.get(), 1, 2);
  const Topology t = convert(hwloc_.get(), usable.get());
  expect_sound(t);
  EXPECT_THAT(t.find("core:0")->cpus, ElementsAre(1));
  EXPECT_THAT(t.find("core:2")->cpus, ElementsAre(2));
  EXPECT_THAT(t.find("cpu:3")->cpus, IsEmpty());
  EXPECT_THAT(
      t.notes,
      Contains("this process may use 2 of 4 CPUs (1-2): cpuset or affinity exclude the others"));
}

TEST_F(Hwloc, NamesOutliveARestriction) {
  load("pack:2 numa:1 l2:2 core:1 pu:2");
  const HwlocBitmap rest(hwloc_bitmap_alloc());
  hwloc_bitmap_set_range(rest.get(), 4, 7);
  ASSERT_EQ(hwloc_topology_restrict(hwloc_.get(), rest.get(), 0), 0);
  const Topology t = convert(hwloc_.get(), nullptr);
  EXPECT_NE(t.find("core:6"), nullptr);
  EXPECT_NE(t.find("l2:6"), nullptr);
  EXPECT_EQ(t.find("core:0"), nullptr);
}

TEST_F(Hwloc, DeclaredMemoryFiguresAreTaken) {
  load("pack:2 numa:1 core:1 pu:1");
  for (unsigned i = 0; i < 2; ++i) {
    hwloc_obj_t numa = hwloc_get_obj_by_type(hwloc_.get(), HWLOC_OBJ_NUMANODE, i);
    hwloc_location from{};
    from.type = HWLOC_LOCATION_TYPE_CPUSET;
    from.location.cpuset = numa->cpuset;
    ASSERT_EQ(hwloc_memattr_set_value(hwloc_.get(), HWLOC_MEMATTR_ID_LATENCY, numa, &from, 0, 80),
              0);
    if (i == 0) {
      ASSERT_EQ(
          hwloc_memattr_set_value(hwloc_.get(), HWLOC_MEMATTR_ID_BANDWIDTH, numa, &from, 0, 100000),
          0);
    }
  }
  const Topology t = convert(hwloc_.get(), nullptr);
  for (const TopologyEdge& edge : t.edges) {
    const bool memory = edge.to == "numa:0" || edge.to == "numa:1";
    EXPECT_EQ(edge.latency_ns.declared.has_value(), memory) << edge.to;
    EXPECT_EQ(edge.bandwidth_gbps.declared.has_value(), edge.to == "numa:0") << edge.to;
    EXPECT_FALSE(edge.latency_ns.measured.has_value());
    EXPECT_DOUBLE_EQ(edge.bandwidth_gbps.declared.value_or(104.8576), 104.8576);
    EXPECT_DOUBLE_EQ(edge.latency_ns.declared.value_or(80), 80);
  }
}

TEST_F(Hwloc, DistancesModelsAndKindsOfCores) {
  load("pack:2 numa:1 core:2 pu:1");
  hwloc_obj_t numa[2] = {hwloc_get_obj_by_type(hwloc_.get(), HWLOC_OBJ_NUMANODE, 0),
                         hwloc_get_obj_by_type(hwloc_.get(), HWLOC_OBJ_NUMANODE, 1)};
  hwloc_uint64_t values[4] = {10, 32, 21, 10};
  auto* handle = hwloc_distances_add_create(
      hwloc_.get(), "NUMALatency",
      HWLOC_DISTANCES_KIND_FROM_OS | HWLOC_DISTANCES_KIND_MEANS_LATENCY, 0);
  ASSERT_NE(handle, nullptr);
  ASSERT_EQ(hwloc_distances_add_values(hwloc_.get(), handle, 2, numa, values, 0), 0);
  ASSERT_EQ(hwloc_distances_add_commit(hwloc_.get(), handle, 0), 0);
  ASSERT_EQ(hwloc_obj_add_info(hwloc_get_obj_by_type(hwloc_.get(), HWLOC_OBJ_PACKAGE, 0),
                               "CPUModel", "Some CPU 9000"),
            0);
  hwloc_obj_add_info(hwloc_get_root_obj(hwloc_.get()), "DMIProductName", "Box");
  hwloc_obj_add_info(hwloc_get_root_obj(hwloc_.get()), "DMIProductSerial", "secret");
  hwloc_info_s kind{};
  std::string key = "CoreType";
  std::string value = "IntelAtom";
  kind.name = key.data();
  kind.value = value.data();
  ASSERT_EQ(hwloc_cpukinds_register(hwloc_.get(),
                                    hwloc_get_obj_by_type(hwloc_.get(), HWLOC_OBJ_CORE, 3)->cpuset,
                                    -1, 1, &kind, 0),
            0);

  const Topology t = convert(hwloc_.get(), nullptr);
  EXPECT_EQ(t.find("numa:0")->attributes.at("distance to numa:1"), "32");
  EXPECT_EQ(t.find("numa:1")->attributes.at("distance to numa:0"), "21");
  EXPECT_EQ(t.find("package:0")->label, "Some CPU 9000");
  EXPECT_EQ(t.find("package:1")->label, "");
  EXPECT_EQ(t.find("host")->attributes.at("DMIProductName"), "Box");
  EXPECT_FALSE(t.find("host")->attributes.contains("DMIProductSerial"));
  EXPECT_EQ(t.find("core:3")->attributes.at("CoreType"), "IntelAtom");
  EXPECT_TRUE(t.find("core:2")->attributes.empty());
}

TEST_F(Hwloc, UnknownSizesStayAbsent) {
  load("pack:1 numa:1 l2:1 core:1 pu:1");
  hwloc_get_obj_by_type(hwloc_.get(), HWLOC_OBJ_L2CACHE, 0)->attr->cache.size = 0;
  hwloc_get_obj_by_type(hwloc_.get(), HWLOC_OBJ_NUMANODE, 0)->attr->numanode.local_memory = 0;
  const Topology t = convert(hwloc_.get(), nullptr);
  EXPECT_FALSE(t.find("l2:0")->size_bytes.has_value());
  EXPECT_FALSE(t.find("numa:0")->size_bytes.has_value());
  EXPECT_THAT(t.notes, Contains("numa:0: size of its memory unknown"));
}

TEST(CpuRanges, Compact) {
  EXPECT_EQ(cpu_ranges({}), "");
  EXPECT_EQ(cpu_ranges({3}), "3");
  EXPECT_EQ(cpu_ranges({0, 1, 2, 3, 8, 10, 11}), "0-3,8,10-11");
}

}  // namespace
}  // namespace topocoll
