"""Collectives that move data, memory layouts, wrong arguments, coalescing (rows 1, 2, 7 to 9, 12, 14, 20 to 22, 39)."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from harness import Job, backend, raises, results
from reference import ALL, OPAQUE, OPS, bytes_of, reduced, same, sample

RANKS = [1, 2, 3, 4]
COUNTS = [0, 1, 7, 64, 1000]


def _moves(job: Job) -> list[str]:
    wrong: list[str] = []
    n, me = job.ranks, job.rank
    # Opaque types travel as the bytes that uint8 has shown at every size.
    for count, dtype in [*itertools.product(COUNTS, ALL), *itertools.product([0, 7], OPAQUE)]:
        base = torch.uint8 if dtype in OPAQUE else dtype
        size = dtype.itemsize

        def data(rank: int, label: str = "", length: int = count) -> torch.Tensor:
            if dtype in OPAQUE:
                return sample(base, length * size, rank, label).view(dtype)
            return sample(dtype, length, rank, label)

        def check(name: str, got: list[torch.Tensor], expected: list[torch.Tensor]) -> None:
            if [bytes_of(t) for t in got] != [bytes_of(t) for t in expected]:
                wrong.append(f"{name} {dtype} x {count}")

        def blank(length: int = count) -> torch.Tensor:
            return torch.zeros(length * size, dtype=torch.uint8).view(dtype)

        root = count % n
        everyone = [data(r) for r in range(n)]
        mine = data(me)
        dist.broadcast(mine, root)
        check("broadcast", [mine], [everyone[root]])
        outputs = [blank() for _ in range(n)]
        dist.all_gather(outputs, data(me))
        check("all_gather", outputs, everyone)
        flat = blank(n * count)
        dist.all_gather_into_tensor(flat, data(me))
        check("all_gather_into_tensor", list(flat.split(count)) if count else [], everyone if count else [])
        outputs = [blank() for _ in range(n)] if me == root else []
        dist.gather(data(me), outputs or None, root)
        check("gather", outputs, everyone if me == root else [])
        output = blank()
        dist.scatter(output, [data(root, f"to {r}") for r in range(n)] if me == root else None, root)
        check("scatter", [output], [data(root, f"to {me}")])
        flat = blank(n * count)
        sent = torch.cat([data(me, f"to {r}").view(torch.uint8) for r in range(n)]).view(dtype)
        dist.all_to_all_single(flat, sent)
        if count:
            check("all_to_all_single", list(flat.split(count)), [data(r, f"to {me}") for r in range(n)])
        # Rows 9, 21 and 22: sizes by pair of ranks, some of them 0.
        lengths = [[(count * (s + 2 * d)) % 5 for d in range(n)] for s in range(n)]
        outputs = [blank(lengths[r][me]) for r in range(n)]
        dist.all_to_all(outputs, [data(me, f"to {r}", lengths[me][r]) for r in range(n)])
        expected = [data(r, f"to {me}", lengths[r][me]) for r in range(n)]
        check("all_to_all", outputs, expected)
        flat = blank(sum(lengths[r][me] for r in range(n)))
        sent = torch.cat([data(me, f"to {r}", lengths[me][r]).view(torch.uint8) for r in range(n)]).view(dtype)
        dist.all_to_all_single(flat, sent, [lengths[r][me] for r in range(n)], lengths[me])
        check("all_to_all_single with splits", [flat], [torch.cat([e.view(torch.uint8) for e in expected]).view(dtype)])
        outputs = [blank(r) for r in range(n)]
        dist.all_gather(outputs, data(me, "uneven", me))
        check("all_gather of uneven sizes", outputs, [data(r, "uneven", r) for r in range(n)])
    return wrong


@pytest.mark.parametrize("ranks", RANKS)
def test_moves(ranks: int) -> None:
    """Rows 8, 9, 12, 14, 20, 21 and 22: everything that only moves data, for all types by their bytes."""
    assert results(ranks, _moves) == [[]] * ranks


def _large(job: Job) -> None:
    for count in (100_003, 5_000_001):
        inputs = [sample(torch.float32, count, r) for r in range(job.ranks)]
        mine = inputs[job.rank].clone()
        dist.all_reduce(mine)
        assert same(mine, reduced(inputs, OPS.SUM))
        work = dist.broadcast(mine, 1, async_op=True)
        work.wait()
        flat = torch.empty(job.ranks * count)
        dist.all_gather_into_tensor(flat, inputs[job.rank])
        assert torch.equal(flat, torch.cat(inputs))


def test_messages_larger_than_the_shared_segment() -> None:
    results(2, _large)


def _views(rank: int) -> list[torch.Tensor]:
    whole = sample(torch.float32, 24, rank).reshape(4, 6)
    return [
        whole.t(),
        whole[:, ::2],
        whole[1:3, 1:4],
        whole.reshape(1, 2, 3, 4).to(memory_format=torch.channels_last),
        whole[:1].expand(3, 6).clone()[::2],
        torch.complex(whole, whole + 1).conj(),
        torch.complex(whole, whole + 1).conj().imag,  # a view with the negative bit
    ]


def _dense(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.resolve_conj().resolve_neg().contiguous()


def _strided(*shape: int) -> torch.Tensor:
    """Zeros of which none is the next one's neighbour in memory."""
    return torch.zeros(*shape, 2)[..., 0]


