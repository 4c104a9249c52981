// "topocoll topo" as its users run it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "perf/child.h"
#include "progress.h"

namespace topocoll {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;

/// The folder with recorded machines: TOPOCOLL_TEST_TOPOLOGIES at run time, else at configuration. It
/// leaves the environment, because the command refuses TOPOCOLL_* variables that it does not know.
std::string take_recorded_folder() {
  const char* named = std::getenv("TOPOCOLL_TEST_TOPOLOGIES");
  std::string folder = named != nullptr ? named : TOPOCOLL_TEST_TOPOLOGIES;
  ::unsetenv("TOPOCOLL_TEST_TOPOLOGIES");
  return folder;
}
const std::string g_recorded_folder = take_recorded_folder();

Finished topo(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {TOPOCOLL_COMMAND, "topo"});
  return run(arguments, {});
}

class Topo : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = ::testing::TempDir() + "/topocoll_topo_" + std::to_string(::getpid());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  [[nodiscard]] std::string path(const std::string& name) const { return folder_ + "/" + name; }
  std::string file(const std::string& name, const std::string& text) {
    std::ofstream(path(name), std::ios::binary) << text;
    return path(name);
  }
  static std::string text_of(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  static std::string machine(const std::string& name) {
    return std::string(TOPOCOLL_TEST_DATA) + "/topologies/" + name;
  }
  std::string folder_;
};

TEST_F(Topo, ImportsAndExportsEachFormat) {
  const Finished native = topo({"import", machine("synthetic_v100_cube_mesh.xml")});
  ASSERT_EQ(native.status, 0) << native.err;
  EXPECT_EQ(json::parse(native.out)["topocoll_topology"], 1);
  const std::string saved = file("node.json", native.out);
  const Finished nccl = topo({"export", "--format", "nccl", saved});
  ASSERT_EQ(nccl.status, 0) << nccl.err;
  EXPECT_EQ(topo({"import", file("back.xml", nccl.out)}).out, native.out);
  const Finished hwloc = topo({"export", "--format", "hwloc", saved});
  ASSERT_EQ(hwloc.status, 0) << hwloc.err;
  EXPECT_EQ(topo({"import", file("hwloc.xml", hwloc.out)}).status, 0);
  for (const auto& [format, start] : std::vector<std::pair<std::string, std::string>>{
           {"dot", "graph topology {"}, {"svg", "<svg "}, {"html", "<!DOCTYPE html>"}}) {
    const Finished f = topo({"export", "--format", format, saved});
    EXPECT_EQ(f.status, 0) << f.err;
    EXPECT_EQ(f.out.rfind(start, 0), 0U) << format;
  }
  const Finished to_file = topo({"export", "--format", "svg", "-o", path("node.svg"), saved});
  EXPECT_EQ(to_file.status, 0) << to_file.err;
  EXPECT_EQ(to_file.out, "");
  EXPECT_GT(fs::file_size(path("node.svg")), 1000U);
}

TEST_F(Topo, TheEndingOfTheOutputIsItsFormat) {
  for (const auto& [ending, start] :
       std::vector<std::pair<std::string, std::string>>{{"dot", "graph topology {"},
                                                        {"svg", "<svg "},
                                                        {"html", "<!DOCTYPE html>"},
                                                        {"json", "{"}}) {
    const std::string out = path("node." + ending);
    const Finished f = topo({"export", machine("synthetic_gb200_tray.xml"), "-o", out});
    EXPECT_EQ(f.status, 0) << f.err;
    EXPECT_EQ(text_of(out).rfind(start, 0), 0U) << ending;
    EXPECT_EQ(topo({"import", machine("synthetic_gb200_tray.xml"), "-o", out}).status, 0);
    EXPECT_EQ(text_of(out).rfind("{", 0), 0U) << "import writes JSON";
  }
  EXPECT_EQ(topo({"export", "--synthetic", "core:2 pu:1", "-o", path("bare")}).status, 0);
  EXPECT_EQ(text_of(path("bare")).rfind("{", 0), 0U);
  EXPECT_EQ(topo({"export", "--synthetic", "core:2 pu:1", "-o", path("x.png")}).status, 2);
  EXPECT_FALSE(fs::exists(path("x.png")));
  const std::string named = path("named.svg");
  EXPECT_EQ(topo({"export", "--synthetic", "core:2 pu:1", "--format", "dot", "-o", named}).status,
            0);
  EXPECT_EQ(text_of(named).rfind("graph topology {", 0), 0U);
}

