"""Who is near whom: for every vector of the pool a few others that are like it, found once before training."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from instant import random
from instant.data.split import Split
from instant.data.store import as_tensor

AMONG = 20_000  # candidates at most: of a larger pool a random part, so that the search stays linear in the pool
BLOCK = 1024


@torch.no_grad()
def neighbours(split: Split, count: int, *, device: torch.device | str = "cpu") -> Tensor:
    """(pool, count) positions in `split.train`: the nearest in Euclidean distance of standardised features.

    Candidates are rows of the pool; nobody is a neighbour of itself. With fewer candidates than `count`, all others.
    """
    pool = split.pool
    chosen = np.arange(len(pool))
    if len(pool) > AMONG:
        order = random.permutations(random.root(split.seed), len(pool))[0]
        chosen = np.sort(order[:AMONG].numpy())
    mean = torch.tensor(split.mean, dtype=torch.float32, device=device)
    scale = 1 / torch.tensor(split.std, dtype=torch.float32, device=device)

    def standardised(rows: np.ndarray) -> Tensor:
        return (as_tensor(split.train.samples[rows]).to(device) - mean) * scale

    candidates = standardised(pool[chosen])
    places = torch.from_numpy(chosen).to(device)
    squared = candidates.square().sum(1)
    count = min(count, len(chosen) - 1)
    found = []
    for start in range(0, len(pool), BLOCK):
        own = torch.arange(start, min(start + BLOCK, len(pool)), device=device)
        x = standardised(pool[start : start + BLOCK])
        distance = torch.addmm(squared, x, candidates.T, alpha=-2)  # less |x|^2, the same for all candidates
        distance.masked_fill_(own[:, None] == places, torch.inf)
        found.append(distance.topk(count, largest=False).indices)
    positions = torch.from_numpy(pool[chosen]).to(device)
    return positions[torch.cat(found)].cpu()
