#include "topology/gpu_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace topocoll {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

NvmlDevice device() {
  NvmlDevice gpu;
  gpu.uuid = "GPU-secret";
  gpu.bdf = "0000:4e:00.0";
  gpu.name = "NVIDIA \"H200\"";
  gpu.link_gbps = 26.562;
  gpu.pcie_generation = 1;
  gpu.max_pcie_generation = 5;
  gpu.pcie_width = 8;
  gpu.max_pcie_width = 16;
  gpu.pcie_replays = 3;
  gpu.temperature_c = 41;
  gpu.utilization_percent = 97;
  gpu.ecc_corrected = 18'000'000'000'000'000'000U;
  gpu.ecc_uncorrected = 0;
  gpu.throttled_by = {"sw_power_cap", "hw_thermal"};
  gpu.links = {{0, true, 4, "0000:c4:00.0", "switch", 1, 2, 3}, {5, false, {}, "", "", {}, {}, {}}};
  return gpu;
}

TEST(GpuRecord, KeepsAllButTheCardsOwnName) {
  const std::string text = gpu_to_json(device());
  EXPECT_THAT(text, Not(HasSubstr("secret")));
  const auto read = gpu_from_json(text, "file");
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  NvmlDevice expected = device();
  EXPECT_EQ(read->uuid, "");
  EXPECT_EQ(read->bdf, expected.bdf);
  EXPECT_EQ(read->name, expected.name);
  EXPECT_EQ(read->link_gbps, expected.link_gbps);
  EXPECT_EQ(read->utilization_percent, 97);
  EXPECT_EQ(read->ecc_corrected, expected.ecc_corrected);
  EXPECT_EQ(read->throttled_by, expected.throttled_by);
  ASSERT_EQ(read->links.size(), 2u);
  EXPECT_EQ(read->links[0].remote_bdf, "0000:c4:00.0");
  EXPECT_EQ(read->links[0].crc_errors, 3u);
  EXPECT_FALSE(read->links[1].active);
  EXPECT_FALSE(read->links[1].version);
  EXPECT_EQ(gpu_to_json(*read), text) << "something came back differently";
}

TEST(GpuRecord, NamesWhatIsWrong) {
  const auto refused = [](const std::string& from, const std::string& to) {
    std::string text = gpu_to_json(device());
    const std::size_t at = text.find(from);
    EXPECT_NE(at, text.npos) << from;
    return gpu_from_json(text.replace(at, from.size(), to), "gpus/x").status().text();
  };
  EXPECT_THAT(refused("0000:4e:00.0", "4e"), HasSubstr("gpus/x: bdf: expected a PCI address"));
  EXPECT_THAT(refused("0000:4e:00.0", ""), HasSubstr("gpus/x: bdf: expected a PCI address"));
  EXPECT_THAT(refused("0000:c4:00.0", "c4"), HasSubstr("links[0].remote_bdf: expected a PCI"));
  EXPECT_THAT(refused("\"pcie_width\": 8", "\"pcie_width\": -8"), HasSubstr("pcie_width"));
  EXPECT_THAT(refused("26.562", "\"fast\""), HasSubstr("link_gbps"));
  EXPECT_THAT(refused("\"active\": true", "\"active\": 1"), HasSubstr("links[0].active"));
  EXPECT_THAT(refused("\"name\"", "\"owner\""), HasSubstr("owner"));
  EXPECT_THAT(gpu_from_json("{", "gpus/x").status().text(), HasSubstr("gpus/x"));
}

TEST(GpuRecord, ReadsAllFilesOfARecording) {
  const std::string root = ::testing::TempDir() + "/topocoll_gpus_" + std::to_string(::getpid());
  fs::create_directories(root + kRecordedGpus);
  const auto sysfs = SysfsRoot::open(root);
  ASSERT_TRUE(sysfs.ok());
  EXPECT_TRUE(recorded_gpus(*sysfs)->devices.empty());
  const std::string file = root + kRecordedGpus + "/0000:4e:00.0";
  std::ofstream(file) << gpu_to_json(device());
  const auto read = recorded_gpus(*sysfs);
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  ASSERT_EQ(read->devices.size(), 1u);
  EXPECT_EQ(read->devices[0].name, device().name);
  const std::string second = root + kRecordedGpus + "/0000:4f:00.0";
  std::ofstream(second) << gpu_to_json(device());
  EXPECT_THAT(recorded_gpus(*sysfs).status().text(),
              HasSubstr("0000:4f:00.0: describes the GPU 0000:4e:00.0"));
  fs::remove(second);
  std::ofstream(file) << "[]";
  EXPECT_THAT(recorded_gpus(*sysfs).status().text(), HasSubstr("0000:4e:00.0"));
  fs::remove_all(root);
}

}  // namespace
}  // namespace topocoll
