// All formats together: detection, refusals, hand-written machines, and recorded ones where they
// are.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "support/isomorphism.h"
#include "topology/formats/machines.h"

namespace topocoll {
namespace {

using ::testing::HasSubstr;
using testing_support::gpu_links;
using testing_support::isomorphic;
using testing_support::Links;

TEST(Import, FormatsAreToldFromTheText) {
  EXPECT_EQ(detect_topology_format("{\"topocoll_topology\": 1}"), TopologyFormat::kNative);
  EXPECT_EQ(detect_topology_format("\xef\xbb\xbf {\"nodes\": []}"), TopologyFormat::kGraphJson);
  EXPECT_EQ(detect_topology_format("<!-- > --> <system version=\"1\">"), TopologyFormat::kNcclXml);
  EXPECT_EQ(
      detect_topology_format("<?xml version=\"1.0\"?>\n<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">"
                             "<topology>"),
      TopologyFormat::kHwlocXml);
  EXPECT_EQ(detect_topology_format("<graphs/>"), TopologyFormat::kNcclGraph);
  for (const char* none : {"", "  \n", "[]", "GPU0 GPU1", "<html>", "<!--", "<?xml", "<"}) {
    EXPECT_FALSE(detect_topology_format(none).has_value()) << none;
  }
  EXPECT_THAT(import_error("GPU0 GPU1"), HasSubstr("f.xml: neither"));
  EXPECT_EQ(name(TopologyFormat::kNcclGraph), "nccl-graph");
}

TEST(Import, TheNativeFormatNamesItsFile) {
  EXPECT_THAT(import_error("{\"topocoll_topology\": 1}"),
              HasSubstr("f.xml: topology: host: is missing"));
  const Topology t = synthetic_topology("pack:2 core:2 pu:1").value();
  expect_same(imported(to_json(t)), t);
}

TEST(Import, BareGraphs) {
  const Topology t = imported(R"({"name": "pair", "unit": "GB/s per direction",
    "nodes": [{"id": "a", "kind": "gpu"}, {"id": "s", "kind": "sw"}], "edges": [["a", "s", 12.5], ["s", "a", 10]],
    "expect": {}, "published": []})");
  EXPECT_EQ(t.host, "pair");
  EXPECT_EQ(t.find("s")->kind, NodeKind::kSwitch);
  EXPECT_DOUBLE_EQ(*edge_between(t, "a", "s")->bandwidth_gbps.declared, 12.5);
  const auto graph = [](const std::string& unit, const std::string& nodes,
                        const std::string& edges) {
    return import_error("{\"unit\": \"" + unit + "\", \"nodes\": [" + nodes + "], \"edges\": [" +
                        edges + "]}");
  };
  const std::string a = R"({"id": "a", "kind": "gpu"})";
  const std::string ab = a + R"(, {"id": "b", "kind": "gpu"})";
  const std::string unit = "GB/s per direction";
  EXPECT_THAT(graph("Gb/s", a, ""), HasSubstr("f.xml: unit: expected \"GB/s per direction\""));
  EXPECT_THAT(graph(unit, a + "," + a, ""),
              HasSubstr("nodes[1].id: \"a\" is given to another node too"));
  EXPECT_THAT(graph(unit, R"({"id": "a", "kind": "tpu"})", ""),
              HasSubstr("nodes[0].kind: expected gpu or sw"));
  EXPECT_THAT(graph(unit, ab, R"(["a", "c", 1])"),
              HasSubstr("edges[0][1]: there is no node \"c\""));
  EXPECT_THAT(graph(unit, ab, R"(["a", "b", -1])"),
              HasSubstr("edges[0][2]: expected a number from 0"));
  EXPECT_THAT(graph(unit, ab, R"(["a", "b", 0])"), HasSubstr("without bandwidth"));
  EXPECT_THAT(graph(unit, ab, R"(["a", "b"])"), HasSubstr("expected [from, to, GB/s]"));
  EXPECT_THAT(graph(unit, ab, R"(["a", "a", 1])"), HasSubstr("ends where it begins"));
  EXPECT_THAT(graph(unit, ab, R"(["a", "b", 1], ["a", "b", 1])"),
              HasSubstr("edges[1]: is given twice"));
}

/// The error of a pair of GPUs with `more` members.
std::string pair_error(const std::string& more) {
  return import_error(R"({"unit": "GB/s per direction", "nodes": [{"id": "a", "kind": "gpu"},
    {"id": "b", "kind": "gpu"}], "edges": [["a", "b", 5], ["b", "a", 5]], )" +
                      more + "}");
}

