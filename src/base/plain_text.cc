#include "base/plain_text.h"

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace topocoll {
namespace {

/// Whether three bytes of UTF-8 are a mark of direction.
bool turns(std::string_view mark) {
  return mark.size() == 3 && ((mark >= "\xe2\x80\xaa" && mark <= "\xe2\x80\xae") ||
                              (mark >= "\xe2\x81\xa6" && mark <= "\xe2\x81\xa9"));
}

}  // namespace

std::string plain_text(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return (c < ' ' && c != '\n') || c == 0x7f; },
      '?');
  for (std::size_t at = text.find('\xe2'); at != text.npos; at = text.find('\xe2', at + 1)) {
    if (!turns(std::string_view(text).substr(at, 3))) continue;
    text[at] = '?';
    text.erase(at + 1, 2);
  }
  return text;
}

}  // namespace topocoll
