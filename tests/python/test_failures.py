"""What happens when ranks disagree, die, stay away or fork (rows 4, 5, 30 to 32, 40, 43)."""

from __future__ import annotations

import datetime
import os
import signal
import socket
import sys
import threading
import time
from typing import Any

import pytest
import torch
import torch.distributed as dist
from harness import Job, backend, describe, raises, results, run, until


def _mismatch(job: Job, kind: str) -> tuple[Any, ...]:
    odd = job.rank == 1
    with raises("mismatch") as caught:
        if kind == "shape":
            dist.all_reduce(torch.ones(4 if odd else 3))
        elif kind == "type":
            dist.all_reduce(torch.ones(3, dtype=torch.float64 if odd else torch.float32))
        elif kind == "operation":
            dist.all_reduce(torch.ones(3), dist.ReduceOp.MAX if odd else dist.ReduceOp.SUM)
        elif kind == "root":
            dist.broadcast(torch.ones(3), 1 if odd else 0)
        elif kind == "collective":
            dist.barrier() if odd else dist.all_reduce(torch.ones(3))
        elif kind == "asynchronous":
            dist.all_reduce(torch.ones(5 if odd else 3), async_op=True).wait()
    text = str(caught[0])
    assert "all_reduce" in text or "broadcast" in text
    return describe(caught[0])


@pytest.mark.parametrize("kind", ["shape", "type", "operation", "root", "collective", "asynchronous"])
def test_ranks_that_call_different_things(kind: str) -> None:
    """Rows 4 and 5: the same exception on every rank, and nobody dies."""
    seen = results(3, _mismatch, kind)
    assert seen[0] == seen[1] == seen[2]
    assert seen[0][:2] == ("CollectiveError", "mismatch")


def _untouched(job: Job) -> None:
    tensor = torch.full((3 + job.rank,), 5.0)
    with raises("mismatch", r"rank 0 called all_reduce\(f32 x 3, sum\), rank 1 called all_reduce\(f32 x 4, sum\)"):
        dist.all_reduce(tensor)
    assert tensor.eq(5.0).all()  # compared before anything is written


def test_a_mismatch_is_found_before_outputs_are_written() -> None:
    """Row 4: every rank is told which rank called what."""
    results(2, _untouched)


def _after_failure(job: Job) -> None:
    with raises("mismatch") as first:
        dist.all_reduce(torch.ones(3 + job.rank))
    started = time.monotonic()
    with raises("mismatch") as second:
        dist.barrier()
    with raises("mismatch") as third:
        dist.all_reduce(torch.ones(1), async_op=True).wait()
    with raises("mismatch"):
        dist.send(torch.ones(1), 1 - job.rank)
    assert time.monotonic() - started < 2.0
    assert describe(first[0]) == describe(second[0]) == describe(third[0])
    assert describe(backend().health) == describe(first[0])
    assert "COMM_ERROR" in str(backend().get_error())
    # A new group is not concerned, and neither is a new start.
    dist.destroy_process_group()
    job.init()
    tensor = torch.ones(1)
    dist.all_reduce(tensor)
    assert tensor.item() == job.ranks


def test_after_a_failure_the_group_fails_fast_and_a_new_one_works() -> None:
    """Rows 29 and 30."""
    results(2, _after_failure)


def _killed(job: Job, size: int, asynchronous: bool) -> Any:
    tensor = torch.ones(size)
    for _ in range(3):
        dist.all_reduce(tensor)
    dist.barrier()
    if job.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    started = time.monotonic()
    with raises("peer_died", "rank 1") as caught:
        while True:
            if asynchronous:
                dist.all_reduce(tensor, async_op=True).get_future().wait()
            else:
                dist.all_reduce(tensor)
    assert time.monotonic() - started < 5.0
    with raises("peer_died"):
        dist.barrier()
    return describe(caught[0])