TEST(Import, BareGraphsWithLatenciesAndSharedCapacities) {
  const Topology t =
      imported(R"({"unit": "GB/s per direction", "nodes": [{"id": "a", "kind": "gpu"},
    {"id": "b", "kind": "gpu"}], "edges": [["a", "b", 5], ["b", "a", 5]], "latency_ns": [700, null],
    "shared": [{"name": "port", "edges": [0, 1], "gbps": 6}]})");
  EXPECT_EQ(edge_between(t, "a", "b")->latency_ns.declared, 700);
  EXPECT_FALSE(edge_between(t, "b", "a")->latency_ns.declared.has_value());
  ASSERT_EQ(t.groups.size(), 1U);
  EXPECT_EQ(t.groups[0].id, "port");
  EXPECT_EQ(t.groups[0].bandwidth_gbps.declared, 6);
  EXPECT_EQ(t.groups[0].members.size(), 2U);

  EXPECT_THAT(pair_error(R"("latency_ns": [700])"), HasSubstr("1 latencies for 2 edges"));
  EXPECT_THAT(pair_error(R"("latency_ns": [1, -1])"), HasSubstr("f.xml: latency_ns[1]"));
  const auto shared = [](const std::string& edges, const std::string& gbps) {
    return pair_error(R"("shared": [{"name": "port", "edges": [)" + edges + R"(], "gbps": )" +
                      gbps + "}]");
  };
  EXPECT_THAT(shared("0, 2", "6"), HasSubstr("shared[0].edges[1]: expected"));
  EXPECT_THAT(shared("0, 0", "6"), HasSubstr("shared[0].edges[1]: is given twice"));
  EXPECT_THAT(shared("0", "6"), HasSubstr("shared[0].edges: a group has 2 edges or more"));
  EXPECT_THAT(shared("0, 1", "-4"), HasSubstr("shared[0].gbps: expected a number"));
  EXPECT_THAT(shared("0, 1", "0"), HasSubstr("shared[0].gbps: a group without bandwidth"));
  EXPECT_THAT(pair_error(R"("weights": [])"), HasSubstr("weights"));
  EXPECT_THAT(pair_error(std::string(std::size_t{33} << 20, ' ')),
              HasSubstr("bytes, 33554432 are allowed"));
}

TEST(Import, BareGraphsThatAreCutShort) {
  const std::string whole = R"({"unit": "GB/s per direction", "nodes": [{"id": "a", "kind": "gpu"}],
    "edges": [], "latency_ns": [], "shared": []})";
  for (std::size_t length = 0; length < whole.size(); ++length) {
    EXPECT_FALSE(import_topology(whole.substr(0, length), "cut").ok()) << length;
  }
}

TEST(Import, HostileXml) {
  EXPECT_THAT(import_error("<system version=\"1\"><cpu numaid=\"0\">"),
              HasSubstr("not XML, or cut short"));
  EXPECT_THAT(import_error("<!DOCTYPE system [<!ENTITY a \"b\">]>\n<system>&a;</system>"),
              HasSubstr("a DOCTYPE with declarations of its own"));
  EXPECT_THAT(import_error("<system>" + std::string(std::size_t{10} << 20, ' ') + "</system>"),
              HasSubstr("8388608 are allowed"));
  std::string deep = "<system>";
  for (int i = 0; i < 100000; ++i) deep += "<a>";
  EXPECT_FALSE(import_topology(deep, "f.xml").ok());
  for (int i = 0; i < 100000; ++i) deep += "</a>";
  EXPECT_THAT(import_error(deep + "</system>"), HasSubstr("nested more than 100 deep"));
  std::string many = "<system>";
  for (int i = 0; i < 250000; ++i) many += "<a/>";
  EXPECT_THAT(import_error(many + "</system>"), HasSubstr("more than 200000 elements"));
}

std::vector<std::string> files_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    names.push_back(entry.path().filename());
  }
  std::sort(names.begin(), names.end());
  return names;
}

TEST(HandWritten, EveryMachineImportsAndSurvives) {
  const std::string folder = std::string(TOPOCOLL_TEST_DATA) + "/topologies/";
  std::size_t count = 0;
  for (const std::string& file : files_in(folder)) {
    if (!file.ends_with(".xml")) continue;
    const Topology t = imported(file_text(folder + file), file);
    EXPECT_FALSE(t.of_kind(NodeKind::kGpu).empty()) << file;
    expect_same(imported(to_json(t)), t);
    const auto nccl = to_nccl_xml(t);
    ASSERT_TRUE(nccl.ok()) << file;
    expect_same(imported(*nccl), t);
    ++count;
  }
  EXPECT_GE(count, 4U);
}

