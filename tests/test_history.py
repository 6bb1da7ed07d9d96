"""First acceptance and flips of every pool sample: by hand, compiled, against a replayed run, and exact on resuming."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from runs import StopAt, points
from torch import Tensor

from instant.engine.build import build_program
from instant.engine.fit import Interrupted, fit
from instant.engine.history import History
from instant.run import Run
from instant.types import Decision, Output


def look(index: list[int], label: list[int], weight: list[float]) -> Decision:
    rows = torch.tensor(weight)
    return Decision(torch.tensor(index), torch.tensor(label), rows, rows, rows)


LOOKS = [
    look([0, 1, 2], [1, 1, 2], [0.0, 1.0, 0.5]),  # step 0: 1 is accepted, half a weight is not
    look([0, 1, 2], [2, 1, 2], [1.0, 0.0, 1.0]),  # step 1: 0 flips 1 -> 2; 0 and 2 are accepted
    look([0, 1, 3], [1, 0, 0], [1.0, 1.0, 0.0]),  # step 2: 0 flips again, 1 flips; both were accepted before
    look([1, 1, 3], [2, 1, 0], [0.0, 0.0, 0.0]),  # step 3: 1 twice, against 0: one flip, 2 is remembered
    look([1, 3, 3], [2, 0, 0], [0.0, 0.0, 1.0]),  # step 4: 1 does not flip; 3 is accepted in one of two looks
]


def played(add: object, history: History) -> dict[str, list[int]]:
    for step, decision in enumerate(LOOKS):
        add(decision, torch.tensor(step))  # type: ignore[operator]
    return {name: value.tolist() for name, value in history.state_dict().items()}


EXPECTED = {"first": [1, 0, 1, 4, -1], "flips": [2, 2, 0, 0, 0], "last": [1, 2, 2, 0, -1]}


def test_by_hand() -> None:
    history = History(5)
    assert played(history.add, history) == EXPECTED
    assert sum(value.element_size() for value in history.buffers()) == 12


def test_compiled_in_one_graph() -> None:
    history = History(5)
    assert played(torch.compile(history.add, fullgraph=True, backend="aot_eager"), history) == EXPECTED


def test_the_order_of_a_batch_does_not_matter() -> None:
    history = History(5)
    for step, d in enumerate(LOOKS):
        history.add(Decision(*(part.flip(0) for part in d)), torch.tensor(step))
    assert {name: value.tolist() for name, value in history.state_dict().items()} == EXPECTED


def test_without_data() -> None:
    """Nothing in it needs a value on the host: it runs on tensors that have none."""
    with torch.device("meta"):
        rows = torch.zeros(3)
        index = torch.zeros(3, dtype=torch.int64)
        History(5).add(Decision(index, index, rows, rows, rows), torch.zeros((), dtype=torch.int64))


class Watched:
    """Remembers what each step of a program decided."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, Decision]] = []

    def watch(self, program: object) -> None:
        add = program.meter.add  # type: ignore[attr-defined]

        def watching(output: Output, step: Tensor) -> None:
            assert output.decision is not None
            self.seen.append((int(step), output.decision))
            add(output, step)

        program.meter.add = watching  # type: ignore[attr-defined]


def test_a_run_against_its_own_decisions() -> None:
    """24 steps of 40 rows, three to an epoch of 120: row by row in plain Python."""
    recipe, split = points("instant", ratio="5", **{"method.base": "0.7", "optim.lr": "0.01"})
    program, watched = build_program(recipe, split), Watched()
    watched.watch(program)
    first, flips, last = [-1] * 120, [0] * 120, [-1] * 120
    for step in range(recipe.steps):
        program(step)
    for step, d in watched.seen:
        rows = d.index.tolist()
        assert len(set(rows)) == len(rows)  # twice in a batch is in the closed form above
        for i, k, weight in zip(rows, d.label.tolist(), d.weight.tolist()):
            flips[i] += last[i] not in (-1, k)
            last[i] = k
            first[i] = step if first[i] < 0 and weight >= 1 else first[i]
    found = program.meter.history
    assert (found.first.tolist(), found.flips.tolist(), found.last.tolist()) == (first, flips, last)
    assert max(flips) > 0
    assert -1 in first
    assert max(first) > 0


def test_resuming_is_exact_and_the_run_keeps_it(tmp_path: Path) -> None:
    whole, cut = Run(tmp_path / "whole"), Run(tmp_path / "cut")
    recipe, split = points("fixmatch", **{"method.threshold": "0.5"})
    fit(recipe, split, run=whole)
    with pytest.raises(Interrupted):
        fit(recipe, split, run=cut, callbacks=[StopAt(9)])
    fit(recipe, split, run=cut, resume=True)
    found, expected = cut.sample_history(), whole.sample_history()
    assert found.keys() == {"first", "flips", "last"}
    for name, value in expected.items():
        assert torch.equal(found[name], value), name
    assert (expected["first"] >= 0).any()


def test_a_method_without_decisions_leaves_it_untouched() -> None:
    recipe, split = points("supervised")
    program = build_program(recipe, split)
    program(0)
    assert program.meter.history.last.tolist() == [-1] * 120
