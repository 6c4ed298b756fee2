"""Shared by all tests: one thread per process, since the test runner uses every core."""

from __future__ import annotations

import torch

torch.set_num_threads(1)
