"""One measurement of an estimator of T, for transition.py: alone where the truth is known, or inside training."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any, NamedTuple

PER_CLASS, STEPS, POOL, TEST = (1, 2, 4, 25), 1500, 2000, 2000
PAIRS, ROWS = 16, 96  # labelled and unlabelled rows a step, as on digits
KEY = ("problem", "labels", "seed", "estimator")
Row = dict[str, Any]


class Job(NamedTuple):
    """One estimator on one draw of the labelled samples."""

    problem: str
    labels: int  # synthetic: a class; else in all
    seed: int
    transition: str
    confident: float = 0.0
    options: tuple[tuple[str, str], ...] = ()  # further settings of the run, key and value

    @property
    def key(self) -> dict[str, str]:
        """What names the job's row."""
        extra = [f"confident {self.confident:g}"] if self.confident else []
        extra += [value for name, value in self.options if name == "trained_on"]
        extra += [f"decay {value}" for name, value in self.options if name == "decay"]
        extra += [f"{name[7:]} {value}" for name, value in self.options if name.startswith("method.")]
        name = ", ".join([self.transition, *extra])
        return dict(zip(KEY, (self.problem, str(self.labels), str(self.seed), name)))


# -- synthetic: each estimator alone, on pairs (class, call) drawn from the true T(x) ---------------------------------


def synthetic_jobs(seeds: Iterable[int]) -> list[Job]:
    trained = ("head", "network", "parts", "matrix", "volmin")
    references = ("true T", "mean of T", "identity")
    kinds: list[tuple[str, str, float, tuple]] = [("vectors", name, 0.0, ()) for name in references]
    kinds += [("vectors", name, share, ()) for name in trained for share in (0.0, 0.5, 1.0)]
    kinds += [("images", "network", share, ()) for share in (0.0, 1.0)]
    kinds += [("vectors", "head", 0.0, (("decay", "0"),))]
    kinds += [("vectors", "volmin", 0.0, (("trained_on", "unlabelled"),))]
    kinds += [("vectors", name, 0.0, ()) for name in ("dual_t", "anchor")]
    return [
        Job(problem, labels, seed, name, share, options)
        for problem, name, share, options in kinds
        for labels in PER_CLASS
        for seed in seeds
    ]


def measure_synthetic(job: Job) -> Row:
    """Fit one estimator for 1,500 steps with the settings of training; compare T(x) and tau(x) with the truth."""
    import torch

    from instant.backbones import build
    from instant.data.synthetic import Drawn, Smudged
    from instant.learner import commit
    from instant.losses import forward_corrected
    from instant.transition import Sight, Transitions, inflow
    from instant.transition.registry import build_transition
    from instant.types import Prediction, Problem

    torch.set_num_threads(1)
    torch.manual_seed(job.seed)
    truth = Smudged(images=job.problem == "images")
    classes = truth.classes
    projection = torch.randn(classes + 1, 32)  # stands for a classifier's features

    def tensors(drawn: Drawn) -> Drawn:
        return Drawn(*(torch.as_tensor(a).float() if a.dtype.kind == "f" else torch.as_tensor(a) for a in drawn))

    labelled = tensors(truth.draw(job.labels * classes, 3 * job.seed, balanced=True))
    pool, test = (tensors(truth.draw(n, 3 * job.seed + place)) for n, place in ((POOL, 1), (TEST, 2)))

    def network(outputs: int) -> torch.nn.Module:
        if truth.images:
            return Pictures(outputs)
        return build("mlp", shape=(classes + 1,), classes=outputs, width=32)

    class Pictures(torch.nn.Module):
        """Two convolutions: the package's own networks are too large to be fitted a hundred times in a minute."""

        def __init__(self, outputs: int) -> None:
            super().__init__()
            self.first, self.second = torch.nn.Conv2d(1, 16, 3, 2, 1), torch.nn.Conv2d(16, 32, 3, 2, 1)
            self.head = torch.nn.Linear(32 * 4, outputs)

        def forward(self, x: torch.Tensor) -> Prediction:
            features = self.second(self.first(x).relu()).relu().flatten(1)
            return Prediction(self.head(features), features)

    def margin(drawn: Drawn, matrix: torch.Tensor) -> torch.Tensor:
        """m(x) of eq. 3 with the clean posterior: k is what the classifier calls x, s the best of the others."""
        k = drawn.noisy.argmax(1, keepdim=True)
        column = inflow(matrix, k.squeeze(1))
        stay = column.gather(1, k).squeeze(1)
        runner_up = drawn.posterior.scatter(1, k, 0.0).amax(1)
        return stay * (runner_up - drawn.posterior.gather(1, k).squeeze(1)) + (column * drawn.posterior).sum(1)

    def part(drawn: Drawn, place: torch.Tensor) -> Drawn:
        return Drawn(*(column[place] for column in drawn))

    started = time.perf_counter()
    if job.transition == "true T":
        matrix = test.transition
    elif job.transition == "mean of T":
        matrix = test.transition.mean(0)  # the best that one matrix for all samples can be
    elif job.transition == "identity":
        matrix = torch.eye(classes)
    else:
        problem = Problem(classes=classes, features=32, unlabelled=POOL, steps=STEPS, network=network)
        by_labels = ("trained_on", "unlabelled") not in job.options
        use = Transitions(build_transition(job.transition, problem), labelled=by_labels, confident=job.confident)
        own = list(use.parameters())
        decay = float(dict(job.options).get("decay", use.estimator.decay))
        optimizer = torch.optim.SGD(own, lr=0.01, momentum=0.9, weight_decay=decay) if own else None
        for step in range(STEPS):
            one = part(labelled, torch.randint(len(labelled.y), (PAIRS,)))
            many = part(pool, torch.randint(POOL, (ROWS,)))
            features = torch.relu(torch.cat([one.latent, many.latent]) @ projection)
            matrix, used = use(features, torch.cat([one.x, many.x]), PAIRS)
            confidence, k = many.noisy.max(1)
            sight = Sight(many.noisy, many.again, k, confidence - margin(many, used.detach()))
            loss, state = use.fit(matrix, one.y, one.called, sight, torch.tensor(step))
            if not by_labels:  # VolMinNet's own data term, given a classifier that knows the clean posterior
                loss = loss + forward_corrected(many.posterior.log(), inflow(used, many.called)).mean()
            if optimizer is not None:
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            commit(use.estimator, state)
        use.eval()
        with torch.no_grad():
            matrix, _ = use(torch.relu(test.latent @ projection), test.x, 0)
    seconds = time.perf_counter() - started
    tau, true_tau = margin(test, matrix), margin(test, test.transition)
    confidence, k = test.noisy.max(1)
    accepted = confidence > tau
    return {
        "error_T": float((matrix - test.transition).abs().mean()),
        "error_tau": float((tau - true_tau).abs().mean()),
        "share": float(accepted.double().mean()),
        "precision": float((k == test.y)[accepted].double().mean()),
        "bayes": float((k == test.posterior.argmax(1))[accepted].double().mean()),
        "seconds": round(seconds, 2),
    }


