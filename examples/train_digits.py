#!/usr/bin/env python3
"""Trains a small convolutional network on real handwritten digits, in parallel, through topocoll.

    torchrun --standalone --nproc-per-node 2 examples/train_digits.py
    torchrun --standalone --nproc-per-node 2 examples/train_digits.py --parallel fsdp2
    torchrun --standalone --nproc-per-node 2 examples/train_digits.py --compare gloo

The data are the 1797 digits that ship with scikit-learn. With --compare the same training, from the same
seed, runs again through the other backend, and the program fails unless the final weights agree.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import time

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

WEIGHT_TOLERANCE = 1e-6


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", default="topocoll", help="torch.distributed backend (topocoll)")
    parser.add_argument("--parallel", choices=("ddp", "fsdp2"), default="ddp", help="how to share the work (ddp)")
    parser.add_argument("--compare", metavar="BACKEND", help="train again through this backend and compare weights")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--batch", type=int, default=64, help="digits per step, over all ranks (64)")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--save", metavar="FILE", help="write the trained weights here")
    parser.add_argument("--load", metavar="FILE", help="start from these weights")
    return parser.parse_args()


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, padding=1)
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1)
        self.hidden = nn.Linear(32 * 4 * 4, 64)
        self.output = nn.Linear(64, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.conv1(images))
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.output(F.relu(self.hidden(x.flatten(1))))


class Digits:
    """Images and labels, the same split on every rank: four fifths to learn from, one fifth to test with."""

    def __init__(self, seed: int) -> None:
        digits = load_digits()
        images = torch.from_numpy((digits.images / 16.0).astype(np.float32)).unsqueeze(1)
        labels = torch.from_numpy(digits.target).long()
        order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
        cut = len(order) * 4 // 5
        self.train = images[order[:cut]], labels[order[:cut]]
        self.test = images[order[cut:]], labels[order[cut:]]


def parallel(model: nn.Module, kind: str) -> nn.Module:
    if kind == "ddp":
        return nn.parallel.DistributedDataParallel(model)
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in (model.conv1, model.conv2, model.hidden):
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def full_weights(model: nn.Module) -> dict[str, torch.Tensor]:
    """The whole weights on every rank, however they are spread."""
    weights = {}
    for name, value in model.state_dict().items():
        whole = value.full_tensor() if hasattr(value, "full_tensor") else value
        weights[name.removeprefix("module.")] = whole.detach().clone()
    return weights


def accuracy(model: nn.Module, digits: Digits) -> float:
    """Each rank looks at its share of the test images; the counts are summed."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    images, labels = digits.test
    model.eval()
    with torch.no_grad():
        # Equal shares, padded by repetition: under FSDP every rank must call the model alike.
        share = -(-len(labels) // ranks)
        mine = torch.arange(rank * share, (rank + 1) * share)
        right = model(images[mine % len(labels)]).argmax(1) == labels[mine % len(labels)]
    model.train()
    counts = torch.tensor([right[mine < len(labels)].sum().item(), (mine < len(labels)).sum().item()])
    dist.all_reduce(counts)
    return counts[0].item() / counts[1].item()


def train(args: argparse.Namespace, backend: str, run: str, digits: Digits) -> dict[str, torch.Tensor]:
    # One store serves both runs; gloo would trip over the keys of an earlier group in it.
    store, rank, ranks = next(dist.rendezvous("env://"))
    dist.init_process_group(backend, store=dist.PrefixStore(run, store), rank=rank, world_size=ranks)
    torch.manual_seed(args.seed)
    network = Network()
    if args.load:
        network.load_state_dict(torch.load(args.load, weights_only=True))
    model = parallel(network, args.parallel)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    images, labels = digits.train
    share = args.batch // ranks
    steps_per_epoch = len(labels) // (share * ranks)
    shuffle = torch.Generator().manual_seed(args.seed)
    if rank == 0:
        print(f"{args.parallel} on {ranks} ranks through {backend}", flush=True)
    started = time.perf_counter()
    for epoch in range(args.epochs):
        order = torch.randperm(len(labels), generator=shuffle)
        total = torch.zeros(())
        for step in range(steps_per_epoch):
            first = (step * ranks + rank) * share
            mine = order[first : first + share]
            loss = F.cross_entropy(model(images[mine]), labels[mine])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach()
        dist.all_reduce(total)
        if rank == 0 and (epoch % 4 == 3 or epoch == args.epochs - 1):
            print(f"  epoch {epoch + 1:3}  loss {total.item() / (steps_per_epoch * ranks):.4f}", flush=True)
    seconds = time.perf_counter() - started
    right = accuracy(model, digits)
    if rank == 0:
        print(f"  accuracy {100 * right:.2f} %   {args.epochs * steps_per_epoch / seconds:.1f} steps/s", flush=True)
    weights = full_weights(model)
    # The group is left after its last user is gone: gloo's own destructor may hang if DDP is the one to run it.
    del model, optimizer, network, loss
    gc.collect()
    dist.destroy_process_group()
    return weights


def main() -> int:
    args = arguments()
    if "RANK" not in os.environ:
        sys.exit("start this under torchrun: torchrun --standalone --nproc-per-node 2 " + sys.argv[0])
    torch.set_num_threads(1)
    digits = Digits(args.seed)
    weights = train(args, args.backend, "first", digits)
    first = int(os.environ["RANK"]) == 0
    if args.save and first:
        torch.save(weights, args.save)
    if args.compare:
        other = train(args, args.compare, "second", digits)
        worst = max((weights[name] - other[name]).abs().max().item() for name in weights)
        agree = worst <= WEIGHT_TOLERANCE
        if first:
            verdict = "agree" if agree else "DIFFER"
            print(f"weights through {args.backend} and {args.compare} {verdict}: largest difference {worst:.3g}")
        return 0 if agree else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
