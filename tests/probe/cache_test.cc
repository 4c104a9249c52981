#include "probe/cache.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

namespace topocoll {
namespace {

namespace fs = std::filesystem;

Topology machine() { return synthetic_topology("pack:1 numa:1 core:2 pu:1").value(); }

Topology measured() {
  Topology t = machine();
  t.edges.push_back({"cpu:0", "cpu:1", "coherence", {{}, 20.5}, {{}, 55.0, Spread{54, 56, 53, 9}}});
  t.edges[0].bandwidth_gbps.measured = 7;
  return t;
}

class ProbeCache : public ::testing::Test {
 protected:
  void SetUp() override {
    above_ = ::testing::TempDir() + "/topocoll_cache_" + std::to_string(::getpid());
    fs::remove_all(above_);
    directory_ = above_ + "/deep/down";
  }
  void TearDown() override { fs::remove_all(above_); }
  [[nodiscard]] std::string path() const { return cache_path(directory_, machine()); }
  [[nodiscard]] std::string read() const {
    std::ostringstream text;
    text << std::ifstream(path()).rdbuf();
    return text.str();
  }
  void write(const std::string& text) const { std::ofstream(path()) << text; }
  /// The error with which the file is refused.
  [[nodiscard]] std::string refusal() const {
    return load_kept(directory_, machine()).status().text();
  }

  std::string above_;
  std::string directory_;
};

TEST_F(ProbeCache, WhatIsKeptComesBack) {
  auto nothing = load_kept(directory_, machine());
  ASSERT_TRUE(nothing.ok());
  EXPECT_FALSE(nothing->has_value());
  ASSERT_TRUE(keep(directory_, measured()).ok());
  const auto kept = load_kept(directory_, machine());
  ASSERT_TRUE(kept.ok()) << kept.status().to_string();
  ASSERT_TRUE(kept->has_value());
  EXPECT_EQ(to_json((*kept)->topology), to_json(measured()));
  EXPECT_EQ((*kept)->missing, 0u);
  ASSERT_TRUE(keep(directory_, measured(), 12).ok());
  EXPECT_EQ(load_kept(directory_, machine()).value()->missing, 12u);
  struct stat facts {};
  ASSERT_EQ(::stat(path().c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0600u);
  EXPECT_EQ(std::distance(fs::directory_iterator(directory_), fs::directory_iterator()), 1)
      << "a file that was not renamed is left";
}

TEST_F(ProbeCache, OtherMachinesHaveOtherFiles) {
  ASSERT_TRUE(keep(directory_, measured()).ok());
  const Topology other = synthetic_topology("pack:1 numa:1 core:3 pu:1").value();
  EXPECT_FALSE(load_kept(directory_, other).value().has_value());
  fs::copy_file(path(), cache_path(directory_, other));
  EXPECT_FALSE(load_kept(directory_, other).ok());
}

TEST_F(ProbeCache, DamagedFilesAreRefused) {
  ASSERT_TRUE(keep(directory_, measured()).ok());
  const std::string good = read();
  std::string changed = good;
  changed[good.size() / 2] ^= 1;
  std::string missing = good;
  missing[good.find('\n') - 1] = '1';
  std::string version = good;
  version[version.find(' ') + 1] = '0';
  for (const std::string& text :
       {std::string(), good.substr(0, 10), good.substr(0, good.size() - 5), good + " ", changed,
        missing, version, std::string("{}")}) {
    write(text);
    EXPECT_EQ(refusal(), path() + ": damaged, or of another version or machine");
  }
  write(good);
  EXPECT_EQ(refusal(), "");
}

TEST_F(ProbeCache, WhatOthersMayHaveWrittenIsRefused) {
  ASSERT_TRUE(keep(directory_, measured()).ok());
  fs::permissions(path(), fs::perms::others_write, fs::perm_options::add);
  EXPECT_NE(refusal().find("other users may write it"), std::string::npos) << refusal();
  fs::permissions(path(), fs::perms::others_write, fs::perm_options::remove);
  fs::rename(path(), directory_ + "/elsewhere");
  fs::create_symlink(directory_ + "/elsewhere", path());
  EXPECT_EQ(refusal(), path() + ": is a symbolic link, and those are ignored");
  fs::remove(path());
  ASSERT_EQ(::mkfifo(path().c_str(), 0600), 0);
  EXPECT_NE(refusal().find("is no regular file"), std::string::npos) << refusal();
  fs::permissions(directory_, fs::perms::group_write, fs::perm_options::add);
  EXPECT_FALSE(keep(directory_, measured()).ok());
}

TEST_F(ProbeCache, FilesOfOtherUsersAreRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give files away";
  ASSERT_TRUE(keep(directory_, measured()).ok());
  ASSERT_EQ(::chown(path().c_str(), 12345, 12345), 0);
  EXPECT_NE(refusal().find("belongs to user 12345"), std::string::npos) << refusal();
}

TEST_F(ProbeCache, WithoutADirectoryKeepingFails) {
  fs::create_directories(above_);
  std::ofstream(above_ + "/file") << "x";
  const Status s = keep(above_ + "/file/cache", measured());
  EXPECT_NE(s.text().find(above_ + "/file/cache"), std::string::npos) << s.text();
  EXPECT_EQ(cache_directory("relative").status().text(),
            "TOPOCOLL_CACHE_DIR=relative: an absolute path is needed");
  EXPECT_EQ(cache_directory("/given").value(), "/given");
}

TEST(CopyMeasurements, GivesATransferThatIsThereItsFiguresAndFault) {
  Topology kept = machine();
  kept.edges.push_back({"cpu:0", "cpu:1", "transfer", {}, {}});
  kept.edges.back().figures[kLoadsGbps].measured = 3;
  Topology now = kept;
  now.edges.back().figures.clear();
  kept.edges.back().fault = "wrong";
  copy_measurements(kept, now);
  EXPECT_EQ(now.edges.back().figures, kept.edges.back().figures);
  EXPECT_EQ(now.edges.back().fault, "wrong");
}

TEST(CopyMeasurements, TakesFiguresAndEdgesWhoseEndsAreThere) {
  Topology kept = measured();
  kept.edges[0].bandwidth_gbps.declared = 3;
  kept.nodes.push_back({"cpu:9", NodeKind::kCpu, "", 9, {}, {}, {9}, {}});
  kept.edges.push_back({"cpu:0", "cpu:9", "coherence", {{}, 1.0}, {}});
  kept.edges.push_back({"cpu:0", "cpu:1", "link", {{}, 1.0}, {}});
  Topology now = machine();
  const std::size_t before = now.edges.size();
  copy_measurements(kept, now);
  ASSERT_EQ(now.edges.size(), before + 1);
  EXPECT_EQ(now.edges.back().latency_ns, measured().edges.back().latency_ns);
  EXPECT_EQ(now.edges[0].bandwidth_gbps.measured, 7);
  EXPECT_FALSE(now.edges[0].bandwidth_gbps.declared.has_value());
  copy_measurements(kept, now);
  EXPECT_EQ(now.edges.size(), before + 1) << "an edge came twice";
}

}  // namespace
}  // namespace topocoll
