// Texts that are almost right: no reader may crash or hang, and what is read can be written and
// read.
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "topology/formats/machines.h"

namespace topocoll {
namespace {

constexpr unsigned kSeed = 20240607;

std::string mutated(std::string text, std::mt19937& random) {
  static const std::string alphabet = "0123456789-,:.<>/=\"&;!?[]abcdefx \n\xc3";
  const std::size_t changes = 1 + random() % 4;
  for (std::size_t m = 0; m < changes && !text.empty(); ++m) {
    const std::size_t at = random() % text.size();
    const std::size_t from = random() % text.size();
    switch (random() % 6) {
      case 0:
        text.erase(at, 1 + random() % 30);
        break;
      case 1:
        text.insert(at, text.substr(from, random() % 200));
        break;
      case 2:
        text.resize(at);
        break;
      case 3: {  // a whole line, so that the rest stays well formed
        const std::size_t start = text.rfind('\n', at) + 1;
        const std::size_t end = std::min(text.find('\n', at), text.size());
        text.insert(start, text.substr(start, end - start));
        break;
      }
      default:
        text[at] = alphabet[random() % alphabet.size()];
    }
  }
  return text;
}

/// How many of the mutants were read.
int mutate(const std::string& original, int rounds) {
  std::mt19937 random(kSeed);
  int read = 0;
  for (int i = 0; i < rounds; ++i) {
    const std::string text = mutated(original, random);
    const auto t = import_topology(text, "mutant");
    if (!t.ok()) {
      EXPECT_EQ(t.status().text().rfind("mutant", 0), 0U) << t.status().text();
      continue;
    }
    ++read;
    const auto back = topology_from_json(to_json(*t));
    EXPECT_TRUE(back.ok()) << "seed " << kSeed << " round " << i << ": " << back.status().text();
    (void)check_topology(*t);
    (void)render_matrix(*t);
    (void)render_svg(*t, {});
    if (const auto nccl = to_nccl_xml(*t); nccl.ok()) {
      const auto again = import_topology(*nccl, "again");
      EXPECT_TRUE(again.ok()) << "seed " << kSeed << " round " << i << ": "
                              << again.status().text();
    }
    if (::testing::Test::HasFailure()) break;
  }
  return read;
}

TEST(Mutations, NcclXml) {
  const std::string folder = std::string(TOPOCOLL_TEST_DATA) + "/topologies/";
  EXPECT_GT(mutate(file_text(folder + "synthetic_v100_cube_mesh.xml"), 1500), 50);
  EXPECT_GT(mutate(file_text(folder + "synthetic_gb200_tray.xml"), 1500), 50);
}

TEST(Mutations, HwlocXml) {
  const std::string folder = std::string(TOPOCOLL_TEST_DATA) + "/topologies/";
  const auto text = to_hwloc_xml(imported(file_text(folder + "synthetic_v100_cube_mesh.xml")));
  ASSERT_TRUE(text.ok()) << text.status().to_string();
  EXPECT_GT(mutate(*text, 400), 5);
}

TEST(Mutations, BareGraphs) {
  EXPECT_GT(
      mutate("{\"unit\": \"GB/s per direction\",\n\"nodes\": [{\"id\": \"a\", \"kind\": \"gpu\"},\n"
             "{\"id\": \"b\", \"kind\": \"sw\"}],\n\"edges\": [[\"a\", \"b\", 12.5],\n[\"b\", "
             "\"a\", 3]]}",
             3000),
      5);
}

}  // namespace
}  // namespace topocoll
