"""The run folder: the only module that knows its file names.

recipe.json, split.json    what was asked for, and who was labelled
metrics.jsonl              one line per logging interval: the curves
checkpoint/                what is needed to resume exactly
model.safetensors, .json   the trained network and how to rebuild it: what is shared
reference.safetensors      what the thresholds rest on: probabilities of the labelled samples
summary.json               the results; written last, so its presence means that the run is finished
audit.json                 which accepted samples were drawn for a person to check, if any were
report.html                the page that shows the run
baseline/                  a run folder of its own: the supervised baseline, if it was trained
features/                  another one: the network after learning without labels, if it did (`contrast`)
problems.csv               files and labels of the user's own that could not be used as they are, if there were any
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import shlex
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor, nn

import instant
from instant.backbones.registry import build, without_weights
from instant.config import Recipe
from instant.data.files import atomic, held
from instant.data.folder.problems import Flaw, require_list, write_problems
from instant.data.source import Source
from instant.data.sources import refuse_data
from instant.data.split import Split, content_of, identify
from instant.engine.checkpoint import load_tensors, save_tensors
from instant.errors import InputError
from instant.kinds import fits, misfit
from instant.methods import name_of
from instant.types import MethodFunction

FORMAT = 1
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

ELSEWHERE = ("data", "device", "memory")  # settings that another machine may need otherwise


class Code(NamedTuple):
    """What a recipe leaves to code, which may be another tomorrow: a method's defaults, and views of one's own."""

    options: dict[str, Any]
    views: tuple[str, ...]  # what makes them; empty: what the recipe says


NOTHING = Code({}, ())  # is known, of a run of an earlier version


class Run:
    """One run folder, new or existing."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def __str__(self) -> str:
        return str(self.path)

    # -- life of a folder ---------------------------------------------------------------------------------------------

    def begin(self, recipe: Recipe, split: Split, *, force: bool = False, code: Code = NOTHING) -> None:
        """Start a new run in the folder; what is already there is only replaced with `force`."""
        self.require_free(force=force)
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            for folder in (self.path, self.features.path) if force else (self.path,):  # or it would be this run's
                for name in FILES:
                    (folder / name).unlink(missing_ok=True)
        except OSError as error:
            raise self._unwritable(error) from error
        self._write("split.json", split.record())
        self.keep(recipe, code)

    def moved(self, settings: dict[str, str], labels: Path | None = None) -> Recipe:
        """The recipe with the settings that depend on the machine replaced: where the data is, on what it runs."""
        fixed = [key for key in settings if key not in ELSEWHERE]
        if fixed:
            raise InputError(
                f"--resume takes {fixed[0]} from the run folder; only {', '.join(ELSEWHERE)} may be given anew, for "
                "a run that goes on on another machine."
            )
        refuse_data(self.recipe().source, settings.get("data"))
        recipe = self.recipe().override(settings).located()
        if labels is not None and recipe.source != "own":
            raise InputError(f"--labels is for data of your own, and {self} was trained on {recipe.source}.")
        return recipe if labels is None else dataclasses.replace(recipe, label_file=str(labels.resolve()))

    def go_on(self, recipe: Recipe, split: Split, code: Code = NOTHING) -> None:
        """Before resuming: settings, data and views must be those of the run; where the data are now is kept."""
        if (name := self.differs(recipe)) is not None:
            began, now = (each.leaves().get(name) for each in (self.recipe(), recipe))
            raise InputError(
                f"{self} was begun with {name}={began}, not {now}; go on with its own recipe, or train anew in another "
                "folder."
            )
        self.require_same(split)
        self.require_same_test(split)
        began = self.code()
        if began is not NOTHING and began.views != code.views:
            was, now = (" and ".join(views) if views else "the usual ones" for views in (began.views, code.views))
            raise InputError(f"{self} was begun with policies {was}, not {now}; give fit the same ones to go on.")
        if recipe != self.recipe():
            self.keep(recipe, began)

    def differs(self, recipe: Recipe) -> str | None:
        """The first setting that is another than the run was begun with; where things are may change."""
        began, now = self.recipe().leaves(), recipe.leaves()
        elsewhere = (*ELSEWHERE, "label_file", "pretrained")
        names = (name for name in (*began, *now) if name not in elsewhere)
        return next((name for name in names if began.get(name) != now.get(name)), None)

    def is_of(self, split: Split) -> bool:
        """Is this the data that the run was begun with?"""
        kept = self.split_record()
        return kept["hash"] == split.hashed(kept["source"]) and kept.get("content") in (None, split.content)

    def require_same(self, split: Split) -> None:
        """Refuse other data than the run was begun with."""
        if self.is_of(split):
            return
        before, now = self.split_record(), split.record()
        labels = ("classes", "labelled", "targets", "validation", "validation_targets")
        relabelled = before["pool"] == now["pool"] and any(before[name] != now[name] for name in labels)
        raise self._changed("labels" if relabelled else "samples")

    def require_same_test(self, split: Split) -> None:
        """Refuse another test part: one curve, or one number, would be of two."""
        if self.split_record().get("test") not in (None, split.tested):
            raise self._changed("test samples")

    def require_same_samples(self, source: Source) -> None:
        """The same where no split is needed: are the positions that were kept still those of the same samples?"""
        kept = self.split_record()
        given = [kept[name] for name in ("labelled", "targets", "validation", "validation_targets")]
        pool = np.setdiff1d(np.arange(len(source.train)), kept["validation"])
        known = identify(kept["source"], source.classes, len(source.train), [*given, pool], source.files)
        if kept["hash"] != known or kept.get("content") not in (None, content_of(source.train, source.files)):
            raise self._changed("samples")

    def _changed(self, what: str) -> InputError:
        return InputError(
            f"the {what} of {self} have changed since it was begun; put them back as they were, or train again."
        )

    def require_free(self, *, force: bool = False) -> None:
        """Refuse a folder that holds a run, or files that a run would replace, unless with `force`."""
        there = [str(name) for name in FILES if os.path.exists(self.path / name)]
        if not there or force:
            return
        remedy = ""
        if self.finished:
            state = "a finished run"
        elif self.exists:
            state, remedy = "an unfinished run", f"go on with: {self.resume_command}; or "
        else:
            state = f"files of the names a run uses ({', '.join(there)})"
        raise InputError(f"{self.path} already holds {state}; {remedy}choose another --out, or add --force.")

    def require_not_its_own(self, out: Path) -> None:
        """Refuse to write over the run, or its labels or samples, also where that is asked for."""
        recipe, page = self.recipe(), Path("report.html")
        own = [(f"{name}", self.path / name) for name in FILES if name != page]  # a page may be made anew
        for what, file in (("labels", recipe.label_file), ("samples", recipe.data), *own):
            if file is not None and out.resolve() == Path(file).resolve():
                raise InputError(f"{out} would replace the {what} of {self}; choose another name.")

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Hold the folder while training into it; the lock ends with the process, however that ends."""
        with ExitStack() as stack:
            try:
                self.path.mkdir(parents=True, exist_ok=True)
                stack.enter_context(held(self.path))
            except BlockingIOError:
                raise InputError(
                    f"another process is training into {self.path}; wait for it to end, or choose another --out."
                ) from None
            except OSError as error:
                raise self._unwritable(error) from error
            for name in (*FILES, PROBLEMS):  # of a process that was killed while it wrote; nobody else's
                for left in (self.path / name).parent.glob(f".{name.name}.*.tmp"):
                    left.unlink(missing_ok=True)
            yield

    @property
    def resume_command(self) -> str:
        return f"instant train --resume {self.quoted}{self.method_option('method=')}"

    def method_option(self, option: str) -> str:
        """What a command about this run has to say besides: the method, where that is code of one's own."""
        with suppress(InputError):  # a damaged folder has its own sentence
            method = self.recipe().method
            if ":" in method:
                return f" {option}{shlex.quote(method)}"
        return ""

    def require_named(self, method: str | MethodFunction | None) -> None:
        """A method of your own is code: the caller names it, the folder's word for it is not taken; ours stay ours."""
        trained = self.recipe().method
        named = name_of(method) if callable(method) else method
        if named not in (None, trained) and not (":" in named and ":" in trained):  # code may have moved
            raise InputError(f"{self} was begun with method={trained}, not {named}; leave it out, or name that one.")
        if named is None and ":" in trained:
            raise InputError(
                f"{self} was trained with a method of its own, {trained}, which is code, and a run folder is not "
                f"trusted to run any; if you know it, name it yourself with method={trained} (in commands about a "
                f"finished run --method {trained})."
            )

    @property
    def quoted(self) -> str:
        """The folder as a word of a command."""
        return shlex.quote(str(self.path))

    @property
    def report_path(self) -> Path:
        return self.path / "report.html"

    @property
    def baseline(self) -> Run:
        """Where the supervised baseline of this run is kept."""
        return Run(self.path / "baseline")

    @property
    def features(self) -> Run:
        """Where the network is kept that has learnt without labels, to start this run from."""
        return Run(self.path / "features")

    @property
    def exists(self) -> bool:
        return os.path.exists(self.path / "recipe.json")  # False, not an error, where the folder may not be read

    @property
    def finished(self) -> bool:
        return os.path.exists(self.path / "summary.json")

    @property
    def has_checkpoint(self) -> bool:
        return os.path.exists(self.path / CHECKPOINT)

    def recipe(self) -> Recipe:
        """The recipe of the folder, if this version can read it."""
        header = self._read_formatted("recipe.json")
        if not isinstance(header.get("recipe"), dict):
            raise InputError(f"{self.path / 'recipe.json'} holds no recipe; it is damaged. Train again with --force.")
        return Recipe.from_json(header["recipe"])

    def code(self) -> Code:
        """What came from code when the run was begun."""
        kept = self._read_formatted("recipe.json").get("code")
        try:
            return NOTHING if kept is None else Code(dict(kept["options"]), tuple(kept["views"]))
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"{self.path / 'recipe.json'} does not say what it was begun with ({error!r}).") from error

    def split_record(self) -> dict[str, Any]:
        return self._read_with("split.json", SPLIT)

    def save_problems(self, problems: list[Flaw]) -> Path | None:
        """List what is wrong with the data, before training starts; None, and no list, where nothing is.

        Not among FILES: a list may be all that is there, and stands in no run's way.
        """
        path = self.path / PROBLEMS
        try:
            if problems:
                self.path.mkdir(parents=True, exist_ok=True)
            write_problems(path, problems)
        except OSError as error:
            raise self._unwritable(error) from error
        return path if problems else None

    def require_problems_free(self) -> None:
        require_list(self.path / PROBLEMS)

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

    # -- weights and results ------------------------------------------------------------------------------------------

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

    def finish(
        self, network: nn.Module, card: dict[str, Any], reference: dict[str, Tensor], summary: dict[str, Any]
    ) -> None:
        """Write the shared model, what its thresholds rest on, then the summary."""
        save_tensors(self.path / "model.safetensors", network.state_dict(), {"format": str(FORMAT)})
        save_tensors(self.path / "reference.safetensors", reference, {"format": str(FORMAT)})
        self._write("model.json", {"format": FORMAT, "instant": instant.__version__, **card})
        self._write("summary.json", summary)

    def summary(self) -> dict[str, Any]:
        return self._read_with("summary.json", SUMMARY)

    def load_model(self) -> tuple[nn.Module, dict[str, Any]]:
        """The trained network in evaluation mode, and its card (classes, shape, normalisation)."""
        self._read_formatted("model.json")
        card = self._read_with("model.json", CARD)
        shape, classes = tuple(card["shape"]), len(card["classes"])
        if not shape or not len(card["mean"]) == len(card["std"]) == shape[0]:
            raise InputError(f"{self.path / 'model.json'} has another mean or std than its shape needs; it is damaged.")
        try:
            network = build(card["backbone"], shape=shape, classes=classes, **without_weights(card["backbone_options"]))
        except (TypeError, RuntimeError) as error:
            raise InputError(f"{self.path / 'model.json'} does not describe a network ({error!r}).") from error
        tensors, _ = load_tensors(self.path / "model.safetensors")
        try:
            network.load_state_dict(tensors)
        except RuntimeError as error:
            raise InputError(
                f"{self.path}: model.safetensors does not fit model.json ({str(error)[:200]} ...)"
            ) from error
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
        self._write("audit.json", {"format": FORMAT, "instant": instant.__version__, **record})

    def audit(self) -> dict[str, Any] | None:
        """Which samples were drawn to be checked; None when none were."""
        return self._read_formatted("audit.json") if os.path.exists(self.path / "audit.json") else None

    # -- json ---------------------------------------------------------------------------------------------------------

    def keep(self, recipe: Recipe, code: Code) -> None:
        header = {"format": FORMAT, "instant": instant.__version__}
        found = {} if code is NOTHING else {"code": code._asdict()}
        self._write("recipe.json", {**header, "recipe": recipe.to_json(), **found})

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
