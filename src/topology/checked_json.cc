#include "topology/checked_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <unordered_set>

namespace topocoll {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxShownBytes = 60;

/// Walks the text without building anything, and stops at the first thing that is not allowed.
class LimitCheck : public nlohmann::json_sax<json> {
 public:
  explicit LimitCheck(const JsonLimits& limits) : limits_(limits) {}
  [[nodiscard]] const std::string& error() const { return error_; }

  bool null() override { return value(); }
  bool boolean(bool) override { return value(); }
  bool number_integer(json::number_integer_t) override { return value(); }
  bool number_unsigned(json::number_unsigned_t) override { return value(); }
  bool number_float(json::number_float_t, const std::string&) override { return value(); }
  bool string(std::string&) override { return value(); }
  bool binary(json::binary_t&) override { return value(); }
  bool start_object(std::size_t) override { return open(); }
  bool start_array(std::size_t) override { return open(); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(std::string& name) override {
    if (keys_.back().insert(name).second) return true;
    error_ = fmt::format("member {} is given twice", json_quote(name.substr(0, kMaxShownBytes)));
    return false;
  }
  bool parse_error(std::size_t position, const std::string&, const json::exception&) override {
    error_ = fmt::format("not JSON at byte {}", position);
    return false;
  }

 private:
  bool value() {
    if (++values_ <= limits_.values) return true;
    error_ = fmt::format("more than {} values", limits_.values);
    return false;
  }
  bool open() {
    keys_.emplace_back();
    if (static_cast<int>(keys_.size()) > limits_.depth) {
      error_ = fmt::format("nested more than {} deep", limits_.depth);
      return false;
    }
    return value();
  }
  bool close() {
    keys_.pop_back();
    return true;
  }

  const JsonLimits& limits_;
  std::vector<std::unordered_set<std::string>> keys_;
  std::size_t values_ = 0;
  std::string error_;
};

std::string shown(const json* value) {
  if (value == nullptr) return "nothing";
  if (value->is_object()) return "an object";
  if (value->is_array()) return "an array";
  const std::string text = value->dump(-1, ' ', true, json::error_handler_t::replace);
  return text.size() <= kMaxShownBytes ? text : text.substr(0, kMaxShownBytes) + "...";
}

}  // namespace

Result<json> parse_json(std::string_view text, std::string_view what, const JsonLimits& limits) {
  const auto refuse = [&](const std::string& why) {
    return Status(Cause::kInvalidArgument, fmt::format("{}: {}", what, why));
  };
  if (text.size() > limits.bytes) {
    return refuse(fmt::format("{} bytes, {} are allowed", text.size(), limits.bytes));
  }
  LimitCheck check(limits);
  if (!json::sax_parse(text.begin(), text.end(), &check)) return refuse(check.error());
  json value = json::parse(text.begin(), text.end(), nullptr, false);
  if (value.is_discarded()) return refuse("not JSON");
  return value;
}

void JsonErrors::add(const std::string& path, const std::string& text) {
  if (!status_.ok()) return;
  const std::string where = path.empty() ? "" : path + ": ";
  status_ = Status(Cause::kInvalidArgument, fmt::format("{}: {}{}", what_, where, text));
}

void JsonView::members(std::initializer_list<std::string_view> allowed) const {
  if (!errors_->ok()) return;
  if (value_ == nullptr || !value_->is_object()) return expected("an object");
  for (const auto& [key, value] : value_->items()) {
    if (std::find(allowed.begin(), allowed.end(), key) == allowed.end()) {
      return fail(fmt::format("unknown member {}", json_quote(key.substr(0, kMaxShownBytes))));
    }
  }
}

bool JsonView::has(std::string_view key) const {
  return value_ != nullptr && value_->is_object() && value_->contains(key);
}

std::vector<std::string> JsonView::keys(std::size_t max) const {
  std::vector<std::string> result;
  if (!errors_->ok()) return result;
  if (value_ == nullptr || !value_->is_object()) {
    expected("an object");
  } else if (value_->size() > max) {
    fail(fmt::format("{} members, {} are allowed", value_->size(), max));
  } else {
    for (const auto& [key, value] : value_->items()) result.push_back(key);
  }
  return result;
}

JsonView JsonView::operator[](std::string_view key) const {
  const json* found = nullptr;
  if (value_ != nullptr && value_->is_object()) {
    const auto member = value_->find(key);
    if (member != value_->end()) found = &*member;
  }
  return JsonView(found, this, key, 0);
}

std::size_t JsonView::array(std::size_t max) const {
  if (!errors_->ok()) return 0;
  if (value_ != nullptr && value_->is_array() && value_->size() <= max) return value_->size();
  if (value_ != nullptr && value_->is_array()) {
    fail(fmt::format("{} elements, {} are allowed", value_->size(), max));
  } else {
    expected("an array");
  }
  return 0;
}

JsonView JsonView::at(std::size_t index) const {
  return JsonView(&(*value_)[index], this, std::string_view(), index);
}

std::int64_t JsonView::integer(std::int64_t low, std::int64_t high) const {
  if (!errors_->ok()) return low;
  if (value_ != nullptr && value_->is_number_integer()) {
    const bool too_large = value_->is_number_unsigned() &&
                           value_->get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX);
    const auto number = value_->get<std::int64_t>();
    if (!too_large && number >= low && number <= high) return number;
  }
  expected(low == high ? fmt::format("{}", low)
                       : fmt::format("an integer from {} to {}", low, high));
  return low;
}

std::uint64_t JsonView::natural(std::uint64_t high) const {
  if (!errors_->ok()) return 0;
  if (value_ != nullptr && value_->is_number_unsigned() && value_->get<std::uint64_t>() <= high) {
    return value_->get<std::uint64_t>();
  }
  expected(fmt::format("an integer from 0 to {}", high));
  return 0;
}

double JsonView::number(double low, double high) const {
  if (!errors_->ok()) return low;
  if (value_ != nullptr && value_->is_number()) {
    const auto number = value_->get<double>();
    if (std::isfinite(number) && number >= low && number <= high) return number;
  }
  expected(fmt::format("a number from {} to {}", low, high));
  return low;
}

bool JsonView::boolean() const {
  if (!errors_->ok()) return false;
  if (value_ != nullptr && value_->is_boolean()) return value_->get<bool>();
  expected("true or false");
  return false;
}

std::string JsonView::text(std::size_t max_bytes) const {
  if (!errors_->ok()) return "";
  if (value_ != nullptr && value_->is_string()) {
    const auto& text = value_->get_ref<const std::string&>();
    if (text.size() <= max_bytes) return text;
  }
  expected(fmt::format("text of at most {} bytes", max_bytes));
  return "";
}

void JsonView::expected(const std::string& what) const {
  if (value_ == nullptr) return fail("is missing");
  fail(fmt::format("expected {}, found {}", what, shown(value_)));
}

void JsonView::fail(const std::string& text) const { errors_->add(path(), text); }

std::string JsonView::path() const {
  if (parent_ == nullptr) return "";
  const std::string above = parent_->path();
  if (key_.empty()) return fmt::format("{}[{}]", above, index_);
  return above.empty() ? std::string(key_) : fmt::format("{}.{}", above, key_);
}

std::string json_quote(std::string_view text) {
  return json(std::string(text)).dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace topocoll
