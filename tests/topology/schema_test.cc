// docs/topology.schema.json and what to_json() writes agree.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <regex>
#include <string>

#include "support/measured_gpus.h"
#include "topology/formats/machines.h"

namespace topocoll {
namespace {

using nlohmann::json;

/// The part of JSON Schema that the published schema uses. Returns what is wrong first, or "".
class Validator {
 public:
  explicit Validator(const json& schema) : root_(schema) {}
  std::string check(const json& value) const { return check(root_, value, "$"); }

 private:
  std::string check(const json& schema, const json& value, const std::string& at) const {
    if (schema.contains("$ref")) {
      const std::string name =
          schema["$ref"].get<std::string>().substr(std::string("#/$defs/").size());
      if (std::string wrong = check(root_["$defs"][name], value, at); !wrong.empty()) return wrong;
    }
    if (schema.contains("enum")) {
      bool found = false;
      for (const json& allowed : schema["enum"]) found = found || allowed == value;
      if (!found) return at + ": not in the enumeration";
    }
    if (schema.contains("type") && !has_type(schema["type"], value)) return at + ": wrong type";
    if (value.is_number() && schema.contains("minimum") && value < schema["minimum"])
      return at + ": too small";
    if (value.is_number() && schema.contains("maximum") && value > schema["maximum"])
      return at + ": too large";
    if (value.is_string() && schema.contains("minLength") &&
        value.get<std::string>().size() < schema["minLength"].get<std::size_t>()) {
      return at + ": too short";
    }
    if (value.is_array() && schema.contains("items")) {
      for (std::size_t i = 0; i < value.size(); ++i) {
        std::string wrong = check(schema["items"], value[i], at + "[" + std::to_string(i) + "]");
        if (!wrong.empty()) return wrong;
      }
    }
    return value.is_object() ? members(schema, value, at) : "";
  }

  std::string members(const json& schema, const json& value, const std::string& at) const {
    for (const json& name : schema.value("required", json::array())) {
      if (!value.contains(name.get<std::string>())) return at + ": no " + name.get<std::string>();
    }
    if (schema.contains("maxProperties") && value.size() > schema["maxProperties"])
      return at + ": too many";
    const json properties = schema.value("properties", json::object());
    const std::string pattern =
        schema.value("propertyNames", json::object()).value("pattern", std::string());
    for (const auto& [key, member] : value.items()) {
      if (!std::regex_search(key, std::regex(pattern))) return at + ": no name for a member " + key;
      const json* below = nullptr;
      if (properties.contains(key)) {
        below = &properties[key];
      } else if (schema.contains("additionalProperties")) {
        if (schema["additionalProperties"] == false) return at + ": unexpected " + key;
        below = &schema["additionalProperties"];
      }
      if (below == nullptr) continue;
      if (std::string wrong = check(*below, member, at + "." + key); !wrong.empty()) return wrong;
    }
    return "";
  }

  static bool has_type(const std::string& type, const json& value) {
    if (type == "object") return value.is_object();
    if (type == "array") return value.is_array();
    if (type == "string") return value.is_string();
    if (type == "integer") return value.is_number_integer();
    return type == "number" && value.is_number();
  }

