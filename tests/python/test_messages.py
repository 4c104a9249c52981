"""send and recv (rows 3, 6, 23 to 26 and 35)."""

from __future__ import annotations

import torch
import torch.distributed as dist
from harness import Job, backend, raises, results
from reference import ALL, OPAQUE, bytes_of, sample


def _types(job: Job) -> None:
    for dtype in [*ALL, *OPAQUE]:
        raw = sample(torch.uint8, 48, 0)
        message = (raw % 2).view(torch.bool) if dtype == torch.bool else raw.view(dtype)
        if job.rank == 0:
            dist.send(message, 1)
        else:
            got = torch.zeros(48, dtype=torch.uint8).view(dtype)
            assert dist.recv(got, 0) == 0  # row 25
            assert bytes_of(got) == bytes_of(message), dtype


def test_every_type() -> None:
    results(2, _types)


def _layouts(job: Job) -> None:
    whole = torch.arange(24.0).reshape(4, 6)
    if job.rank == 0:
        dist.send(whole.t(), 1)
        dist.send(whole[:, ::2], 1)
    else:
        got = torch.zeros(4, 6).t()
        dist.recv(got, 0)
        assert torch.equal(got, whole.t())
        canvas = torch.full((4, 6), -1.0)
        dist.recv(canvas[:, ::2], 0)
        assert torch.equal(canvas[:, ::2], whole[:, ::2]) and (canvas[:, 1::2] == -1).all()


def test_any_memory_layout() -> None:
    """Row 3."""
    results(2, _layouts)


def _sizes(job: Job) -> None:
    for count in (0, 1, 4096, 3_000_000):
        if job.rank == 0:
            dist.send(torch.full((count,), 3.0), 1)
        else:
            got = torch.zeros(count)
            dist.recv(got, 0)
            assert (got == 3.0).all()
    # A message may be shorter than the buffer.
    if job.rank == 0:
        dist.send(torch.ones(2), 1)
    else:
        got = torch.full((4,), 9.0)
        dist.recv(got, 0)
        assert got.tolist() == [1.0, 1.0, 9.0, 9.0]


def test_sizes_from_nothing_to_megabytes() -> None:
    results(2, _sizes)


def _too_long(job: Job) -> None:
    if job.rank == 0:
        dist.isend(torch.ones(4), 1)
    else:
        with raises("mismatch", "rank 0 sent 4 elements of f32 with tag 0, rank 1 has room for 2$"):
            dist.recv(torch.zeros(2), 0)
    dist.barrier()  # the group goes on


def test_message_longer_than_the_buffer() -> None:
    """Row 6: the receiver gets an exception, and nobody dies."""
    results(2, _too_long)


def _tags(job: Job) -> None:
    if job.rank == 0:
        sent = [dist.isend(torch.full((2,), float(tag)), 1, tag=tag) for tag in (3, 1, 2, 1)]
        for work in sent:
            work.wait()
    else:
        order = []
        for tag in (1, 2, 3, 1):
            got = torch.zeros(2)
            dist.recv(got, 0, tag=tag)
            order.append(got[0].item())
        assert order == [1.0, 2.0, 3.0, 1.0]
    # First in, first out within a tag.
    if job.rank == 0:
        for value in range(5):
            dist.send(torch.tensor([value]), 1, tag=7)
    else:
        got = torch.zeros(1, dtype=torch.int64)
        for value in range(5):
            dist.recv(got, 0, tag=7)
            assert got.item() == value
    # Inside of a batch as well.
    if job.rank == 0:
        ops = [dist.P2POp(dist.isend, torch.tensor([float(t)]), 1, tag=t) for t in (5, 4, 6)]
    else:
        buffers = {t: torch.zeros(1) for t in (4, 5, 6)}
        ops = [dist.P2POp(dist.irecv, buffers[t], 0, tag=t) for t in (6, 5, 4)]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    if job.rank == 1:
        assert {t: b.item() for t, b in buffers.items()} == {4: 4.0, 5: 5.0, 6: 6.0}
    with raises("invalid_argument", "tag"):
        backend().send([torch.ones(1)], 1 - job.rank, -1)


def test_tags_are_matched_in_any_order() -> None:
    """Row 23."""
    results(2, _tags)


def _any_source(job: Job) -> None:
    if job.rank == 0:
        seen = {}
        for _ in range(job.ranks - 1):
            got = torch.zeros(1)
            source = dist.recv(got)
            seen[source] = got.item()
        assert seen == {r: float(r) for r in range(1, job.ranks)}
    else:
        dist.send(torch.tensor([float(job.rank)]), 0)
    # In a group, the source is given as a global rank.
    group = dist.new_group([1, 2])
    if job.rank == 2:
        dist.send(torch.tensor([5.0]), 1, group=group)
    elif job.rank == 1:
        got = torch.zeros(1)
        assert dist.recv(got, group=group) == 2
        work = backend().recv([got], 0, 1)
        work.wait()
        assert work.source_rank() == 0
    if job.rank == 0:
        dist.send(torch.zeros(1), 1, tag=1)


