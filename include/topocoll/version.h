// The library's version. The build fails if this differs from the project's.
#pragma once

#include <string_view>

#include "topocoll/export.h"

#define TOPOCOLL_VERSION_MAJOR 0
#define TOPOCOLL_VERSION_MINOR 1
#define TOPOCOLL_VERSION_PATCH 0
#define TOPOCOLL_VERSION_STRING "0.1.0"

namespace topocoll {

/// Version of the library that is loaded; compare with TOPOCOLL_VERSION_STRING of the headers.
TOPOCOLL_API std::string_view version();
/// Number of the protocol between ranks; ranks with different numbers refuse each other.
TOPOCOLL_API int wire_version();
/// Identifies the build: version, compiler and a hash of what determines the layout of shared data.
TOPOCOLL_API std::string_view build_id();

}  // namespace topocoll
