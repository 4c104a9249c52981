"""What collectives are to compute: inputs that every rank can make for all, precise results; and a call of each."""

from __future__ import annotations

import datetime
import zlib
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from harness import backend

FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
TINY_FLOATS = [torch.float8_e4m3fn, torch.float8_e5m2]
INTEGERS = [
    torch.uint8, torch.int8, torch.uint16, torch.int16, torch.uint32, torch.int32, torch.uint64, torch.int64,
]
COMPLEX = [torch.complex64, torch.complex128]
ALL = [torch.bool, *INTEGERS, *FLOATS, *TINY_FLOATS, *COMPLEX]
# All others that torch has, without arithmetic: moved as bytes.
OPAQUE = sorted({t for t in vars(torch).values() if isinstance(t, torch.dtype)} - {*ALL}, key=str)

OPS = dist.ReduceOp
NAMES = {
    OPS.SUM: "sum", OPS.AVG: "avg", OPS.PRODUCT: "prod", OPS.MIN: "min", OPS.MAX: "max",
    OPS.BAND: "band", OPS.BOR: "bor", OPS.BXOR: "bxor",
}


def defined(op: OPS.RedOpType, dtype: torch.dtype) -> bool:
    if op in (OPS.BAND, OPS.BOR, OPS.BXOR):
        return dtype == torch.bool or dtype in INTEGERS
    if op in (OPS.MIN, OPS.MAX):
        return dtype not in COMPLEX
    if op == OPS.AVG:
        return dtype != torch.bool
    return True


def sample(dtype: torch.dtype, count: int, rank: int, label: str = "") -> torch.Tensor:
    """The input of `rank`: the same wherever it is made. Small values, so that sums and products stay exact
    or well within range."""
    seed = zlib.crc32(f"{dtype} {count} {rank} {label}".encode())
    generator = torch.Generator().manual_seed(seed)
    if dtype == torch.bool:
        return torch.randint(0, 2, (count,), generator=generator).to(torch.bool)
    if dtype.is_complex:
        parts = torch.randint(-4, 5, (2, count), generator=generator).to(torch.float64) / 4
        return torch.complex(parts[0], parts[1]).to(dtype)
    if dtype.is_floating_point:
        return (torch.randint(-8, 9, (count,), generator=generator).to(torch.float64) / 4).to(dtype)
    low = 0 if not dtype.is_signed else -3
    return torch.randint(low, 4, (count,), generator=generator).to(dtype)


def reduced(inputs: list[torch.Tensor], op: OPS.RedOpType) -> torch.Tensor:
    """The reduction in rank order, in float64, complex128 or int64, then rounded once to the type."""
    dtype = inputs[0].dtype
    if dtype == torch.bool:
        wide = [x.to(torch.int64) for x in inputs]
    elif dtype.is_complex:
        wide = [x.to(torch.complex128) for x in inputs]
    elif dtype.is_floating_point:
        wide = [x.to(torch.float64) for x in inputs]
    else:
        wide = [x.to(torch.int64) for x in inputs]
    total = wide[0].clone()
    for x in wide[1:]:
        if op in (OPS.SUM, OPS.AVG):
            total = total + x
        elif op == OPS.PRODUCT:
            total = total * x
        elif op == OPS.MIN:
            total = torch.minimum(total, x)
        elif op == OPS.MAX:
            total = torch.maximum(total, x)
        elif op == OPS.BAND:
            total = total & x
        elif op == OPS.BOR:
            total = total | x
        else:
            total = total ^ x
    if op == OPS.AVG:
        if dtype.is_floating_point or dtype.is_complex:
            total = total / len(inputs)
        else:
            total = torch.div(total, len(inputs), rounding_mode="trunc")
    if dtype == torch.bool:
        return total != 0
    return total.to(dtype)


def same(got: torch.Tensor, expected: torch.Tensor) -> bool:
    """Exact for everything but what float32 and complex64 accumulation may round otherwise than float64."""
    if got.dtype != expected.dtype or got.shape != expected.shape:
        return False
    if not got.is_contiguous():
        got = got.contiguous()
    if got.dtype in (torch.float16, torch.bfloat16, *TINY_FLOATS):
        return torch.equal(got.to(torch.float32), expected.to(torch.float32))
    if got.dtype in (torch.float32, torch.float64, *COMPLEX):
        return torch.allclose(got, expected, rtol=1e-6, atol=1e-6)
    return torch.equal(got.view(torch.uint8), expected.view(torch.uint8))


def bytes_of(tensor: torch.Tensor) -> list[int]:
    return tensor.contiguous().view(torch.uint8).flatten().tolist()


def _ones(count: int = 1) -> list[torch.Tensor]:
    return [torch.ones(1) for _ in range(count)]


def collectives(
    group: dist.ProcessGroup, asynchronous: bool, timeout: datetime.timedelta | None = None
) -> dict[str, Callable[[], Any]]:
    """A call of each collective in a group of two, past torch.distributed's own functions. Roots are rank 0."""
    first = group.rank() == 0
    one, two = torch.ones(1), torch.ones(2)

    def of(kind: str) -> Any:
        options = getattr(torch._C._distributed_c10d, kind)()
        if timeout is not None:
            options.timeout = timeout
        options.asyncOp = asynchronous
        return options

    return {
        "allreduce": lambda: group.allreduce([one], of("AllreduceOptions")),
        "allreduce of sparse": lambda: group.allreduce([one.to_sparse()], of("AllreduceOptions")),
        "allreduce_coalesced": lambda: group.allreduce_coalesced(_ones(2), of("AllreduceCoalescedOptions")),
        "broadcast": lambda: group.broadcast([one], of("BroadcastOptions")),
        "reduce": lambda: group.reduce([one], of("ReduceOptions")),
        "allgather": lambda: group.allgather([_ones(2)], [one], of("AllgatherOptions")),
        "_allgather_base": lambda: group._allgather_base(two, one, of("AllgatherOptions")),
        # Past the group, which keeps this one's timeout to itself (and allgather_into_tensor_coalesced's).
        "allgather_coalesced": lambda: backend(group).allgather_coalesced(
            [_ones(), _ones()], [one], of("AllgatherOptions")
        ),
        "reduce_scatter": lambda: group.reduce_scatter([one], [_ones(2)], of("ReduceScatterOptions")),
        "_reduce_scatter_base": lambda: group._reduce_scatter_base(one, two, of("ReduceScatterOptions")),
        "reduce_scatter_tensor_coalesced": lambda: group.reduce_scatter_tensor_coalesced(
            [one], [two], of("ReduceScatterOptions")
        ),
        "gather": lambda: group.gather([_ones(2)] if first else [], [one], of("GatherOptions")),
        "scatter": lambda: group.scatter([one], [_ones(2)] if first else [], of("ScatterOptions")),
        "alltoall": lambda: group.alltoall(_ones(2), _ones(2), of("AllToAllOptions")),
        "alltoall_base": lambda: group.alltoall_base(two, torch.ones(2), [], [], of("AllToAllOptions")),
        "barrier": lambda: group.barrier(of("BarrierOptions")),
    }
