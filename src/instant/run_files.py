"""The files of a run folder: how each is called, read, checked and written.

What is in each is said in docs/architecture.md.
"""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor, nn

import instant
from instant.backbones.registry import BackboneFunction, backbone_name, build, without_weights
from instant.config import Recipe
from instant.console import command_line
from instant.data.files import atomic
from instant.engine.checkpoint import load_tensors, save_tensors
from instant.errors import InputError
from instant.kinds import fits, misfit
from instant.own_code import is_own, require_named

FORMAT = 1
HEADER = {"format": FORMAT, "instant": instant.__version__}
CHECKPOINT = Path("checkpoint") / "state.safetensors"
PROBLEMS = Path("problems.csv")
# In the order of removal: a folder left half emptied is first an unfinished run, then none
FILES = (
    Path("summary.json"), Path("recipe.json"), Path("audit.json"), Path("report.html"), CHECKPOINT,
    Path("metrics.jsonl"), Path("model.json"), Path("model.safetensors"), Path("reference.safetensors"),
    Path("split.json"),
)  # fmt: skip

# What others look up in these files
SPLIT = {
    "source": str, "hash": str, "classes": list[str], "labelled": list[int], "targets": list[int],
    "validation": list[int], "validation_targets": list[int], "pool": int, "budget": dict[str, int],
}  # fmt: skip
SUMMARY = {
    "method": str, "backbone": str, "seed": int, "steps": int, "accuracy_of": str, "utilisation": float | None,
    "pseudo_label_accuracy": float | None, "label_budget": dict[str, int], "split_hash": str, "seconds": float,
    "device": str, "versions": dict[str, str],
}  # fmt: skip
ACCURACY = {"accuracy_last": float | None, "validation_accuracy": float | None}  # of a summary too, if it has them
DRAWN = {  # of a record of metrics.jsonl, if it has them
    "loss": float, "utilisation": float, "threshold": float, "pseudo_label_accuracy": float | None,
    "accuracy": float | None, "validation_accuracy": float | None,
}  # fmt: skip
CARD = {
    "backbone": str, "backbone_options": dict[str, Any], "shape": list[int], "classes": list[str], "mean": list[float],
    "std": list[float],
}  # fmt: skip


class Code(NamedTuple):
    """What a recipe leaves to code, which may be another tomorrow: a method's defaults, and what is one's own."""

    options: dict[str, Any]
    views: tuple[str, ...]  # what makes them; empty: what the recipe says
    backbone: dict[str, Any]  # the defaults of a backbone of one's own


NOTHING = Code({}, (), {})  # is known, of a run of an earlier version


