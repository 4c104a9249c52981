// A cost model with one protocol, for closed forms.
#pragma once

#include "planner/cost.h"

namespace topocoll::testing {

inline CostModel uniform_cost(double alpha_ns, double reduce_ns_per_byte = 0) {
  CostModel model;
  model.protocols = {{"uniform", alpha_ns, 1}};
  model.reduce_ns_per_byte = reduce_ns_per_byte;
  return model;
}

}  // namespace topocoll::testing
