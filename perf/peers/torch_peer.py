#!/usr/bin/env python3
"""torch.distributed as a peer: torch_peer.py LIBRARY PAGE_FILE RANK RANKS BACKEND MEETING_FILE.

The same cell as harness.h's serve(), but in place, because torch.distributed.all_reduce has no other form.
"""

import ctypes
import sys
import time


def load(library):
    h = ctypes.CDLL(library)
    h.harness_next.restype = ctypes.c_int64
    h.harness_flag_latency_ns.restype = ctypes.c_double
    h.harness_repetitions.argtypes = [ctypes.c_double, ctypes.c_int]
    h.harness_record.argtypes = [ctypes.c_int, ctypes.c_double]
    h.harness_report.argtypes = [ctypes.c_int64, ctypes.c_int, ctypes.c_double, ctypes.c_double]
    return h


def now_us():
    return time.perf_counter_ns() * 1e-3


def cell(h, torch, dist, size, rank, ranks):
    count = size // 4
    chunk = 1 << 20

    def element(r, lo, hi):
        index = torch.arange(lo, hi, dtype=torch.int64)
        return ((index * 7 + r * 131 + (index >> 9) * 3) % 2001 - 1000).to(torch.float32)

    data = torch.empty(count)
    for lo in range(0, count, chunk):
        hi = min(lo + chunk, count)
        data[lo:hi] = element(rank, lo, hi)
    h.harness_barrier()
    dist.all_reduce(data)
    for lo in {0, max(0, count - chunk)}:
        hi = min(lo + chunk, count)
        if not torch.equal(data[lo:hi], sum(element(r, lo, hi) for r in range(ranks))):
            h.harness_report_wrong()
    data.zero_()  # sums in place would grow without end
    before = h.harness_flag_latency_ns()
    for _ in range(2):
        dist.all_reduce(data)
    h.harness_barrier()
    begin = now_us()
    for _ in range(3):
        dist.all_reduce(data)
    repetitions = h.harness_repetitions(now_us() - begin, 3)
    for _ in range(min(repetitions // 4, 200)):
        dist.all_reduce(data)
    for i in range(repetitions):
        h.harness_barrier()
        t = now_us()
        dist.all_reduce(data)
        h.harness_record(i, now_us() - t)
    after = h.harness_flag_latency_ns()
    h.harness_report(size, repetitions, before, after)


def main():
    library, page, rank, ranks, backend, meeting = sys.argv[1:]
    rank, ranks = int(rank), int(ranks)
    h = load(library)
    h.harness_pin(rank)  # before torch starts threads
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group(backend, init_method="file://" + meeting, rank=rank, world_size=ranks)
    h.harness_open(page.encode(), rank, ranks)
    while (size := h.harness_next()) >= 0:
        cell(h, torch, dist, size, rank, ranks)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
