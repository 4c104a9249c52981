// A recorded machine whose files somebody else may have written.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>

#include "fuzz/target.h"
#include "topocoll/findings.h"
#include "topocoll/topology.h"
#include "topocoll/topology_formats.h"

namespace topocoll::fuzz {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxChanges = 3;

/// One change, as a line of an input: "KIND INDEX BYTES\n" and that many bytes. KIND is F for
/// a text, L for a link to it, P for a pipe, D for a directory, N for nothing.
struct Change {
  char kind = 'F';
  std::size_t machine = 0;
  std::size_t file = 0;
  std::string text;
};

struct Entry {
  std::string path;
  bool link = false;
  std::string text;  ///< or where a link leads
};

struct Machine {
  std::string root;
  std::vector<Entry> entries;
};

Machine load(const std::string& root) {
  Machine machine{root, {}};
  for (const auto& entry : fs::recursive_directory_iterator(root)) {
    const std::string path = entry.path().string();
    if (entry.is_symlink()) {
      machine.entries.push_back({path, true, fs::read_symlink(path).string()});
    } else if (entry.is_regular_file()) {
      std::ifstream in(path, std::ios::binary);
      machine.entries.push_back({path, false, {std::istreambuf_iterator<char>(in), {}}});
    }
  }
  std::sort(machine.entries.begin(), machine.entries.end(),
            [](const Entry& a, const Entry& b) { return a.path < b.path; });
  return machine;
}

/// Makes GPUs of a machine's NICs, of which a driver has said something.
void add_gpus(const std::string& root) {
  const fs::path gpus = root + "/topocoll/gpus";
  fs::create_directories(gpus);
  for (const auto& function : fs::directory_iterator(root + "/sys/bus/pci/devices")) {
    std::string pci_class;
    std::ifstream(function.path() / "class") >> pci_class;
    if (!pci_class.starts_with("0x02")) continue;
    std::ofstream(function.path() / "class") << "0x030200\n";
    std::ofstream(function.path() / "vendor") << "0x10de\n";
    const std::string bdf = function.path().filename().string();
    std::ofstream(gpus / bdf) << R"({"bdf": ")" << bdf << R"(", "name": "GPU", "link_gbps": 26.562,
"pcie_generation": 1, "pcie_width": 16, "max_pcie_generation": 5, "max_pcie_width": 16,
"pcie_replays": 3, "temperature_c": 41, "ecc_corrected": 7, "ecc_uncorrected": 0,
"throttled_by": ["hw_thermal"], "links": [
{"number": 0, "active": true, "version": 4, "remote_kind": "switch", "crc_errors": 3},
{"number": 1, "active": true, "remote_bdf": "0000:23:00.0", "remote_kind": "gpu", "replays": 1},
{"number": 2, "active": true, "remote_bdf": "0000:c4:00.0", "remote_kind": "switch"},
{"number": 3, "active": false}]})";
  }
}

void put(const std::string& path, char kind, const std::string& text) {
  fs::remove_all(path);
  if (kind == 'F') std::ofstream(path, std::ios::binary) << text;
  std::error_code ignored;  // a target that no link can have: then there is none
  if (kind == 'L') fs::create_symlink(fs::path(text.c_str()), path, ignored);
  if (kind == 'P') ::mkfifo(path.c_str(), 0644);
  if (kind == 'D') fs::create_directory(path);
}

class RecordTarget : public Target {
 public:
  explicit RecordTarget(std::vector<Machine> machines)
      : Target("record"), machines_(std::move(machines)) {}