class RunFiles:
    """What is in one run folder, file by file; `Run` adds its life."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def __str__(self) -> str:
        return str(self.path)

    @property
    def exists(self) -> bool:
        return os.path.exists(self.path / "recipe.json")  # False, not an error, where the folder may not be read

    @property
    def finished(self) -> bool:
        return os.path.exists(self.path / "summary.json")

    @property
    def has_checkpoint(self) -> bool:
        return os.path.exists(self.path / CHECKPOINT)

    @property
    def report_path(self) -> Path:
        return self.path / "report.html"

    # -- what a sentence about it says --------------------------------------------------------------------------------

    @property
    def quoted(self) -> str:
        """The folder as a word of a command."""
        return command_line([str(self.path)])

    @property
    def resume_command(self) -> str:
        return f"instant train --resume {self.quoted}{self.own_code('{}=')}"

    @property
    def report_command(self) -> str:
        return f"instant report {self.quoted}{self.own_code()}"

    def own_code(self, option: str = "--{} ") -> str:
        """What a command about this run has to say besides: method and backbone, where these are code of one's own."""
        with suppress(InputError):  # a damaged folder has its own sentence
            recipe = self.recipe()
            used = {"method": recipe.method, "backbone": recipe.backbone}
            return "".join(f" {option.format(key)}{command_line([name])}" for key, name in used.items() if is_own(name))
        return ""

    # -- recipe, split and summary ------------------------------------------------------------------------------------

    def recipe(self) -> Recipe:
        """The recipe of the folder, if this version can read it."""
        header = self._read_formatted("recipe.json")
        if not isinstance(header.get("recipe"), dict):
            raise InputError(f"{self.path / 'recipe.json'} holds no recipe; it is damaged. Train again with --force.")
        return Recipe.from_json(header["recipe"])

    def code(self) -> Code:
        """What came from code when the run was begun."""
        kept = self._read_formatted("recipe.json").get("code")
        if kept is None:
            return NOTHING
        try:
            return Code(dict(kept["options"]), tuple(kept["views"]), dict(kept.get("backbone", {})))
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"{self.path / 'recipe.json'} does not say what it was begun with ({error!r}).") from error

    def keep(self, recipe: Recipe, code: Code) -> None:
        found = {} if code is NOTHING else {"code": code._asdict()}
        self._write("recipe.json", {**HEADER, "recipe": recipe.to_json(), **found})

    def split_record(self) -> dict[str, Any]:
        return self._read_with("split.json", SPLIT)

    def summary(self) -> dict[str, Any]:
        return self._read_with("summary.json", SUMMARY)

    # -- metrics ------------------------------------------------------------------------------------------------------

    def append(self, record: dict[str, Any]) -> None:
        try:
            with open(self.path / "metrics.jsonl", "a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")
                file.flush()
                os.fsync(file.fileno())  # as a checkpoint is: none of them is kept without its records
        except OSError as error:
            raise self._unwritable(error) from error

    def history(self) -> list[dict[str, Any]]:
        """The records so far; a last line cut short by a kill is left out."""
        try:
            lines = (self.path / "metrics.jsonl").read_text(encoding="utf-8", errors="replace").splitlines()
        except FileNotFoundError:
            return []
        records = []
        for number, line in enumerate(lines, start=1):
            try:
                record = json.loads(line)
            except (json.JSONDecodeError, RecursionError):
                record = None
            if fits(record, dict[str, Any]) and fits(record.get("step"), int) and misfit(record, DRAWN) is None:
                records.append(record)
            elif number < len(lines):
                raise InputError(
                    f"{self.path / 'metrics.jsonl'}, line {number} is damaged; put the file back as it was, or remove "
                    "the line."
                )
        return records

    def rewind(self, step: int) -> list[dict[str, Any]]:
        """Drop records after `step`, which a resumed run will write again."""
        kept = [record for record in self.history() if record["step"] <= step]
        try:
            with atomic(self.path / "metrics.jsonl", "w") as file:
                file.writelines(json.dumps(record) + "\n" for record in kept)
        except OSError as error:
            raise self._unwritable(error) from error
        return kept

    # -- checkpoint ---------------------------------------------------------------------------------------------------

    def save_checkpoint(self, tensors: dict[str, Tensor], *, step: int, seconds: float) -> None:
        meta = {"format": str(FORMAT), "step": str(step), "seconds": repr(seconds)}
        save_tensors(self.path / CHECKPOINT, tensors, meta)

    def load_checkpoint(self) -> tuple[dict[str, Tensor], int, float] | None:
        """Tensors, step and seconds so far; None when no checkpoint was reached."""
        path = self.path / CHECKPOINT
        if not self.has_checkpoint:
            return None
        tensors, meta = load_tensors(path)
        try:
            step, seconds = int(meta["step"]), float(meta["seconds"])
        except (KeyError, ValueError):
            step, seconds = -1, 0.0
        if not 0 <= step <= self.recipe().steps:
            raise InputError(
                f"{path} is not a checkpoint of this run: it does not say one of its steps. Train again with --force."
            )
        return tensors, step, seconds

    # -- what was learnt ----------------------------------------------------------------------------------------------

    def load_model(self, backbone: str | BackboneFunction | None = None) -> tuple[nn.Module, dict[str, Any]]:
        """The trained network in evaluation mode, and its card; one of your own is built by the `backbone` you name."""
        self._read_formatted("model.json")
        card = self._read_with("model.json", CARD)
        shape, classes = tuple(card["shape"]), len(card["classes"])
        if not shape or not len(card["mean"]) == len(card["std"]) == shape[0]:
            raise InputError(f"{self.path / 'model.json'} has another mean or std than its shape needs; it is damaged.")
        named = None if backbone is None else backbone_name(backbone)
        require_named(self, "backbone", card["backbone"], named)
        try:
            options = without_weights(card["backbone"], card["backbone_options"])
            network = build(backbone or card["backbone"], shape=shape, classes=classes, **options)
        except (TypeError, RuntimeError) as error:
            raise InputError(f"{self.path / 'model.json'} does not describe a network ({error!r}).") from error
        tensors, _ = load_tensors(self.path / "model.safetensors")
        try:
            network.load_state_dict(tensors)
        except RuntimeError as error:
            what = f"backbone={named}; was another one trained?" if is_own(card["backbone"]) else "model.json"
            raise InputError(f"{self.path}: model.safetensors does not fit {what} ({str(error)[:200]} ...)") from error
        return network.eval(), card

    def method_state(self) -> dict[str, Tensor]:
        """What the method had learnt by the end: T, running means, thresholds; kept in the last checkpoint."""
        return self._last("learner.method.")

    def reference(self) -> dict[str, Tensor]:
        """What the thresholds rest on (`labelling.judge.reference_of`)."""
        self.summary()  # or a sentence: the run is not finished
        return load_tensors(self.path / "reference.safetensors")[0]

    def fingerprint(self) -> str:
        """Of all that decides about samples: another one, other decisions."""
        digest = hashlib.sha256()
        for name in ("recipe.json", "split.json", "model.json", "model.safetensors", "reference.safetensors"):
            with open(self.path / name, "rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
        for name, value in sorted(self.method_state().items()):
            digest.update(name.encode() + value.numpy().tobytes())
        return digest.hexdigest()[:16]

    def sample_history(self) -> dict[str, Tensor]:
        """What happened to every sample of the pool (`engine.history`), from the last checkpoint."""
        return self._last("meter.history.")

    def _last(self, prefix: str) -> dict[str, Tensor]:
        self.summary()  # or a sentence: the run is not finished
        path = self.path / CHECKPOINT
        if not self.has_checkpoint:
            raise InputError(
                f"{path} is not there: it holds the thresholds the run ended with. Put it back, or train again."
            )
        return load_tensors(path, prefix=prefix)[0]

    # -- audit --------------------------------------------------------------------------------------------------------

    def save_audit(self, record: dict[str, Any] | None) -> None:
        """Keep what was drawn; None: nothing was."""
        if record is None:
            (self.path / "audit.json").unlink(missing_ok=True)
            return
        self._write("audit.json", {**HEADER, **record})

    def audit(self) -> dict[str, Any] | None:
        """Which samples were drawn to be checked; None when none were."""
        return self._read_formatted("audit.json") if os.path.exists(self.path / "audit.json") else None

    # -- json ---------------------------------------------------------------------------------------------------------

    def _write(self, name: str, value: Any) -> None:
        try:
            with atomic(self.path / name, "w") as file:
                json.dump(value, file, indent=1)
        except OSError as error:
            raise self._unwritable(error) from error

    def _read(self, name: str) -> dict[str, Any]:
        path = self.path / name
        try:
            value = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            why = f"the run did not finish; go on with: {self.resume_command}" if self.exists else "it is no run folder"
            raise InputError(f"{path} is not there: {why}.") from None
        except NotADirectoryError:
            raise InputError(f"{self.path} is a file; give the folder of the run, as in {self.path.parent}.") from None
        except (json.JSONDecodeError, UnicodeDecodeError, RecursionError, OSError) as error:
            raise InputError(f"{path} cannot be read ({error}); is it a complete file?") from error
        if not isinstance(value, dict):
            raise InputError(f"{path} holds a {type(value).__name__}, expected an object with names; it is damaged.")
        return value

    def _read_with(self, name: str, kinds: dict[str, Any]) -> dict[str, Any]:
        """A file that holds all of these names, each with a value of its kind."""
        value = self._read(name)
        missing = [key for key in kinds if key not in value]
        wrong = misfit(value, kinds | ACCURACY)
        if missing or wrong:
            raise InputError(
                f"{self.path / name} {'lacks ' + ', '.join(missing) if missing else 'has ' + str(wrong)}: it was "
                f"changed, or is of another version of instant (this is {instant.__version__}). Put the file back as "
                "it was, or train again."
            )
        return value

    def _read_formatted(self, name: str) -> dict[str, Any]:
        """A file that says which format of the run folder it is in, which must be ours."""
        value = self._read(name)
        if value.get("format") != FORMAT:
            raise InputError(
                f"{self.path / name} was written by instant {value.get('instant', '(unknown)')} in run format "
                f"{value.get('format')!r}, this is {instant.__version__} which reads format {FORMAT}; "
                "use the version that wrote it, or train again."
            )
        return value

    def _unwritable(self, error: OSError) -> InputError:
        return InputError(
            f"the run folder {self.path} cannot be written ({error.strerror or error}); it must be one you may write "
            "to, with space left. What was saved before is intact."
        )
