"""A finished run for others: an ONNX graph that decides by itself, or its weights with their card."""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn

from instant.backbones import BackboneFunction
from instant.data.files import atomic, require_free
from instant.engine.checkpoint import load_tensors, write_tensors
from instant.errors import InputError
from instant.labelling.judge import Judge, load_judge
from instant.run import Run
from instant.types import MethodFunction

INPUT = "samples"
DECIDED = ("label", "probabilities", "tau", "accepted")


class _Deciding(nn.Module):
    def __init__(self, judge: Judge) -> None:
        super().__init__()
        self.judge = judge

    def forward(self, samples: Tensor) -> tuple[Tensor, ...]:
        if not self.judge.decides:
            probs = self.judge.classify(samples)
            return probs.argmax(1), probs
        found = self.judge(samples)
        return found.label, found.probs, found.tau, found.accepted


def export_onnx(
    run: Run,
    path: Path,
    *,
    force: bool = False,
    method: str | MethodFunction | None = None,
    backbone: str | BackboneFunction | None = None,
) -> tuple[str, ...]:
    """Write the graph `samples -> label, probabilities, tau, accepted`, any number of samples; returns the outputs.

    It takes what the run was trained on, uint8 images (batch, C, H, W) or float32 vectors (batch, D), and normalises
    them itself. Of a method without thresholds there are label and probabilities only. The model's metadata holds the
    classes, the shape, mean and deviation, as JSON.
    """
    require_free(path, force=force)
    run.require_not_its_own(path)
    try:
        import onnx
        import onnxscript  # noqa: F401 (torch's exporter is written with it)
    except ImportError as error:
        raise InputError(f'--onnx needs the onnx extra ({error}): pip install "instant-ssl[onnx]"') from error
    judge, _, shape = load_judge(run, method, backbone)
    if judge.decides:
        judge.require_stranger()
    module = _Deciding(judge).eval()
    outputs = DECIDED if judge.decides else DECIDED[:2]
    samples = torch.zeros(3, *shape, dtype=torch.uint8 if len(shape) == 3 else torch.float32)
    try:
        with torch.no_grad(), _quiet():
            program = torch.onnx.export(
                module,
                (samples,),
                dynamo=True,
                verbose=False,
                dynamic_shapes={INPUT: {0: torch.export.Dim("batch")}},
                input_names=[INPUT],
                output_names=list(outputs),
            )
    except torch.onnx.OnnxExporterError as error:
        why = str(error.__cause__ or error).splitlines()[0]
        raise InputError(
            f"{run}: {run.recipe().method} with {run.recipe().backbone} does something that ONNX cannot hold ({why}); "
            "use --safetensors, or write it in other operations."
        ) from error
    assert program is not None
    proto = program.model_proto
    if not proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param:
        raise InputError(
            f"{run}: its network, {run.recipe().backbone}, fixes the number of samples at {len(samples)} when it is "
            "exported; export another backbone, or use --safetensors."
        )
    for name, value in _card(run, backbone).items():
        proto.metadata_props.append(onnx.StringStringEntryProto(key=name, value=value))
    with _writing(path), atomic(path) as file:
        file.write(proto.SerializeToString())
    return outputs


def export_safetensors(
    run: Run, path: Path, *, force: bool = False, backbone: str | BackboneFunction | None = None
) -> None:
    """Write the weights of the judged network, with what rebuilds it as the file's metadata."""
    require_free(path, force=force)
    run.require_not_its_own(path)
    card = _card(run, backbone)  # or a sentence: it does not fit the weights
    tensors = load_tensors(run.path / "model.safetensors")[0]
    with _writing(path):
        write_tensors(path, tensors, card)


def _card(run: Run, backbone: str | BackboneFunction | None) -> dict[str, str]:
    """model.json as text, each entry JSON of its own."""
    return {name: json.dumps(value) for name, value in run.load_model(backbone)[1].items()}


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InputError(
            f"{path} cannot be written ({error.strerror or error}); choose a folder you may write to, with space left."
        ) from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the exporter's notes on other libraries and on how it works."""
    log = logging.getLogger("torch.onnx")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        log.setLevel(level)
