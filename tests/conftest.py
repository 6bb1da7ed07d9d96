"""What all tests share.

One thread a test process: the suite runs one process a core, and threads that share a core wait for each other.
"""

import pytest
import torch
from runs import small

from instant.engine.fit import fit
from instant.run import Run

torch.set_num_threads(1)


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """Uninterrupted runs of digits: of a method with its own network, and of one with a state for every sample."""
    found = {}
    for method in ("instant", "flexmatch"):
        found[method] = Run(tmp_path_factory.mktemp("whole") / method)
        fit(*small(method), run=found[method])
    return found


@pytest.fixture(scope="session")
def finished(whole: dict[str, Run]) -> Run:
    """A finished run; look at it, do not change it."""
    return whole["instant"]