TEST_F(Topo, ExportSaysWhatTheFormatHasNoRoomFor) {
  json t = json::parse(text_of(machine("h200_vm_2gpu.json")));
  for (json& edge : t["edges"]) {
    if (edge["kind"] == "transfer" && edge["from"] == "gpu:0000:00:06.0" &&
        edge["to"] == "gpu:0000:00:07.0") {
      edge["fault"] = "stores: 3 of 4096 words differ";
    }
  }
  for (json& node : t["nodes"]) {
    if (node["kind"] == "gpu") node["attributes"]["ecc_uncorrected"] = "2";
  }
  const std::string saved = file("wrong.json", t.dump());
  const Finished hwloc = topo({"export", "--format", "hwloc", saved});
  EXPECT_EQ(hwloc.status, 0);
  EXPECT_EQ(hwloc.err,
            "topocoll: warning: hwloc's XML has no room for: 4 nvlink edges, 1 fault, findings "
            "gpu-ecc, p2p-lies\n");
  EXPECT_EQ(hwloc.out.rfind("<?xml", 0), 0U);
  const Finished nccl = topo({"export", "--format", "nccl", "-o", path("out.xml"), saved});
  EXPECT_EQ(nccl.status, 0);
  EXPECT_EQ(nccl.err,
            "topocoll: warning: NCCL's XML has no room for: 1 fault, findings gpu-ecc, p2p-lies\n");
  for (const char* format : {"native", "svg", "html", "dot"}) {
    EXPECT_EQ(topo({"export", "--format", format, saved}).err, "");
  }
  EXPECT_EQ(topo({"export", "--format", "nccl", machine("synthetic_h100_rails.xml")}).err, "");
}

/// FNV-1a of 64 bits, which a kept result carries against damage.
std::string checksum(const std::string& text) {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  std::ostringstream digits;
  digits << std::hex << std::setw(16) << std::setfill('0') << hash;
  return digits.str();
}

/// Has a kept result say that a way was found to change data.
void add_fault(const fs::path& kept) {
  std::ifstream in(kept);
  std::string word;
  std::string version;
  std::string machine;
  std::string hash;
  std::string missing;
  in >> word >> version >> machine >> hash >> missing;
  json t = json::parse(in);
  std::string memory;
  for (const json& node : t["nodes"]) {
    if (node["kind"] == "numa") memory = node["id"];
  }
  t["edges"].push_back({{"from", memory},
                        {"to", t["nodes"][0]["id"]},
                        {"kind", "transfer"},
                        {"fault", "3 of 4096 words differ"}});
  const std::string text = t.dump();
  std::ofstream(kept) << word << ' ' << version << ' ' << machine << ' '
                      << checksum(missing + " " + text) << ' ' << missing << '\n'
                      << text;
}

