// NVML through a library that the test builds, and without one.
#include "base/cuda/nvml.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/cuda/fake_nvml.h"
#include "support/fake_library.h"

namespace topocoll {
namespace {

using ::testing::ElementsAre;
using testing::FakeNvml;
using ::testing::HasSubstr;

class Nvml : public ::testing::Test {
 protected:
  void TearDown() override { EXPECT_EQ(fake_->initialised, 0) << "nvmlShutdown was forgotten"; }
  testing::FakeLibrary<FakeNvml> fake_{TOPOCOLL_FAKE_NVML, "fake_nvml_state"};
};

TEST_F(Nvml, TellsAllThatTheDriverKnows) {
  const auto report = read_nvml(TOPOCOLL_FAKE_NVML);
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_EQ(report->driver, "580.1");
  EXPECT_TRUE(report->notes.empty()) << report->notes[0];
  ASSERT_EQ(report->devices.size(), 2u);
  const NvmlDevice& gpu = report->devices[0];
  EXPECT_EQ(gpu.uuid, "GPU-1");
  EXPECT_EQ(gpu.name, "Fake");
  EXPECT_EQ(gpu.bdf, "0000:4e:00.0");
  EXPECT_EQ(gpu.pcie_generation, 1);
  EXPECT_EQ(gpu.pcie_width, 8);
  EXPECT_EQ(gpu.max_pcie_generation, 5);
  EXPECT_EQ(gpu.max_pcie_width, 16);
  EXPECT_EQ(gpu.pcie_replays, 7u);
  EXPECT_EQ(gpu.temperature_c, 41);
  EXPECT_EQ(gpu.utilization_percent, 12);
  EXPECT_THAT(gpu.throttled_by, ElementsAre("sw_power_cap", "hw_thermal"));
  EXPECT_EQ(gpu.ecc_corrected, 5u);
  EXPECT_EQ(gpu.ecc_uncorrected, 2u);
  EXPECT_EQ(gpu.link_gbps, 26.562);
  ASSERT_EQ(gpu.links.size(), 3u);
  EXPECT_TRUE(gpu.links[0].active && !gpu.links[1].active && gpu.links[2].active);
  EXPECT_EQ(gpu.links[2].number, 2);
  EXPECT_EQ(gpu.links[2].version, 4);
  EXPECT_EQ(gpu.links[2].remote_bdf, "0000:c4:00.0");
  EXPECT_EQ(gpu.links[2].remote_kind, "switch");
  EXPECT_EQ(gpu.links[2].replays, 20u);
  EXPECT_EQ(gpu.links[2].recoveries, 21u);
  EXPECT_EQ(gpu.links[2].crc_errors, 22u);
  EXPECT_FALSE(gpu.links[1].version.has_value()) << "nobody is asked about a link that is down";
  EXPECT_EQ(report->devices[1].bdf, "10000:05:00.0");
  EXPECT_TRUE(report->devices[1].links.empty());
}

TEST_F(Nvml, AsksOldDriversForOneSpeedOfAllLinks) {
  fake_->common_speed = true;
  const auto report = read_nvml(TOPOCOLL_FAKE_NVML);
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_EQ(report->devices[0].link_gbps, 26.562);
}

TEST_F(Nvml, WhatIsNotSupportedIsAbsentWithoutANote) {
  fake_->unsupported = {"nvmlDeviceGetPcieReplayCounter",
                        "nvmlDeviceGetTotalEccErrors",
                        "nvmlDeviceGetNvLinkRemotePciInfo_v2",
                        "nvmlDeviceGetFieldValues",
                        "nvmlDeviceGetCurrentClocksThrottleReasons",
                        "nvmlDeviceGetTemperature"};
  const auto report = read_nvml(TOPOCOLL_FAKE_NVML);
  ASSERT_TRUE(report.ok());
  EXPECT_TRUE(report->notes.empty()) << report->notes[0];
  const NvmlDevice& gpu = report->devices[0];
  EXPECT_FALSE(gpu.pcie_replays || gpu.ecc_corrected || gpu.ecc_uncorrected || gpu.link_gbps ||
               gpu.temperature_c);
  EXPECT_TRUE(gpu.throttled_by.empty());
  EXPECT_EQ(gpu.links[0].remote_bdf, "");
  EXPECT_EQ(gpu.links[0].remote_kind, "switch");
  EXPECT_EQ(gpu.uuid, "GPU-1");
}

TEST_F(Nvml, WhatFailsIsANoteAndTheRestStays) {
  fake_->broken = {"nvmlDeviceGetTemperature", "nvmlDeviceGetUUID"};
  const auto report = read_nvml(TOPOCOLL_FAKE_NVML);
  ASSERT_TRUE(report.ok());
  EXPECT_THAT(report->notes,
              ElementsAre("GPU 0000:4e:00.0: nvmlDeviceGetUUID: Unknown Error",
                          "GPU 0000:4e:00.0: nvmlDeviceGetTemperature: Unknown Error",
                          "GPU 10000:05:00.0: nvmlDeviceGetUUID: Unknown Error",
                          "GPU 10000:05:00.0: nvmlDeviceGetTemperature: Unknown Error"));
  EXPECT_EQ(report->devices[0].pcie_width, 8);
  fake_->broken = {"nvmlDeviceGetHandleByIndex_v2"};
  EXPECT_TRUE(read_nvml(TOPOCOLL_FAKE_NVML)->devices.empty());
  fake_->broken = {"nvmlDeviceGetCount_v2"};
  EXPECT_EQ(read_nvml(TOPOCOLL_FAKE_NVML).status().text(), "GPUs cannot be listed: Unknown Error");
}

TEST_F(Nvml, RemotesThatAVirtualMachineHidesAreUnknown) {
  fake_->hide_remotes = true;
  const auto report = read_nvml(TOPOCOLL_FAKE_NVML);
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->devices[0].links[0].remote_bdf, "");
  EXPECT_EQ(report->devices[0].links[0].remote_kind, "switch");
}

TEST_F(Nvml, WithoutADriverItSaysSo) {
  fake_->init = 9;
  const Status status = read_nvml(TOPOCOLL_FAKE_NVML).status();
  EXPECT_EQ(status.cause(), Cause::kUnsupported);
  EXPECT_THAT(status.text(), HasSubstr("cannot be used: Driver Not Loaded"));
  EXPECT_THAT(read_nvml("libno-such-thing.so.1").status().text(),
              HasSubstr("no NVIDIA driver: libno-such-thing.so.1"));
}

TEST_F(Nvml, ALibraryOfAnotherKindIsNoDriver) {
  EXPECT_EQ(read_nvml("libm.so.6").status().cause(), Cause::kUnsupported);
}

TEST(NvmlHere, TheRealOneAnswersOrIsNotThere) {
  const auto report = read_nvml();
  if (!report.ok()) GTEST_SKIP() << report.status().text();
  EXPECT_FALSE(report->driver.empty());
  for (const NvmlDevice& gpu : report->devices) EXPECT_FALSE(gpu.uuid.empty() || gpu.bdf.empty());
}

}  // namespace
}  // namespace topocoll
