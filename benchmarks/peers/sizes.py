"""Accuracy against the number of basis vectors: every criterion, beside random rows, k-means centres and SVMs.

    MERCER_DATA=… python benchmarks/peers/sizes.py [--tables kin40k pol] [--out sizes.json] [--picture out.png]

One kernel for all methods of a table, tuned by evidence on 1000 training rows (90/10). Every set of basis vectors gets
the weights of the same ridge problem, so only the choice differs. Errors are NMSE or wrong classes in percent.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from rivals import OverLengths
from sklearn.cluster import MiniBatchKMeans
from sklearn.svm import SVC, SVR

from mercer import GreedyKernelRegressor, tune_kernel
from mercer.datasets import load, split
from mercer.forward.criteria import Criterion
from mercer.kernels import Gaussian, Kernel

TABLES = ("kin40k", "pol", "elevators", "gal_protein", "spambase")
SIZES = (16, 32, 64, 128, 256, 512)
#: ORMP scores all rows against all rows.
LARGEST_ORMP = 5000


class Table:
    """Standardised rows, targets and the kernel that every method is given."""

    def __init__(self, name: str) -> None:
        X, X_test, y, y_test = split(load(name), test_size=0.1, seed=0)
        self.classes = name == "spambase"
        if self.classes:  # heavy tails
            X, X_test = np.log1p(X), np.log1p(X_test)
            y, y_test = (np.where(part == np.unique(y)[1], 1.0, -1.0) for part in (y, y_test))
        else:
            y, y_test = (y - y.mean()) / y.std(), (y_test - y.mean()) / y.std()
        mean, scale = X.mean(0), np.where(X.std(0) > 0, X.std(0), 1.0)
        self.X, self.X_test, self.y, self.y_test = (X - mean) / scale, (X_test - mean) / scale, y, y_test
        tuned = tune_kernel(self.X, y, "gaussian", ard=True, n_rows=1000, max_iter=50, random_state=0)
        values = tuned.kernel.tunable()
        self.length_scale = np.minimum(values["left__kernel__length_scale"], 100.0)
        self.kernel: Kernel = (
            values["left__variance"] * Gaussian(self.length_scale.tolist()) + values["right__variance"]
        )
        self.noise = max(tuned.noise, 1e-4)

    def error(self, f: np.ndarray) -> float:
        wrong = f.reshape(-1) * self.y_test <= 0 if self.classes else (f.reshape(-1) - self.y_test) ** 2
        return 100 * float(np.mean(wrong))

    def model(self, **options: Any) -> Any:
        fixed = {"kernel": self.kernel, "regularization": self.noise, "scale_inputs": False, "random_state": 0}
        fixed["dtype"] = "float64"  # what is compared is the choice, not the rounding
        return GreedyKernelRegressor(SIZES[-1], **{**fixed, **options})


def by_criterion(table: Table, criterion: str) -> list[tuple[int, float]]:
    """Class codes are fitted as numbers, so that one path serves both tasks."""
    model = table.model(criterion=criterion, step_size=1).fit(table.X, table.y)
    sizes = [m for m in SIZES if m <= len(model.basis_)]
    return [(m, table.error(f)) for m, f in zip(sizes, model.path_predict(table.X_test, sizes), strict=True)]


def by_centres(table: Table) -> list[tuple[int, float]]:
    """k-means in the kernel's own units; ridge on the centres in float64."""
    import torch

    from mercer.data import TensorRows
    from mercer.engine import KernelMatrix, make_plan
    from mercer.linalg import cholesky, whitening

    found = []
    X, X_test = (torch.as_tensor(part) for part in (table.X, table.X_test))
    for m in SIZES:
        means = MiniBatchKMeans(m, n_init=1, batch_size=4096, random_state=0).fit(table.X / table.length_scale)
        Z = torch.as_tensor(means.cluster_centers_ * table.length_scale)
        B = whitening(table.kernel(Z, Z))
        K = KernelMatrix(TensorRows(X), table.kernel, Z, make_plan(len(X), "cpu", "float64"))
        gram, cross = K.moments(torch.as_tensor(table.y)[:, None], B=B)
        gram.diagonal().add_(table.noise)
        weights = B @ torch.cholesky_solve(cross, cholesky(gram)[0])
        found.append((m, table.error((table.kernel(X_test, Z) @ weights).numpy())))
    return found


