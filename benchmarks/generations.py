"""Generations: networks that start again from a run's features, with what the one before is surest about as labels.

    python benchmarks/generations.py RUN --out FOLDER --steps 30000 60000 --share 0.3 --set data=FOLDER

What a network believes it is trained to go on believing; one that starts again does not believe it yet. Of every class
equally many, `share` of the pool, join the labelled samples: those the generation before is surest about. The first is
RUN, which is finished. Every further one has a number of steps; its network and its curve are kept in FOLDER, and where
they are there already the next one goes on from them. Settings are the run's own, but for those that are given.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from instant.cli.shared import key_values
from instant.data.feed import Normalise
from instant.data.files import atomic
from instant.data.split import Split
from instant.engine.build import source_for, split_for
from instant.engine.checkpoint import load_tensors, save_tensors
from instant.engine.device import choose_device
from instant.engine.fit import Callback, fit
from instant.engine.metrics import predict
from instant.errors import InputError
from instant.progress import describe
from instant.run import Run


class Printed(Callback):
    def note(self, text: str) -> None:
        print(text, flush=True)

    def record(self, record: dict[str, Any]) -> None:
        if "seconds_evaluating" in record:
            print(f"step {record['step']:6}: {describe(record)}, {record['seconds']:.0f} s", flush=True)


def surest(split: Split, probs: Tensor, share: float) -> tuple[np.ndarray, np.ndarray]:
    """Places in the pool, and what they are called: of every class as many, or all there are."""
    confidence, label = (part.numpy() for part in probs.max(1))
    each = round(share * len(split.pool) / len(split.classes))
    order = np.argsort(-confidence, kind="stable")
    chosen = np.concatenate([order[label[order] == k][:each] for k in range(len(split.classes))])
    return chosen, label[chosen]


def taught(split: Split, network: nn.Module, share: float, device: torch.device) -> Split:
    """The split, with what the network is surest about among its labels; real ones stay as they are."""
    normalise = Normalise(split.mean, split.std, images=split.train.is_images).to(device)
    probs = predict(network.to(device).eval(), split.train.take(split.pool), normalise, device=device).cpu()
    places, label = surest(split, probs, share)
    truth = split.oracle.open_for_metrics()[places]
    right = (label == truth)[truth >= 0].mean()
    print(f"{len(places):,} of {len(split.pool):,} join the labels, {right:.2%} of them right", flush=True)
    fresh = ~np.isin(split.pool[places], split.labelled)
    labelled = np.concatenate([split.labelled, split.pool[places][fresh]])
    return dataclasses.replace(split, labelled=labelled, targets=np.concatenate([split.targets, label[fresh]]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, nargs="+", required=True)
    parser.add_argument("--share", type=float, default=0.3)
    parser.add_argument("--set", nargs="*", default=[], metavar="key=value")
    options = parser.parse_args()
    try:
        train(options)
    except InputError as error:
        raise SystemExit(str(error)) from None


def train(options: argparse.Namespace) -> None:
    given = key_values(options.set)
    run = Run(options.run)
    recipe = run.moved({key: given.pop(key) for key in [*given] if key in ("data", "device")})
    split, device = split_for(recipe, source_for(recipe)), choose_device(recipe.device)
    network, _ = run.load_model()
    features, _ = run.features.load_model()
    print(f"generation 1, {recipe.steps:,} steps: {run.summary()['accuracy_last']:.2%}", flush=True)
    options.out.mkdir(parents=True, exist_ok=True)
    for number, steps in enumerate(options.steps, start=2):
        weights, curve = (options.out / f"generation-{number}.{kind}" for kind in ("safetensors", "json"))
        asked = {"steps": steps, "share": options.share, "set": given, "first": run.fingerprint()}
        if not curve.exists():
            wanted = dataclasses.replace(recipe, labels=None, contrast=0).override({"steps": steps, **given})
            split_now = taught(split, network, options.share, device)
            trained = fit(wanted, split_now, weights=features.state_dict(), callbacks=[Printed()])
            save_tensors(weights, trained.learner.judged.state_dict(), {})
            summary = trained.summary | {"label_budget": split.budget}  # what joined cost nothing
            kept = {"asked": asked, "summary": summary, "history": trained.history}
            with atomic(curve, "w") as file:
                json.dump(kept, file)
        kept = json.loads(curve.read_text(encoding="utf-8"))
        if kept["asked"] != asked:
            raise SystemExit(f"{curve} is of {kept['asked']}, not of {asked}: choose another --out")
        network.load_state_dict(load_tensors(weights)[0])
        accuracy, seconds = kept["summary"]["accuracy_last"], kept["summary"]["seconds"]
        print(f"generation {number}, {steps:,} steps: {accuracy:.2%}, {seconds:.0f} s", flush=True)


if __name__ == "__main__":
    main()
