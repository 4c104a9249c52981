// Algorithm bandwidth in words: which bytes a collective's GB/s count.
//
// Thread rule: free functions on values. Failure rule: none fails.
#pragma once

#include <string>

#include "topocoll/types.h"

namespace topocoll {

/// "GB/s of all_gather: bytes of the whole result (the blocks of all ranks) per second"
std::string algbw_words(CollectiveKind kind);
/// "; (1200/7) is the bound as an exact fraction"; nothing where it is whole.
std::string fraction_words(const std::string& bound);

}  // namespace topocoll
