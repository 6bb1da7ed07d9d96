"""Leaving the weak rows out of the backward pass: how far is the gradient from the ordinary one, late in training?

    python benchmarks/weak_rows.py RUN data=FOLDER --batches 8

From the checkpoint of a stopped run, for the next batches: the cosine between the gradient a run is trained with
(`backbones/rows.py`) and that of `weak_gradient=true`, in float32, batch by batch and of their means, beside that
between the ordinary gradients of two batches. On a CPU a batch of CIFAR-10 takes 20 seconds.
"""

from __future__ import annotations

import argparse
import dataclasses

import torch
from torch import Tensor

from instant.engine.build import build_program, source_for, split_for
from instant.engine.step import Program
from instant.run import Run


def gradient(program: Program, step: int, *, weak_gradient: bool) -> Tensor:
    """Of all the network's weights, at one step; nothing else is left changed."""
    learner = program.learner
    before = {name: value.clone() for name, value in learner.named_buffers()}
    learner.weak_gradient = weak_gradient
    learner.zero_grad()
    program.feed.prepare(step)
    learner(program.feed(torch.tensor(step, device=program.clock.device))).loss.backward()
    for name, value in learner.named_buffers():
        value.copy_(before[name])
    return torch.cat([weight.grad.flatten() for weight in learner.model.parameters() if weight.grad is not None])


def cosine(a: Tensor, b: Tensor) -> float:
    return float(torch.cosine_similarity(a, b, dim=0))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run")
    parser.add_argument("settings", nargs="*", help="data=FOLDER")
    parser.add_argument("--batches", type=int, default=8)
    options = parser.parse_args()
    run = Run(options.run)
    recipe = run.moved(dict(word.split("=", 1) for word in options.settings)) if options.settings else run.recipe()
    recipe = dataclasses.replace(recipe, step="eager", precision="float32")
    program = build_program(recipe, split_for(recipe, source_for(recipe)))
    found = run.load_checkpoint()
    if found is None:
        raise SystemExit(f"{run} has no checkpoint")
    tensors, start, _ = found
    program.restore(tensors)
    ours, ordinary = [], []
    for step in range(start, start + options.batches):
        ours.append(gradient(program, step, weak_gradient=False))
        ordinary.append(gradient(program, step, weak_gradient=True))
        lengths = f"{ours[-1].norm():.3f} and {ordinary[-1].norm():.3f} long"
        print(f"step {step}: cosine {cosine(ours[-1], ordinary[-1]):.4f}, {lengths}", flush=True)
    means = [torch.stack(part).mean(0) for part in (ours, ordinary)]
    print(f"means: cosine {cosine(*means):.4f}, {means[0].norm():.3f} and {means[1].norm():.3f} long")
    if len(ordinary) > 1:
        print(f"ordinary gradients of the first two batches: cosine {cosine(ordinary[0], ordinary[1]):.4f}")


if __name__ == "__main__":
    main()
