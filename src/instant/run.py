"""The life of a run folder: it is begun, gone on with and finished, and what does not belong to it is refused."""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, nn

from instant.backbones.registry import BackboneFunction, backbone_name
from instant.config import Recipe
from instant.data.files import atomic, held
from instant.data.folder.problems import Flaw, require_list, write_problems
from instant.data.source import Source
from instant.data.sources import refuse_data
from instant.data.split import Split, content_of, identify
from instant.engine.checkpoint import save_tensors
from instant.errors import InputError
from instant.methods import name_of
from instant.own_code import require_named
from instant.run_files import CHECKPOINT, FILES, FORMAT, HEADER, NOTHING, PROBLEMS, Code, RunFiles
from instant.types import MethodFunction

ELSEWHERE = ("data", "device", "memory")  # settings that another machine may need otherwise


class Run(RunFiles):
    """One run folder, new or existing."""

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

    def copy_of(self, other: Run) -> None:
        """Become what another, finished run is, but for its checkpoint; half done, it is an unfinished run or none."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            for name in reversed(FILES):
                if name != CHECKPOINT and (other.path / name).exists():
                    with open(other.path / name, "rb") as source, atomic(self.path / name) as file:
                        shutil.copyfileobj(source, file)
        except OSError as error:
            raise self._unwritable(error) from error

    def finish(
        self, network: nn.Module, card: dict[str, Any], reference: dict[str, Tensor], summary: dict[str, Any]
    ) -> None:
        """Write the shared model, what its thresholds rest on, then the summary."""
        save_tensors(self.path / "model.safetensors", network.state_dict(), {"format": str(FORMAT)})
        save_tensors(self.path / "reference.safetensors", reference, {"format": str(FORMAT)})
        self._write("model.json", {**HEADER, **card})
        self._write("summary.json", summary)

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

    @property
    def baseline(self) -> Run:
        """Where the supervised baseline of this run is kept."""
        return Run(self.path / "baseline")

    @property
    def features(self) -> Run:
        """Where the network is kept that has learnt without labels, to start this run from."""
        return Run(self.path / "features")

    # -- what is refused ----------------------------------------------------------------------------------------------

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
        raise self._changed("labels") if relabelled else self._changed("samples", len(split.train))

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
            raise self._changed("samples", len(source.train))

    def _changed(self, what: str, number: int | None = None) -> InputError:
        """`number`: how many there are now, which may say what happened."""
        kept = self.split_record()
        began = kept["pool"] + len(kept["validation"])
        counted = "" if number in (None, began) else f", from {began:,} to {number:,}"
        return InputError(
            f"the {what} of {self} have changed since it was begun{counted}; put them back as they were, or train "
            "again."
        )

    def require_free(self, *, force: bool = False) -> None:
        """Refuse a folder that holds a run, or files that a run would replace, unless with `force`."""
        if self.path.exists() and not self.path.is_dir():
            raise InputError(f"--out {self.path} is a file; name a folder for the run.")
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
        own = [(str(name), self.path / name) for name in FILES if name != page]  # a page may be made anew
        for what, file in (("labels", recipe.label_file), ("samples", recipe.data), *own):
            if file is not None and out.resolve() == Path(file).resolve():
                raise InputError(f"{out} would replace the {what} of {self}; choose another name.")

    def require_named(
        self, method: str | MethodFunction | None, backbone: str | BackboneFunction | None = None
    ) -> None:
        """A method or backbone of your own is code: the caller names it, the folder's word for it is not taken."""
        recipe = self.recipe()
        require_named(self, "method", recipe.method, name_of(method) if callable(method) else method)
        require_named(self, "backbone", recipe.backbone, None if backbone is None else backbone_name(backbone))