# -- inside training, against the confusion of held-out predictions ------------------------------


def source_jobs(source: str, labels: Iterable[int], seeds: Iterable[int], settings: dict[str, str]) -> list[Job]:
    kinds = [("head", 0.0), ("head", 0.5), ("head", 1.0), ("matrix", 0.0), ("matrix", 1.0), ("parts", 0.0)]
    kinds += [
        ("parts", 1.0),
        ("dual_t", 0.0),
        ("anchor", 0.0),
        ("volmin", 0.0),
        ("volmin", 1.0),
        ("network", 0.0),
        ("network", 1.0),
    ]
    return [
        Job(source, number, seed, name, share, tuple(settings.items()))
        for seed in seeds
        for number in labels
        for name, share in kinds
        if share or "method.confident_from" not in settings  # which says nothing without them
    ]


def mixture(seed: int) -> Any:
    """The five Gaussians as a source: 2,000 vectors to train on, 2,000 to test."""
    from instant.data.sources import arrays
    from instant.data.synthetic import Smudged

    train, test = (Smudged().draw(count, 3 * seed + place) for count, place in ((POOL, 1), (TEST, 2)))
    return arrays(train.x, train.y, test.x, test.y, name="mixture")


def measure_source(job: Job) -> Row:
    """Train InstanT with one estimator; hold T(x) of held-out samples against how they are called."""
    import torch

    torch.set_num_threads(1)
    from instant.data.feed import Normalise
    from instant.data.sources import load
    from instant.engine.build import split_for
    from instant.engine.fit import fit
    from instant.recipes import resolve, vectors

    # the paper's base and a T that learns as fast as by default, whatever the source's recipe has
    settings = {"method.base": "0.9", "method.transition_lr": "0.01"} if job.problem == "digits" else {}
    settings |= {"labels": str(job.labels), "seed": str(job.seed), "method.transition": job.transition}
    settings |= {"method.confident": str(job.confident)} if job.confident else {}
    settings |= dict(job.options)
    if job.problem == "mixture":
        recipe, source = vectors().override(settings), mixture(job.seed)
    else:
        recipe = resolve(job.problem, settings)
        source = load(job.problem, recipe.data)
    trained = fit(recipe, split_for(recipe, source))
    learner, split = trained.learner.eval(), trained.split
    device = next(learner.parameters()).device
    normalise = Normalise(split.mean, split.std, images=split.test.is_images).to(device)
    estimator = learner.method.transitions.estimator
    y = torch.from_numpy(split.test_targets)
    rows, tables = [], []
    with torch.no_grad():
        for start in range(0, len(split.test), 500):
            x = normalise(torch.tensor(split.test.samples[start : start + 500]).to(device))
            out = learner.student(x)
            matrix = estimator(out.features, x)
            tables.append((matrix if matrix.ndim == 3 else matrix.expand(len(x), -1, -1)).cpu())
            rows.append(torch.softmax(out.logits, 1).cpu())
    probs, matrix = torch.cat(rows), torch.cat(tables)
    return against_confusion(probs, matrix, y) | {
        "share": trained.summary["utilisation"],
        "precision": trained.summary["pseudo_label_accuracy"],
        "accuracy": trained.summary["accuracy_last"],
        "seconds": round(trained.summary["seconds"], 1),
    }


def against_confusion(probs: Any, matrix: Any, y: Any) -> Row:
    """T(x) of held-out samples, (N, K, K), and its thresholds, against how the samples of each class are called."""
    import torch

    from instant.rules.instance import instance_margin
    from instant.transition import inflow

    called, classes = probs.argmax(1), probs.shape[1]
    members = torch.nn.functional.one_hot(y, classes).float()  # (N, K)
    members = members / members.sum(0)
    confusion = members.t() @ torch.nn.functional.one_hot(called, classes).float()
    average = torch.einsum("ni,nij->ij", members, matrix)  # row i: the mean of T(x)[i] over the images of class i
    tau, true_tau = (instance_margin(probs, inflow(t, called)) for t in (matrix, confusion))
    return {
        "error_T": float((average - confusion).abs().mean()),
        "error_identity": float((torch.eye(classes) - confusion).abs().mean()),
        "error_tau": float((tau - true_tau).abs().mean()),
        "surprise": float(-matrix[torch.arange(len(y)), y, called].clamp_min(1e-4).log().mean()),
    }
