"""Puts this folder on the path, so that every test can import the slow twins in `oracles.py`."""

import os

import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # fused products run on the CPU; must stand before Triton is first imported