def test_receiving_from_any_source() -> None:
    """Row 24."""
    results(3, _any_source)


def _self(job: Job) -> None:
    got = torch.zeros(3)
    sent = backend().send([torch.full((3,), 4.0)], job.rank, 0)
    received = backend().recv([got], job.rank, 0)
    sent.wait()
    received.wait()
    assert got.tolist() == [4.0] * 3
    received = backend().recv([got], job.rank, 0)
    sent = backend().send([torch.full((3,), 5.0)], job.rank, 0)
    received.wait()
    sent.wait()
    assert got.tolist() == [5.0] * 3
    large = torch.arange(1_000_000.0)
    got = torch.zeros(1_000_000)
    works = [backend().send([large], job.rank, 9), backend().recv([got], job.rank, 9)]
    for work in works:
        work.wait()
    assert torch.equal(got, large)
    # Through torch's functions: one by one in both orders, and in a batch.
    message = torch.full((3,), 6.0)
    for first, second in ((dist.isend, dist.irecv), (dist.irecv, dist.isend)):
        got = torch.zeros(3)
        tensors = {dist.isend: message, dist.irecv: got}
        works = [first(tensors[first], job.rank), second(tensors[second], job.rank)]
        for work in works:
            work.wait()
        assert torch.equal(got, message)
        got.zero_()
        for work in dist.batch_isend_irecv([dist.P2POp(op, tensors[op], job.rank) for op in (first, second)]):
            work.wait()
        assert torch.equal(got, message)


def test_sending_to_oneself() -> None:
    """Row 25."""
    results(2, _self)


def _batches(job: Job) -> None:
    n, me = job.ranks, job.rank
    # Everybody to everybody, receives first on odd ranks, with empty messages among them.
    inbox = {r: torch.full((r,), -1.0) for r in range(n) if r != me}
    sends = [dist.P2POp(dist.isend, torch.full((me,), float(r)), r) for r in inbox]
    receives = [dist.P2POp(dist.irecv, buffer, r) for r, buffer in inbox.items()]
    works = dist.batch_isend_irecv(receives + sends if me % 2 else sends + receives)
    assert len(works) == 1  # one Work for the batch
    for work in works:
        work.wait()
    assert all(buffer.tolist() == [float(me)] * r for r, buffer in inbox.items())
    # The same peer several times: order is kept for each pair and direction.
    peer = me ^ 1
    if peer < n:
        buffers = [torch.zeros(1) for _ in range(8)]
        ops = []
        for k, buffer in enumerate(buffers):
            ops.append(dist.P2POp(dist.isend, torch.tensor([10.0 * me + k]), peer))
            ops.append(dist.P2POp(dist.irecv, buffer, peer))
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        assert [b.item() for b in buffers] == [10.0 * peer + k for k in range(8)]
    # Large messages both ways at once.
    if peer < n:
        got = torch.zeros(2_000_000)
        ops = [dist.P2POp(dist.isend, torch.full((2_000_000,), 1.0 + me), peer), dist.P2POp(dist.irecv, got, peer)]
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        assert (got == 1.0 + peer).all()


def test_batches_in_any_order() -> None:
    """Row 26."""
    results(4, _batches)


def _futures(job: Job) -> None:
    if job.rank == 0:
        work = dist.isend(torch.ones(2), 1)
        assert len(work.get_future().wait()) == 1
    else:
        got = torch.zeros(2)
        work = dist.irecv(got, 0)
        future = work.get_future()
        assert future.wait()[0].tolist() == [1.0, 1.0]
        assert work.wait() and work.is_success()


def test_futures_of_messages() -> None:
    """Row 35."""
    results(2, _futures)


def _objects(job: Job) -> None:
    if job.rank == 0:
        dist.send_object_list(["text", {"a": 1}], 1)
    else:
        got = [None, None]
        dist.recv_object_list(got, 0)
        assert got == ["text", {"a": 1}]


def test_objects() -> None:
    results(2, _objects)


def _open_group(job: Job) -> None:
    peer = 1 - job.rank
    got = torch.zeros(1)
    backend()._start_coalescing()
    work = backend().recv([got], peer, 0)
    backend().send([torch.ones(1)], peer, 0)
    assert not work.is_completed()
    with raises("invalid_argument", "inside the coalesced group"):
        work.wait()
    with raises("invalid_argument", "open group already"):
        backend()._start_coalescing()
    backend()._end_coalescing().wait()
    assert work.is_completed() and got.item() == 1.0
    with raises("invalid_argument", "no open group"):
        backend()._end_coalescing()
    backend()._start_coalescing()
    assert backend()._end_coalescing().wait()  # an empty group ends at once


def test_groups_end_as_one() -> None:
    results(2, _open_group)
