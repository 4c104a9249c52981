// Readers from one text.
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

#include "fuzz/target.h"
#include "support/measured_gpus.h"
#include "topocoll/findings.h"
#include "topocoll/plan.h"
#include "topocoll/topology.h"
#include "topocoll/topology_formats.h"

namespace topocoll::fuzz {
namespace {

namespace fs = std::filesystem;

class TextTarget : public Target {
 public:
  TextTarget(std::string name, std::vector<std::string> seeds,
             std::function<bool(const std::string&)> read)
      : Target(std::move(name)), seeds_(std::move(seeds)), read_(std::move(read)) {
    promise(!seeds_.empty(), this->name() + ": there are texts to start from");
  }

  std::string make(topocoll::testing::Mutator& mutator) override {
    const std::string& seed = seeds_[mutator.below(seeds_.size())];
    return mutator.mutated(seed, seeds_[mutator.below(seeds_.size())]);
  }
  bool run(const std::string& input) override { return read_(input); }

 private:
  std::vector<std::string> seeds_;
  std::function<bool(const std::string&)> read_;
};

std::vector<std::string> texts(const std::string& folder, const std::string& ending) {
  std::vector<std::string> paths;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() == ending) paths.push_back(entry.path().string());
  }
  std::sort(paths.begin(), paths.end());  // the same seed makes the same inputs
  std::vector<std::string> result;
  for (const std::string& path : paths) {
    std::ifstream in(path, std::ios::binary);
    result.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
  }
  return result;
}

/// An import, and everything that a user does with what was read.
bool read_topology(const std::string& text) {
  const auto t = import_topology(text, "input");
  if (!t.ok()) {
    promise(t.status().text().rfind("input", 0) == 0, "errors name the file");
    promise(t.status().text().find('\n') == std::string::npos, "errors are one line");
    return false;
  }
  const auto back = topology_from_json(to_json(*t));
  promise(back.ok(), "what was read can be saved and loaded: " + back.status().text());
  promise(back->fingerprint() == t->fingerprint(), "and is the same");
  const auto findings = check_topology(*t);
  (void)to_json(findings);
  (void)render_text(*t);
  (void)render_matrix(*t);
  (void)render_svg(*t, findings);
  (void)diff_topologies(*t, *back);
  if (const auto nccl = to_nccl_xml(*t); nccl.ok()) {
    const auto again = import_topology(*nccl, "again");
    promise(again.ok(), "NCCL's XML can be read back: " + again.status().text());
  }
  (void)to_hwloc_xml(*t);
  return true;
}

bool read_plan(const std::string& text) {
  const auto plan = plan_from_json(text);
  if (!plan.ok()) {
    promise(!plan.status().text().empty(), "errors have a text");
    return false;
  }
  const auto back = plan_from_json(to_json(*plan));
  promise(back.ok() && *back == *plan, "a plan can be saved and loaded");
  (void)verify(*plan);
  (void)render_text(*plan);
  return true;
}

template <class Write>
std::vector<std::string> rewritten(const std::vector<std::string>& seeds, Write write) {
  std::vector<std::string> result;
  const auto add = [&](const Result<Topology>& t) {
    if (!t.ok()) return;
    if (const Result<std::string> text = write(*t); text.ok()) result.push_back(*text);
  };
  for (const std::string& seed : seeds) add(import_topology(seed, "seed"));
  add(synthetic_topology("pack:2 numa:2 l3:1 core:2 pu:2"));
  return result;
}

/// What a probe of GPUs leaves.
std::string measured_text() {
  Topology t = topocoll::testing::measured_gpus();
  topocoll::testing::add_nvlinks(t, 400);
  t.edges.back().bandwidth_gbps.measured = 380;
  topocoll::testing::transfer_between(t, topocoll::testing::gpu_id(0), topocoll::testing::gpu_id(1))
      .fault = "stores: 3 of 4096 words differ";
  return to_json(t);
}

std::vector<std::string> plan_texts() {
  std::vector<std::string> result;
  for (const auto& [kind, algorithm] : std::vector<std::pair<CollectiveKind, std::string>>{
           {CollectiveKind::kAllReduce, "two_shot"},
           {CollectiveKind::kAllReduce, "one_shot"},
           {CollectiveKind::kBroadcast, "two_shot"},
           {CollectiveKind::kAllGather, "one_shot"},
           {CollectiveKind::kReduceScatter, "one_shot"}}) {
    const auto plan = make_direct_plan(kind, algorithm, 3, 0);
    promise(plan.ok(), "there is a plan to start from: " + plan.status().text());
    result.push_back(to_json(*plan));
  }
  return result;
}

}  // namespace

void promise(bool kept, const std::string& what) {
  if (kept) return;
  std::fprintf(stderr, "broken promise: %s\n", what.c_str());
  std::abort();
}

std::vector<std::unique_ptr<Target>> text_targets(const std::string& tests) {
  const auto nccl = texts(tests + "/topologies", ".xml");
  const auto graphs = texts(tests + "/fixtures", ".json");
  std::vector<std::unique_ptr<Target>> result;
  const auto add = [&](const char* name, std::vector<std::string> seeds, auto read) {
    result.push_back(std::make_unique<TextTarget>(name, std::move(seeds), read));
  };
  add("nccl", nccl, read_topology);
  add("hwloc", rewritten(nccl, to_hwloc_xml), read_topology);
  add("graph", graphs, read_topology);
  auto native = rewritten(nccl, [](const Topology& t) { return Result<std::string>(to_json(t)); });
  native.push_back(measured_text());
  add("native", std::move(native), read_topology);
  add("plan", plan_texts(), read_plan);
  return result;
}

}  // namespace topocoll::fuzz
