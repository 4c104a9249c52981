// Everything a user of topocoll needs.
#pragma once

#include "topocoll/communicator.h"
#include "topocoll/operation.h"
#include "topocoll/options.h"
#include "topocoll/plan.h"
#include "topocoll/status.h"
#include "topocoll/store.h"
#include "topocoll/topology.h"
#include "topocoll/types.h"
#include "topocoll/version.h"
