"""torch's own users of a backend: DDP, FSDP, DeviceMesh, DTensor, tensor parallel, pipelines, checkpoints, compile."""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch
import torch.distributed as dist
from harness import Job, backend, results
from torch import nn


def _network() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4))


def _batch(rank: int, step: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(100 * step + rank)
    return torch.randn(6, 8, generator=generator), torch.randn(6, 4, generator=generator)


def _alone(ranks: int, steps: int, optimizer: Any = torch.optim.SGD, **options: Any) -> list[torch.Tensor]:
    """What training in parallel must come to: the mean of all ranks' losses."""
    model = _network()
    steps_taken = optimizer(model.parameters(), lr=0.1, **options)
    for step in range(steps):
        steps_taken.zero_grad()
        losses = [nn.functional.mse_loss(model(x), y) for x, y in (_batch(r, step) for r in range(ranks))]
        (sum(losses) / ranks).backward()
        steps_taken.step()
    return [p.detach().clone() for p in model.parameters()]


def _train(job: Job, model: nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> None:
    for step in range(steps):
        x, y = _batch(job.rank, step)
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()


def _whole(parameter: torch.Tensor) -> torch.Tensor:
    return parameter.full_tensor() if hasattr(parameter, "full_tensor") else parameter.detach()


def _check(got: list[torch.Tensor], expected: list[torch.Tensor]) -> None:
    assert len(got) == len(expected)
    for g, e in zip(got, expected):
        assert torch.allclose(g, e, atol=1e-5), (g - e).abs().max()


def _ddp(job: Job) -> None:
    model = nn.parallel.DistributedDataParallel(_network(), bucket_cap_mb=0.0005)  # several buckets
    _train(job, model, torch.optim.SGD(model.parameters(), lr=0.1), 5)
    _check(list(model.parameters()), _alone(job.ranks, 5))
    # Accumulation, unused parameters, static graph, gradients as views, mixed order of use.
    for options in ({"find_unused_parameters": True}, {"static_graph": True}, {"gradient_as_bucket_view": True}):
        model = nn.parallel.DistributedDataParallel(_network(), **options)
        with model.no_sync():
            x, y = _batch(job.rank, 9)
            nn.functional.mse_loss(model(x), y).backward() if "static_graph" not in options else None
        model.zero_grad()
        _train(job, model, torch.optim.SGD(model.parameters(), lr=0.1), 3)
        _check(list(model.parameters()), _alone(job.ranks, 3))


@pytest.mark.parametrize("commit", ["strict", "chained"])
def test_ddp(commit: str) -> None:
    results(2, _ddp, environment={"TOPOCOLL_COMMIT": commit})


def _ddp_hooks(job: Job) -> None:
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

    for hook, state, tolerance in (
        (default_hooks.allreduce_hook, None, 1e-5),
        (default_hooks.fp16_compress_hook, None, 1e-2),
        (default_hooks.bf16_compress_hook, None, 1e-1),
    ):
        model = nn.parallel.DistributedDataParallel(_network())
        model.register_comm_hook(state, hook)
        _train(job, model, torch.optim.SGD(model.parameters(), lr=0.1), 3)
        for got, expected in zip(model.parameters(), _alone(job.ranks, 3)):
            assert torch.allclose(got, expected, atol=tolerance)
    # Its callbacks wait for further collectives.
    model = nn.parallel.DistributedDataParallel(_network())
    state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=2)
    model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    _train(job, model, torch.optim.SGD(model.parameters(), lr=0.1), 6)
    flat = torch.cat([p.detach().flatten() for p in model.parameters()])
    others = [torch.empty_like(flat) for _ in range(job.ranks)]
    dist.all_gather(others, flat)
    assert all(torch.equal(o, flat) for o in others)


def test_ddp_communication_hooks() -> None:
    # torch's PowerSGD synchronizes "cuda" for tensors of the CPU, too, where there is a GPU.
    results(2, _ddp_hooks, environment={"CUDA_VISIBLE_DEVICES": ""})


def _ddp_sparse(job: Job) -> None:
    torch.manual_seed(0)
    model = nn.parallel.DistributedDataParallel(nn.EmbeddingBag(10, 4, sparse=True))
    model(torch.tensor([[job.rank, 5, 7]])).sum().backward()
    grad = model.module.weight.grad
    assert grad.is_sparse
    expected = torch.zeros(10, 4)
    for rank in range(job.ranks):
        for row in (rank, 5, 7):
            expected[row] += 1.0 / 3 / job.ranks
    assert torch.allclose(grad.to_dense(), expected)


def test_ddp_with_sparse_gradients() -> None:
    results(2, _ddp_sparse)


def _uneven(job: Job) -> None:
    from torch.distributed.algorithms.join import Join

    steps = [2 + 3 * rank for rank in range(job.ranks)]
    model = nn.parallel.DistributedDataParallel(_network())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Join([model]):
        _train(job, model, optimizer, steps[job.rank])
    # A rank that has ended counts as one without a gradient, and gets the others' weights at the end.
    plain = _network()
    reference = torch.optim.SGD(plain.parameters(), lr=0.1)
    for step in range(max(steps)):
        reference.zero_grad()
        batches = [_batch(rank, step) for rank in range(job.ranks) if step < steps[rank]]
        (sum(nn.functional.mse_loss(plain(x), y) for x, y in batches) / job.ranks).backward()
        reference.step()
    _check(list(model.parameters()), list(plain.parameters()))


def test_ddp_with_uneven_inputs() -> None:
    results(2, _uneven)


def _zero(job: Job) -> None:
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = nn.parallel.DistributedDataParallel(_network())
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.01)
    _train(job, model, optimizer, 4)
    plain = _network()
    reference = torch.optim.Adam(plain.parameters(), lr=0.01)
    for step in range(4):
        reference.zero_grad()
        losses = [nn.functional.mse_loss(plain(x), y) for x, y in (_batch(r, step) for r in range(job.ranks))]
        (sum(losses) / job.ranks).backward()
        reference.step()
    _check(list(model.parameters()), list(plain.parameters()))
    optimizer.consolidate_state_dict(0)


