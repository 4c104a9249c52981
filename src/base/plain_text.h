// Text for a terminal: names and notes in a file or of a peer may hold sequences that move the
// cursor, change colours or ring. Thread rule: a free function. Failure rule: none.
#pragma once

#include <algorithm>
#include <string>

namespace topocoll {

/// `text` with ? in place of control characters other than the ends of lines.
inline std::string plain_text(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return (c < ' ' && c != '\n') || c == 0x7f; },
      '?');
  return text;
}

}  // namespace topocoll
