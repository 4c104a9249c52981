"""Time that runs out (row 44): of a call's own options, of the group, and of messages."""

from __future__ import annotations

import datetime
import time
from typing import Any

import pytest
import torch
import torch.distributed as dist
from harness import PATIENCE, Job, backend, describe, raises, results
from reference import collectives

SHORT = datetime.timedelta(milliseconds=300)
# What the group allows: a call that forgot its own limit takes that long.
LONG = datetime.timedelta(seconds=20 * PATIENCE)


def _late(job: Job, asynchronous: bool) -> dict[str, tuple[Any, ...]]:
    """Rank 1 comes to each collective after rank 0 has given up all of them."""
    store, seen = job.store("late"), {}
    names = list(collectives(dist.group.WORLD, asynchronous))
    groups = [dist.new_group([0, 1], timeout=LONG) for _ in names]  # a timeout ends the group
    if job.rank == 1:
        store.wait(["given up"], LONG)
    for name, group in zip(names, groups):
        started = time.monotonic()
        with raises("timeout", "rank 1") as caught:
            work = collectives(group, asynchronous, SHORT)[name]()
            if work is not None:
                work.wait()
        assert time.monotonic() - started < LONG.total_seconds() / 2, name
        seen[name] = describe(caught[0])
    if job.rank == 0:
        store.set("given up", "")
    return seen


@pytest.mark.parametrize("asynchronous", [False, True])
def test_the_timeout_of_a_call_holds_for_every_collective(asynchronous: bool) -> None:
    """Row 44: and both ranks get the same error, which names the one that was late."""
    first, second = results(2, _late, asynchronous)
    assert first == second
    assert all(error[2] == (1,) for error in first.values()), first


def _receives(job: Job) -> None:
    store = job.store("receives")
    if job.rank == 1:
        store.wait(["given up"], LONG)
        dist.send(torch.tensor([7.0]), 0)
        return
    got = torch.zeros(1)
    backend().set_timeout(SHORT)
    for source in (1, None):
        with raises("timeout"):
            dist.recv(got, source)
        with raises("timeout"):
            dist.irecv(got, source).wait()
        with raises("timeout"):
            dist.batch_isend_irecv([dist.P2POp(dist.irecv, got, 1)])[0].wait()
    assert backend().health is None
    backend().set_timeout(LONG)
    store.set("given up", "")
    assert dist.recv(got, 1) == 1 and got.item() == 7.0  # no message went to a receive that had given up


def test_a_receive_that_times_out_does_so_alone() -> None:
    """Row 44: of any source too; the group goes on."""
    results(2, _receives, timeout=LONG)


def _sends(job: Job) -> tuple[Any, ...]:
    store = job.store("sends")
    large = torch.ones(4_000_000)
    if job.rank == 0:
        backend().set_timeout(SHORT)
        with raises("timeout", "rank 1") as caught:
            dist.send(large, 1)
        store.set("given up", "")
    else:
        store.wait(["given up"], LONG)
        with raises("timeout") as caught:
            dist.recv(large, 0)
    with raises("timeout"):
        dist.barrier()
    return describe(caught[0])[1:]


def test_a_large_send_that_times_out_ends_the_group() -> None:
    """Row 44: half of the message may be on its way, so nothing can follow it."""
    first, second = results(2, _sends, timeout=LONG)
    assert first == second
