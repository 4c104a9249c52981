// Figures in words for people. Thread rule: free functions. Failure rule: what is unknown is left
// out.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "topocoll/topology.h"

namespace topocoll {

/// "204.8 GB/s declared, 171.2 GB/s measured (170 to 172)": the interval of the measured one.
std::string bandwidth_text(const Figure& figure);
/// The same with the largest of ns, us, ms and s of which there is one at least.
std::string latency_text(const Figure& figure);
/// The words for a figure of a "transfer" by its name in the native JSON: "both ways at once" for
/// "duplex_gbps"; of an unknown one the name without its unit.
std::string figure_word(std::string_view name);
/// What a "transfer" was measured by, and what was wrong: "stores 392.1 GB/s (391 to 393)",
/// "latency 1.52 us (1.5 to 1.55)", "copy engine 395 GB/s (394 to 396)".
std::vector<std::string> transfer_texts(const TopologyEdge& edge, bool from_memory);
/// The same in short: "stores 392.1 GB/s, latency 1.52 us".
std::string transfer_brief(const TopologyEdge& edge, bool from_memory);

}  // namespace topocoll