def by_svm(table: Table) -> list[tuple[int, float]]:
    found = []
    for C, tolerance in ((1.0, 0.5), (10.0, 0.2)):
        machine = SVC(C=C, gamma=0.5) if table.classes else SVR(C=C, epsilon=tolerance, gamma=0.5)
        scaled = OverLengths(machine, table).fit(table.X, table.y)
        found.append((len(machine.support_), table.error(scaled.predict(table.X_test))))
    return found


def refined(table: Table) -> list[tuple[int, float]]:
    """The basis vectors of max-res moved, with the kernel, by gradients of the sparse evidence."""
    found: list[tuple[int, float]] = []
    for m in () if table.classes else (32, 128, 512):
        own = {"kernel": "gaussian", "regularization": "auto", "dtype": "auto"}
        model = table.model(refine=True, **own).set_params(n_basis=m)
        found.append((m, table.error(model.fit(table.X, table.y).predict(table.X_test))))
    return found


def draw(results: dict[str, Any], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, -(-(len(results) + 1) // 2), figsize=(13, 8), layout="constrained")
    axes, handles = axes.ravel(), {}
    own = {"random": "k--", "k-means": "k:", "svm": "kx", "refined": "r*-"}
    rest = sorted({method for methods in results.values() for method in methods} - set(own))
    style = own | {method: f"C{(0, 1, 2, 4, 5, 6, 8, 9)[i % 8]}o-" for i, method in enumerate(rest)}
    for axis, (name, methods) in zip(axes, results.items(), strict=False):
        errors = [e for entry in methods.values() for _, e in entry["points"]]
        for method, entry in methods.items():
            m, e = zip(*entry["points"], strict=True)
            (handles[method],) = axis.loglog(m, e, style[method], markersize=4, linewidth=1.2)
        steps = [step for step in (1, 2, 4, 6, 8, 10, 15, 20, 40, 60, 80) if min(errors) <= step <= max(errors)]
        axis.set_yticks(steps, [str(step) for step in steps])
        axis.set_xticks([16, 64, 256, 1024, 4096], ["16", "64", "256", "1024", "4096"])
        for side in (axis.xaxis, axis.yaxis):
            side.set_minor_formatter(matplotlib.ticker.NullFormatter())
        axis.set(title=name, xlabel="basis vectors", ylabel="test error, %")
        axis.grid(alpha=0.3, which="major")
    for axis in axes[len(results) :]:
        axis.axis("off")
    axes[len(results)].legend(handles.values(), handles.keys(), frameon=False, ncols=2, loc="center")
    figure.savefig(path, dpi=130)


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--tables", nargs="+", default=list(TABLES))
    options.add_argument("--only", nargs="+", default=None, help="these ways of choosing alone")
    options.add_argument("--out", type=Path, default=Path("sizes.json"))
    options.add_argument("--picture", type=Path, default=None)
    given = options.parse_args()
    results: dict[str, Any] = json.loads(given.out.read_text()) if given.out.exists() else {}
    for name in given.tables:
        table = Table(name)
        ways = {c: (lambda t, c=c: by_criterion(t, c)) for c in Criterion.choices() if c != "largest-residuals"}
        if len(table.X) > LARGEST_ORMP:
            del ways["ormp"]
        ways |= {"k-means": by_centres, "refined": refined, "svm": by_svm}
        known = results.setdefault(name, {})
        for method, way in ways.items():
            if method in known or (given.only and method not in given.only):
                continue
            began = time.perf_counter()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                points = way(table)
            seconds = time.perf_counter() - began
            if points:
                known[method] = {"points": points, "seconds": seconds}
            shown = ", ".join(f"{m}: {e:.2f}" for m, e in points)
            print(f"{name:12s} {method:16s} {seconds:6.1f} s  {shown}", flush=True)
            given.out.write_text(json.dumps(results))
    if given.picture:
        draw({name: results[name] for name in given.tables}, given.picture)


if __name__ == "__main__":
    main()
