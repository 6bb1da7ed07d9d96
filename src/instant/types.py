"""What crosses the borders between parts: one step's input, what a rule may see, what a method returns.

Shapes: B unlabelled rows, L labelled rows (W of them weak views), K classes, D features, N samples in the pool.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from torch import Tensor, nn

State = dict[str, Tensor]
"""The next values of named buffers, written by `commit` after the backward pass."""


class Prediction(NamedTuple):
    """What every backbone returns."""

    logits: Tensor  # (rows, K)
    features: Tensor  # (rows, D), the input of the head


class Network(Protocol):
    """A classifier as a method sees it.

    `still` are further rows of the same batch that need no gradient of their own; their predictions come after those
    of x. Batch statistics are shared by all rows.
    """

    def __call__(self, x: Tensor, still: Tensor | None = None) -> Prediction: ...


class Views(NamedTuple):
    """One step's input, augmented and normalised, on the device."""

    x_l: Tensor  # (L, ...) labelled samples: W weak views, then the strong ones that `strong_labels` asks for
    y_l: Tensor  # (L,) their classes
    x_w: Tensor  # (B, ...) weak view of unlabelled samples; no rows when the method wants none
    x_s: Tensor  # (B, ...) second view: strong, or weak again, as the method wants; no rows when it wants none
    index: Tensor  # type: ignore[assignment]  # (B,) positions in the unlabelled pool
    step: Tensor  # () int64
    key: Tensor  # (2,) randomness of this step for the method's own draws
    y_weak: Tensor  # (W,) classes of the labelled samples in weak views
    kept: Tensor  # (M,) the last M strong views have the one before them in them: the share that is their own, or 1


class Evidence(NamedTuple):
    """All that a rule may look at: detached, fixed shapes."""

    probs: Tensor  # (B, K) weak-view probabilities, aligned where the method aligns
    probs_l: Tensor  # (W, K) probabilities of labelled samples in weak views, as the classifier gives them
    y_l: Tensor  # (W,)
    index: Tensor  # type: ignore[assignment]  # (B,)
    step: Tensor  # ()
    inflow: Tensor | None = None  # (B, K) column k of T(x): how each true class i flows into the pseudo-label k


class Selection(NamedTuple):
    """A rule's decision: how much each sample counts, and the threshold it was held against."""

    weight: Tensor  # (B,) in [0, 1]
    threshold: Tensor  # (B,)


class Decision(NamedTuple):
    """What a method decided about each unlabelled row of a step, for the metrics and the records."""

    index: Tensor  # type: ignore[assignment]  # (B,)
    label: Tensor  # (B,) pseudo-label
    confidence: Tensor  # (B,)
    threshold: Tensor  # (B,)
    weight: Tensor  # (B,)


class Output(NamedTuple):
    """What a method returns for one step."""

    loss: Tensor  # ()
    metrics: dict[str, Tensor]  # named 0-d tensors, detached
    state: State
    decision: Decision | None = None


class Wants(NamedTuple):
    """Which views of the unlabelled samples a method looks at."""

    weak: bool = True
    second: Literal["strong", "weak", "none"] = "strong"
    parts: bool = False  # True: views of images are parts of them in other colours (`augment/contrast.py`)


class Method(nn.Module):
    """A semi-supervised method: `forward(model, teacher, views) -> Output`, one step's views in, a loss out."""

    wants: Wants = Wants()
    exact: bool = False  # True: needs full float32, no autocast
    takes_mixed: bool = False  # True: knows that some strong views are of two samples (Views.kept)
    classifies: bool = True  # False: the head learns nothing, and there is no accuracy to speak of
    all_labels: bool = False  # True: trains on every label there is, an upper reference
    own_lr: float = 0.01  # learning rate of the method's own parameters (SGD, momentum 0.9), if it has any
    own_decay: float = 0.0  # and their weight decay


@dataclass(frozen=True, kw_only=True)
class Problem:
    """The sizes a method is built for."""

    classes: int  # K
    features: int  # D, width of the classifier's features
    unlabelled: int  # N, size of the unlabelled pool
    steps: int  # length of the run
    network: Callable[[int], nn.Module] | None = None  # makes a fresh backbone with so many outputs

    def scaled(self, steps: int) -> int:
        """A number of steps stated for runs of 204,800 and more, shortened in proportion for shorter runs."""
        return min(steps, max(1, round(steps * self.steps / 204_800)))


MethodFunction = Callable[..., Method]
"""`name(problem, *, options...) -> Method`: the form of every function in `algorithms.py`."""