TEST_F(Topo, MatrixAndCheckKnowWhatAProbeHasKept) {
  const auto here = [&](const std::vector<std::string>& arguments) {
    std::vector<std::string> line = {TOPOCOLL_COMMAND, "topo"};
    line.insert(line.end(), arguments.begin(), arguments.end());
    return run(line, {{"TOPOCOLL_CACHE_DIR", path("cache")}});
  };
  ASSERT_EQ(here({"probe", "--budget-ms", "1", "--gpu-budget-ms", "1"}).status, 0);
  EXPECT_EQ(json::parse(here({"matrix", "--json"}).out)["faults"].size(), 0U);
  add_fault(fs::directory_iterator(path("cache"))->path());
  const Finished check = here({"check"});
  EXPECT_EQ(check.status, 3) << check.err;
  EXPECT_THAT(check.out, HasSubstr("-lies: "));
  EXPECT_EQ(json::parse(here({"matrix", "--json"}).out)["faults"].size(), 1U);
  EXPECT_THAT(here({"show"}).out, ::testing::Not(HasSubstr("WRONG DATA")));
  EXPECT_THAT(here({"check", "--help"}).out, HasSubstr("with what a probe has kept of it"));
}

TEST_F(Topo, ReadsStandardInput) {
  const Finished f = run(
      {"/bin/sh", "-c",
       std::string(TOPOCOLL_COMMAND) + " topo import - < " + machine("synthetic_gb200_tray.xml")});
  ASSERT_EQ(f.status, 0) << f.err;
  EXPECT_EQ(f.out, topo({"import", machine("synthetic_gb200_tray.xml")}).out);
}

TEST_F(Topo, DumpsShowsAndMapsThisMachine) {
  const Finished dump = topo({"dump"});
  ASSERT_EQ(dump.status, 0) << dump.err;
  EXPECT_EQ(topo({"show", "--json"}).status, 0);
  EXPECT_FALSE(json::parse(dump.out)["nodes"].empty());
  EXPECT_EQ(topo({"matrix"}).status, 0);
  const Finished matrix = topo({"matrix", machine("synthetic_h100_rails.xml")});
  EXPECT_THAT(matrix.out, HasSubstr("NV18"));
  EXPECT_THAT(matrix.out, HasSubstr("\nNV#   so many NVLinks"));
  EXPECT_THAT(matrix.out, HasSubstr("\nSYS   between NUMA nodes\n"));
  EXPECT_THAT(matrix.out, ::testing::Not(HasSubstr("Infinity Fabric"))) << "only what occurs";
  const json as_json =
      json::parse(topo({"matrix", "--json", machine("synthetic_h100_rails.xml")}).out);
  EXPECT_EQ(as_json["devices"].size(), 16U);
  EXPECT_EQ(as_json["paths"][0][1], "NV18");
}

TEST_F(Topo, ProbeMeasuresThisMachineAndKeepsTheResult) {
  const std::vector<std::pair<std::string, std::string>> cache = {
      {"TOPOCOLL_CACHE_DIR", path("cache")}};
  const std::string out = path("node.json");
  const Finished first = run({TOPOCOLL_COMMAND, "topo", "probe", "--output", out}, cache);
  ASSERT_EQ(first.status, 0) << first.err;
  EXPECT_EQ(first.out + first.err, "") << "no bar where nobody looks";
  std::ifstream saved(out);
  const json written = json::parse(saved);
  EXPECT_EQ(written["topocoll_topology"], 1);
  EXPECT_EQ(std::distance(fs::directory_iterator(path("cache")), fs::directory_iterator()), 1);
  const Finished again = run({TOPOCOLL_COMMAND, "topo", "show", "--probe", "--json"}, cache);
  ASSERT_EQ(again.status, 0) << again.err;
  bool said = false;  // either used, or measured anew because the machine changes
  const json shown = json::parse(again.out);
  for (const json& note : shown["notes"]) {
    const std::string text = note;
    said = said || text.find("earlier probe") != text.npos || text.find("measured") != text.npos;
  }
  EXPECT_TRUE(said) << again.out;
}