def test_zero_redundancy_optimizer() -> None:
    results(2, _zero)


def _differentiable(job: Job) -> None:
    from torch.distributed.nn import functional

    x = torch.full((2,), float(job.rank + 1), requires_grad=True)
    functional.all_reduce(x).sum().backward()
    assert x.grad.tolist() == [float(job.ranks)] * 2
    x.grad = None
    torch.stack(functional.all_gather(x)).pow(2).sum().backward()
    assert x.grad.tolist() == [2.0 * (job.rank + 1) * job.ranks] * 2
    x.grad = None
    functional.reduce_scatter(torch.empty(1), [x[:1], x[1:]]).backward()
    assert x.grad.tolist() == [1.0, 1.0]
    y = torch.arange(2.0, requires_grad=True)
    functional.all_to_all_single(torch.empty(2), y).sum().backward()
    assert y.grad.tolist() == [1.0, 1.0]
    z = torch.ones(1, requires_grad=True)
    functional.broadcast(z * (job.rank + 1), 0).sum().backward()


def test_differentiable_collectives() -> None:
    results(2, _differentiable)


def _fsdp1(job: Job) -> None:
    from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy

    for strategy in (ShardingStrategy.FULL_SHARD, ShardingStrategy.SHARD_GRAD_OP, ShardingStrategy.NO_SHARD):
        model = FullyShardedDataParallel(
            _network(),
            sharding_strategy=strategy,
            auto_wrap_policy=ModuleWrapPolicy({nn.Linear}),
            device_id=torch.device("cpu"),
            use_orig_params=True,
        )
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        _train(job, model, optimizer, 4)
        with FullyShardedDataParallel.summon_full_params(model):
            _check(list(model.parameters()), _alone(job.ranks, 4))
        norm = model.clip_grad_norm_(0.1)
        assert norm > 0


def test_fsdp1() -> None:
    results(2, _fsdp1)


def _fsdp2(job: Job) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    mesh = init_device_mesh("cpu", (job.ranks,))
    model = _network()
    for layer in (model[0], model[2], model[4]):
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    _train(job, model, torch.optim.SGD(model.parameters(), lr=0.1), 4)
    _check([_whole(p) for p in model.parameters()], _alone(job.ranks, 4))
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    assert _whole(norm).item() > 0
    # bf16 gradients, and a factor of one's own to divide them by (PREMUL_SUM).
    model = _network()
    fully_shard(model, mesh=mesh, mp_policy=MixedPrecisionPolicy(torch.bfloat16, torch.bfloat16))
    model.set_gradient_divide_factor(float(job.ranks))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(2):
        x, y = _batch(job.rank, step)
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x).float(), y).backward()
        optimizer.step()
    for got, expected in zip(model.parameters(), _alone(job.ranks, 2)):
        assert torch.allclose(_whole(got), expected, atol=0.05)


def test_fsdp2() -> None:
    results(2, _fsdp2)


