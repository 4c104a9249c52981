// The matrix, and pictures: that they are well formed, say what is there, and never the same thing
// twice.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "support/measured_gpus.h"
#include "topology/formats/machines.h"
#include "topology/formats/xml_text.h"

namespace topocoll {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string path(const Topology& t, std::size_t a, std::size_t b) {
  return nlohmann::json::parse(*matrix_to_json(t))["paths"][a][b];
}

TEST(Matrix, TheWordsOfNvidiaSmi) {
  const Topology t = imported(R"(<system>
    <cpu numaid="0" affinity="0000000f">
      <pci busid="0000:00:01.0" class="0x060400"><pci busid="0000:01:00.0" class="0x060400">
        <pci busid="0000:02:00.0" class="0x060400"><pci busid="0000:03:00.0" class="0x030200"><gpu dev="0" sm="80">
          <nvlink target="0000:84:00.0" count="4" tclass="0x030200"/></gpu></pci></pci>
        <pci busid="0000:02:01.0" class="0x060400"><pci busid="0000:04:00.0" class="0x020700"/></pci>
        <pci busid="0000:02:02.0" class="0x060400"><pci busid="0000:05:00.0" class="0x060400">
          <pci busid="0000:06:00.0" class="0x030200"/><pci busid="0000:07:00.0" class="0x020700"/></pci></pci>
      </pci></pci>
      <pci busid="0000:00:02.0" class="0x060400"><pci busid="0000:08:00.0" class="0x030200"/></pci>
      <pci busid="0000:40:01.0" class="0x060400"><pci busid="0000:41:00.0" class="0x030200"/></pci></cpu>
    <cpu numaid="1" affinity="000000f0">
      <pci busid="0000:80:01.0" class="0x060400"><pci busid="0000:84:00.0" class="0x030200"><gpu dev="4" sm="80">
          <nvlink target="0000:03:00.0" count="4" tclass="0x030200"/></gpu></pci></pci></cpu></system>)");
  // GPU0 03, GPU1 06, GPU2 08, GPU3 41, GPU4 84, NIC0 04, NIC1 07
  EXPECT_EQ(path(t, 0, 0), "X");
  EXPECT_EQ(path(t, 0, 5), "PIX");  // ports of one switch
  EXPECT_EQ(path(t, 1, 6), "PIX");
  EXPECT_EQ(path(t, 0, 1), "PXB");   // a switch below a switch
  EXPECT_EQ(path(t, 0, 2), "PHB");   // root ports of one host bridge
  EXPECT_EQ(path(t, 0, 3), "NODE");  // two host bridges of one NUMA node
  EXPECT_EQ(path(t, 2, 4), "SYS");
  EXPECT_EQ(path(t, 0, 4), "NV4");
  EXPECT_EQ(path(t, 4, 0), "NV4");
  const std::string text = *render_matrix(t);
  EXPECT_THAT(
      text,
      HasSubstr("      GPU0  GPU1  GPU2  GPU3  GPU4  NIC0  NIC1  CPU affinity  NUMA affinity\n"
                "GPU0  X     PXB   PHB   NODE  NV4   PIX   PXB   0-3           0\n"));
  EXPECT_THAT(text, HasSubstr("GPU4  gpu:0000:84:00.0\n"));
}

TEST(Matrix, SwitchesFabricsAndHosts) {
  const Topology h100 = hand_written("synthetic_h100_rails.xml");
  EXPECT_EQ(path(h100, 0, 7), "NV18");  // through four switches
  EXPECT_EQ(path(h100, 0, 8), "PIX");
  const Topology graph =
      imported(R"({"unit": "GB/s per direction", "nodes": [{"id": "a", "kind": "gpu"},
    {"id": "b", "kind": "gpu"}, {"id": "c", "kind": "gpu"}], "edges": [["a", "b", 1]]})");
  EXPECT_EQ(path(graph, 0, 1), "LNK");
  EXPECT_EQ(path(graph, 0, 2), "-");
  const auto host = [](const char* hash) {
    return std::string("<cpu host_hash=\"") + hash +
           "\" numaid=\"0\"><pci busid=\"0000:01:00.0\" class=\"0x030200\"/></cpu>";
  };
  EXPECT_EQ(path(imported("<system>" + host("0xa") + host("0xb") + "</system>"), 0, 1), "NET");
  EXPECT_EQ(*render_matrix(Topology()), "no GPU and no NIC\n");
}

TEST(Matrix, OfMoreDevicesThanAnybodyReadsIsRefused) {
  Topology t;
  for (std::size_t i = 0; i < kMaxMatrixEnds; ++i) {
    TopologyNode& gpu = t.nodes.emplace_back();
    gpu.id = "gpu:" + std::to_string(i);
    gpu.kind = NodeKind::kGpu;
  }
  EXPECT_TRUE(render_matrix(t).ok());
  t.nodes.emplace_back().id = "nic:0";
  t.nodes.back().kind = NodeKind::kNic;
  EXPECT_THAT(render_matrix(t).status().text(), HasSubstr("1025 GPUs, NICs"));
  EXPECT_EQ(matrix_to_json(t).status().cause(), Cause::kUnsupported);
}