TEST(HandWritten, MachinesAreAsDrawn) {
  const std::string folder = std::string(TOPOCOLL_TEST_DATA) + "/topologies/";
  const Topology rails = imported(file_text(folder + "synthetic_h100_rails.xml"));
  EXPECT_EQ(rails.of_kind(NodeKind::kGpu).size(), 8U);
  EXPECT_EQ(rails.of_kind(NodeKind::kNvSwitch).size(), 4U);
  double up = 0;
  for (const TopologyEdge& edge : rails.edges) {
    if (edge.from == "gpu:0000:11:00.0") up += edge.bandwidth_gbps.declared.value_or(0);
  }
  EXPECT_DOUBLE_EQ(up, 450);
  const Topology cube = imported(file_text(folder + "synthetic_v100_cube_mesh.xml"));
  const Links links = gpu_links(cube);
  for (const auto& of_one : links) {
    double sum = 0;
    for (const double link : of_one) sum += link;
    EXPECT_DOUBLE_EQ(sum, 150);
  }
  const Topology tray = imported(file_text(folder + "synthetic_gb200_tray.xml"));
  EXPECT_EQ(count_edges(tray, "c2c"), 8U);
}

/// 16 GCDs of four times two packages: the published links, 50 GB/s each.
Links mi250_links() {
  constexpr int kLinks[][3] = {
      {0, 1, 4},   {0, 4, 2},   {0, 8, 1},   {1, 5, 1},   {1, 9, 1},   {1, 10, 1},  {2, 3, 4},
      {2, 6, 1},   {2, 9, 1},   {2, 10, 1},  {3, 7, 2},   {3, 11, 1},  {4, 5, 4},   {4, 6, 1},
      {5, 6, 1},   {5, 7, 1},   {6, 7, 4},   {8, 9, 4},   {8, 12, 2},  {9, 13, 1},  {10, 11, 4},
      {10, 14, 1}, {11, 15, 2}, {12, 13, 4}, {12, 14, 1}, {13, 14, 1}, {13, 15, 1}, {14, 15, 4}};
  Links links(16, std::vector<double>(16, 0));
  for (const auto& [a, b, count] : kLinks) {
    links[static_cast<std::size_t>(a)][static_cast<std::size_t>(b)] = 50.0 * count;
    links[static_cast<std::size_t>(b)][static_cast<std::size_t>(a)] = 50.0 * count;
  }
  return links;
}

TEST(Isomorphism, TellsGraphsApart) {
  const Links links = mi250_links();
  Links turned(16, std::vector<double>(16, 0));
  for (std::size_t a = 0; a < 16; ++a) {
    for (std::size_t b = 0; b < 16; ++b) turned[(a * 5 + 3) % 16][(b * 5 + 3) % 16] = links[a][b];
  }
  EXPECT_TRUE(isomorphic(links, turned));
  std::swap(turned[0], turned[1]);
  EXPECT_FALSE(isomorphic(links, turned));
  Links weaker = links;
  weaker[0][1] = 150;
  EXPECT_FALSE(isomorphic(links, weaker));
}

/// Machines that others have recorded. Absent counts: the file is refused with `refusal`.
struct Recorded {
  const char* file;
  int gpus;
  int nics;
  int links;  ///< directed, of all kinds but the tree
  const char* refusal;
};

constexpr Recorded kRecorded[] = {
    {"flagcx_xml_topo_dump.xml", 8, 3, 0, nullptr},
    {"hwloc_16intel64_manyVFs.xml", 0, 18, 0, nullptr},
    {"hwloc_24em64t_2n_pci.xml", 3, 3, 0, nullptr},
    {"hwloc_40intel64_pcilocality.xml", 0, 5, 0, nullptr},
    {"hwloc_8intel64_memattrs.xml", 0, 0, 0, nullptr},
    {"hwloc_96em64t_4n_pci.xml", 0, 8, 0, nullptr},
    {"hwloc_fakepcilocalities.xml", 0, 5, 0, nullptr},
    {"hwloc_nvidia_dgx2.xml", 16, 0, 192, nullptr},
    {"hwloc_nvidia_dgx_gb10_arm.xml", 0, 0, 0, nullptr},
    {"hwloc_power8_gpudistances.xml", 4, 0, 12, nullptr},
    {"nccl_aws_g5_48xl.xml", 0, 0, 0, nullptr},
    {"nccl_aws_p4d.xml", 8, 4, 0, nullptr},
    {"nccl_azure_ncv4_a100pcie.xml", 4, 1, 0, nullptr},
    {"nccl_azure_ndv2_v100.xml", 8, 1, 0, nullptr},
    {"nccl_azure_ndv4_a100.xml", 8, 8, 0, nullptr},
    {"nccl_azure_ndv5_h100.xml", 8, 8, 0, nullptr},
    {"nccl_graph_azure_ncv4.xml", 0, 0, 0, "an NCCL graph file"},
    {"nccl_oci_a100_b4_flattened.xml", 8, 8, 0, nullptr},
    {"nccl_oci_h100_baremetal.xml", 8, 8, 64, nullptr},
    {"rccl_mi100_8p_rome_4nics.xml", 8, 4, 24, nullptr},
    {"rccl_mi200_16p1h.xml", 16, 8, 56, nullptr},
    {"rccl_mi300_8p_940.xml", 8, 8, 56, nullptr},
    {"rccl_pcie_3p.xml", 3, 1, 0, nullptr},
    {"rccl_pcie_8p_2nic.xml", 8, 2, 0, nullptr},
    {"sources.txt", 0, 0, 0, "neither topocoll's JSON"},
};