def _hybrid(job: Job) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    model = _network()
    fully_shard(model, mesh=mesh)
    _train(job, model, torch.optim.SGD(model.parameters(), lr=0.1), 3)
    _check([_whole(p) for p in model.parameters()], _alone(job.ranks, 3))


def test_hybrid_sharding() -> None:
    results(4, _hybrid)


def _mesh(job: Job) -> None:
    from torch.distributed.device_mesh import init_device_mesh

    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "model"))
    assert backend(mesh.get_group("data")).name() == "topocoll"
    tensor = torch.tensor([float(job.rank)])
    dist.all_reduce(tensor, group=mesh.get_group("model"))
    assert tensor.item() == (1.0 if job.rank < 2 else 5.0)
    tensor = torch.tensor([float(job.rank)])
    dist.all_reduce(tensor, group=mesh["data"].get_group())
    assert tensor.item() == (2.0 if job.rank % 2 == 0 else 4.0)
    flat = mesh._flatten("all")
    tensor = torch.tensor([1.0])
    dist.all_reduce(tensor, group=flat.get_group())
    assert tensor.item() == 4.0


def test_device_mesh() -> None:
    results(4, _mesh)


def _dtensor(job: Job) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (job.ranks,))
    torch.manual_seed(0)
    whole = torch.randn(7, 5)  # does not divide
    rows = distribute_tensor(whole, mesh, [Shard(0)])
    columns = rows.redistribute(mesh, [Shard(1)])
    assert torch.equal(columns.full_tensor(), whole)
    assert torch.equal(columns.redistribute(mesh, [Replicate()]).to_local(), whole)
    partial = DTensor.from_local(whole, mesh, [Partial()])
    assert torch.allclose(partial.redistribute(mesh, [Shard(0)]).full_tensor(), job.ranks * whole)
    assert torch.allclose(partial.full_tensor(), job.ranks * whole)
    averaged = DTensor.from_local(whole, mesh, [Partial("avg")])
    assert torch.allclose(averaged.full_tensor(), whole)
    assert torch.allclose(rows.sum().full_tensor(), whole.sum())
    other = distribute_tensor(whole.t().contiguous(), mesh, [Shard(0)])
    assert torch.allclose((columns @ other).full_tensor(), whole @ whole.t(), atol=1e-5)


def test_dtensor() -> None:
    results(3, _dtensor)


def _tensor_parallel(job: Job) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh = init_device_mesh("cpu", (job.ranks,))

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.up = nn.Linear(8, 16)
            self.down = nn.Linear(16, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.down(torch.relu(self.up(x)))

    torch.manual_seed(1)
    plain = Block()
    torch.manual_seed(1)
    split = parallelize_module(Block(), mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    x = torch.randn(4, 8, generator=torch.Generator().manual_seed(2))
    assert torch.allclose(split(x), plain(x), atol=1e-5)
    split(x).sum().backward()
    plain(x).sum().backward()
    assert torch.allclose(split.up.weight.grad.full_tensor(), plain.up.weight.grad, atol=1e-5)


def test_tensor_parallel() -> None:
    results(2, _tensor_parallel)


def _pipeline(job: Job) -> None:
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe, ScheduleInterleaved1F1B

    torch.manual_seed(0)
    stages = [nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(2 * job.ranks)]
    x = torch.randn(8, 8)
    y = torch.randn(8, 8)

    def run(schedule: Any) -> Any:
        losses: list[torch.Tensor] = []
        if job.rank == 0:
            return schedule.step(x, target=y, losses=losses) if job.ranks == 1 else schedule.step(x)
        return schedule.step(target=y, losses=losses)

    whole = nn.Sequential(*stages[: job.ranks])
    expected = whole(x)
    nn.functional.mse_loss(expected, y).backward()
    wanted = stages[job.rank][0].weight.grad.clone()
    for kind in (ScheduleGPipe, Schedule1F1B):
        for stage in stages:
            stage.zero_grad()
        mine = PipelineStage(stages[job.rank], job.rank, job.ranks, torch.device("cpu"))
        output = run(kind(mine, n_microbatches=4, loss_fn=nn.functional.mse_loss))
        if job.rank == job.ranks - 1:
            assert torch.allclose(output, expected, atol=1e-5)
        assert torch.allclose(stages[job.rank][0].weight.grad, wanted, atol=1e-5)
    for stage in stages:
        stage.zero_grad()
    whole = nn.Sequential(*stages)
    expected = whole(x)
    nn.functional.mse_loss(expected, y).backward()
    own = range(job.rank, 2 * job.ranks, job.ranks)
    wanted = [stages[k][0].weight.grad.clone() for k in own]
    for stage in stages:
        stage.zero_grad()
    both = [PipelineStage(stages[k], k, 2 * job.ranks, torch.device("cpu")) for k in own]
    output = run(ScheduleInterleaved1F1B(both, n_microbatches=4, loss_fn=nn.functional.mse_loss))
    if job.rank == job.ranks - 1:
        assert torch.allclose(output, expected, atol=1e-5)
    _check([stages[k][0].weight.grad for k in own], wanted)


def test_pipelines() -> None:
    results(2, _pipeline)


def _checkpoint(job: Job) -> None:
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import (
        get_model_state_dict, get_state_dict, set_model_state_dict, set_state_dict,
    )
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (job.ranks,))
    model = fully_shard(_network(), mesh=mesh)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    _train(job, model, optimizer, 2)
    where = os.path.join(job.directory, "checkpoint")
    weights, moments = get_state_dict(model, optimizer)
    dcp.save({"weights": weights, "moments": moments}, checkpoint_id=where)
    saved = [_whole(p).clone() for p in model.parameters()]
    _train(job, model, optimizer, 2)
    weights, moments = get_state_dict(model, optimizer)
    dcp.load({"weights": weights, "moments": moments}, checkpoint_id=where)
    set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=moments)
    _check([_whole(p) for p in model.parameters()], saved)
    later = os.path.join(job.directory, "later")
    dcp.async_save({"weights": weights}, checkpoint_id=later).result()
    _train(job, model, optimizer, 2)
    weights = get_model_state_dict(model)
    dcp.load({"weights": weights}, checkpoint_id=later)
    set_model_state_dict(model, weights)
    _check([_whole(p) for p in model.parameters()], saved)