/// The table of words, without what was measured.
std::string words_of(const Topology& t) {
  const std::string text = *render_matrix(t);
  return text.substr(0, text.find("\nstores between GPUs"));
}

TEST(Matrix, WhatWasMeasuredIsNoPath) {
  Topology t = testing::measured_gpus();
  const std::string words = words_of(t);
  EXPECT_THAT(words, HasSubstr("PIX"));
  EXPECT_THAT(words, HasSubstr("SYS"));
  EXPECT_EQ(words.find("LNK"), words.npos);
  TopologyNode inferred;
  inferred.id = "switch:inferred:0";
  inferred.kind = NodeKind::kSwitch;
  inferred.attributes["inferred_from"] = "contention";
  t.nodes.push_back(inferred);
  for (int g = 0; g < 8; ++g) t.edges.push_back({testing::gpu_id(g), inferred.id, "link", {}, {}});
  EXPECT_EQ(words_of(t), words);
}

TEST(Matrix, WhatWasMeasuredHasTablesOfItsOwn) {
  Topology t = testing::measured_gpus();
  std::erase_if(t.edges, [](const TopologyEdge& e) {
    const auto far = [](const std::string& id) {
      return id.front() == 'g' && id > testing::gpu_id(2);
    };
    return e.kind == "transfer" && (far(e.from) || far(e.to) || e.from == "numa:1");
  });
  std::erase_if(t.nodes, [](const TopologyNode& n) {
    return n.kind == NodeKind::kGpu && n.id > testing::gpu_id(2);
  });
  testing::transfer_between(t, testing::gpu_id(1), testing::gpu_id(2)).fault = "wrong";
  testing::transfer_between(t, testing::gpu_id(2), testing::gpu_id(1)).figures.clear();
  const std::string text = *render_matrix(t);
  EXPECT_THAT(text, HasSubstr("\nMEM0  numa:0\nMEM1  numa:1\n"));
  EXPECT_THAT(text, HasSubstr(R"(
stores between GPUs, GB/s, from row to column
       GPU0   GPU1   GPU2
GPU0   X      50.0   40.0
GPU1   50.0   X      WRONG
GPU2   40.0   40.0   X

loads between GPUs, GB/s, from row to column
       GPU0   GPU1   GPU2
GPU0   X      33.0   33.0
GPU1   33.0   X      WRONG
GPU2   33.0   -      X
)"));
  EXPECT_THAT(text, HasSubstr(R"(
latency between GPUs, us, from row to column
       GPU0   GPU1   GPU2
GPU0   X      1.10   1.50
)"));
  EXPECT_THAT(text, HasSubstr(R"(
loads from memory, GB/s, from row to column
       GPU0   GPU1   GPU2
MEM0   52.0   52.0   52.0
MEM1   -      -      -
)"));
  EXPECT_THAT(text, HasSubstr(R"(
copy engine to memory, GB/s, from row to column
       MEM0   MEM1
GPU0   53.0   53.0
)"));
  const std::string wrong = "\nWRONG  data arrived changed: topocoll topo check says more\n";
  ASSERT_THAT(text, HasSubstr(wrong));
  EXPECT_LT(text.find(wrong), text.find("stores between GPUs")) << "with the other words";
  EXPECT_THAT(*render_matrix(testing::measured_gpus()), Not(HasSubstr("WRONG")));
}

TEST(Matrix, PortsThatReadMemory) {
  Topology t = synthetic_topology("numa:2 core:1 pu:1").value();
  t.nodes.push_back({"port:rxe0/1", NodeKind::kNicPort, "rxe0"});
  t.edges.push_back({"host", "port:rxe0/1", "contains", {}, {}});
  EXPECT_EQ(*render_matrix(t), "no GPU and no NIC\n");
  t.edges.push_back({"numa:1", "port:rxe0/1", "transfer", {}, {{}, 1520.0}});
  const std::string text = *render_matrix(t);
  EXPECT_THAT(text, HasSubstr("\nMEM0   numa:1\nPORT0  port:rxe0/1\n"));
  EXPECT_THAT(text, HasSubstr(R"(
latency from memory to RDMA ports, us, from row to column
       PORT0
MEM0   1.52
)"));
  const auto json = nlohmann::json::parse(*matrix_to_json(t));
  EXPECT_EQ(json["ports"][0]["id"], "port:rxe0/1");
  EXPECT_EQ(json["measured"][0]["values"][0][0], 1520.0);
}

TEST(Matrix, TablesInJson) {
  Topology t = testing::measured_gpus();
  testing::transfer_between(t, testing::gpu_id(1), testing::gpu_id(2)).fault = "wrong";
  testing::transfer_between(t, testing::gpu_id(1), testing::gpu_id(2)).bandwidth_gbps = {};
  const auto json = nlohmann::json::parse(*matrix_to_json(t));
  EXPECT_EQ(json["memories"][1]["id"], "numa:1");
  EXPECT_EQ(json["faults"][0]["from"], testing::gpu_id(1));
  EXPECT_EQ(json["faults"][0]["fault"], "wrong");
  const auto& stores = json["measured"][0];
  EXPECT_EQ(stores["title"], "stores between GPUs");
  EXPECT_EQ(stores["figure"], "bandwidth_gbps");
  EXPECT_EQ(stores["rows"][7], "GPU7");
  EXPECT_EQ(stores["values"][0][1], 50.0);
  EXPECT_TRUE(stores["values"][0][0].is_null());
  EXPECT_TRUE(stores["values"][1][2].is_null());
  const auto& bare = nlohmann::json::parse(*matrix_to_json(Topology()));
  EXPECT_TRUE(bare["measured"].empty() && bare["faults"].empty());
}

TEST(Svg, IsWellFormedAndComplete) {
  for (const char* file : {"synthetic_h100_rails.xml", "synthetic_gb200_tray.xml"}) {
    const Topology t = hand_written(file);
    const std::string svg = render_svg(t, check_topology(t));
    EXPECT_TRUE(XmlText::parse(svg, "svg").ok()) << XmlText::parse(svg, "svg").status().text();
    EXPECT_EQ(occurrences(svg, "<rect "), t.nodes.size());
    EXPECT_EQ(render_svg(t, check_topology(t)), svg);
    for (const TopologyNode* gpu : t.of_kind(NodeKind::kGpu)) {
      EXPECT_THAT(svg, HasSubstr(">" + gpu->id + "</text>"));
    }
  }
  const std::string nothing = render_svg(Topology(), {});
  EXPECT_TRUE(XmlText::parse(nothing, "svg").ok());
}

TEST(Svg, BoxesLieInsideTheirParents) {
  const std::string svg = render_svg(hand_written("synthetic_h100_rails.xml"), {});
  const auto parsed = XmlText::parse(svg, "svg");
  ASSERT_TRUE(parsed.ok());
  const double width = parsed.value()->root().attribute("width").as_double();
  const double height = parsed.value()->root().attribute("height").as_double();
  for (const pugi::xml_node group : parsed.value()->root().children("g")) {
    const pugi::xml_node rect = group.child("rect");
    EXPECT_GE(rect.attribute("x").as_double(), 0);
    EXPECT_LE(rect.attribute("x").as_double() + rect.attribute("width").as_double(), width);
    EXPECT_LE(rect.attribute("y").as_double() + rect.attribute("height").as_double(), height);
  }
}

TEST(Svg, FindingsAreRedAndCoresAreNotDrawn) {
  Topology t = hand_written("synthetic_h100_rails.xml");
  const std::vector<Finding> findings = {
      {"pcie-width", Severity::kError, {"gpu:0000:11:00.0"}, "too <narrow>", "e", 50.0, "f"}};
  EXPECT_EQ(occurrences(render_svg(t, findings), "class=\"bad\"/>"), 1U);
  EXPECT_EQ(occurrences(render_svg(t, {}), "class=\"bad\"/>"), 0U);
  const Topology cores = synthetic_topology("pack:1 numa:1 core:64 pu:2").value();
  EXPECT_EQ(occurrences(render_svg(cores, {}), "<rect "), 3U);  // host, package, NUMA node
}

std::string svg_line(const std::string& svg, const std::string& title) {
  const std::size_t at = svg.find("<title>" + title);
  EXPECT_NE(at, svg.npos) << title;
  const std::size_t begin = svg.rfind('\n', at) + 1;
  return at == svg.npos ? "" : svg.substr(begin, svg.find("</title>", at) - begin);
}

TEST(Svg, TransfersAreWordsOfLinksAndGpus) {
  Topology t = testing::measured_gpus();
  const std::string a = testing::gpu_id(0);
  const std::string b = testing::gpu_id(5);
  EXPECT_EQ(render_svg(t, {}).find("<path"), std::string::npos) << "they are no lines of their own";
  EXPECT_THAT(svg_line(render_svg(t, {}), a),
              HasSubstr("&#10;" + a + " → " + b + ": stores 40 GB/s, latency 1.5 us&#10;"));
  EXPECT_THAT(svg_line(render_svg(t, {}), a), HasSubstr("&#10;numa:1 → " + a + ": loads 52 GB/s"));
  t.edges.push_back({a, b, "nvlink", {50.0, {}}, {}});
  const std::string link = svg_line(render_svg(t, {}), a + " – " + b);
  EXPECT_THAT(link,
              HasSubstr(b + "&#10;nvlink, 50 GB/s declared&#10;" + a + " → " + b + ": stores 40"));
  EXPECT_THAT(link, HasSubstr("&#10;" + b + " → " + a + ": stores 40 GB/s"));
  EXPECT_THAT(link, Not(HasSubstr("class=\"bad\"")));
}

TEST(Svg, WhatIsReadOfMemoryIsAWordOfItsNodeAndNoLine) {
  Topology t = synthetic_topology("pack:2 numa:1 core:1 pu:1").value();
  const auto lines = [](const std::string& svg) { return svg.find("<path") != svg.npos; };
  t.edges.push_back({"numa:0", "package:0", "memory", {{}, 201.5}, {}});
  t.edges.push_back({"numa:0", "numa:1", "memory", {{}, 60.0}, {}});
  const std::string svg = render_svg(t, {});
  EXPECT_FALSE(lines(svg));
  EXPECT_THAT(svg, HasSubstr("read by package:0: 201.5 GB/s measured"));
  EXPECT_THAT(svg, HasSubstr("read by numa:1: 60 GB/s measured"));
  t.edges.push_back({"numa:0", "numa:1", "interconnect", {{}, 40.0}, {}});
  EXPECT_TRUE(lines(render_svg(t, {})));
}

TEST(Svg, AWayThatLiesIsARedLine) {
  Topology t = testing::measured_gpus();
  const std::string a = testing::gpu_id(0);
  const std::string b = testing::gpu_id(5);
  testing::transfer_between(t, a, b).fault = "3 of 4096 words differ";
  const std::string svg = render_svg(t, check_topology(t));
  EXPECT_EQ(occurrences(svg, "<path"), 1U);
  const std::string line = svg_line(svg, a + " – " + b);
  EXPECT_THAT(line, HasSubstr("stroke=\"#d00\" class=\"bad\""));
  EXPECT_THAT(line, HasSubstr("WRONG DATA: 3 of 4096 words differ"));
  EXPECT_THAT(line, HasSubstr(b + " → " + a + ": stores"));
  EXPECT_THAT(render_dot(t, {}), HasSubstr("color=\"red\""));
}

TEST(Html, HasTheMatrixAsText) {
  Topology t = testing::measured_gpus();
  for (TopologyNode& node : t.nodes) {
    if (node.kind == NodeKind::kGpu) node.label = "a <b> & c";
  }
  const std::string html = render_html(t, {});
  EXPECT_THAT(html, HasSubstr("\n<pre>"));
  EXPECT_LT(html.find("</svg>"), html.find("<pre>"));
  EXPECT_THAT(html,
              HasSubstr("\nstores between GPUs, GB/s, from row to column\n       GPU0   GPU1 "));
  EXPECT_THAT(html, HasSubstr("\nGPU0  gpu:0000:01:00.0  a &lt;b&gt; &amp; c\n"));
  EXPECT_THAT(render_html(synthetic_topology("core:2 pu:1").value(), {}), Not(HasSubstr("<pre>")));
}

TEST(Html, IsOnePageWithPictureAndFindings) {
  const Topology t = hand_written("synthetic_h100_rails.xml");
  const std::vector<Finding> findings = {
      {"pcie-width", Severity::kError, {"gpu:0000:11:00.0"}, "too <narrow>", "e", 50.0, "f"}};
  const std::string html = render_html(t, findings);
  EXPECT_THAT(html, HasSubstr("<svg "));
  EXPECT_THAT(html, HasSubstr("too &lt;narrow&gt;"));
  EXPECT_THAT(html, Not(HasSubstr("src=")));
  EXPECT_THAT(html, Not(HasSubstr("href=")));
  EXPECT_THAT(render_html(t, {}), HasSubstr("No findings."));
}

TEST(Dot, EveryDrawnNodeAndLink) {
  const Topology t = hand_written("synthetic_v100_cube_mesh.xml");
  const std::string dot = render_dot(t, {});
  EXPECT_EQ(dot.rfind("graph topology {", 0), 0U);
  EXPECT_EQ(occurrences(dot, "[label="), t.nodes.size());
  EXPECT_EQ(occurrences(dot, "constraint=false"), 16U);  // one line for both directions
  EXPECT_EQ(occurrences(dot, "{"), occurrences(dot, "}"));
  Topology hostile;
  hostile.nodes.push_back({"a\"]; b [\\", NodeKind::kGpu, "l\n\x01", {}, {}, {}, {}, {}});
  EXPECT_THAT(render_dot(hostile, {}), HasSubstr("label=\"a\\\"]; b [\\\\\\nl\\n \""));
}

}  // namespace
}  // namespace topocoll