def _layouts_in_place(job: Job) -> None:
    n, me = job.ranks, job.rank
    for index in range(len(_views(0))):
        dense = [_dense(_views(r)[index]) for r in range(n)]
        total = reduced(dense, OPS.SUM)
        mine = _views(me)[index]
        if mine.is_conj() or mine.is_neg():  # on its way, torch would put a copy in the view's place
            backend().allreduce([mine]).wait()
        else:
            dist.all_reduce(mine)
        assert torch.allclose(_dense(mine), total), index
        mine = _views(me)[index]
        broadcast = dist.BroadcastOptions()
        broadcast.rootRank = n - 1
        backend().broadcast([mine], broadcast).wait()
        assert torch.equal(_dense(mine), dense[n - 1]), index
        mine = _views(me)[index]
        reduce = dist.ReduceOptions()
        reduce.rootRank = 1
        backend().reduce([mine], reduce).wait()
        assert torch.allclose(_dense(mine), total if me == 1 else dense[me]), index


def _layouts_in_and_out(job: Job) -> None:
    n, me = job.ranks, job.rank
    for index in range(len(_views(0)) - 2):  # those whose real numbers lie in memory as they are
        mine, dense = _views(me)[index], [_dense(_views(r)[index]) for r in range(n)]
        shape = mine.shape

        def check(got: list[torch.Tensor], expected: list[torch.Tensor]) -> None:
            assert len(got) == len(expected)
            assert all(map(torch.allclose, got, expected)), index

        outputs = [_strided(*shape) for _ in range(n)]
        dist.all_gather(outputs, mine)
        check(outputs, dense)
        outputs = [_strided(*shape) for _ in range(n)]
        dist.gather(mine, outputs if me == 1 else None, 1)
        check(outputs if me == 1 else [], dense if me == 1 else [])
        output = _strided(*shape)
        dist.scatter(output, [_views(0)[index]] * n if me == 0 else None, 0)
        check([output], dense[:1])
        output = _strided(*shape)
        dist.reduce_scatter(output, [mine] * n)
        check([output], [reduced(dense, OPS.SUM)])
        outputs = [_strided(*shape) for _ in range(n)]
        dist.all_to_all(outputs, [_views(me + n * r)[index] for r in range(n)])
        check(outputs, [_dense(_views(r + n * me)[index]) for r in range(n)])


def _layouts_of_single_tensors(job: Job) -> None:
    n, me = job.ranks, job.rank
    inputs = [_strided(n, 5).copy_(sample(torch.float32, 5 * n, r).reshape(n, 5)) for r in range(n)]
    gathered, part, exchanged = _strided(n * n, 5), _strided(5), _strided(n, 5)
    dist.all_gather_into_tensor(gathered, inputs[me].contiguous())
    assert torch.equal(gathered, torch.cat(inputs))
    dist.reduce_scatter_tensor(part, inputs[me])
    assert torch.allclose(part, sum(x[me] for x in inputs))
    dist.all_to_all_single(exchanged, inputs[me])
    assert torch.equal(exchanged, torch.stack([x[me] for x in inputs]))
    # In splits: one row for rank 0 and the others for rank 1.
    sizes = [1, n - 1]
    received = _strided(2 * sizes[me], 5)
    dist.all_to_all_single(received, inputs[me], [sizes[me]] * 2, sizes)
    assert torch.equal(received, torch.cat([x.split(sizes)[me] for x in inputs]))


@pytest.mark.parametrize("layouts", [_layouts_in_place, _layouts_in_and_out, _layouts_of_single_tensors])
def test_any_memory_layout(layouts: Callable[[Job], None]) -> None:
    """Row 2: strided, transposed, channels-last, conjugate and negative views, in and out."""
    results(2, layouts)


def _tensor_states(job: Job) -> None:
    leaf = torch.ones(4, requires_grad=True)
    with torch.no_grad():
        dist.all_reduce(leaf)
    assert leaf.tolist() == [job.ranks] * 4
    with torch.inference_mode():
        frozen = torch.ones(2, 3)
    dist.all_reduce(frozen)
    assert frozen.tolist() == [[job.ranks] * 3] * 2
    with torch.inference_mode():
        dist.all_reduce(frozen.t())
    assert frozen.tolist() == [[job.ranks**2] * 3] * 2
    scalar = torch.tensor(3.0)
    dist.all_reduce(scalar)
    assert scalar.item() == 3.0 * job.ranks