@pytest.mark.parametrize("size", [1, 256, 1_000_000])
@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("commit", ["strict", "chained"])
def test_all_survivors_of_a_killed_rank_raise_the_same(size: int, asynchronous: bool, commit: str) -> None:
    """Row 30."""
    outcomes = run(4, _killed, size, asynchronous, environment={"TOPOCOLL_COMMIT": commit})
    assert outcomes[1].exit_code == -signal.SIGKILL
    seen = [outcomes[r].get() for r in (0, 2, 3)]
    assert seen[0] == seen[1] == seen[2]
    assert seen[0][1] == "peer_died" and seen[0][2] == (1,)


def _killed_while_receiving(job: Job) -> Any:
    dist.barrier()
    if job.rank == 1:
        time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGKILL)
    with raises("peer_died", "rank 1") as caught:
        dist.recv(torch.ones(1), 1)
    return caught[0].culprits


def test_a_receive_from_a_killed_rank_ends() -> None:
    """Row 30."""
    outcomes = run(3, _killed_while_receiving)
    assert [outcomes[r].get() for r in (0, 2)] == [(1,), (1,)]


def _terminated(job: Job) -> Any:
    dist.barrier()
    if job.rank == 0:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(60)
    with raises("peer_died", "rank 0"):
        dist.all_reduce(torch.ones(10))


def test_sigterm_of_one_rank() -> None:
    """Bad input: the signalled rank dies of its signal, the others raise."""
    outcomes = run(3, _terminated)
    assert outcomes[0].exit_code == -signal.SIGTERM
    outcomes[1].get()
    outcomes[2].get()


def _absent(job: Job) -> Any:
    dist.barrier()
    if job.rank in (1, 2):
        time.sleep(3.0)
    with raises("timeout", "rank.*1.*2") as caught:
        dist.all_reduce(torch.ones(1))
    return describe(caught[0])


def test_a_timeout_names_the_absent_ranks_on_every_rank() -> None:
    """Row 31."""
    seen = results(4, _absent, timeout=datetime.timedelta(seconds=1))
    assert len(set(seen)) == 1 and seen[0][2] == (1, 2)


def _leaves(job: Job) -> Any:
    dist.barrier()
    if job.rank == 1:
        dist.destroy_process_group()
        return ()
    with raises("peer_left", "rank 1") as caught:
        dist.all_reduce(torch.ones(1))
    return caught[0].culprits


def test_a_rank_that_leaves_in_good_order() -> None:
    assert results(3, _leaves) == [(1,), (), (1,)]


def _leaves_with_work_in_flight(job: Job) -> tuple[int, ...]:
    store = job.store("leaves")
    dist.barrier()
    if job.rank == 1:
        store.wait(["left"])
        with raises("aborted", "shut down with operations in flight") as caught:
            dist.all_reduce(torch.ones(1))
        return caught[0].culprits
    collective = dist.all_reduce(torch.ones(1), async_op=True)
    receive = dist.irecv(torch.ones(1), 1)
    started = time.monotonic()
    dist.destroy_process_group()
    assert time.monotonic() - started < 8  # the default would be 10
    store.set("left", "")
    with raises("aborted"):
        receive.wait()
    with raises("aborted", "shut down with operations in flight") as caught:
        collective.wait()
    return caught[0].culprits


def test_a_rank_that_leaves_with_work_in_flight() -> None:
    """Row 43: whose peer does not come; it waits as long as for messages, and then all ranks learn of it."""
    assert results(2, _leaves_with_work_in_flight, environment={"TOPOCOLL_DRAIN_MS": "200"}) == [(0,), (0,)]


def _monitored(job: Job, absent: list[int], wait_all: bool) -> str:
    barrier = backend().monitored_barrier
    for _ in range(3):
        barrier(datetime.timedelta(seconds=20), wait_all_ranks=wait_all)
    if job.rank in absent:
        time.sleep(3.0)
        return ""
    with raises(RuntimeError) as caught:
        barrier(datetime.timedelta(milliseconds=1000), wait_all_ranks=wait_all)
    return str(caught[0])


def test_monitored_barrier_names_the_first_missing_rank() -> None:
    """Row 32: torch's own function refuses backends that are not gloo, so it is called on the backend."""
    seen = results(4, _monitored, [1, 3], False)
    assert "Ranks 1 failed to pass monitoredBarrier in 1000 ms" in seen[0]
    assert (
        "Rank 2 successfully reached monitoredBarrier, but received errors while waiting for send/recv from rank 0"
        in seen[2]
    )


