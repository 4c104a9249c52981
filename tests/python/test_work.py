"""Work objects: waiting, futures, errors, hooks, the profiler (rows 33 to 36)."""

from __future__ import annotations

import datetime
import operator
import threading
import time
from typing import Any

import pytest
import torch
import torch.distributed as dist
from harness import Job, backend, raises, results, until
from reference import collectives


def _wait(job: Job) -> None:
    tensor = torch.ones(8)
    if job.rank == 1:
        time.sleep(1.0)
    work = dist.all_reduce(tensor, async_op=True)
    if job.rank == 0:
        started = time.monotonic()
        with raises("timeout", "Operation timed out!"):
            work.wait(datetime.timedelta(milliseconds=200))
        assert 0.15 < time.monotonic() - started < 0.9
        assert not work.is_completed()
    assert work.wait()
    assert tensor.tolist() == [2.0] * 8 and work.is_completed() and work.is_success()
    assert work.wait(datetime.timedelta(milliseconds=1))  # has ended: no time is needed


def test_a_wait_that_times_out_leaves_the_operation_alive() -> None:
    """Row 33."""
    results(2, _wait)


def _after_success(job: Job) -> None:
    for asynchronous in (True, False):
        tensor = torch.ones(3)
        options = dist.AllreduceOptions()
        options.asyncOp = asynchronous
        work = backend().allreduce([tensor], options)
        assert work.wait() is True
        assert work.is_completed() and work.is_success()
        assert work.exception() is None
        assert work.result()[0].data_ptr() == tensor.data_ptr()
        work.synchronize()
        value = work.get_future().value()
        assert value[0].tolist() == [float(job.ranks)] * 3
        assert work.get_future_result().wait() == 0
        assert work.seq > 0
    with raises("invalid_argument", "source rank"):
        work.source_rank()
    future = dist.barrier(async_op=True).get_future()
    assert future.wait() == []
    outputs = [torch.empty(1) for _ in range(job.ranks)]
    future = dist.all_gather(outputs, torch.ones(1), async_op=True).get_future()
    assert [[t.item() for t in ts] for ts in future.wait()] == [[1.0] * job.ranks]


def test_after_success() -> None:
    """Rows 34 and 35."""
    results(2, _after_success)


def _same_tensors(value: Any, flat: list[torch.Tensor]) -> bool:
    tensors = [t for part in value for t in (part if isinstance(part, list) else [part])]
    return len(tensors) == len(flat) and all(map(operator.is_, tensors, flat))


def _every_future(job: Job, asynchronous: bool) -> None:
    works = {name: call() for name, call in collectives(dist.group.WORLD, asynchronous).items()}
    nothing = torch.empty(0)
    works["allreduce of nothing"] = dist.all_reduce(nothing, async_op=True)
    works["send"] = backend().send([torch.ones(1)], 1 - job.rank, 0)
    works["recv"] = backend().recv([torch.ones(1)], 1 - job.rank, 0)
    works["send to any"] = backend().send([torch.ones(1)], 1 - job.rank, 1)
    works["recv_anysource"] = backend().recv_anysource([torch.ones(1)], 1)
    backend()._start_coalescing()
    backend().allreduce([torch.ones(1)])
    backend().allgather([[torch.ones(1), torch.ones(1)]], [torch.ones(1)])
    works["group"] = backend()._end_coalescing()
    backend()._start_coalescing()
    works["empty group"] = backend()._end_coalescing()
    for name, work in works.items():
        future = work.get_future()
        value = future.wait()
        assert isinstance(value, list) and _same_tensors(value, work.result()), name
        without = ["barrier", "empty group"] + ["gather"] * (job.rank != 0)
        assert bool(value) == (name not in without), name
        assert future.done() and work.is_success() and work.get_future().value() is not None, name
        assert work.get_future_result().wait() == 0, name
    assert works["allreduce of nothing"].get_future().value()[0].shape == (0,)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_every_kind_of_work_has_a_future(asynchronous: bool) -> None:
    """Row 35: with the output tensors as its value, also where nothing is sent."""
    results(2, _every_future, asynchronous)


def _futures(job: Job) -> None:
    seen: list[float] = []

    def chain(future: Any) -> torch.Tensor:
        # A callback that waits for another collective: it must not hold up the group.
        second = dist.all_reduce(torch.ones(1), async_op=True).get_future().wait()[0]
        seen.append(future.value()[0].item() + second.item())
        return second

    chained = dist.all_reduce(torch.ones(1), async_op=True).get_future().then(chain)
    chained.wait()
    assert seen == [2.0 * job.ranks]
    # Three deep.
    def deeper(level: int) -> Any:
        def go(future: Any) -> Any:
            if level == 0:
                return future.value()[0]
            return dist.all_reduce(torch.ones(1), async_op=True).get_future().then(deeper(level - 1)).wait()

        return go

    result = dist.all_reduce(torch.ones(1), async_op=True).get_future().then(deeper(3)).wait()
    assert result.item() == job.ranks
    # Futures asked for before, during and after.
    works = [dist.all_reduce(torch.ones(1000), async_op=True) for _ in range(50)]
    futures = [work.get_future() for work in works[::2]]
    for future in futures:
        assert future.wait()[0][0].item() == job.ranks
    for work in works:
        work.wait()
    assert all(work.get_future().done() for work in works)


