"""A full disk or a loss that is not finite ends in a sentence, and the last good checkpoint stays."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from runs import (
    COMMAND,
    ENVIRONMENT,
    StopAt,
    assert_same_run,
    contents,
    points,
    small,
)
from torch import Tensor

from instant.cli import main
from instant.engine.fit import Callback, Interrupted, fit
from instant.errors import InputError
from instant.match import Match
from instant.rules import Rule
from instant.run import Run
from instant.run_files import CHECKPOINT
from instant.types import Evidence, Problem, State


def test_a_full_disk_leaves_the_previous_checkpoint_as_it_was(tmp_path: Path, whole: dict[str, Run]) -> None:
    recipe, split = small()
    run = Run(tmp_path / "run")
    with pytest.raises(Interrupted):
        fit(recipe, split, run=run, callbacks=[StopAt(8)])
    before = contents(run.path)
    assert len(before[str(CHECKPOINT)]) > 2**20
    # No file may grow beyond a mebibyte, which is what a full disk does to a larger one
    program = (
        "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
        "resource.setrlimit(resource.RLIMIT_FSIZE, (2**20, 2**20)); "
        "from instant.cli import main; sys.exit(main(['train', '--resume', sys.argv[1]]))"
    )
    done = subprocess.run([sys.executable, "-c", program, str(run)], env=ENVIRONMENT, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == (
        f"instant: {run.path / CHECKPOINT} could not be written (File too large); what was saved before is intact. "
        "Free some space or choose another --out folder, then resume.\n"
    )
    after = contents(run.path)
    assert after.keys() == before.keys()
    assert after[str(CHECKPOINT)] == before[str(CHECKPOINT)]
    fit(recipe, split, run=run, resume=True)
    assert_same_run(run, whole["instant"])


def test_curves_that_cannot_be_written_are_a_sentence(tmp_path: Path) -> None:
    class Spoil(Callback):
        def step(self, step: int) -> None:
            (tmp_path / "metrics.jsonl").mkdir(exist_ok=True)

    with pytest.raises(InputError, match=r"cannot be written \(Is a directory\)"):
        fit(*points(), run=Run(tmp_path), callbacks=[Spoil()])


# --- a loss that is not finite --------------------------------------------------------------------------------


def test_a_loss_that_is_not_finite_stops_the_run(tmp_path: Path) -> None:
    """Step 7 (from 0) breaks; it is noticed at 9, where the next checkpoint would be."""
    recipe, split = points("fixmatch", log_every="100", checkpoint_every="3", **{"optim.lr": "0.05"})
    run, saved, calls = Run(tmp_path), {}, [0]

    class Keep(Callback):
        def step(self, step: int) -> None:
            saved[step] = (run.path / CHECKPOINT).read_bytes() if step > 3 else b""

    def weak(samples: Tensor, key: Tensor) -> Tensor:
        calls[0] += 1
        return samples * (float("inf") if calls[0] == 8 else 1.0)

    policies = weak, lambda samples, key: samples
    with pytest.raises(InputError) as error:
        fit(recipe, split, run=run, callbacks=[Keep()], policies=policies)
    assert str(error.value) == (
        "the loss stopped being a finite number at step 7 (in loss_supervised); the likely cause is too high a "
        "learning rate (optim.lr=0.05). Lower it, or set clip=1. The last good checkpoint, of step 6, is intact."
    )
    assert (run.path / CHECKPOINT).read_bytes() == saved[7]
    tensors, step, _ = run.load_checkpoint()  # type: ignore[misc]
    assert step == 6
    assert all(bool(value.isfinite().all()) for value in tensors.values())
    fit(recipe, split, run=run, resume=True, policies=policies)  # without the spoilt sample the run goes on from there
    assert run.finished


def test_the_part_that_broke_first_is_named() -> None:
    """Only the weak views of unlabelled rows are spoilt; the update then spoils every part of the next step."""

    def weak(samples: Tensor, key: Tensor) -> Tensor:
        return torch.cat([samples[:8], samples[8:] * float("nan")])

    with pytest.raises(InputError, match=r"at step 0 \(in loss_unsupervised\);"):
        fit(*points("pi_model"), policies=(weak, weak))


def test_weights_that_overflow_are_not_saved_though_the_loss_was_finite(tmp_path: Path) -> None:
    run = Run(tmp_path)
    with pytest.raises(InputError, match=r"at step 0 \(the weights overflowed\).*No checkpoint was reached yet"):
        fit(*points(**{"optim.lr": "1e38", "steps": "1"}), run=run)
    assert run.load_checkpoint() is None
    assert not (run.path / "model.safetensors").exists()


# --- rules of one's own that are wrong ------------------------------------------------------------------------


class Forgetful(Rule):
    """Hands on a state for which it has no place, or no place of that shape."""

    def __init__(self, **places: Tensor) -> None:
        super().__init__()
        for name, value in places.items():
            self.register_buffer(name, value)

    def threshold(self, seen: Evidence) -> tuple[Tensor, State]:
        return torch.full((len(seen.probs),), 0.5), {"seen": torch.zeros(())}


class Divided(Rule):
    def threshold(self, seen: Evidence) -> tuple[Tensor, State]:
        return seen.probs.new_zeros(len(seen.probs)) / 0, {}


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        (Forgetful(), r"next state 'rule.seen' that is none of its buffers; make it one with register_buffer"),
        (Forgetful(seen=torch.zeros(3)), r"next state 'rule.seen' has shape \(\), its buffer \(3,\)"),
        (Divided(), r"test_failures:\S+ had a threshold that is no number before step 5; mend its rule"),
    ],
)
def test_a_rule_that_is_wrong_is_a_sentence(rule: Rule, said: str) -> None:
    recipe, split = points(step="eager", log_every="5")

    def wrong(problem: Problem) -> Match:
        return Match(rule)

    with pytest.raises(InputError, match=said):
        fit(recipe, split, method=wrong)


def test_too_high_a_learning_rate_through_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [*COMMAND[3:], "optim.lr=1e20", "steps=20", "checkpoint_every=4", "--out", str(tmp_path / "run")]
    assert main(words) == 2
    complaint = capsys.readouterr().err
    assert re.fullmatch(
        r"instant: the loss stopped being a finite number at step \d \(.*\); the likely cause is too high a learning "
        r"rate \(optim.lr=1e\+20\)\. Lower it, or set clip=1\. No checkpoint was reached yet\.\n",
        complaint,
    )
