// Texts that are almost right: XML and JSON with values, blocks and bytes changed at random.
//
// Thread rule: a Mutator belongs to one thread; the same seed and calls give the same texts.
// Failure rule: any text goes in, an empty one too.
#pragma once

#include <algorithm>
#include <array>
#include <cctype>
#include <cstddef>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace topocoll::testing {

/// A part of a text, from `begin` to before `end`.
struct Span {
  std::size_t begin = 0;
  std::size_t end = 0;
};

/// What stands between quotes, and numbers outside of them.
inline std::vector<Span> value_spans(std::string_view text) {
  std::vector<Span> spans;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '"') {
      const std::size_t begin = ++i;
      while (i < text.size() && text[i] != '"') i += text[i] == '\\' ? 2 : 1;
      spans.push_back({begin, std::min(i, text.size())});
    } else if (std::isdigit(static_cast<unsigned char>(text[i])) != 0) {
      const std::size_t begin = i;
      while (i < text.size() && std::string_view("0123456789.eE+-").find(text[i]) != text.npos) ++i;
      spans.push_back({begin, i});
    }
  }
  return spans;
}

/// Objects and lists of JSON, elements of XML; inner ones first.
inline std::vector<Span> block_spans(std::string_view text) {
  std::vector<Span> spans;
  std::vector<std::size_t> open;
  const auto close = [&](std::size_t end) {
    if (open.empty()) return;
    spans.push_back({open.back(), end});
    open.pop_back();
  };
  bool quoted = false;
  bool closing = false;  // inside "</name>"
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char next = i + 1 < text.size() ? text[i + 1] : '\0';
    if (text[i] == '"') quoted = !quoted;
    if (quoted) continue;
    if (text[i] == '{' || text[i] == '[') open.push_back(i);
    if (text[i] == '}' || text[i] == ']') close(i + 1);
    if (text[i] == '<') {
      closing = next == '/';
      if (!closing && next != '!' && next != '?') open.push_back(i);
    }
    if (text[i] == '/' && next == '>') close(i + 2);
    if (text[i] == '>' && closing) close(i + 1), closing = false;
  }
  return spans;
}

class Mutator {
 public:
  explicit Mutator(unsigned seed) : random_(seed) {}

  /// One to four changes of `text`, with parts of `donor` among what is put in.
  std::string mutated(std::string text, const std::string& donor) {
    for (std::size_t changes = 1 + below(4); changes > 0; --changes) {
      switch (below(4)) {
        case 0:
          change_byte(text);
          break;
        case 1:
          change_block(text, donor);
          break;
        default:
          change_value(text, donor);
      }
    }
    return text;
  }

  std::size_t below(std::size_t bound) { return bound == 0 ? 0 : random_() % bound; }

  /// Numbers at the ends of types, addresses, lists, and what is none of them.
  std::string odd_value() {
    static const std::array<std::string_view, 32> kValues = {
        "",           "-1",
        "0",          "1",
        "3",          "2147483647",
        "1e308",      "2147483648",
        "65536",      "nan",
        "4294967295", "9223372036854775807",
        "-0.0",       "0x7f",
        "0-3,7",      "null",
        "true",       "18446744073709551616",
        "0-999999",   "0xffffffff",
        "NV18",       "1e-320",
        "../../..",   "0000:00:00.0",
        "inf",        "\xff\xfe",
        "&#0;&amp;",  "\\u0000",
        "2.5 GT/s",   "ffffffff:ff:1f.7",
        "%s%n%99d",   "0000ffff,ffffffff,ffffffff"};
    if (below(20) == 0) return std::string(1 + below(5000), 'a');
    return std::string(kValues[below(kValues.size())]);
  }

 private:
  static constexpr std::size_t kMaxRepeats = 2000;
  static constexpr std::size_t kMaxGrowth = 100'000;

  void change_byte(std::string& text) {
    static constexpr std::string_view kAlphabet = "0123456789-,:.<>/=\"&;!?[]{}abcdefx \n\xc3";
    if (text.empty()) return;
    const std::size_t at = below(text.size());
    switch (below(6)) {
      case 0:
        text.erase(at, 1 + below(30));
        break;
      case 1:
        text.insert(at, text.substr(below(text.size()), below(200)));
        break;
      case 2:
        if (below(4) == 0) text.resize(at);
        break;
      case 3: {  // a whole line, so that the rest stays well formed
        const std::size_t start = text.rfind('\n', at) + 1;
        const std::size_t end = std::min(text.find('\n', at), text.size());
        if (start < end) text.insert(start, text.substr(start, end - start));
        break;
      }
      default:
        text[at] = kAlphabet[below(kAlphabet.size())];
    }
  }

  void change_value(std::string& text, const std::string& donor) {
    const auto spans = value_spans(text);
    if (spans.empty()) return change_byte(text);
    const Span span = spans[below(spans.size())];
    std::string value = odd_value();
    if (below(2) == 0) {
      const std::string& source = below(2) == 0 ? donor : text;
      const auto others = value_spans(source);
      if (!others.empty()) {
        const Span other = others[below(others.size())];
        value = source.substr(other.begin, other.end - other.begin);
      }
    }
    text.replace(span.begin, span.end - span.begin, value);
  }

  void change_block(std::string& text, const std::string& donor) {
    const auto spans = block_spans(text);
    if (spans.empty()) return change_byte(text);
    const Span span = spans[below(spans.size())];
    const std::string block = text.substr(span.begin, span.end - span.begin);
    const std::string separator = block[0] == '<' ? "" : ",";
    switch (below(5)) {
      case 0:
        text.erase(span.begin, block.size());
        break;
      case 1: {  // one of many, or many of one
        const std::size_t most = std::min(kMaxRepeats, kMaxGrowth / block.size());
        std::string copies;
        for (std::size_t n = 1 + (below(4) == 0 ? below(most + 1) : 0); n > 0; --n) {
          copies += separator + block;
        }
        text.insert(span.end, copies);
        break;
      }
      case 2: {  // nested in itself, so that depth is tried
        const std::size_t inside = block.find('>') + 1;
        const std::string opening = block[0] == '<' ? block.substr(0, inside) : block.substr(0, 1);
        std::string nest;
        for (std::size_t n = 1 + below(below(4) == 0 ? kMaxRepeats : 12); n > 0; --n) {
          if (nest.size() < kMaxGrowth) nest += opening;
        }
        text.insert(span.begin, nest);
        break;
      }
      default: {
        const std::string& source = below(2) == 0 ? donor : text;
        const auto others = block_spans(source);
        if (others.empty()) return;
        const Span other = others[below(others.size())];
        const std::string put = source.substr(other.begin, other.end - other.begin);
        if (below(2) == 0) {
          text.replace(span.begin, block.size(), put);
        } else {
          text.insert(span.end, separator + put);
        }
      }
    }
  }

  std::mt19937 random_;
};

}  // namespace topocoll::testing