def test_callbacks_of_futures_may_wait_for_others() -> None:
    results(2, _futures)


def _dropped(job: Job) -> None:
    for k in range(20):
        dist.all_reduce(torch.full((10_000,), float(k)), async_op=True)  # neither Work nor tensor is kept
    tensor = torch.ones(1)
    dist.all_reduce(tensor)
    assert tensor.item() == job.ranks
    strided = torch.zeros(20_000)
    dist.all_reduce(strided[::2].add_(1), async_op=True)
    dist.barrier()
    until(lambda: strided[0].item() == job.ranks)
    assert strided[::2].eq(job.ranks).all() and strided[1::2].eq(0).all()


def test_tensors_live_as_long_as_the_operation() -> None:
    results(2, _dropped)


def _mixed(job: Job) -> None:
    # Blocking calls behind queued ones keep the order of the calls.
    tensor = torch.ones(1)
    for _ in range(30):
        work = dist.all_reduce(tensor, async_op=True)
        dist.broadcast(tensor, 0)
        work.wait()
        tensor.div_(job.ranks)
        dist.barrier()
    assert tensor.item() == 1.0


def test_blocking_and_queued_calls_keep_their_order() -> None:
    results(3, _mixed)


def _hooks(job: Job) -> None:
    infos: list[Any] = []
    pg = dist.group.WORLD
    backend()._enable_collectives_timing()
    pg._register_on_completion_hook(lambda info: infos.append((info.op_type, info.seq, info.active_duration)))
    assert pg._has_hooks()
    work = dist.all_reduce(torch.ones(10), async_op=True)
    dist.broadcast(torch.ones(1), 0)
    work.wait()
    pg._wait_for_pending_works()
    until(lambda: len(infos) >= 2)
    names = [str(info[0]) for info in infos]
    assert any("ALLREDUCE" in n for n in names) and any("BROADCAST" in n for n in names)
    assert sorted(info[1] for info in infos) == [1, 2]
    assert all(info[2] >= datetime.timedelta(0) for info in infos)
    assert work._get_duration() >= 0


def test_completion_hooks_and_timing() -> None:
    results(2, _hooks)


def _profiler(job: Job) -> None:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as profile:
        work = dist.all_reduce(torch.ones(10), async_op=True)
        work.wait()
        dist.barrier()
        (dist.send if job.rank == 0 else dist.recv)(torch.ones(1), 1 - job.rank)
    names = {event.name for event in profile.events()}
    assert {"topocoll:all_reduce", "topocoll:barrier"} <= names
    assert ("topocoll:send" if job.rank == 0 else "topocoll:recv") in names
    assert "record_param_comms" in names


def test_the_profiler_sees_operations_by_name() -> None:
    results(2, _profiler)


def _barriers(job: Job) -> None:
    dist.barrier(device_ids=[0])
    work = dist.barrier(async_op=True)
    work.wait()
    started = time.monotonic()
    if job.rank == 0:
        time.sleep(0.5)
    dist.barrier()
    assert job.rank == 0 or time.monotonic() - started > 0.3


def test_barriers() -> None:
    """Row 36."""
    results(2, _barriers)


def _sequence(job: Job) -> None:
    number = backend()._get_sequence_number_for_group
    assert number() == 0
    dist.all_reduce(torch.ones(1))
    work = dist.all_reduce(torch.ones(1), async_op=True)
    assert number() == work.seq == 2
    work.wait()
    if job.rank == 0:
        dist.send(torch.ones(1), 1)
    else:
        dist.recv(torch.ones(1), 0)
    with raises("invalid_argument"):
        dist.all_reduce(torch.ones(1), dist.ReduceOp.BAND)
    backend()._set_sequence_number_for_group()
    assert number() == 2
    backend().commit()
    assert backend().committed == 2


def test_sequence_numbers_count_collectives_from_0() -> None:
    results(2, _sequence)


def _threads(job: Job) -> None:
    stop = threading.Event()
    ticks = [0]

    def tick() -> None:
        while not stop.is_set():
            ticks[0] += 1
            time.sleep(0.001)

    thread = threading.Thread(target=tick)
    thread.start()
    if job.rank == 0:
        time.sleep(1.0)
    before = ticks[0]
    dist.all_reduce(torch.ones(1))
    if job.rank == 1:
        assert ticks[0] - before > 20  # other threads of Python went on meanwhile
    if job.rank == 0:
        time.sleep(1.0)
    before = ticks[0]
    dist.all_reduce(torch.ones(1), async_op=True).wait()
    if job.rank == 1:
        assert ticks[0] - before > 20
    stop.set()
    thread.join()


def test_waiting_lets_go_of_the_gil() -> None:
    results(2, _threads)