def test_monitored_barrier_names_all_missing_ranks() -> None:
    """Row 32."""
    seen = results(4, _monitored, [1, 3], True)
    assert "Ranks 1, 3 failed to pass monitoredBarrier in 1000 ms" in seen[0]


def test_monitored_barrier_without_rank_0() -> None:
    """Row 32."""
    seen = results(3, _monitored, [0], False)
    assert "received errors while waiting for send/recv from rank 0" in seen[1]


def _aborts(job: Job) -> Any:
    dist.barrier()
    if job.rank == 0:
        time.sleep(0.3)
        backend().abort()
        with raises("aborted", "abort"):
            dist.barrier()
        return ("aborted", True)
    started = time.monotonic()
    with raises("aborted", "abort") as caught:
        dist.all_reduce(torch.ones(1))  # rank 0 never joins; its abort wakes us
    return (caught[0].cause, time.monotonic() - started < 10)


def test_abort_wakes_everybody() -> None:
    assert results(3, _aborts) == [("aborted", True)] * 3


def _abort_from_a_thread(job: Job) -> None:
    if job.rank == 1:
        time.sleep(1.5)
        return
    threading.Timer(0.3, dist.distributed_c10d._abort_process_group).start()
    started = time.monotonic()
    with raises("aborted"):
        dist.all_reduce(torch.ones(1))
    assert time.monotonic() - started < 1.4


def test_abort_from_another_thread() -> None:
    run(2, _abort_from_a_thread)[0].get()


def _interrupted(job: Job) -> None:
    if job.rank == 1:
        with raises("aborted"):
            dist.recv(torch.ones(1), src=0)
        return
    main = threading.main_thread()
    reader, writer = socket.socketpair()
    writer.setblocking(False)

    def interrupt() -> None:
        until(lambda: sys._current_frames()[main.ident].f_code.co_name == "all_reduce")
        signal.pthread_kill(main.ident, signal.SIGINT)
        reader.recv(1)  # the signal has come; Python will see to it when it runs again
        dist.distributed_c10d._abort_process_group()

    with reader, writer:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.set_wakeup_fd(writer.fileno())
        thread = threading.Thread(target=interrupt)
        thread.start()
        try:
            with pytest.raises(KeyboardInterrupt):
                dist.all_reduce(torch.ones(1))
        finally:
            signal.set_wakeup_fd(-1)
            thread.join()


def test_ctrl_c_while_an_operation_fails() -> None:
    """The user gets his KeyboardInterrupt, and no exception without the error's attributes in its place."""
    for outcome in run(2, _interrupted):
        outcome.get()


def _dies_in_a_part_of_the_job(job: Job) -> None:
    part = dist.new_group([1, 2])
    if job.rank == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    if job.rank == 1:
        with raises("peer_died") as caught:
            dist.all_reduce(torch.ones(1), group=part)
        assert caught[0].culprits == (1,)
        assert "(rank 1 of this group is rank 2 of the job)" in str(caught[0])
    with raises("peer_died") as caught:
        dist.all_reduce(torch.ones(1))
    assert caught[0].culprits == (2,) and "of the job" not in str(caught[0])


def test_errors_of_a_part_of_the_job_name_the_jobs_ranks_too() -> None:
    for outcome in run(3, _dies_in_a_part_of_the_job)[:2]:
        outcome.get()


def _futures(job: Job) -> None:
    work = dist.all_reduce(torch.ones(3 + job.rank), async_op=True)
    future = work.get_future()
    chained = future.then(lambda f: f.value())
    for attempt in range(2):  # an error may be looked at any number of times
        with raises("mismatch") as caught:
            future.wait()
        with raises("mismatch"):
            work.wait()
    with raises("mismatch"):
        future.value()
    with raises(Exception, "mismatch"):
        chained.wait()
    assert work.is_completed() and not work.is_success()
    assert describe(work.exception()) == describe(caught[0])
    assert work.get_future_result().wait() == 2  # WorkResult.COMM_ERROR


