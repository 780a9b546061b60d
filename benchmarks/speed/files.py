"""Bytes and seconds of models that leave Python: our files, pickles and ONNX graphs, on KIN40K.

    MERCER_DATA=… python benchmarks/speed/files.py [--vectors 500 1000]

Errors are shares of the targets' variance on 4000 rows that were not fitted; seconds are those of a prediction for
36 000 rows, by `predict` and by onnxruntime, one thread each. Sizes at equal error:
`benchmarks/peers/sizes_on_disk.py`.
"""

from __future__ import annotations

import argparse
import os
import pickle
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch

from mercer import GreedyKernelRegressor, load, to_onnx
from mercer.datasets import load as load_table
from mercer.datasets import split


def seconds(run: Any) -> float:
    """CPU time, the same as that of a clock on one thread of an idle machine."""
    run()
    began = time.process_time()
    run()
    return time.process_time() - began


def ours(n: int, X: Any, y: Any, X_test: Any, y_test: Any, folder: Path) -> None:
    model = GreedyKernelRegressor(n, kernel="matern52", random_state=0).fit(X, y)
    error = float(np.mean((model.predict(X_test) - y_test) ** 2) / np.var(y_test))
    path = folder / "m.mercer"
    model.save(path)
    same = bool((load(path).predict(X_test) == model.predict(X_test)).all())
    sizes = f"file {path.stat().st_size} bytes, pickle {len(pickle.dumps(model))}"
    print(
        f"{len(model.basis_)} basis vectors, {model.dtype_}: error {100 * error:.2f} %, {sizes}; loaded equal: {same}"
    )
    plain = seconds(lambda: model.predict(X))
    for dtype in ("float32", "float64"):
        graph = to_onnx(model, dtype=dtype).SerializeToString()
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        session, rows = onnxruntime.InferenceSession(graph, options), X.astype(dtype)
        there = seconds(lambda session=session, rows=rows: session.run(None, {"X": rows}))
        found = session.run(None, {"X": X_test.astype(dtype)})[0][:, 0]
        apart = np.abs(found - model.predict(X_test.astype(dtype))).max() / np.abs(y_test).max()
        times = f"predict {plain:.2f} s, onnxruntime {there:.2f} s"
        print(f"  ONNX {dtype}: {len(graph)} bytes, {times}, apart {apart:.1e}")


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--vectors", type=int, nargs="+", default=[500, 1000])
    given = options.parse_args()
    torch.set_num_threads(1)
    X, X_test, y, y_test = split(load_table("kin40k"), test_size=0.1, seed=0)
    with tempfile.TemporaryDirectory() as folder:
        for n in given.vectors:
            ours(n, X, y, X_test, y_test, Path(folder))


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