TEST_F(Topo, ProbeWithoutACacheLeavesNone) {
  const Finished f =
      run({TOPOCOLL_COMMAND, "topo", "probe", "--json", "--no-cache", "--budget-ms", "1"},
          {{"TOPOCOLL_CACHE_DIR", path("cache")}});
  ASSERT_EQ(f.status, 0) << f.err;
  EXPECT_FALSE(fs::exists(path("cache")));
  EXPECT_TRUE(json::accept(f.out));
  EXPECT_EQ(topo({"probe", "--budget-ms", "0"}).status, 2);
  EXPECT_EQ(topo({"show", "--probe", machine("synthetic_h100_rails.xml")}).status, 2);
  EXPECT_THAT(topo({"probe", "--help"}).out, HasSubstr("topocoll topo probe --no-cache"));
  EXPECT_NE(topo({"probe", "-o", path("no/such/folder.json"), "--no-cache"}).status, 0);
}

TEST_F(Topo, OneCpuHasNoPairs) {
  constexpr const char* kTaskset = "/usr/bin/taskset";
  if (!fs::exists(kTaskset)) GTEST_SKIP() << "there is no " << kTaskset;
  const json here = json::parse(topo({"show", "--json"}).out);
  const int cpu = here["nodes"][0]["cpus"].back();
  const Finished f = run({kTaskset, "-c", std::to_string(cpu), TOPOCOLL_COMMAND, "topo", "probe",
                          "--json", "--no-cache"});
  ASSERT_EQ(f.status, 0) << f.err;
  EXPECT_THAT(f.out, HasSubstr("this process may use one CPU: nothing was measured between CPUs"));
  const json probed = json::parse(f.out);
  for (const json& edge : probed["edges"]) EXPECT_NE(edge["kind"], "coherence");
}

TEST(ProgressLine, GrowsWithWhatIsDone) {
  EXPECT_EQ(tools::progress_line("measuring", 0, 4),
            "measuring [------------------------------] 0 of 4");
  EXPECT_EQ(tools::progress_line("measuring", 2, 4),
            "measuring [###############---------------] 2 of 4");
  EXPECT_EQ(tools::progress_line("measuring", 4, 4),
            "measuring [##############################] 4 of 4");
  EXPECT_EQ(tools::progress_line("measuring", 0, 0),
            "measuring [##############################] 0 of 0");
}

TEST_F(Topo, CheckFindsWhatIsWrongAndSaysSoByItsStatus) {
  const Finished fine = topo({"check", machine("synthetic_h100_rails.xml")});
  EXPECT_EQ(fine.status, 0) << fine.out << fine.err;
  EXPECT_EQ(fine.out, "no findings\n");
  EXPECT_EQ(topo({"check", "--json", machine("synthetic_h100_rails.xml")}).out, "[]\n");
  EXPECT_EQ(topo({"check", machine("synthetic_gb200_tray.xml")}).status, 0);
  const std::string flat =
      file("flat.xml",
           "<system><cpu numaid=\"0\"><pci busid=\"0000:01:00.0\" class=\"0x030200\"/>"
           "<pci busid=\"0000:02:00.0\" class=\"0x030200\"/></cpu></system>");
  const Finished found = topo({"check", flat});
  EXPECT_EQ(found.status, 3);
  EXPECT_THAT(found.out, HasSubstr("warning flat-tree: "));
  EXPECT_EQ(found.out.find('\033'), std::string::npos);  // no colours into a file
  const Finished as_json = topo({"check", "--json", flat});
  EXPECT_EQ(as_json.status, 3);
  EXPECT_EQ(json::parse(as_json.out)[0]["code"], "flat-tree");
}

