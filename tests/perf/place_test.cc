#include "coll_perf/place.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <thread>

namespace topocoll::perf {
namespace {

using Variables = std::map<std::string, std::string>;

Result<Place> place_in(const Variables& variables) {
  return read_place([&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

TEST(PerfPlace, OneRankWithoutALauncher) {
  const auto place = place_in({});
  ASSERT_TRUE(place.ok());
  EXPECT_EQ(place->size, 1);
  EXPECT_FALSE(place->rendezvous.has_value());
}

TEST(PerfPlace, TorchrunMeetsOnThePortAfterItsOwn) {
  const auto place = place_in({{"RANK", "3"},
                               {"WORLD_SIZE", "4"},
                               {"LOCAL_RANK", "1"},
                               {"MASTER_ADDR", "10.0.0.1"},
                               {"MASTER_PORT", "29500"}});
  ASSERT_TRUE(place.ok());
  EXPECT_EQ(place->rank, 3);
  EXPECT_EQ(place->size, 4);
  EXPECT_EQ(place->local_rank, 1);
  EXPECT_EQ(place->rendezvous->host, "10.0.0.1");
  EXPECT_EQ(place->rendezvous->port, 29501);
}

/// torchrun --standalone: outgoing connections may have any port of that range.
TEST(PerfPlace, NoPortIsServedThatAnOutgoingConnectionMayHave) {
  const auto port_after = [](const char* port, const char* run) {
    const auto place = place_in({{"RANK", "0"},
                                 {"WORLD_SIZE", "2"},
                                 {"MASTER_ADDR", "localhost"},
                                 {"MASTER_PORT", port},
                                 {"TORCHELASTIC_RUN_ID", run}});
    EXPECT_TRUE(place.ok()) << port;
    return place.ok() ? place->rendezvous->port : 0;
  };
  for (const char* port : {"32767", "46755", "60999", "65535"}) {
    EXPECT_GE(port_after(port, "a"), 16384) << port;
    EXPECT_LT(port_after(port, "a"), 32768) << port;
    EXPECT_EQ(port_after(port, "a"), port_after(port, "a"));
    EXPECT_NE(port_after(port, "a"), port_after(port, "b")) << "jobs meet apart";
  }
  EXPECT_EQ(port_after("32766", "a"), 32767);
}

TEST(PerfPlace, EmptyVariablesAreNone) {
  const auto place =
      place_in({{"SLURM_PROCID", ""}, {"SLURM_NTASKS", ""}, {"RANK", ""}, {"WORLD_SIZE", ""}});
  ASSERT_TRUE(place.ok()) << place.status().to_string();
  EXPECT_EQ(place->size, 1);
}

TEST(PerfPlace, TheStoreVariableWins) {
  const Variables base = {{"RANK", "0"},
                          {"WORLD_SIZE", "2"},
                          {"MASTER_ADDR", "x"},
                          {"MASTER_PORT", "1"},
                          {"TOPOCOLL_JOB_SECRET", "abc"}};
  Variables v = base;
  v["TOPOCOLL_STORE"] = "[::1]:4711";
  const auto place = place_in(v);
  ASSERT_TRUE(place.ok());
  EXPECT_EQ(place->rendezvous->host, "::1");
  EXPECT_EQ(place->rendezvous->port, 4711);
  EXPECT_EQ(place->rendezvous->secret, "abc");
  for (const char* bad : {"", "host", "host:", ":1", "host:0", "host:65536", "host:1x"}) {
    v["TOPOCOLL_STORE"] = bad;
    EXPECT_FALSE(place_in(v).ok()) << bad;
  }
}

TEST(PerfPlace, OpenMpiAndSlurmRanksOfOneJobAgreeOnAPort) {
  const auto ompi = [](const char* rank, const char* key) {
    return place_in({{"OMPI_COMM_WORLD_RANK", rank},
                     {"OMPI_COMM_WORLD_SIZE", "2"},
                     {"OMPI_MCA_orte_precondition_transports", key}});
  };
  EXPECT_EQ(ompi("0", "k1")->rendezvous->port, ompi("1", "k1")->rendezvous->port);
  EXPECT_EQ(ompi("0", "k1")->rendezvous->secret, ompi("1", "k1")->rendezvous->secret);
  EXPECT_NE(ompi("0", "k1")->rendezvous->secret, ompi("0", "k2")->rendezvous->secret);
  const auto slurm =
      place_in({{"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "2"}, {"SLURM_JOB_ID", "7"}});
  ASSERT_TRUE(slurm.ok());
  EXPECT_EQ(slurm->rank, 1);
  EXPECT_GE(slurm->rendezvous->port, 1024);
}

TEST(PerfPlace, TheShellOfSallocIsNoRank) {
  const auto place = place_in({{"SLURM_NTASKS", "4"}, {"SLURM_JOB_ID", "7"}});
  ASSERT_TRUE(place.ok()) << place.status().to_string();
  EXPECT_EQ(place->size, 1);
  EXPECT_EQ(place->launcher, "");
}

TEST(PerfPlace, WrongValuesAreNamed) {
  const auto error = [](const Variables& v) { return place_in(v).status().text(); };
  EXPECT_NE(error({{"RANK", "2"}, {"WORLD_SIZE", "2"}}).find("RANK='2'"), std::string::npos);
  EXPECT_NE(error({{"RANK", "x"}, {"WORLD_SIZE", "2"}}).find("RANK='x'"), std::string::npos);
  EXPECT_NE(error({{"RANK", "0"}}).find("WORLD_SIZE is not set"), std::string::npos);
  EXPECT_NE(error({{"SLURM_PROCID", "0"}}).find("SLURM_NTASKS is not set"), std::string::npos);
  EXPECT_NE(error({{"WORLD_SIZE", "2"}}).find("RANK is not set"), std::string::npos);
  EXPECT_NE(error({{"RANK", "0"}, {"WORLD_SIZE", "2"}}).find("TOPOCOLL_STORE"), std::string::npos);
  EXPECT_NE(error({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "x"}}).find("MASTER_PORT"),
            std::string::npos);
}

TEST(PerfPlace, RankZeroServesAndTheOthersFindIt) {
  // A port that was free a moment ago.
  const std::uint16_t port = (*serve_tcp_store("127.0.0.1", 0, "s"))->port();
  const auto at = [&](int rank) {
    Place place;
    place.rank = rank;
    place.size = 2;
    place.rendezvous = Rendezvous{"127.0.0.1", port, "s"};
    return place;
  };
  std::thread other([&] {
    auto meeting = meet(at(1), std::chrono::seconds(30));
    ASSERT_TRUE(meeting.ok()) << meeting.status().to_string();
    EXPECT_EQ(meeting->server, nullptr);
    EXPECT_TRUE(meeting->store->set("k", "v").ok());
  });
  auto meeting = meet(at(0), std::chrono::seconds(30));
  ASSERT_TRUE(meeting.ok()) << meeting.status().to_string();
  EXPECT_NE(meeting->server, nullptr);
  EXPECT_EQ(*meeting->store->get("k", std::chrono::seconds(30)), "v");
  other.join();
  auto second = meet(at(0), std::chrono::seconds(30));
  ASSERT_TRUE(second.ok()) << "a store that somebody else serves there is used";
  EXPECT_EQ(second->server, nullptr);
}

}  // namespace
}  // namespace topocoll::perf
