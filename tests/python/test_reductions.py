"""Reductions with every type and operation, against a reference (rows 1, 10, 11, 13 and 15 to 19)."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
import torch.distributed as dist
from harness import Job, backend, raises, results
from reference import (
    ALL, COMPLEX, FLOATS, INTEGERS, NAMES, OPAQUE, OPS, TINY_FLOATS, bytes_of, defined, reduced, same, sample,
)

RANKS = [1, 2, 3, 4]
COUNTS = [0, 1, 7, 64, 1000]


def _pairs() -> list[tuple[torch.dtype, Any]]:
    # torch's own functions refuse some pairs in Python before the backend sees them; those have their own test.
    return [(t, op) for t in ALL for op in NAMES if defined(op, t) and not (t in COMPLEX and op == OPS.PRODUCT)]


def _reductions(job: Job) -> list[str]:
    wrong = []
    for count, (dtype, op) in itertools.product(COUNTS, _pairs()):
        label = f"{dtype} {NAMES[op]} x {count}"
        inputs = [sample(dtype, count, r) for r in range(job.ranks)]
        expected = reduced(inputs, op)
        mine = inputs[job.rank].clone()
        dist.all_reduce(mine, op)
        if not same(mine, expected):
            wrong.append(f"all_reduce {label}")
        root = count % job.ranks
        mine = inputs[job.rank].clone()
        dist.reduce(mine, root, op)
        # Row 19: what is not the root keeps its input.
        if not same(mine, expected if job.rank == root else inputs[job.rank]):
            wrong.append(f"reduce {label}")
        parts = [[sample(dtype, count, r, f"to {d}") for d in range(job.ranks)] for r in range(job.ranks)]
        expected = reduced([parts[r][job.rank] for r in range(job.ranks)], op)
        output = torch.empty_like(expected)
        dist.reduce_scatter(output, parts[job.rank], op)
        if not same(output, expected):
            wrong.append(f"reduce_scatter {label}")
        output = torch.empty_like(expected)
        dist.reduce_scatter_tensor(output, torch.cat(parts[job.rank]), op)
        if not same(output, expected):
            wrong.append(f"reduce_scatter_tensor {label}")
    return wrong


@pytest.mark.parametrize("ranks", RANKS)
def test_reductions(ranks: int) -> None:
    """Rows 11 to 17: all_reduce, reduce, reduce_scatter and reduce_scatter_tensor."""
    assert results(ranks, _reductions) == [[]] * ranks


def _uneven_reduce_scatter(job: Job) -> None:
    lists = [[sample(torch.float32, 3 * d + 1, r, f"to {d}") for d in range(job.ranks)] for r in range(job.ranks)]
    output = torch.empty(3 * job.rank + 1)
    dist.reduce_scatter(output, lists[job.rank])
    assert same(output, reduced([parts[job.rank] for parts in lists], OPS.SUM))


def test_reduce_scatter_of_uneven_sizes() -> None:
    """Row 9."""
    results(3, _uneven_reduce_scatter)


def _complex(job: Job) -> None:
    value = torch.tensor([1 + 2j, -1j], dtype=torch.complex64)
    for op in (OPS.MAX, OPS.MIN, OPS.PRODUCT, OPS.BAND):
        with raises(ValueError):
            dist.all_reduce(value.clone(), op)
    # Straight to the backend, which sees the complex type.
    options = dist.AllreduceOptions()
    options.reduceOp = OPS.PRODUCT
    mine = value.clone()
    backend().allreduce([mine], options).wait()
    assert torch.allclose(mine, value**job.ranks)
    options.reduceOp = OPS.MAX
    with raises("invalid_argument", "max of c64"):
        backend().allreduce([mine], options)


def test_complex_numbers() -> None:
    """Row 10."""
    results(2, _complex)


def _bools(job: Job) -> None:
    for op in (OPS.SUM, OPS.MAX, OPS.BOR):
        flags = torch.tensor([True, job.rank == 0, False])
        dist.all_reduce(flags, op)
        assert bytes_of(flags) == [1, 1, 0]
    for op in (OPS.PRODUCT, OPS.MIN, OPS.BAND):
        flags = torch.tensor([True, job.rank == 0, False])
        dist.all_reduce(flags, op)
        assert bytes_of(flags) == [1, 0, 0]
    with raises("invalid_argument", "avg of bool"):
        dist.all_reduce(torch.tensor([True]), OPS.AVG)


def test_sum_of_bools_is_or_and_stays_a_bool() -> None:
    """Row 11."""
    results(3, _bools)


def _narrow_floats(job: Job) -> list[list[int]]:
    bits = []
    for dtype, count in itertools.product([torch.float16, torch.bfloat16, *TINY_FLOATS], [1, 1000, 300_000]):
        # Row r has `big` on rank r and 1 on the others. `big` is where the type's numbers are 2 apart: added one by
        # one in the type itself the ones are lost, in float32 they make big + 3, which rounds to big + 4.
        big = 2 / torch.finfo(dtype).eps
        mine = torch.ones(job.ranks, count)
        mine[job.rank] = big
        mine = mine.to(dtype)
        flat = mine.flatten().clone()
        expected = torch.full_like(mine, big + 4)
        dist.all_reduce(mine)
        assert same(mine, expected), f"all_reduce {dtype} x {count}"
        part = torch.empty_like(mine[0])
        dist.reduce_scatter_tensor(part, flat)
        assert same(part, expected[0]), f"reduce_scatter_tensor {dtype} x {count}"
        dist.reduce(flat, 1)
        assert job.rank != 1 or same(flat, expected.flatten()), f"reduce {dtype} x {count}"
        bits.append(bytes_of(mine[:, :1]))
    return bits


def test_narrow_floats_accumulate_in_float32_and_agree() -> None:
    """Row 13: sums that come out otherwise where a partial sum is rounded, whatever the order."""
    bits = results(4, _narrow_floats)
    assert all(b == bits[0] for b in bits)


def _averages(job: Job) -> None:
    for dtype in FLOATS:
        inputs = [sample(dtype, 33, r) for r in range(job.ranks)]
        expected = reduced(inputs, OPS.AVG)
        mine = inputs[job.rank].clone()
        dist.all_reduce(mine, OPS.AVG)
        assert same(mine, expected)
        out = torch.empty(33, dtype=dtype)
        dist.reduce_scatter_tensor(out, inputs[job.rank].repeat(job.ranks), OPS.AVG)
        assert same(out, expected)
    for dtype in INTEGERS:
        mine = torch.tensor([job.rank + 1, 0, 7], dtype=dtype)
        dist.all_reduce(mine, OPS.AVG)
        total = sum(r + 1 for r in range(job.ranks))
        assert mine.tolist() == [total // job.ranks, 0, 7]
    mine = torch.tensor([-1 if job.rank else 0])
    dist.all_reduce(mine, OPS.AVG)
    assert mine.item() == 0  # toward zero, as documented


def _averages_of_extremes(job: Job) -> None:
    for dtype in [*INTEGERS, torch.float16]:
        most = torch.iinfo(dtype).max if dtype in INTEGERS else torch.finfo(dtype).max
        mine = torch.tensor([most], dtype=dtype)
        dist.all_reduce(mine, OPS.AVG)
        assert mine.item() == most, dtype


def test_averages() -> None:
    """Row 15."""
    results(3, _averages)


def test_averages_do_not_overflow() -> None:
    """Row 15."""
    results(4, _averages_of_extremes)


def _coalesced_averages(job: Job) -> None:
    n, mean = job.ranks, (job.ranks + 1) / 2  # of 1, 2, ..., n
    tensors = [torch.full((k + 1,), job.rank + 1.0) for k in range(5)]
    with dist._coalescing_manager():
        for tensor in tensors:
            dist.all_reduce(tensor, OPS.AVG)
    assert [t.tolist() for t in tensors] == [[mean] * (k + 1) for k in range(5)]
    outputs = [torch.empty(k + 1) for k in range(5)]
    with dist._coalescing_manager():
        for k, output in enumerate(outputs):
            dist.reduce_scatter_tensor(output, torch.full((n * (k + 1),), job.rank + 1.0), OPS.AVG)
    assert [t.tolist() for t in outputs] == [[mean] * (k + 1) for k in range(5)]
    # Sums and means in one group, each call on its own.
    total, average = torch.full((2,), job.rank + 1.0), torch.full((2,), job.rank + 1.0)
    with dist._coalescing_manager(device=torch.device("cpu")):
        dist.all_reduce(total)
        dist.reduce(average, 0, OPS.AVG)
    assert total.tolist() == [n * mean] * 2
    assert average.tolist() == [mean if job.rank == 0 else job.rank + 1.0] * 2


def test_averages_in_coalesced_calls() -> None:
    """Row 15."""
    results(3, _coalesced_averages)


def _premul(job: Job) -> None:
    inputs = [sample(torch.float32, 10, r) for r in range(job.ranks)]
    for factor in (0.5, torch.tensor([0.5])):
        op = dist._make_nccl_premul_sum(factor)
        mine = inputs[job.rank].clone()
        dist.all_reduce(mine, op)
        assert torch.allclose(mine, 0.5 * sum(inputs))
        out = torch.empty(10)
        dist.reduce_scatter_tensor(out, inputs[job.rank].repeat(job.ranks), op)
        assert torch.allclose(out, 0.5 * sum(inputs))
    with raises("invalid_argument", "premul_sum of i32"):
        dist.all_reduce(torch.ones(2, dtype=torch.int32), dist._make_nccl_premul_sum(2.0))


def test_premultiplied_sums_with_both_kinds_of_factor() -> None:
    """Row 16."""
    results(2, _premul)


def _bitwise_floats(job: Job) -> None:
    for op in (OPS.BAND, OPS.BOR, OPS.BXOR):
        with raises(RuntimeError, "of f32 is not defined"):
            dist.all_reduce(torch.ones(2), op)
    dist.barrier()  # the group goes on


def test_bitwise_operations_refuse_floats() -> None:
    """Row 17."""
    results(2, _bitwise_floats)


def _undefined_types(job: Job) -> None:
    for dtype, op in itertools.product(OPAQUE, NAMES):
        mine = torch.zeros(8, dtype=torch.uint8).view(dtype)
        options = dist.AllreduceOptions()
        options.reduceOp = op
        with raises("invalid_argument", rf"^invalid_argument: all_reduce: {NAMES[op]} of \w+ is not defined$"):
            backend().allreduce([mine], options)  # past torch, which takes complex numbers for pairs of reals
    dist.barrier()  # the group goes on


def test_types_without_arithmetic_are_moved_and_not_reduced() -> None:
    """Row 14."""
    results(2, _undefined_types)


def _wrapped(job: Job) -> None:
    def wrap(value: int, dtype: torch.dtype) -> int:
        low, bits = torch.iinfo(dtype).min, torch.iinfo(dtype).bits
        return (value - low) % 2**bits + low

    for dtype in INTEGERS:
        values = [torch.iinfo(dtype).max, torch.iinfo(dtype).min, torch.iinfo(dtype).max // 2 + 1, 7]
        mine = torch.tensor(values, dtype=dtype)
        dist.all_reduce(mine, OPS.PRODUCT)
        assert mine.tolist() == [wrap(v**job.ranks, dtype) for v in values], dtype
        mine = torch.tensor(values, dtype=dtype)
        dist.all_reduce(mine)
        assert mine.tolist() == [wrap(v * job.ranks, dtype) for v in values], dtype


def test_sums_and_products_of_integers_wrap() -> None:
    """Row 18: modulo two to the power of the type's bits, as torch's own."""
    results(3, _wrapped)


def _nans(job: Job) -> list[str]:
    results_here = []
    for op in (OPS.MIN, OPS.MAX):
        mine = torch.tensor([float("nan") if job.rank == 1 else 1.0, 2.0, float("inf")])
        dist.all_reduce(mine, op)
        assert mine[0].isnan() and mine[1] == 2.0
        results_here.append(str(mine.tolist()))
    mine = torch.full((3,), 1e30)
    dist.all_reduce(mine, OPS.PRODUCT)
    assert mine.isinf().all()
    return results_here


def test_nan_and_overflow_are_the_same_everywhere() -> None:
    """Row 18."""
    seen = results(3, _nans)
    assert all(s == seen[0] for s in seen)


def _sparse(job: Job) -> None:
    indices = torch.tensor([[job.rank, 3, 3]])
    mine = torch.sparse_coo_tensor(indices, torch.tensor([1.0, 2.0, 3.0]), (6,))
    dense = sum(
        torch.sparse_coo_tensor(torch.tensor([[r, 3, 3]]), torch.tensor([1.0, 2.0, 3.0]), (6,)).to_dense()
        for r in range(job.ranks)
    )
    dist.all_reduce(mine)
    assert torch.equal(mine.to_dense(), dense)
    rows = torch.sparse_coo_tensor([[job.rank]], torch.ones(1, 2, 2), (4, 2, 2))  # sparse and dense dimensions
    work = dist.all_reduce(rows, async_op=True)
    work.wait()
    assert work.result()[0].to_dense().sum().item() == 4.0 * job.ranks
    empty = torch.sparse_coo_tensor(torch.empty(1, 0, dtype=torch.long), torch.empty(0), (6,))
    dist.all_reduce(empty)
    assert empty.to_dense().tolist() == [0.0] * 6
    mean = torch.sparse_coo_tensor(indices, torch.tensor([1.0, 2.0, 3.0]), (6,))
    dist.all_reduce(mean, OPS.AVG)
    assert torch.allclose(mean.to_dense(), dense / job.ranks)
    with raises("invalid_argument", "AVG of sparse tensors needs a floating-point type"):
        dist.all_reduce(torch.sparse_coo_tensor(indices, torch.tensor([1, 2, 3]), (6,)), OPS.AVG)
    with raises("invalid_argument", "SUM and AVG"):
        dist.all_reduce(mine, OPS.MAX)
    with raises("mismatch", "another shape"):
        dist.all_reduce(torch.sparse_coo_tensor([[0]], [1.0], (6 + job.rank,)))


def test_sparse_all_reduce() -> None:
    """Row 15: the mean too."""
    results(3, _sparse)