  const json& root_;
};

json schema() {
  return json::parse(file_text(std::string(TOPOCOLL_SOURCE) + "/docs/topology.schema.json"));
}

Topology complete() {
  Topology t =
      imported(file_text(std::string(TOPOCOLL_TEST_DATA) + "/topologies/synthetic_gb200_tray.xml"));
  t.nodes[2].uuid = "GPU-1";
  t.nodes[2].pci_link = {2.5, 1, 64, 16};
  t.edges[0].upward_gbps = {1.5, 2.5};
  t.edges[0].latency_ns = {10, 12, Spread{11, 13, 10.5, 9}};
  t.groups.push_back({"root", {20, 18.5}, {{t.edges[0].to, t.edges[0].from, t.edges[0].kind}}});
  t.notes.emplace_back("n");
  return t;
}

TEST(Schema, HoldsForWhatIsWritten) {
  const json published = schema();
  const Validator validator(published);
  Topology gpus = testing::measured_gpus();
  testing::transfer_between(gpus, testing::gpu_id(0), testing::gpu_id(1)).fault = "wrong data";
  for (const Topology& t : {complete(), gpus, discover_topology().value(), Topology(),
                            synthetic_topology("pack:2 numa:2 l3:1 core:2 pu:2").value()}) {
    const json written = json::parse(to_json(t));
    EXPECT_EQ(validator.check(written), "");
    EXPECT_TRUE(topology_from_json(to_json(t)).ok())
        << topology_from_json(to_json(t)).status().text();
  }
}

TEST(Schema, NamesEveryKindOfNodeAndEdge) {
  const json published = schema();
  json kinds = json::array();
  for (int k = 0; k < kNumNodeKinds; ++k) kinds.push_back(name(static_cast<NodeKind>(k)));
  EXPECT_EQ(published["$defs"]["node"]["properties"]["kind"]["enum"], kinds);
  EXPECT_EQ(published["$defs"]["edge"]["properties"]["kind"]["enum"], json(edge_kinds()));
}

TEST(Schema, RefusesWhatTheReaderRefuses) {
  const json published = schema();
  const Validator validator(published);
  const json good = json::parse(to_json(complete()));
  const auto refused = [&](auto change) {
    json bad = good;
    change(bad);
    return !validator.check(bad).empty() && !topology_from_json(bad.dump()).ok();
  };
  EXPECT_TRUE(refused([](json& j) { j["topocoll_topology"] = 2; }));
  EXPECT_TRUE(refused([](json& j) { j.erase("notes"); }));
  EXPECT_TRUE(refused([](json& j) { j["rack"] = 1; }));
  EXPECT_TRUE(refused([](json& j) { j["nodes"][0]["kind"] = "tpu"; }));
  EXPECT_TRUE(refused([](json& j) { j["nodes"][2]["pci_link"]["width"] = 0; }));
  EXPECT_TRUE(refused([](json& j) { j["nodes"][2]["bdf"] = "x"; }));
  EXPECT_TRUE(refused([](json& j) { j["edges"][0]["kind"] = "wire"; }));
  EXPECT_TRUE(refused([](json& j) { j["edges"][0]["count"] = 0; }));
  EXPECT_TRUE(refused([](json& j) { j["edges"][0]["upward_gbps"]["declared"] = -1; }));
  EXPECT_TRUE(refused([](json& j) { j["groups"][0]["id"] = ""; }));
  EXPECT_TRUE(refused([](json& j) { j["groups"][0]["members"][0].erase("kind"); }));
}

TEST(Schema, RefusesFiguresOfTransfersAsTheReaderDoes) {
  const json published = schema();
  const Validator validator(published);
  const json good = json::parse(to_json(testing::measured_gpus()));
  const auto transfer = [](json& j) -> json& { return j["edges"].back(); };
  ASSERT_EQ(json(good)["edges"].back()["kind"], "transfer");
  const auto refused = [&](auto change) {
    json bad = good;
    change(transfer(bad));
    return !validator.check(bad).empty() && !topology_from_json(bad.dump()).ok();
  };
  EXPECT_TRUE(refused([](json& edge) { edge["figures"]["speed"] = {{"measured", 1}}; }));
  EXPECT_TRUE(refused([](json& edge) { edge["figures"]["_ns"] = {{"measured", 1}}; }));
  EXPECT_TRUE(refused([](json& edge) { edge["figures"]["a_ns"] = 1; }));
  EXPECT_TRUE(refused([](json& edge) { edge["fault"] = ""; }));
  EXPECT_TRUE(refused([](json& edge) {
    for (int i = 0; i < 33; ++i) edge["figures"][std::to_string(i) + "_ns"] = {{"measured", 1}};
  }));
}

TEST(Schema, GroupsNameEdgesThatExist) {
  json bad = json::parse(to_json(complete()));
  bad["groups"][0]["members"][0]["kind"] = "nvlink";
  EXPECT_NE(topology_from_json(bad.dump())
                .status()
                .text()
                .find("groups[0].members[0]: there is no such edge"),
            std::string::npos);
}

}  // namespace
}  // namespace topocoll
