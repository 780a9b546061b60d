"""Whether two versions of the package predict the same, estimator by estimator, on a fixed table of cases.

    PYTHONPATH=one/src python benchmarks/same.py one.npz [--device cuda] [--hand]
    PYTHONPATH=other/src python benchmarks/same.py other.npz [--device cuda] [--hand]
    python benchmarks/same.py one.npz other.npz

The last line prints the largest difference of each case, relative to the spread of its predictions. A case passes only
parameters that the version at hand has, so that older versions can be asked too. On a GPU sums may be added in another
order at every run: there, what two runs of one version differ by is the yardstick.

What is tuned, drawn or stopped early changes with every better way to tune, draw and stop. Cases called "hand" leave
nothing of that open: kernel, penalty and sizes are given, all rows are looked at, mixtures climb to their top. They are
what versions of different years can be compared by (`--hand`: these alone).
"""

from __future__ import annotations

import argparse
import inspect
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.base import is_classifier

#: Settings of a case by its name, beside the seed: what is tuned, what is given, other losses, sizes and updates.
SETTINGS: dict[str, dict[str, Any]] = {
    "tuned": {"kernel": "gaussian", "max_iter": 10, "n_init": 1, "tuning_rows": 100, "n_inducing": 15},
    "given": {"regularization": 0.05, "n_basis": 15, "n_learners": 4, "learner_size": 10, "subset_size": 40},
    "paper": {"covariance_type": "full", "criterion": "mp", "multiclass": "one-vs-rest", "n_init": 1, "max_iter": 10},
    "logistic": {"loss": "logistic", "n_learners": 3, "learner_size": 10, "subset_size": 40, "kernel": "gaussian"},
    "float32": {"dtype": "float32", "kernel": "gaussian", "max_iter": 5, "n_init": 1, "n_inducing": 15},
    "qr": {"update": "qr", "exchange": True, "criterion": "max-res", "n_basis": 12, "kernel": "gaussian"},
    "sd": {"approximation": "sd", "n_inducing": 20, "max_iter": 5, "kernel": "gaussian"},
    "softmax": {"multi_class": "softmax", "n_inducing": 10, "max_iter": 5, "kernel": "gaussian"},
}
#: Cases that only make sense for some.
ONLY = {"logistic": "loss", "qr": "update", "sd": "approximation", "softmax": "multi_class", "paper": "criterion"}

#: What all cases by hand have in common: nothing is tuned, drawn, watched or polished.
HAND: dict[str, Any] = {
    "n_basis": 15,
    "n_learners": 4,
    "learner_size": 10,
    "subset_size": 100,
    "n_inducing": 15,
    "validation_fraction": None,
    "criterion": "max-res",
    "optimize_kernel": False,
    "optimize_inducing": False,
    "polish": False,
    "regularization": 0.05,
    "coupling": 0.5,
    "multiclass": "one-vs-one",
    "combination": "mp",
    "absorption": "full",
    "n_components": 3,
    "n_init": 2,
    "max_iter": 300,
    "tol": 0.0,
    "supervised": True,
}
#: And what sets one apart: the parameter that a face must have, and more settings.
VARIED: dict[str, tuple[str, dict[str, Any]]] = {
    "hand": ("random_state", {}),
    "hand logistic": ("loss", {"loss": "logistic"}),
    "hand qr": ("update", {"update": "qr", "exchange": True}),
    "hand mrx": ("update", {"update": "mrx"}),
    "hand one": ("update", {"update": "one", "criterion": "mp"}),
    "hand blocks": ("absorption", {"absorption": "blocks", "block_length": 2, "combination": "rayleigh"}),
    "hand polish": ("polish", {"polish": True, "criterion": "largest-residuals"}),
    "hand sd": ("approximation", {"approximation": "sd", "inducing": "max-res"}),
    "hand chosen": ("inducing", {"inducing": "max-res"}),
    "hand softmax": ("multi_class", {"multi_class": "softmax"}),
    "hand full": ("covariance_type", {"covariance_type": "full"}),
    "hand float32": ("dtype", {"dtype": "float32"}),
}


def table(n: int = 150) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (n, 3))
    y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * rng.normal(size=n)
    return X, y, np.digitize(y, [-0.8, 0.8])


def blobs(n: int = 150) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Three heaps far apart, which every start of a mixture of three finds."""
    rng = np.random.default_rng(1)
    near = rng.normal(size=(n, 3))
    heap = np.arange(n) % 3
    y = near[:, 0] * (heap - 1) + heap + 0.1 * rng.normal(size=n)
    return near + 9 * np.eye(3)[heap], y, np.digitize(near[:, 1] + 0.3 * rng.normal(size=n), [-0.5, 0.5])


def cases(known: Any, X: np.ndarray, hand: bool) -> Iterator[tuple[str, dict[str, Any]]]:
    """Settings for a face by the names of its parameters."""
    from mercer.kernels import Gaussian

    for case, (needed, more) in VARIED.items():
        given = HAND | {"kernel": Gaussian(1.5), "kernels": [Gaussian(1.5), Gaussian(0.7)], "inducing": X[:15]} | more
        if "c" in known:  # what was called c is called regularization
            given["c"] = given.pop("regularization")
        if needed in known:
            yield case, given
    for case, options in {} if hand else SETTINGS.items():
        if case not in ONLY or ONLY[case] in known:
            yield case, {"kernel": Gaussian(1.5), "n_init": 1} | options if case == "given" else options


def predictions(device: str, hand: bool) -> dict[str, np.ndarray]:
    import mercer

    found: dict[str, np.ndarray] = {}
    for name in mercer.__all__:
        face = getattr(mercer, name)
        if not isinstance(face, type):
            continue
        known = inspect.signature(face).parameters
        for case, options in cases(known, table()[0], hand):
            X, y, labels = blobs() if case.startswith("hand") and "covariance_type" in known else table()
            mine = {key: value for key, value in (options | {"device": device}).items() if key in known}
            try:
                model = face(**mine, random_state=0) if "random_state" in known else face(**mine)
                model.fit(X[:100], labels[:100] if is_classifier(model) else y[:100])
                asked = next(m for m in ("predict_proba", "predict", "transform") if hasattr(model, m))
                said = np.asarray(getattr(model, asked)(X))
                if case.startswith("hand") and asked == "transform":  # coordinates may be turned, products may not
                    said = said @ said.T
                found[f"{name} {case}"] = said
            except (TypeError, ValueError) as error:  # settings that this one does not take together
                print(f"{name} {case}: {str(error)[:90]}", file=sys.stderr)
    return found


def compare(one: str, other: str) -> None:
    with np.load(one) as a, np.load(other) as b:
        both = sorted(set(a) & set(b))
        worst = {}
        for case in both:
            spread = float(a[case].std()) or 1.0
            worst[case] = float(np.abs(a[case] - b[case]).max()) / spread if a[case].shape == b[case].shape else np.inf
            print(f"{case:44s} {worst[case]:9.1e}")
        equal = sum(value < 1e-9 for value in worst.values())
        print(f"{len(both)} cases, {equal} equal to 1e-9; in one alone: {sorted(set(a) ^ set(b)) or 'none'}")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("files", nargs="+", help="one to write, or two to compare")
    options.add_argument("--device", default="cpu")
    options.add_argument("--hand", action="store_true", help="the cases by hand alone")
    asked = options.parse_args()
    if len(asked.files) == 2:
        compare(*asked.files)
    else:
        np.savez(asked.files[0], **predictions(asked.device, asked.hand))