  std::string make(topocoll::testing::Mutator& mutator) override {
    const std::size_t m = mutator.below(machines_.size());
    std::ostringstream input;
    for (std::size_t n = 1 + mutator.below(kMaxChanges); n > 0; --n) {
      const std::size_t f = pick(machines_[m], mutator);
      const Entry& entry = machines_[m].entries[f];
      const std::size_t other = mutator.below(machines_[m].entries.size());
      char kind = entry.link ? 'L' : 'F';
      if (mutator.below(8) == 0) kind = "FLPDN"[mutator.below(5)];
      std::string text = mutator.odd_value();
      if (mutator.below(4) != 0) {
        text = mutator.mutated(entry.text, machines_[m].entries[other].text);
      }
      input << kind << ' ' << m << ' ' << f << ' ' << text.size() << '\n' << text;
    }
    return input.str();
  }

  bool run(const std::string& input) override {
    const auto changes = parse(input);
    if (changes.empty()) return false;
    const std::size_t m = changes[0].machine;
    for (const Change& change : changes) {
      put(machines_[m].entries[change.file].path, change.kind, change.text);
    }
    const auto t = discover_topology_at(machines_[m].root);
    for (const Change& change : changes) restore(machines_[m].entries[change.file]);
    if (!t.ok()) {
      promise(!t.status().text().empty(), "errors have a text");
      return false;
    }
    const auto back = topology_from_json(to_json(*t));
    promise(back.ok(), "what was discovered can be saved and loaded: " + back.status().text());
    (void)check_topology(*t);
    (void)render_text(*t);
    (void)render_matrix(*t);
    return true;
  }

 private:
  /// One of its entries; every other time one that a driver's words of a GPU stand in, if it has
  /// such, among so many others.
  static std::size_t pick(const Machine& machine, topocoll::testing::Mutator& mutator) {
    std::vector<std::size_t> gpus;
    for (std::size_t i = 0; i < machine.entries.size(); ++i) {
      if (machine.entries[i].path.find("/topocoll/gpus/") != std::string::npos) gpus.push_back(i);
    }
    if (!gpus.empty() && mutator.below(2) == 0) return gpus[mutator.below(gpus.size())];
    return mutator.below(machine.entries.size());
  }
  static void restore(const Entry& entry) { put(entry.path, entry.link ? 'L' : 'F', entry.text); }

  [[nodiscard]] std::vector<Change> parse(const std::string& input) const {
    std::vector<Change> changes;
    std::istringstream in(input);
    Change change;
    std::size_t bytes = 0;
    while (in >> change.kind >> change.machine >> change.file >> bytes && in.get() == '\n' &&
           bytes <= input.size() && change.machine < machines_.size() &&
           change.file < machines_[change.machine].entries.size()) {
      change.text.resize(bytes);
      in.read(change.text.data(), static_cast<std::streamsize>(bytes));
      changes.push_back(change);
    }
    return changes;
  }

  std::vector<Machine> machines_;
};

}  // namespace

std::unique_ptr<Target> record_target(const std::string& tests, const std::string& scratch) {
  // A worker before this one may have ended in the middle of a change.
  fs::remove_all(scratch);
  fs::create_directories(scratch);
  std::vector<Machine> machines;
  if (record_topology(scratch + "/here").ok()) machines.push_back(load(scratch + "/here"));
  for (const auto& entry : fs::directory_iterator(tests + "/topologies")) {
    if (entry.path().extension() != ".bz2") continue;
    const std::string folder = scratch + "/" + entry.path().stem().string();
    fs::create_directories(folder);
    const std::string unpack = "tar -xf '" + entry.path().string() + "' -C '" + folder + "'";
    if (std::system(unpack.c_str()) != 0) continue;
    machines.push_back(load(folder + "/machine"));
    const std::string with_gpus = folder + "/gpus";
    fs::copy(folder + "/machine", with_gpus,
             fs::copy_options::recursive | fs::copy_options::copy_symlinks);
    add_gpus(with_gpus);
    promise(discover_topology_at(with_gpus).ok(), "the machine with GPUs can be read");
    machines.push_back(load(with_gpus));
  }
  if (machines.empty()) return nullptr;
  return std::make_unique<RecordTarget>(std::move(machines));
}

}  // namespace topocoll::fuzz