def test_leaves_inference_tensors_and_scalars() -> None:
    results(2, _tensor_states)


def _stacked(job: Job) -> None:
    out = torch.empty(job.ranks, 5)
    dist.all_gather_into_tensor(out, torch.full((5,), float(job.rank)))
    assert out.tolist() == [[float(r)] * 5 for r in range(job.ranks)]


def test_all_gather_into_a_stacked_tensor() -> None:
    """Row 8."""
    results(3, _stacked)


def _aliased(job: Job) -> None:
    buffer = torch.zeros(64)
    dist.all_gather([buffer] * job.ranks, torch.full((64,), float(job.rank)))
    assert buffer.tolist() == [job.ranks - 1.0] * 64  # parts take effect in rank order
    # Inputs inside of the outputs.
    whole = torch.arange(float(job.ranks))
    whole[job.rank] = 10.0 + job.rank
    dist.all_gather_into_tensor(whole, whole[job.rank : job.rank + 1])
    assert whole.tolist() == [10.0 + r for r in range(job.ranks)]
    whole = torch.full((job.ranks,), 5.0 + job.rank)
    dist.all_gather_into_tensor(whole, whole[:1])
    assert whole.tolist() == [5.0 + r for r in range(job.ranks)]
    parts = [torch.tensor([float(10 * job.rank + r)]) for r in range(job.ranks)]
    dist.all_to_all(parts, parts)
    assert [p.item() for p in parts] == [10.0 * r + job.rank for r in range(job.ranks)]
    whole = torch.arange(float(job.ranks)) + 1
    dist.reduce_scatter_tensor(whole[:1], whole)
    assert whole[0].item() == job.ranks * (job.rank + 1.0)


def test_tensors_that_overlap() -> None:
    """Row 39."""
    results(3, _aliased)


def _local_errors(job: Job) -> None:
    one, n = torch.ones(4), job.ranks
    with raises("invalid_argument", "3 elements"):
        dist.all_gather_into_tensor(torch.empty(3), one)
    with raises("invalid_argument", "3 elements|not .* times"):
        dist.reduce_scatter_tensor(torch.empty(4), torch.empty(3))
    with raises("invalid_argument", "does not divide"):
        dist.all_to_all_single(torch.empty(n + 1), torch.empty(n + 1))
    with raises("invalid_argument", "do not add up to"):
        dist.all_to_all_single(torch.empty(4), torch.empty(4), [1] * n, [1] * n)
    with raises("invalid_argument", "do not add up to"):
        wraps = [2**63 - 1, 2**63 - 1, 6]  # 4 in 64 bits
        dist.all_to_all_single(torch.empty(4), torch.empty(4), wraps, wraps)
    with raises(Exception, "(?i)type"):
        dist.all_gather_into_tensor(torch.empty(4 * n, dtype=torch.int32), one)
    with raises(Exception, "(?i)type"):
        dist.all_gather([torch.empty(4, dtype=torch.float64)] * n, one)
    with raises("invalid_argument", "own part"):
        dist.all_gather([torch.empty(5) for _ in range(n)], one)
    with raises("invalid_argument", "rank 9"):
        options = dist.BroadcastOptions()
        options.rootRank = 9
        backend().broadcast([one], options)
    with raises("invalid_argument", "one tensor"):
        backend().allreduce([one, one])
    shared = torch.ones(1).expand(4)
    with raises("invalid_argument", "share one memory location"):
        dist.all_reduce(shared)
    with raises("invalid_argument", "share one memory location"):
        dist.broadcast(shared, 0)
    with raises("invalid_argument", "share one memory location"):
        dist.all_gather([shared for _ in range(n)], one)
    with raises("invalid_argument", "share one memory location"):
        dist.recv(shared, (job.rank + 1) % n)
    with raises("unsupported", "CPU tensors"):
        backend().allreduce([torch.empty(2, device="meta")])
    dist.barrier()
    assert backend().health is None


def test_wrong_arguments_fail_here_and_now_and_leave_the_group_alone() -> None:
    """Row 7."""
    results(3, _local_errors)


def _rooted(kind: type, root: int) -> Any:
    options = kind()
    options.rootRank = root
    return options


