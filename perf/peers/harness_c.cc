// The harness for Python's ctypes: libpeer_harness.so.
#include "harness.h"

namespace {
peers::Harness* harness = nullptr;
}

extern "C" {
void harness_pin(int rank) { peers::pin(rank); }
void harness_open(const char* path, int rank, int ranks) {
  static peers::Harness the_one(path, rank, ranks);
  harness = &the_one;
}
std::int64_t harness_next() { return harness->next(); }
void harness_barrier() { harness->barrier(); }
double harness_flag_latency_ns() { return harness->flag_latency_ns(); }
int harness_repetitions(double warm_us, int warm) { return harness->repetitions(warm_us, warm); }
void harness_record(int repetition, double us) { harness->record(repetition, us); }
void harness_report_wrong() { harness->report_wrong(); }
void harness_report(std::int64_t bytes, int repetitions, double before_ns, double after_ns) {
  harness->report(bytes, repetitions, before_ns, after_ns);
}
}
