// What must hold of an hwloc XML before hwloc may see it: its importer trusts what it reads.
// Thread rule: one thread at a time. Failure rule: the first error is kept in the XmlText.
#pragma once

#include "topology/formats/xml_text.h"

namespace topocoll {

/// Types, sets of CPUs and NUMA nodes that nest and do not overlap, numbers and addresses given once.
void check_hwloc_objects(XmlText& xml);

}  // namespace topocoll
