"""The epochs of a training, in one process or in several processes that divide each batch among them.

The weights are the same, bit for bit, for 1, 2, 4 and 8 processes.
"""

# A batch is cut into eight shards. The gradient of each shard is computed separately, and the eight gradients are added as a
# binary tree: ((0 + 1) + (2 + 3)) + ((4 + 5) + (6 + 7)). Each process computes a whole branch of the tree. Pairs of processes
# then exchange the sums of their branches: first the processes whose ranks are 1 apart, then 2 apart, then 4 apart.
#
# Sums of floats depend on the order of additions. Here the order is the same for 1, 2, 4 and 8 processes. Therefore the weights
# are also the same, bit for bit. `DistributedDataParallel` is not used, because it adds around a ring of processes: the order
# of its additions depends on the number of processes.

from collections.abc import Callable, Iterator
from math import sqrt
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from training.recipes.network.job_files import Encoded, Job, State, forget, keep
from training.recipes.network.model import HIDDEN_SHARE, MASKS, ORDER, SHARDS, Parameters, chance, forward, settled, views

BETAS = (0.9, 0.999)
EPSILON = 1e-8


class Share(NamedTuple):
    """The part of each batch that one process computes, given by the rank of the process and the number of processes."""

    rank: int = 0
    processes: int = 1


def processes(most: int) -> int:
    """Return the number of processes to use: the largest power of two that is at most `most` and at most `SHARDS`."""
    return 1 << min(most, SHARDS).bit_length() - 1


def train(folder: Path, job: Job, rows: Encoded, state: State, epochs: int, share: Share, device: str = "cpu") -> None:
    """Train all epochs after `state`, up to `epochs` epochs.

    Rank 0 writes a checkpoint after each epoch and removes the previous checkpoint of this call.
    """
    for after in run(job, rows, state, epochs, share, device):
        if share.rank == 0:
            keep(folder, job, after)
            if after.epoch - 1 > state.epoch:
                forget(folder, after.epoch - 1)


def run(job: Job, rows: Encoded, state: State, epochs: int, share: Share, device: str = "cpu") -> Iterator[State]:
    """Train all epochs after `state`, up to `epochs`, and yield the state after each epoch.

    Every process of the group calls this function with the same arguments except `share`. The last batch of an epoch may have
    fewer rows than the others.
    """
    torch = settled()
    steps = state.steps
    data = [torch.tensor(array, device=device) for array in rows]
    weights, mean, square = vectors = [torch.tensor(array, device=device) for array in state[2:]]
    parts = [part.detach().requires_grad_() for part in views(weights, job.shapes)]
    for epoch in range(state.epoch, epochs):
        order = chance(job.seed, ORDER, epoch).permutation(len(rows.outcomes))
        for step, start in enumerate(range(0, len(order), job.parameters.batch)):
            shards = np.array_split(order[start : start + job.parameters.batch], SHARDS)
            batch = ShardedBatch(job, data, parts, shards, (job.seed, MASKS, epoch, step))
            steps += 1
            adam(weights, summed(batch.gradient, share), mean, square, steps, job.parameters)
        yield State(epoch + 1, steps, *(vector.cpu().numpy().copy() for vector in vectors))


def adam(weights: Any, gradient: Any, mean: Any, square: Any, steps: int, parameters: Parameters) -> None:
    """Apply one step of AdamW (Loshchilov and Hutter, 2019) in place, to the weights and the moments of their gradient."""
    # torch's implementation gives the same result but takes a second of CPU to import a compiler that is not used here.
    weights.mul_(1 - parameters.learning_rate * parameters.weight_decay)
    mean.lerp_(gradient, 1 - BETAS[0])
    square.mul_(BETAS[1]).addcmul_(gradient, gradient, value=1 - BETAS[1])
    scale = square.sqrt().div_(sqrt(1 - BETAS[1] ** steps)).add_(EPSILON)
    weights.addcdiv_(mean, scale, value=-parameters.learning_rate / (1 - BETAS[0] ** steps))


def added(gradient: Callable[[int], Any], begin: int, count: int) -> Any:
    """Return the sum of the gradients of `count` shards, from `begin` on. `count` is a power of two."""
    if count == 1:
        return gradient(begin)
    half = count // 2
    return added(gradient, begin, half).add_(added(gradient, begin + half, half))


def summed(gradient: Callable[[int], Any], share: Share) -> Any:
    """Return the sum of the gradients of all shards, which all processes compute together."""
    shards_per_process = SHARDS // share.processes
    total = added(gradient, share.rank * shards_per_process, shards_per_process)
    distance = 1
    while distance < share.processes:
        total += exchanged(total, share.rank ^ distance)
        distance *= 2
    return total


def exchanged(local_sum: Any, peer: int) -> Any:
    """Exchange partial sums with the process of rank `peer`, and return the sum of that process."""
    import torch
    from torch import distributed

    peer_sum = torch.empty_like(local_sum)
    both = [distributed.P2POp(distributed.isend, local_sum, peer), distributed.P2POp(distributed.irecv, peer_sum, peer)]
    for request in distributed.batch_isend_irecv(both):
        request.wait()
    return peer_sum


class ShardedBatch(NamedTuple):
    """One batch, divided into shards.

    Attributes:
        job: The training job.
        data: Three tensors of all encoded training rows: numeric values, indices of strings, and labels.
        parts: The weights: the embedding tables, then the matrix and the bias of each layer.
        shards: For each shard, the indices of its rows.
        place: The key from which the batch's random numbers are seeded.
    """

    job: Job
    data: list[Any]
    parts: list[Any]
    shards: list[Any]
    place: tuple[int, ...]

    def gradient(self, shard: int) -> Any:
        """Return a shard's contribution to the gradient of the batch's mean loss, as a flat vector."""
        import torch

        draw = chance(*self.place, shard)
        device = self.data[0].device
        chosen = torch.from_numpy(self.shards[shard]).to(device)
        numbers, names, outcomes = (array.index_select(0, chosen) for array in self.data)
        hidden = torch.from_numpy(draw.random(tuple(names.shape), np.float32) < HIDDEN_SHARE).to(device)
        outputs = forward(self.parts, numbers, names.masked_fill(hidden, 0), self._masks(draw, len(chosen), device))
        loss = self.job.head.loss(outputs, outcomes) / sum(map(len, self.shards))
        return torch.cat([part.reshape(-1) for part in torch.autograd.grad(loss, self.parts)])

    def _masks(self, draw: np.random.Generator, rows: int, device: Any) -> list[Any]:
        import torch

        parameters = self.job.parameters
        if not parameters.dropout:
            return []
        keep_probability = np.float32(1 - parameters.dropout)
        shape = (rows, parameters.width)
        masks = ((draw.random(shape, np.float32) < keep_probability) / keep_probability for _ in range(parameters.depth))
        return [torch.from_numpy(mask.astype(np.float32)).to(device) for mask in masks]
