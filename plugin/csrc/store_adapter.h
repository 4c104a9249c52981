// A c10d::Store behind topocoll's Store interface.
// Thread rule: as the wrapped store. Failure rule: nothing is thrown; torch's errors become a Status.
#pragma once

#include <memory>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "topocoll/store.h"

namespace topocoll::plugin {

std::shared_ptr<topocoll::Store> adapt(c10::intrusive_ptr<c10d::Store> store);

}  // namespace topocoll::plugin