def _one_rank_errs(job: Job) -> None:
    one, n = torch.ones(4), job.ranks
    mistakes: list[Callable[[], Any]] = [
        lambda: dist.all_reduce(one.expand(2, 4)),
        lambda: dist.all_gather_into_tensor(torch.empty(3), one),
        lambda: dist.all_gather_into_tensor(torch.empty(4 * n, dtype=torch.int32), one),
        lambda: dist.reduce_scatter_tensor(torch.empty(4), torch.empty(3)),
        lambda: dist.reduce_scatter_tensor(torch.empty(4, dtype=torch.int32), torch.empty(4 * n)),
        lambda: dist.reduce_scatter(one, [torch.ones(5)] * n),
        lambda: dist.all_to_all_single(torch.empty(n + 1), torch.empty(n + 1)),
        lambda: backend().alltoall_base(torch.empty(n, dtype=torch.int32), torch.empty(n), [], []),
        lambda: dist.all_to_all_single(torch.empty(n), torch.empty(n), [2] * n, [1] * n),
        lambda: dist.all_to_all([torch.empty(2)] * n, [torch.empty(1)] * n),
        lambda: backend().gather([], [one], _rooted(dist.GatherOptions, job.rank)),
        lambda: backend().scatter([one], [[one] * (n - 1)], _rooted(dist.ScatterOptions, job.rank)),
    ]
    for number, (mistake, who) in enumerate(itertools.product(mistakes, range(n))):
        if job.rank == who:
            with raises("invalid_argument"):
                mistake()
        tensor = torch.ones(1)
        dist.all_reduce(tensor)
        assert tensor.item() == n, number


def test_a_call_that_one_rank_gets_wrong_is_no_call() -> None:
    """Row 7: nothing was sent, so that the others' next collective is that rank's next one."""
    results(3, _one_rank_errs)


def _coalesced(job: Job) -> None:
    n, me = job.ranks, job.rank
    tensors = [torch.full((k + 1,), float(me + k)) for k in range(20)]
    with dist._coalescing_manager():
        for tensor in tensors:
            dist.all_reduce(tensor)
    total = sum(range(n))
    assert all(t.tolist() == [float(total + n * k)] * (k + 1) for k, t in enumerate(tensors))
    outputs = [torch.empty(n * (k + 1)) for k in range(20)]
    with dist._coalescing_manager(async_ops=True) as manager:
        for k, output in enumerate(outputs):
            dist.all_gather_into_tensor(output, torch.full((k + 1,), float(me)))
    manager.wait()
    assert all(o.tolist() == [float(r) for r in range(n) for _ in range(k + 1)] for k, o in enumerate(outputs))
    outputs = [torch.empty(k + 1) for k in range(20)]
    with dist._coalescing_manager():
        for k, output in enumerate(outputs):
            dist.reduce_scatter_tensor(output, torch.ones(n * (k + 1)))
    assert all(o.tolist() == [float(n)] * (k + 1) for k, o in enumerate(outputs))
    # The slow path: a device is given, so each call reaches the backend within one group.
    a, b = torch.ones(3), torch.full((2,), float(me))
    with dist._coalescing_manager(device=torch.device("cpu"), async_ops=True) as manager:
        dist.broadcast(b, 1)
        dist.reduce(a, 0)
    manager.wait()
    assert b.tolist() == [1.0, 1.0] and (me != 0 or a.tolist() == [float(n)] * 3)
    lists = [[torch.empty(2), torch.empty(1)] for _ in range(n)]
    options = dist.distributed_c10d.AllgatherOptions()
    backend().allgather_coalesced(lists, [torch.full((2,), float(me)), torch.full((1,), -1.0)], options).wait()
    assert [[t.tolist() for t in ts] for ts in lists] == [[[float(r)] * 2, [-1.0]] for r in range(n)]
    mixed = [torch.ones(2), torch.ones(3, dtype=torch.int64)]
    backend().allreduce_coalesced(mixed, dist.AllreduceCoalescedOptions()).wait()
    assert [t.tolist() for t in mixed] == [[float(n)] * 2, [n] * 3]


def test_coalesced_collectives_with_many_tensors() -> None:
    results(3, _coalesced)


def _objects(job: Job) -> None:
    gathered: list[Any] = [None] * job.ranks
    dist.all_gather_object(gathered, {"rank": job.rank, "pad": "x" * (100 * job.rank)})
    assert [g["rank"] for g in gathered] == list(range(job.ranks))
    said = [job.rank, "hello"] if job.rank == 0 else [None, None]
    dist.broadcast_object_list(said, 0)
    assert said == [0, "hello"]
    got: list[Any] = [None]
    dist.scatter_object_list(got, [f"for {r}" for r in range(job.ranks)] if job.rank == 0 else None, 0)
    assert got == [f"for {job.rank}"]
    all_of_them: list[Any] | None = [None] * job.ranks if job.rank == 1 else None
    dist.gather_object(job.rank**2, all_of_them, 1)
    assert all_of_them is None or all_of_them == [r**2 for r in range(job.ranks)]


def test_object_collectives() -> None:
    """Row 20: these pass empty lists where a rank is not the root."""
    results(3, _objects)
