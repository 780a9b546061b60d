"""Check an installation: versions, processors, fused kernels, and the speed of products beside scikit-learn's."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable
from importlib import metadata
from typing import Any

import numpy as np
import torch
from sklearn.metrics.pairwise import rbf_kernel

from mercer.data import TensorRows
from mercer.engine import KernelMatrix, make_plan
from mercer.engine.fused import fused_columns
from mercer.kernels import Gaussian

PACKAGES = ("mercer", "torch", "numpy", "scipy", "scikit-learn", "safetensors")
#: Optional packages, their purpose, and the extra that installs them.
EXTRAS = {
    "triton": ("products with a kernel matrix in one program on a GPU", "gpu"),
    "llvmlite": ("fast products on CPUs", "fast"),
    "pyarrow": ("Parquet and Arrow files", "files"),
    "matplotlib": ("pictures", "plots"),
    "onnx": ("ONNX graphs", "onnx"),
    "distributed": ("fits on Dask clusters", "dask"),
}
#: Rows, basis vectors and inputs of a product with a Gaussian kernel matrix, and seconds of each measurement.
ROWS, BASIS, INPUTS, SECONDS = 20_000, 1_000, 8, 2.0
#: Relative difference from scikit-learn beyond which products are wrong: float32 tiles of a thousand values.
WRONG = 1e-4


def checkup() -> dict[str, Any]:
    """The result of `mercer doctor`; ``healthy`` is whether all products agree with scikit-learn's."""
    devices = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
    products = {device: _product(device) for device in devices}
    return {
        "versions": {name: installed(name) for name in PACKAGES},
        "extras": {name: _extra(name, *about) for name, about in EXTRAS.items()},
        "python": platform.python_version(),
        "system": platform.platform(),
        "cpu": f"{platform.machine()}, {os.cpu_count()} cores, {torch.get_num_threads()} threads",
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else "none that torch finds",
        "fused kernels": _fused(),
        "products": products,
        "healthy": all(product["agrees"] for product in products.values()),
    }


def installed(name: str) -> str:
    """The version of a package, or "not installed"."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"


def _extra(name: str, purpose: str, extra: str) -> str:
    """The version of an optional package, or what it is for and how to install it."""
    found = installed(name)
    return f"not installed, for {purpose}: pip install 'mercer[{extra}]'" if found == "not installed" else found


def _fused() -> str:
    """Whether products of kernel matrices run as fused programs, in words."""
    if not torch.cuda.is_available():
        return "only with a CUDA device"
    plan = make_plan(ROWS, "cuda", "float32")
    basis = torch.zeros(2, INPUTS, device=plan.device, dtype=plan.dtype)
    return (
        "in use" if fused_columns(Gaussian(2.0), basis, plan) is not None else "need Triton: pip install 'mercer[gpu]'"
    )


def _product(device: str) -> dict[str, Any]:
    """Compare a product with a Gaussian kernel matrix with scikit-learn's: whether it agrees, and its speed."""
    rng = np.random.default_rng(0)
    X, Z, W = rng.normal(size=(ROWS, INPUTS)), rng.normal(size=(BASIS, INPUTS)), rng.normal(size=(BASIS, 1))
    plan = make_plan(ROWS, device, "float32")
    as_tile: dict[str, Any] = {"device": plan.device, "dtype": plan.dtype}
    rows, basis = TensorRows(torch.as_tensor(X).to(**as_tile)), torch.as_tensor(Z).to(**as_tile)
    matrix, weights = KernelMatrix(rows, Gaussian(2.0), basis, plan), torch.as_tensor(W)
    ours = _rate(lambda: matrix.product(weights).cpu())
    theirs = _rate(lambda: rbf_kernel(X, Z, gamma=0.125) @ W)
    difference = np.abs(matrix.product(weights).cpu().numpy() - rbf_kernel(X, Z, gamma=0.125) @ W).max()
    return {
        "agrees": bool(difference < WRONG * np.abs(W).sum()),
        "million values a second": round(ours * ROWS * BASIS / 1e6),
        "times scikit-learn": round(ours / theirs, 1),
    }


def _rate(work: Callable[[], Any]) -> float:
    """How often a second a piece of work is done, after one warm-up run."""
    work()
    began, count = time.perf_counter(), 0
    while time.perf_counter() - began < SECONDS:
        work()
        count += 1
    return count / (time.perf_counter() - began)
