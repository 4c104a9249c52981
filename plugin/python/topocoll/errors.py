"""The exception that topocoll raises."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch.distributed import DistBackendError


class CollectiveError(DistBackendError):
    """An operation of a topocoll group failed.

    If the failure concerns the group, every rank that stays in it raises this with the same ``cause``,
    ``culprits``, ``epoch`` and ``seq``, from the failed operation and from every later one. If it concerns the
    caller's own arguments (``cause == "invalid_argument"``), the group goes on.
    """

    operation: str
    """The operation in words, for example ``"all_reduce(f32 x 1024, sum)"``; empty if none is concerned."""
    cause: str
    """``"invalid_argument"``, ``"mismatch"``, ``"peer_died"``, ``"peer_left"``, ``"timeout"``, ``"aborted"``,
    ``"resource"``, ``"system"``, ``"version"``, ``"unsupported"``, ``"excluded"`` or ``"internal"``."""
    culprit: int | None
    """The first of ``culprits``."""
    culprits: tuple[int, ...]
    """Ranks within the group that are to blame, ascending; empty if none is."""
    epoch: int
    """The group's epoch in which the operation failed."""
    seq: int
    """Number of the first operation that did not commit; 0 if none is concerned."""

    def __init__(
        self,
        message: str,
        *,
        operation: str = "",
        cause: str = "internal",
        culprit: int | None = None,
        culprits: Iterable[int] = (),
        epoch: int = 0,
        seq: int = 0,
    ) -> None:
        super().__init__(message)
        self.operation = operation
        self.cause = cause
        self.culprit = culprit
        self.culprits = tuple(culprits)
        self.epoch = epoch
        self.seq = seq

    def __reduce__(self) -> tuple[Any, ...]:
        # Exceptions are pickled on their way from a worker process to its parent.
        return _rebuild, (str(self), dict(self.__dict__))


def _rebuild(message: str, fields: dict[str, Any]) -> CollectiveError:
    error = CollectiveError(message)
    error.__dict__.update(fields)
    return error