def test_futures_of_failed_operations() -> None:
    results(2, _futures)


def _in_backward(job: Job) -> Any:
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
    model(torch.ones(2, 4)).sum().backward()
    dist.barrier()
    if job.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    with raises("peer_died", "rank 1") as caught:
        while True:
            model(torch.ones(2, 4)).sum().backward()
    return describe(caught[0])


def test_a_failure_in_the_backward_pass_is_a_collective_error() -> None:
    outcomes = run(3, _in_backward)
    assert outcomes[0].get() == outcomes[2].get()


def _attributes(job: Job) -> None:
    import pickle

    import topocoll

    with raises("mismatch") as caught:
        dist.all_reduce(torch.ones(3 + job.rank))
    error = caught[0]
    assert isinstance(error, topocoll.CollectiveError)
    assert isinstance(error, dist.DistBackendError) and isinstance(error, RuntimeError)
    assert error.operation.startswith("all_reduce(f32 x ")
    assert error.cause == "mismatch" and error.seq == 1 and error.epoch >= 1
    assert error.culprit == (error.culprits[0] if error.culprits else None)
    copy = pickle.loads(pickle.dumps(error))
    assert describe(copy) == describe(error) and str(copy) == str(error)


def test_what_the_exception_carries() -> None:
    results(2, _attributes)


def _forks(job: Job) -> None:
    tensor = torch.ones(1)
    dist.all_reduce(tensor)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            dist.all_reduce(torch.ones(1))
            text = "it worked"
        except Exception as error:
            text = f"{getattr(error, 'cause', '')}: {error}"
        os.write(write, text.encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        text = pipe.read()
    assert os.waitpid(child, 0)[1] == 0
    assert text.startswith("unsupported:") and "fork" in text, text
    # A child that ends like any Python process does the parent's group no harm.
    child = os.fork()
    if child == 0:
        dist.destroy_process_group()
        sys.stdout.flush()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    for _ in range(3):
        dist.all_reduce(tensor)
    assert tensor.item() == job.ranks**4


def test_fork_after_init() -> None:
    """Row 40: a clear error in the child, the parent unharmed."""
    results(2, _forks)


def _fork_before(job: Job) -> None:
    import topocoll

    topocoll.version()  # loads the library and probes it
    child = os.fork()
    if child == 0:
        code = 1
        try:
            job.init()
            tensor = torch.ones(1)
            dist.all_reduce(tensor, async_op=True).get_future().wait()
            code = 0 if tensor.item() == job.ranks else 2
            dist.destroy_process_group()
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0


def test_fork_before_init() -> None:
    """Row 40."""
    results(2, _fork_before, init=False)


def _cuda(job: Job) -> None:
    with raises("unsupported", "built without CUDA"):
        backend().eager_connect_single_device(torch.device("cuda:0"))
    with raises("unsupported", "built without CUDA"):
        backend().register_mem_pool(object())


def test_cuda_is_refused_clearly() -> None:
    results(1, _cuda)


def _no_shared_memory(job: Job) -> str:
    with raises("system", "/nowhere") as caught:
        job.init()
    return str(caught[0].cause)


def test_no_directory_for_shared_memory() -> None:
    """Bad input: every rank learns what is missing, and where."""
    results(
        2,
        _no_shared_memory,
        init=False,
        environment={"TOPOCOLL_SHM_BACKING": "devshm", "TOPOCOLL_SHM_DIR": "/nowhere"},
    )


def _thrown_in_one_rank(job: Job) -> None:
    dist.barrier()
    if job.rank == 1:
        raise KeyError("in user code")
    with raises("peer_left", "rank 1"):
        dist.all_reduce(torch.ones(1))


def test_an_exception_in_one_rank() -> None:
    """Bad input: here the process itself goes on until its harness ends it."""
    outcomes = run(3, _thrown_in_one_rank)
    assert isinstance(outcomes[1].error, KeyError)
    outcomes[0].get()
    outcomes[2].get()