TEST_F(Topo, CheckSaysWhatAFaultCosts) {
  // Two GPUs on one bridge, one of them on half of its lanes.
  const std::string narrow = file("narrow.json", R"({"topocoll_topology": 1, "host": "h",
    "nodes": [{"id": "bridge", "kind": "pci_bridge", "cpus": []},
              {"id": "a", "kind": "gpu", "bdf": "0000:01:00.0", "cpus": [], "pci_link": {"width": 16, "max_width": 16}},
              {"id": "b", "kind": "gpu", "bdf": "0000:02:00.0", "cpus": [], "pci_link": {"width": 8, "max_width": 16}}],
    "edges": [{"from": "bridge", "to": "a", "kind": "pci", "bandwidth_gbps": {"declared": 16}},
              {"from": "bridge", "to": "b", "kind": "pci", "bandwidth_gbps": {"declared": 8}}],
    "notes": []})");
  const Finished found = topo({"check", narrow});
  EXPECT_EQ(found.status, 3) << found.err;
  EXPECT_THAT(found.out, HasSubstr("cost: all_reduce 8 instead of 16 GB/s (-50.0 %)"));
  for (const json& finding : json::parse(topo({"check", "--json", narrow}).out)) {
    if (finding["code"] != "pcie-width") continue;
    EXPECT_EQ(finding["effects"][0]["collective"], "all_reduce");
    EXPECT_NEAR(finding["effects"][0]["percent"].get<double>(), -50, 0.2);
  }
}

TEST_F(Topo, DiffComparesAnyTwoFormats) {
  const std::string xml = machine("synthetic_h100_rails.xml");
  const std::string saved = file("a.json", topo({"import", xml}).out);
  const Finished same = topo({"diff", xml, saved});
  EXPECT_EQ(same.status, 0) << same.err;
  EXPECT_EQ(same.out, "");
  json other = json::parse(topo({"import", xml}).out);
  other["nodes"][0]["label"] = "x";
  const Finished differs = topo({"diff", xml, file("b.json", other.dump())});
  EXPECT_EQ(differs.status, 3);
  EXPECT_EQ(differs.out, "~ node host  label: (absent) → x\n");
  EXPECT_EQ(json::parse(topo({"diff", "--json", xml, path("b.json")}).out)[0]["after"], "x");
}

TEST_F(Topo, RecordsAndReplays) {
  const Finished folder = topo({"record", path("machine")});
  ASSERT_EQ(folder.status, 0) << folder.err;
  const Finished archive = topo({"record", path("machine.tar.bz2")});
  ASSERT_EQ(archive.status, 0) << archive.err;
  const Finished from_folder = topo({"dump", "--from", path("machine")});
  ASSERT_EQ(from_folder.status, 0) << from_folder.err;
  const Finished from_archive = topo({"dump", "--from", path("machine.tar.bz2")});
  ASSERT_EQ(from_archive.status, 0) << from_archive.err;
  EXPECT_EQ(json::parse(from_folder.out)["nodes"].size(),
            json::parse(from_archive.out)["nodes"].size());
  EXPECT_EQ(topo({"show", path("machine.tar.bz2")}).status, 0);
  EXPECT_EQ(topo({"record", path("machine")}).status, 1);  // nothing is overwritten
  const Finished again = topo({"record", path("machine.tar.bz2")});
  EXPECT_EQ(again.status, 1);
  EXPECT_EQ(again.err, "topocoll: " + path("machine.tar.bz2") +
                           " is already there: give a new name, or remove it\n");
  EXPECT_EQ(topo({"show", path("machine.tar.bz2")}).status, 0) << "the old one is left";
  const Finished nowhere = topo({"record", path("no/such/x.tar.bz2")});
  EXPECT_EQ(nowhere.status, 1);
  EXPECT_EQ(nowhere.err,
            "topocoll: " + path("no/such/x.tar.bz2") + ": No such file or directory\n");
}

TEST_F(Topo, RecordedMachinesOfOthers) {
  const std::string& folder = g_recorded_folder;
  if (folder.empty()) GTEST_SKIP() << "TOPOCOLL_TEST_TOPOLOGIES names no folder";
  int count = 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (!entry.path().string().ends_with(".tar.bz2")) continue;
    const Finished f = topo({"show", "--json", "--from", entry.path()});
    EXPECT_EQ(f.status, 0) << entry.path() << f.err;
    const json t = json::parse(f.out);
    EXPECT_GT(t["nodes"].size(), 20U) << entry.path();
    ++count;
  }
  EXPECT_GT(count, 0);
}

