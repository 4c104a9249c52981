// Everything a user of topocoll needs.
#pragma once

#if __cplusplus < 202002L && !(defined(_MSVC_LANG) && _MSVC_LANG >= 202002L)
#error "topocoll needs C++20: compile with -std=c++20 or later"
#endif

#include "topocoll/communicator.h"
#include "topocoll/findings.h"
#include "topocoll/network_probe.h"
#include "topocoll/operation.h"
#include "topocoll/options.h"
#include "topocoll/plan.h"
#include "topocoll/planning.h"
#include "topocoll/probe.h"
#include "topocoll/size.h"
#include "topocoll/status.h"
#include "topocoll/store.h"
#include "topocoll/topology.h"
#include "topocoll/topology_formats.h"
#include "topocoll/types.h"
#include "topocoll/version.h"
