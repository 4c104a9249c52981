"""Groups that end, in good order or not, leave nothing behind in their processes (rows 27 and 29)."""

from __future__ import annotations

import datetime
import gc
import os
import re
import signal
from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist
from harness import Job, backend, raises, results

# Each function makes a group on a store of its own and ends it, on both ranks.


def _good_order(job: Job, store: dist.Store) -> None:
    job.init(store=store)
    dist.all_reduce(torch.ones(1_000_000), async_op=True).wait()
    peer = 1 - job.rank
    dist.batch_isend_irecv(
        [dist.P2POp(dist.isend, torch.ones(1), peer), dist.P2POp(dist.irecv, torch.ones(1), peer)]
    )[0].wait()
    dist.destroy_process_group()


def _mismatch(job: Job, store: dist.Store) -> None:
    job.init(store=store)
    with raises("mismatch"):
        dist.all_reduce(torch.ones(1 + job.rank))
    dist.destroy_process_group()


def _timeout(job: Job, store: dist.Store) -> None:
    job.init(store=store)
    if job.rank == 1:
        store.wait(["given up"])
    options = dist.AllreduceOptions()
    options.timeout = datetime.timedelta(milliseconds=50)
    with raises("timeout"):
        backend().allreduce([torch.ones(1)], options).wait()
    store.set("given up", "")
    dist.destroy_process_group()


def _killed_peer(job: Job, store: dist.Store) -> None:
    if job.rank == 1:  # in the person of a child
        child = os.fork()
        if child == 0:
            job.init(store=store)
            dist.barrier()
            os.kill(os.getpid(), signal.SIGKILL)
        assert os.waitpid(child, 0)[1] == signal.SIGKILL
        return
    job.init(store=store)
    with raises("peer_died"):
        while True:
            dist.barrier()
    dist.destroy_process_group()


def _missing_rank(job: Job, store: dist.Store) -> None:
    if job.rank == 0:
        with raises("timeout"):
            job.init(store=store, timeout=datetime.timedelta(milliseconds=50))


def _wrong_size(job: Job, store: dist.Store) -> None:
    with raises("invalid_argument"):
        job.init(store=store, world_size=2 + job.rank)


def _unknown_option(job: Job, store: dist.Store) -> None:
    if job.rank == 1:
        os.environ["TOPOCOLL_COMIT"] = "strict"
    with raises("invalid_argument", "TOPOCOLL_COMIT"):
        job.init(store=store)


def _resources() -> tuple[int, int, int]:
    """Descriptors, threads, and mappings of shared segments, whose names src/transport/shm/segment.cc gives."""
    gc.collect()  # exceptions that were caught hold groups in cycles
    with open("/proc/self/maps") as maps:
        segments = sum(1 for line in maps if re.search(r"/memfd:topocoll\b|/topocoll-[0-9a-f]+ \(deleted\)$", line))
    return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task")), segments


def _repeatedly(job: Job, once: Callable[[Job, dist.Store], None]) -> None:
    for number in range(8):
        once(job, job.store(str(number)))
        if number == 2:  # by then everything is loaded
            before = _resources()
    assert _resources() == before and before[2] == 0


@pytest.mark.parametrize(
    "once", [_good_order, _mismatch, _timeout, _killed_peer, _missing_rank, _wrong_size, _unknown_option]
)
def test_nothing_is_leaked(once: Callable[[Job, dist.Store], None]) -> None:
    results(2, _repeatedly, once, init=False)


def _segments(job: Job) -> int:
    return _resources()[2]


@pytest.mark.parametrize("backing", ["memfd", "devshm"])
def test_segments_are_seen(backing: str) -> None:
    """What the other tests count is there while a group is."""
    assert min(results(2, _segments, environment={"TOPOCOLL_SHM_BACKING": backing})) >= 1
