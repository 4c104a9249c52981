#include "control/store_number.h"

#include <charconv>

namespace topocoll {

Result<std::int64_t> add_to_number(const std::string* text, std::int64_t delta) {
  std::int64_t current = 0;
  if (text != nullptr) {
    const char* end = text->data() + text->size();
    const auto [stop, error] = std::from_chars(text->data(), end, current);
    if (error != std::errc() || stop != end) {
      return Status(Cause::kInvalidArgument, "add: the value of this key is not an integer");
    }
  }
  std::int64_t sum = 0;
  if (__builtin_add_overflow(current, delta, &sum)) {
    return Status(Cause::kInvalidArgument, "add: the sum does not fit into 64 bits");
  }
  return sum;
}

}  // namespace topocoll
