#include "topology/pci.h"

#include <gtest/gtest.h>

namespace topocoll {
namespace {

TEST(Pci, AddressesHaveOneForm) {
  EXPECT_EQ(canonical_bdf("0000:4e:00.0"), "0000:4e:00.0");
  EXPECT_EQ(canonical_bdf("4E:00.0"), "0000:4e:00.0");
  EXPECT_EQ(canonical_bdf("00000000:4e:00.0"), "0000:4e:00.0");
  EXPECT_EQ(canonical_bdf("fffffff:ff:1f.7"), "fffffff:ff:1f.7");
  EXPECT_EQ(canonical_bdf("3436:00:00.0"), "3436:00:00.0");
  // NVSwitches of virtual machines have this device number, although PCI has 32 devices only.
  EXPECT_EQ(canonical_bdf("fffffff:ff:ff.0"), "fffffff:ff:ff.0");
  for (const char* bad :
       {"", "0000", "0000:4e:00", "0000:4e:00.8", "0000:4g:00.0", "0000:4e:00.00",
        "000000000:4e:00.0", "0000:4e.00.0", "0000:4e:00.0 ", "::.", "0000-4e-00.0"}) {
    EXPECT_EQ(canonical_bdf(bad), "") << bad;
  }
}

TEST(Pci, WordsForSpeeds) {
  bool known = false;
  EXPECT_EQ(parse_pci_speed("16.0 GT/s PCIe", known), 16.0);
  EXPECT_EQ(parse_pci_speed("16 GT/s", known), 16.0);
  EXPECT_EQ(parse_pci_speed("2.5 GT/s PCIe", known), 2.5);
  EXPECT_TRUE(known);
  for (const char* absent : {"", "Unknown", "Unknown speed"}) {
    EXPECT_FALSE(parse_pci_speed(absent, known).has_value());
    EXPECT_TRUE(known) << absent;
  }
  for (const char* nonsense :
       {"-3 GT/s", "0 GT/s", "fast", "16", "16 GB/s", "nan GT/s", "1e9 GT/s"}) {
    EXPECT_FALSE(parse_pci_speed(nonsense, known).has_value());
    EXPECT_FALSE(known) << nonsense;
  }
}

TEST(Pci, BandwidthAfterLineCoding) {
  EXPECT_DOUBLE_EQ(pci_bandwidth_gbps(2.5, 16), 4.0);
  EXPECT_NEAR(pci_bandwidth_gbps(8, 16), 15.754, 1e-3);
  EXPECT_NEAR(pci_bandwidth_gbps(32, 16), 63.015, 1e-3);
  EXPECT_NEAR(pci_bandwidth_gbps(64, 16), 121.0, 1e-9);
}

TEST(Pci, AnIdleLinkStandsForWhatItDoesUnderLoad) {
  EXPECT_FALSE(declared_bandwidth({}).has_value());
  EXPECT_FALSE(declared_bandwidth({16.0, {}, {}, {}}).has_value());
  EXPECT_DOUBLE_EQ(*declared_bandwidth({2.5, 16, {}, {}}), pci_bandwidth_gbps(2.5, 16));
  EXPECT_DOUBLE_EQ(*declared_bandwidth({2.5, 8, 16.0, 16}), pci_bandwidth_gbps(16, 8));
}

TEST(Pci, KindsByClassAndVendor) {
  EXPECT_EQ(pci_kind("0x030200", "0x10de"), NodeKind::kGpu);
  EXPECT_EQ(pci_kind("0x038000", "0x1002"), NodeKind::kGpu);
  EXPECT_EQ(pci_kind("0x120000", "0x1002"), NodeKind::kGpu);
  EXPECT_EQ(pci_kind("0x030200", ""), NodeKind::kGpu);
  EXPECT_EQ(pci_kind("0x030000", "0x1a03"), NodeKind::kPciDevice);  // a management controller
  EXPECT_EQ(pci_kind("0x030000", "0x1002", "0x515e"), NodeKind::kPciDevice);
  EXPECT_EQ(pci_kind("0x060400", "0x1000"), NodeKind::kPciBridge);
  EXPECT_EQ(pci_kind("0x020000", "0x15b3"), NodeKind::kNic);
  EXPECT_EQ(pci_kind("0x020700", "0x15b3"), NodeKind::kNic);
  EXPECT_EQ(pci_kind("0x068000", "0x10de"), NodeKind::kNvSwitch);
  EXPECT_EQ(pci_kind("0x068000", "0x8086"), NodeKind::kPciDevice);
  EXPECT_EQ(pci_kind("", ""), NodeKind::kPciDevice);
  EXPECT_EQ(pci_id(NodeKind::kPciBridge, "0000:01:00.0"), "bridge:0000:01:00.0");
  EXPECT_EQ(pci_id(NodeKind::kGpu, "0000:01:00.0"), "gpu:0000:01:00.0");
}

}  // namespace
}  // namespace topocoll