@pytest.mark.parametrize("backend", ["topocoll", "cpu:topocoll"])
def test_checkpoints(backend: str) -> None:
    results(2, _checkpoint, backend=backend)


def _functional(job: Job) -> None:
    import torch.distributed._functional_collectives as funcol

    group = dist.group.WORLD
    x = torch.full((4,), float(job.rank))
    assert funcol.all_reduce(x, "sum", group).tolist() == [float(sum(range(job.ranks)))] * 4
    assert funcol.all_gather_tensor(x, 0, group).tolist() == [float(r) for r in range(job.ranks) for _ in range(4)]
    assert funcol.reduce_scatter_tensor(torch.ones(4), "sum", 0, group).tolist() == [float(job.ranks)] * 2
    assert funcol.broadcast(x, 1, group).tolist() == [1.0] * 4
    assert funcol.all_to_all_single(torch.arange(2.0), None, None, group).numel() == 2
    several = funcol.all_reduce_coalesced([torch.ones(2), torch.ones(3)], "sum", group)
    assert [t.tolist() for t in several] == [[2.0] * 2, [2.0] * 3]
    several = funcol.all_gather_into_tensor_coalesced([x, x + 1], group)
    assert [t.numel() for t in several] == [8, 8]
    several = funcol.reduce_scatter_tensor_coalesced([torch.ones(4), torch.ones(2)], "sum", [0, 0], group)
    assert [t.tolist() for t in several] == [[2.0] * 2, [2.0]]


def test_functional_collectives() -> None:
    results(2, _functional)


def _compiled(job: Job) -> None:
    import torch.distributed._functional_collectives as funcol

    group = dist.group.WORLD

    def step(x: torch.Tensor) -> torch.Tensor:
        total = funcol.all_reduce(x * 2, "sum", group)
        whole = funcol.all_gather_tensor(total + 1, 0, group)
        return funcol.reduce_scatter_tensor(whole, "sum", 0, group) + x

    x = torch.arange(6.0) + job.rank
    expected = step(x)
    got = torch.compile(step, fullgraph=True)(x)
    assert torch.allclose(got, expected)

    def classic(x: torch.Tensor) -> torch.Tensor:
        y = x.clone()
        dist.all_reduce(y)
        return y + 1

    assert torch.allclose(torch.compile(classic)(x), classic(x))
    model = nn.parallel.DistributedDataParallel(_network())
    fast = torch.compile(model)
    _train(job, fast, torch.optim.SGD(model.parameters(), lr=0.1), 2)
    _check(list(model.parameters()), _alone(job.ranks, 2))


@pytest.mark.slow
def test_torch_compile() -> None:
    results(2, _compiled, seconds=400)
