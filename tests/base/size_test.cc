#include "topocoll/size.h"

#include <gtest/gtest.h>

namespace topocoll {
namespace {

TEST(Size, UnitsArePowersOf1024InEitherCaseAndForm) {
  EXPECT_EQ(parse_size("0"), 0u);
  EXPECT_EQ(parse_size("8"), 8u);
  EXPECT_EQ(parse_size("8 B"), 8u);
  EXPECT_EQ(parse_size("1k"), 1024u);
  EXPECT_EQ(parse_size("3K"), 3072u);
  EXPECT_EQ(parse_size("64KiB"), 65536u);
  EXPECT_EQ(parse_size("64 KiB"), 65536u);
  EXPECT_EQ(parse_size("8 k"), 8192u);
  EXPECT_EQ(parse_size("2m"), 2u << 20);
  EXPECT_EQ(parse_size("32M"), 32u << 20);
  EXPECT_EQ(parse_size("4G"), std::uint64_t(4) << 30);
  EXPECT_EQ(parse_size("1.5g"), std::uint64_t(3) << 29);
  EXPECT_EQ(parse_size("1T"), std::uint64_t(1) << 40);
  EXPECT_EQ(parse_size("1.7"), 1u);
}

TEST(Size, EveryByteCounts) {
  EXPECT_EQ(parse_size("9007199254740993"), 9007199254740993u) << "no double holds it";
  EXPECT_EQ(parse_size("1152921504606846976"), kMaxSize);
  EXPECT_EQ(parse_size("1048576T"), kMaxSize);
}

TEST(Size, WhatIsNoSizeGivesNone) {
  for (const char* bad : {"",
                          " ",
                          "k",
                          "B",
                          "iB",
                          "x",
                          "8kb",
                          "8KB",
                          "8xiB",
                          "8  k",
                          " 8",
                          "8k ",
                          "-1",
                          "-0",
                          "+1",
                          "nan",
                          "inf",
                          "1e3",
                          "0x10",
                          "1152921504606846977",
                          "1048577T",
                          "1048576.1T",
                          "18446744073709551616",
                          "18014398509481984K",
                          "99999999999999999999999999.5"}) {
    EXPECT_FALSE(parse_size(bad).has_value()) << bad;
  }
}

TEST(Size, ReadsBackWhatItWrites) {
  EXPECT_EQ(size_text(0), "0 B");
  EXPECT_EQ(size_text(1023), "1023 B");
  EXPECT_EQ(size_text(4 << 20), "4 MiB");
  EXPECT_EQ(size_text(std::uint64_t(23) << 29), "11.5 GiB");
  for (const std::uint64_t bytes :
       {std::uint64_t(512), std::uint64_t(1536), std::uint64_t(5) << 40}) {
    EXPECT_EQ(parse_size(size_text(bytes)), bytes);
  }
}

}  // namespace
}  // namespace topocoll
