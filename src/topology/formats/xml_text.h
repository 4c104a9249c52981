// XML that somebody else wrote: bounded, without entities of its own, each attribute once, and
// errors that name the place: "topo.xml:12: attribute link_speed of <pci>: ...".
//
// Thread rule: one thread at a time. Failure rule: parse() refuses; the getters keep the first
// error, after which every value is absent, so that a reader may check once at its end (and in its
// loops).
#pragma once

#include <memory>
#include <optional>
#include <pugixml.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "topocoll/status.h"

namespace topocoll {

inline constexpr std::size_t kMaxXmlBytes = std::size_t{8} << 20;
inline constexpr std::size_t kMaxXmlElements = 200'000;
inline constexpr int kMaxXmlDepth = 100;

class XmlText {
 public:
  /// `text` must outlive the result; `name` stands in front of errors.
  static Result<std::unique_ptr<XmlText>> parse(std::string_view text, std::string name);

  [[nodiscard]] pugi::xml_node root() const { return document_.document_element(); }
  [[nodiscard]] const Status& status() const { return status_; }
  [[nodiscard]] bool ok() const { return status_.ok(); }
  /// The line on which an element begins, from 1.
  [[nodiscard]] std::size_t line(pugi::xml_node node) const;

  /// Keeps an error about an element, or about one of its attributes.
  void fail(pugi::xml_node node, const std::string& text);
  void fail(pugi::xml_node node, std::string_view attribute, const std::string& text);

  /// An attribute's text; absent if it is missing or empty.
  static std::optional<std::string> text(pugi::xml_node node, const char* attribute);
  /// The same as a number in [low, high]; what is no such number is an error.
  std::optional<long> integer(pugi::xml_node node, const char* attribute, long low, long high);
  std::optional<double> number(pugi::xml_node node, const char* attribute, double low, double high);

 private:
  XmlText(std::string_view text, std::string name);
  Status check_tree();
  [[nodiscard]] std::size_t line_at(std::size_t offset) const;

  std::string_view text_;
  std::string name_;
  std::vector<std::size_t> line_starts_;
  pugi::xml_document document_;
  Status status_;
};

/// As the value of an attribute.
std::string xml_escape(std::string_view text);

}  // namespace topocoll
