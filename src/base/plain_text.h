// Text for a terminal: names and notes in a file or of a peer may hold sequences that move the
// cursor, change colours or ring, and marks that turn what follows around. Thread rule: a free
// function. Failure rule: none.
#pragma once

#include <string>

namespace topocoll {

/// `text` with ? in place of control characters other than the ends of lines, and of Unicode's marks
/// of direction that reach over what follows: U+202A to U+202E and U+2066 to U+2069.
std::string plain_text(std::string text);

}  // namespace topocoll
