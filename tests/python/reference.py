"""What the collectives are to compute: inputs that every rank can make for all, and results in high precision."""

from __future__ import annotations

import zlib

import torch
import torch.distributed as dist

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