TEST_F(Topo, BadInputIsOneLineThatSaysWhere) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"import", file("cut.xml", "<system>\n<cpu numaid=\"0\">")}, "cut.xml:"},
      {{"import", file("speed.xml",
                       "<system>\n<cpu numaid=\"0\">\n<pci busid=\"0000:01:00.0\" "
                       "link_speed=\"-1 GT/s\"/></cpu></system>")},
       "speed.xml:3: attribute link_speed of <pci>"},
      {{"import", file("graph.xml", "<graphs version=\"1\"/>")}, "an NCCL graph file"},
      {{"import", file("text.txt", "GPU0 GPU1")}, "text.txt: neither"},
      {{"import", file("fabric.json", R"({"topocoll_fabric": 1, "rails": 8, "gbps_per_gpu": 50})")},
       "fabric.json: this is a fabric, and no machine: give it with topocoll plan make"},
      {{"show", file("plan.json", R"({"topocoll_plan": 1, "kind": "all_reduce"})")},
       "plan.json: this is a plan, and no machine: topocoll plan show"},
      {{"check", file("doctor.json", R"({"topocoll_doctor": 1, "healthy": true})")},
       "doctor.json: this is a doctor's report, and no machine"},
      {{"import", path("none.xml")}, "No such file"},
      {{"export", "--format", "svg", "-o", path("no/such/folder.svg"),
        machine("synthetic_gb200_tray.xml")},
       "No such file"},
      {{"show", "--from", folder_}, "no recorded machine"},
      {{"show", "--from", file("bad.tar.bz2", "BZh9 nonsense")}, "tar cannot unpack it"},
      {{"show", "--from", file("saved.json", R"({"topocoll_topology": 1})")},
       "saved.json is a saved topology: give it without --from\n"},
      {{"show", "--from", path("none.tar.bz2")}, "No such file"},
      {{"diff", machine("synthetic_gb200_tray.xml"), path("none.json")}, "No such file"},
  };
  for (const auto& [line, error] : cases) {
    const Finished f = topo(line);
    EXPECT_EQ(f.status, 1) << line.back();
    EXPECT_EQ(f.out, "");
    EXPECT_THAT(f.err, HasSubstr(error));
    EXPECT_THAT(f.err, HasSubstr("topocoll: "));
    const bool of_tar = f.err.find("tar cannot unpack it") != f.err.npos;
    EXPECT_EQ(std::count(f.err.begin(), f.err.end(), '\n') == 1, !of_tar) << f.err;
  }
  for (const std::vector<std::string>& line :
       {std::vector<std::string>{}, {"diff", "one"}, {"import"}, {"record"}, {"frobnicate"}}) {
    EXPECT_EQ(topo(line).status, 2);
  }
}

TEST_F(Topo, AMistypedSubcommandIsNamed) {
  const Finished f = topo({"chek", machine("synthetic_gb200_tray.xml")});
  EXPECT_EQ(f.status, 2);
  EXPECT_THAT(f.err, HasSubstr("topocoll: 'chek' is no subcommand of topocoll topo; there are: show, probe, "));
  const Finished first = run({TOPOCOLL_COMMAND, "tpoo", "show"}, {});
  EXPECT_EQ(first.status, 2);
  EXPECT_THAT(first.err, HasSubstr("topocoll: 'tpoo' is no subcommand of topocoll; there are: "));
}

TEST_F(Topo, EachSubcommandHasAnExample) {
  for (const char* command :
       {"show", "dump", "matrix", "check", "diff", "record", "import", "export"}) {
    const Finished f = topo({command, "--help"});
    EXPECT_EQ(f.status, 0);
    EXPECT_THAT(f.out, HasSubstr("Examples:\n  ")) << command;
  }
}

}  // namespace
}  // namespace topocoll
