#include "topology/formats/xml_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <set>

namespace topocoll {
namespace {

constexpr std::size_t kMaxShownBytes = 60;
constexpr std::size_t kMaxAttributes = 256;

/// As much of a name or value as an error can show.
std::string clipped(std::string_view value) {
  std::string text;
  for (const char c : value.substr(0, kMaxShownBytes)) text += c < ' ' && c >= 0 ? '?' : c;
  return value.size() > kMaxShownBytes ? text + "..." : text;
}

std::string shown(std::string_view value) { return fmt::format("\"{}\"", clipped(value)); }

/// Where a text stops being UTF-8; its size if it does not. pugixml does not look.
std::size_t utf8_end(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    const auto byte = [&](std::size_t at) {
      return at < text.size() ? static_cast<unsigned char>(text[at]) : 0U;
    };
    const unsigned first = byte(i);
    const std::size_t length = first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
    unsigned code = length == 1 ? first : first & (0x7fU >> length);
    for (std::size_t k = 1; k < length; ++k) {
      if ((byte(i + k) & 0xc0) != 0x80) return i;
      code = code << 6 | (byte(i + k) & 0x3f);
    }
    constexpr std::array<unsigned, 5> kLeast = {0, 0, 0x80, 0x800, 0x10000};  // else overlong
    const bool surrogate = code >= 0xd800 && code <= 0xdfff;
    if (code < kLeast[length] || code > 0x10ffff || surrogate || (first >= 0x80 && first < 0xc0)) {
      return i;
    }
    i += length;
  }
  return text.size();
}

}  // namespace

XmlText::XmlText(std::string_view text, std::string name) : text_(text), name_(std::move(name)) {
  line_starts_.push_back(0);
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\n') line_starts_.push_back(i + 1);
  }
}

Result<std::unique_ptr<XmlText>> XmlText::parse(std::string_view text, std::string name) {
  if (text.size() > kMaxXmlBytes) {
    return Status(Cause::kInvalidArgument,
                  fmt::format("{}: {} bytes, {} are allowed", name, text.size(), kMaxXmlBytes));
  }
  std::unique_ptr<XmlText> result(new XmlText(text, std::move(name)));
  if (const std::size_t end = utf8_end(text); end < text.size()) {
    return Status(Cause::kInvalidArgument,
                  fmt::format("{}:{}: not UTF-8: convert it, for instance with iconv",
                              result->name_, result->line_at(end)));
  }
  const auto parsed = result->document_.load_buffer(
      text.data(), text.size(), pugi::parse_default | pugi::parse_doctype, pugi::encoding_utf8);
  if (!parsed) {
    const auto at = static_cast<std::size_t>(std::max<std::ptrdiff_t>(parsed.offset, 0));
    std::string why = parsed.description();
    if (!why.empty()) why[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(why[0])));
    return Status(Cause::kInvalidArgument, fmt::format("{}:{}: not XML, or cut short: {}",
                                                       result->name_, result->line_at(at), why));
  }
  if (Status s = result->check_tree(); !s.ok()) return s;
  return result;
}

Status XmlText::check_tree() {
  std::size_t elements = 0;
  int depth = 0;
  for (pugi::xml_node node = document_.first_child(); node;) {
    if (node.type() == pugi::node_doctype &&
        std::string_view(node.value()).find('[') != std::string_view::npos) {
      fail(node, "a DOCTYPE with declarations of its own (entities) is refused: remove it");
    }
    if (node.type() == pugi::node_element) {
      if (++elements > kMaxXmlElements) {
        fail(node, fmt::format("more than {} elements", kMaxXmlElements));
      }
      std::set<std::string_view> names;
      for (const pugi::xml_attribute attribute : node.attributes()) {
        if (!names.insert(attribute.name()).second) {
          fail(node, attribute.name(), "is given twice");
        }
        if (names.size() > kMaxAttributes) {
          fail(node, fmt::format("more than {} attributes", kMaxAttributes));
        }
      }
    }
    if (!ok()) return status_;
    if (node.first_child()) {
      if (++depth > kMaxXmlDepth) {
        fail(node, fmt::format("elements are nested more than {} deep", kMaxXmlDepth));
        return status_;
      }
      node = node.first_child();
      continue;
    }
    while (node && !node.next_sibling()) node = node.parent(), --depth;
    node = node.next_sibling();
  }
  if (!root()) return Status(Cause::kInvalidArgument, name_ + ": no XML element");
  return Status();
}

std::size_t XmlText::line_at(std::size_t offset) const {
  return static_cast<std::size_t>(
      std::upper_bound(line_starts_.begin(), line_starts_.end(), offset) - line_starts_.begin());
}

std::size_t XmlText::line(pugi::xml_node node) const {
  return line_at(static_cast<std::size_t>(std::max<std::ptrdiff_t>(node.offset_debug(), 0)));
}

void XmlText::fail(pugi::xml_node node, const std::string& text) {
  if (!ok()) return;
  status_ =
      Status(Cause::kInvalidArgument,
             node.type() == pugi::node_element
                 ? fmt::format("{}:{}: <{}>: {}", name_, line(node), clipped(node.name()), text)
                 : fmt::format("{}:{}: {}", name_, line(node), text));
}

void XmlText::fail(pugi::xml_node node, std::string_view attribute, const std::string& text) {
  if (!ok()) return;
  status_ = Status(Cause::kInvalidArgument,
                   fmt::format("{}:{}: attribute {} of <{}>: {}", name_, line(node),
                               clipped(attribute), clipped(node.name()), text));
}

std::optional<std::string> XmlText::text(pugi::xml_node node, const char* attribute) {
  const pugi::xml_attribute found = node.attribute(attribute);
  if (!found || *found.value() == 0) return std::nullopt;
  return found.value();
}

std::optional<long> XmlText::integer(pugi::xml_node node, const char* attribute, long low,
                                     long high) {
  const auto given = text(node, attribute);
  if (!given || !ok()) return std::nullopt;
  long value = 0;
  const char* end = given->data() + given->size();
  const auto parsed = std::from_chars(given->data(), end, value);
  if (parsed.ec == std::errc() && parsed.ptr == end && value >= low && value <= high) return value;
  fail(node, attribute,
       fmt::format("expected an integer from {} to {}, found {}", low, high, shown(*given)));
  return std::nullopt;
}

std::optional<double> XmlText::number(pugi::xml_node node, const char* attribute, double low,
                                      double high) {
  const auto given = text(node, attribute);
  if (!given || !ok()) return std::nullopt;
  double value = 0;
  const char* end = given->data() + given->size();
  const auto parsed = std::from_chars(given->data(), end, value);
  if (parsed.ec == std::errc() && parsed.ptr == end && std::isfinite(value) && value >= low &&
      value <= high) {
    return value;
  }
  fail(node, attribute,
       fmt::format("expected a number from {} to {}, found {}", low, high, shown(*given)));
  return std::nullopt;
}

std::string xml_escape(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      case '\n':
      case '\t':
      case '\r':
        escaped += fmt::format("&#{};", static_cast<int>(c));
        break;
      default:
        // Other control characters cannot be said in XML 1.0.
        escaped += c >= 0 && c < ' ' ? '?' : c;
    }
  }
  return escaped;
}

}  // namespace topocoll
