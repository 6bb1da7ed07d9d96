"""The run folder: the only module that knows its file names.

recipe.json, split.json    what was asked for, and who was labelled
metrics.jsonl              one line per logging interval: the curves
checkpoint/                what is needed to resume exactly
model.safetensors, .json   the trained network and how to rebuild it: what is shared
summary.json               the results; written last, so its presence means that the run is finished
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from torch import Tensor, nn

import instant
from instant.backbones.registry import build
from instant.config import Recipe
from instant.data.files import atomic
from instant.data.split import Split
from instant.engine.checkpoint import load_tensors, save_tensors
from instant.errors import InputError

FORMAT = 1
CHECKPOINT = Path("checkpoint") / "state.safetensors"


class Run:
    """One run folder, new or existing."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def __str__(self) -> str:
        return str(self.path)

    # -- life of a folder ---------------------------------------------------------------------------------------------

    def begin(self, recipe: Recipe, split: Split, *, force: bool = False) -> None:
        """Claim the folder for a new run; what is already there is only replaced with `force`."""
        if self.exists and not force:
            state = "a finished run" if self.finished else "an unfinished run"
            remedy = "" if self.finished else f"go on with: instant train --resume {self.path}; or "
            raise InputError(f"{self.path} already holds {state}; {remedy}choose another --out, or add --force.")
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            for name in ("summary.json", "metrics.jsonl", "model.safetensors", "model.json", CHECKPOINT):
                (self.path / name).unlink(missing_ok=True)
            self._write("split.json", split.record())
            header = {"format": FORMAT, "instant": instant.__version__}
            self._write("recipe.json", {**header, "recipe": recipe.to_json()})
        except OSError as error:
            raise InputError(
                f"--out {self.path} cannot be written ({error.strerror or error}); choose a folder you may write to."
            ) from error

    @property
    def exists(self) -> bool:
        return (self.path / "recipe.json").exists()

    @property
    def finished(self) -> bool:
        return (self.path / "summary.json").exists()

    def recipe(self) -> Recipe:
        """The recipe of the folder, if this version can read it."""
        header = self._read("recipe.json")
        if header.get("format") != FORMAT:
            raise InputError(
                f"{self.path} was written by instant {header.get('instant', '(unknown)')} in run format "
                f"{header.get('format')!r}, this is {instant.__version__} which reads format {FORMAT}; "
                "use the version that wrote it, or train again."
            )
        return Recipe.from_json(header["recipe"])

    def split_record(self) -> dict[str, Any]:
        return self._read("split.json")

    # -- metrics ------------------------------------------------------------------------------------------------------

    def append(self, record: dict[str, Any]) -> None:
        with open(self.path / "metrics.jsonl", "a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")

    def history(self) -> list[dict[str, Any]]:
        """The records so far; a last line cut short by a kill is left out."""
        try:
            lines = (self.path / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return []
        records = []
        for line in lines:
            try:
                records.append(json.loads(line))
            except json.JSONDecodeError:
                break
        return records

    def rewind(self, step: int) -> list[dict[str, Any]]:
        """Drop records after `step`, which a resumed run will write again."""
        kept = [record for record in self.history() if record["step"] <= step]
        with atomic(self.path / "metrics.jsonl", "w") as file:
            file.writelines(json.dumps(record) + "\n" for record in kept)
        return kept

    # -- weights and results ------------------------------------------------------------------------------------------

    def save_checkpoint(self, tensors: dict[str, Tensor], *, step: int, seconds: float) -> None:
        meta = {"format": str(FORMAT), "step": str(step), "seconds": repr(seconds)}
        save_tensors(self.path / CHECKPOINT, tensors, meta)

    def load_checkpoint(self) -> tuple[dict[str, Tensor], int, float] | None:
        """Tensors, step and seconds so far; None when no checkpoint was reached."""
        path = self.path / CHECKPOINT
        if not path.exists():
            return None
        tensors, meta = load_tensors(path)
        return tensors, int(meta["step"]), float(meta["seconds"])

    def finish(self, network: nn.Module, card: dict[str, Any], summary: dict[str, Any]) -> None:
        """Write the shared model, then the summary."""
        save_tensors(self.path / "model.safetensors", network.state_dict(), {"format": str(FORMAT)})
        self._write("model.json", {"format": FORMAT, "instant": instant.__version__, **card})
        self._write("summary.json", summary)

    def summary(self) -> dict[str, Any]:
        return self._read("summary.json")

    def load_model(self) -> tuple[nn.Module, dict[str, Any]]:
        """The trained network in evaluation mode, and its card (classes, shape, normalisation)."""
        card = self._read("model.json")
        network = build(
            card["backbone"], shape=tuple(card["shape"]), classes=len(card["classes"]), **card["backbone_options"]
        )
        tensors, _ = load_tensors(self.path / "model.safetensors")
        try:
            network.load_state_dict(tensors)
        except RuntimeError as error:
            raise InputError(f"{self.path}: model.safetensors does not fit model.json ({error})") from error
        return network.eval(), card

    # -- json ---------------------------------------------------------------------------------------------------------

    def _write(self, name: str, value: Any) -> None:
        with atomic(self.path / name, "w") as file:
            json.dump(value, file, indent=1)

    def _read(self, name: str) -> dict[str, Any]:
        path = self.path / name
        try:
            return json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            why = "it is not a run folder" if not self.exists else "the run did not finish"
            raise InputError(f"{path} is not there: {why}.") from None
        except (json.JSONDecodeError, UnicodeDecodeError, OSError) as error:
            raise InputError(f"{path} cannot be read ({error}).") from error
