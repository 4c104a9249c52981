// Reading JSON that somebody else wrote: bounded memory, every field checked, and errors that name
// the path, e.g. "plan: steps[3][7].peer: expected an integer from 0 to 3, found "x"".
//
//   Result<nlohmann::json> json = parse_json(text, "plan", limits);
//   JsonErrors errors("plan");
//   JsonView root(*json, errors);
//   root.members({"ranks"});
//   int ranks = root["ranks"].integer(1, 64);
//   if (!errors.status().ok()) return errors.status();
//
// Thread rule: one thread at a time. Failure rule: the first error is kept, after it every read
// returns an empty value, so that a reader may check once at its end (and in its loops).
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "topocoll/status.h"

namespace topocoll {

struct JsonLimits {
  std::size_t bytes = 0;   ///< of the text
  std::size_t values = 0;  ///< objects, arrays, strings, numbers ... together
  int depth = 0;           ///< of nesting
};

/// Parses `text`; refuses what exceeds the limits before it costs memory, and members given twice.
Result<nlohmann::json> parse_json(std::string_view text, std::string_view what,
                                  const JsonLimits& limits);

/// Keeps the first error.
class JsonErrors {
 public:
  explicit JsonErrors(std::string what) : what_(std::move(what)) {}
  [[nodiscard]] const Status& status() const { return status_; }
  [[nodiscard]] bool ok() const { return status_.ok(); }
  void add(const std::string& path, const std::string& text);

 private:
  std::string what_;
  Status status_;
};

/// One value and the way to it. A view refers to its parent: it must not outlive it.
class JsonView {
 public:
  JsonView(const nlohmann::json& root, JsonErrors& errors) : value_(&root), errors_(&errors) {}

  /// Checks that this is an object which has no members but these.
  void members(std::initializer_list<std::string_view> allowed) const;
  [[nodiscard]] bool has(std::string_view key) const;
  /// Whether the value is there and is null.
  [[nodiscard]] bool is_null() const { return value_ != nullptr && value_->is_null(); }
  /// Checks that this is an object of at most `max` members and returns their names.
  [[nodiscard]] std::vector<std::string> keys(std::size_t max) const;
  /// A member; reading it is an error if it is absent.
  JsonView operator[](std::string_view key) const;
  /// Checks that this is an array of at most `max` elements and returns their number.
  [[nodiscard]] std::size_t array(std::size_t max) const;
  /// An element of an array that has it.
  [[nodiscard]] JsonView at(std::size_t index) const;

  /// An error leaves its trace in JsonErrors, so that a reader may look at a value only to check
  /// it.
  std::int64_t integer(std::int64_t low, std::int64_t high) const;
  [[nodiscard]] std::uint64_t natural(std::uint64_t high) const;
  /// A finite number.
  [[nodiscard]] double number(double low, double high) const;
  [[nodiscard]] std::string text(std::size_t max_bytes) const;
  [[nodiscard]] bool boolean() const;

  void fail(const std::string& text) const;
  [[nodiscard]] std::string path() const;

 private:
  JsonView(const nlohmann::json* value, const JsonView* parent, std::string_view key,
           std::size_t index)
      : value_(value), errors_(parent->errors_), parent_(parent), key_(key), index_(index) {}
  void expected(const std::string& what) const;

  const nlohmann::json* value_;  ///< null: absent
  JsonErrors* errors_;
  const JsonView* parent_ = nullptr;
  std::string_view key_;
  std::size_t index_ = 0;
};

/// A string as JSON: quoted, escaped, never invalid UTF-8.
std::string json_quote(std::string_view text);

}  // namespace topocoll
