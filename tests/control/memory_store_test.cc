#include <gtest/gtest.h>

#include <chrono>
#include <limits>
#include <thread>
#include <vector>

#include "topocoll/store.h"

namespace topocoll {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(MemoryStore, SetGetAndOverwrite) {
  const auto store = make_memory_store();
  EXPECT_FALSE(*store->contains("a"));
  ASSERT_TRUE(store->set("a", std::string("x\0y", 3)).ok());
  EXPECT_TRUE(*store->contains("a"));
  EXPECT_EQ(*store->get("a", milliseconds(0)), std::string("x\0y", 3));
  ASSERT_TRUE(store->set("a", "").ok());
  EXPECT_EQ(*store->get("a", milliseconds(0)), "");
}

TEST(MemoryStore, GetWaitsForTheKey) {
  const auto store = make_memory_store();
  std::thread setter([&] { EXPECT_TRUE(store->set("late", "1").ok()); });
  const auto value = store->get("late", hours(1000000));
  setter.join();
  ASSERT_TRUE(value.ok());
  EXPECT_EQ(*value, "1");
}

TEST(MemoryStore, GetTimesOutAndNamesTheKey) {
  const auto store = make_memory_store();
  const auto value = store->get("absent", milliseconds(5));
  ASSERT_FALSE(value.ok());
  EXPECT_EQ(value.status().cause(), Cause::kTimeout);
  EXPECT_NE(value.status().text().find("'absent'"), std::string::npos) << value.status().text();
}

TEST(MemoryStore, AddCountsFromManyThreads) {
  const auto store = make_memory_store();
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 500; ++i) EXPECT_TRUE(store->add("n", 2).ok());
    });
  }
  for (auto& t : threads) t.join();
  EXPECT_EQ(*store->add("n", -1), 8 * 500 * 2 - 1);
  EXPECT_EQ(*store->get("n", milliseconds(0)), "7999");
}

TEST(MemoryStore, AddWakesGet) {
  const auto store = make_memory_store();
  std::thread adder([&] { EXPECT_TRUE(store->add("n", 7).ok()); });
  EXPECT_EQ(*store->get("n", seconds(30)), "7");
  adder.join();
}

TEST(MemoryStore, AddRefusesTextAndOverflow) {
  const auto store = make_memory_store();
  ASSERT_TRUE(store->set("text", "12x").ok());
  EXPECT_EQ(store->add("text", 1).status().cause(), Cause::kInvalidArgument);
  EXPECT_EQ(*store->get("text", milliseconds(0)), "12x");
  ASSERT_TRUE(store->add("big", std::numeric_limits<std::int64_t>::max()).ok());
  EXPECT_EQ(store->add("big", 1).status().cause(), Cause::kInvalidArgument);
  EXPECT_EQ(*store->add("big", 0), std::numeric_limits<std::int64_t>::max());
}

}  // namespace
}  // namespace topocoll