/// The folder with recorded machines: TOPOCOLL_TEST_TOPOLOGIES at run time, else at configuration.
std::string recorded_folder() {
  const char* named = std::getenv("TOPOCOLL_TEST_TOPOLOGIES");
  return named != nullptr ? named : TOPOCOLL_TEST_TOPOLOGIES;
}

class RecordedMachines : public ::testing::Test {
 protected:
  void SetUp() override {
    if (recorded_folder().empty()) GTEST_SKIP() << "TOPOCOLL_TEST_TOPOLOGIES names no folder";
  }
  static std::string text(const char* file) { return file_text(recorded_folder() + "/" + file); }
};

TEST_F(RecordedMachines, EachImportsOrIsRefusedWithAReason) {
  for (const Recorded& r : kRecorded) {
    SCOPED_TRACE(r.file);
    const auto t = import_topology(text(r.file), r.file);
    if (r.refusal != nullptr) {
      ASSERT_FALSE(t.ok());
      EXPECT_THAT(t.status().text(), HasSubstr(r.refusal));
      continue;
    }
    ASSERT_TRUE(t.ok()) << t.status().to_string();
    EXPECT_EQ(static_cast<int>(t->of_kind(NodeKind::kGpu).size()), r.gpus);
    EXPECT_EQ(static_cast<int>(t->of_kind(NodeKind::kNic).size()), r.nics);
    const auto links = std::count_if(t->edges.begin(), t->edges.end(),
                                     [](const TopologyEdge& e) { return !is_tree_edge(e); });
    EXPECT_EQ(links, r.links);
    const auto back = topology_from_json(to_json(*t));
    ASSERT_TRUE(back.ok()) << back.status().to_string();
    expect_same(*back, *t);
  }
}

TEST_F(RecordedMachines, NoneIsForgotten) {
  std::set<std::string> listed;
  for (const Recorded& r : kRecorded) listed.insert(r.file);
  for (const std::string& file : files_in(recorded_folder())) {
    if (file.ends_with(".tar.bz2")) continue;  // recordings: the tests of the command load them
    EXPECT_TRUE(listed.contains(file)) << file;
  }
}

TEST_F(RecordedMachines, NcclXmlSurvivesTheWayThereAndBack) {
  for (const Recorded& r : kRecorded) {
    const std::string original = text(r.file);
    if (detect_topology_format(original) != TopologyFormat::kNcclXml) continue;
    SCOPED_TRACE(r.file);
    const Topology t = imported(original);
    const auto exported = to_nccl_xml(t);
    ASSERT_TRUE(exported.ok()) << exported.status().to_string();
    expect_same(imported(*exported), t);
  }
}

TEST_F(RecordedMachines, HwlocXmlSurvivesTheWayThereAndBack) {
  for (const Recorded& r : kRecorded) {
    const std::string original = text(r.file);
    if (detect_topology_format(original) != TopologyFormat::kHwlocXml) continue;
    SCOPED_TRACE(r.file);
    const Topology t = imported(original);
    const auto exported = to_hwloc_xml(t);
    ASSERT_TRUE(exported.ok()) << exported.status().to_string();
    const Topology back = imported(*exported);
    EXPECT_EQ(back.of_kind(NodeKind::kGpu).size(), t.of_kind(NodeKind::kGpu).size());
    EXPECT_EQ(back.of_kind(NodeKind::kNic).size(), t.of_kind(NodeKind::kNic).size());
    EXPECT_EQ(back.of_kind(NodeKind::kCpu).size(), t.of_kind(NodeKind::kCpu).size());
    EXPECT_EQ(count_edges(back, "nvlink"), count_edges(t, "nvlink"));
  }
}

TEST_F(RecordedMachines, TheSixteenGcdMachineHasThePublishedGraph) {
  const Topology t = imported(text("rccl_mi200_16p1h.xml"));
  EXPECT_TRUE(isomorphic(gpu_links(t), mi250_links()));
}

}  // namespace
}  // namespace topocoll
