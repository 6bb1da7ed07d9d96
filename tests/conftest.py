"""One thread a test process: the suite runs one process a core, and threads that share a core wait for each other."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

torch.set_num_threads(1)
