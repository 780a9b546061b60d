"""`save`: a fitted model as one safetensors file, arrays as tensors and everything else as JSON in its metadata."""

from __future__ import annotations

import copy
import hashlib
import json
import os
import re
import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from mercer.atomic_write import write_atomically
from mercer.codec.registry import name_of, registry
from mercer.codec.tree import Decoder, Encoder
from mercer.forward.expansion import Expansion
from mercer.parts import require
from mercer.version import __version__

#: Raised when files change so that older versions cannot read them; every number that was ever released is read.
FORMAT = 2
#: Most lists and objects in the description of a model; models of 200 learners have about a thousand.
MAX_VALUES = 500_000
#: Attributes that no prediction needs: basis vectors in the user's units, their rows, and the history of the fit.
INSPECTION_ONLY = ("basis_", "basis_indices_", "dual_coef_", "history_", "objective_path_", "tuning_report_")


def save(model: Any, path: str | os.PathLike[str], *, stages: bool = False, small: bool = False) -> None:
    """Write a fitted estimator to a file that `mercer.load` reads, on any machine and in every later version.

    Nothing in the file can run code. Callbacks, streams of random numbers and the state of a warm start are left out:
    they belong to the session that fitted the model. A function of your own (as a kernel, for example) is refused.

    Parameters
    ----------
    model : estimator
        Any fitted estimator or transformer of mercer, or a scikit-learn pipeline that ends in one, if its other steps
        are usual transformers without functions: scalers, encoders, imputers, `PCA`, `ColumnTransformer`, …
    path : str or path
        Where to; an existing file is replaced at once, or not at all.
    stages : bool, default False
        Whether boosted and greedy models keep what `staged_predict` and `path_predict` need: the weights after each
        step, often more numbers than the model itself.
    small : bool, default False
        Whether to leave out what no prediction needs: of boosted, greedy and Gaussian process models the basis vectors
        in the units of `X` and their rows, weights by that name, and the history. Predictions are the same to the last
        bit; the file is about half as large, or a third where kernel values are float32.

    Examples
    --------
    >>> import os, tempfile
    >>> import mercer
    >>> from mercer.datasets import make_sinc
    >>> X, y = make_sinc(random_state=0)
    >>> model = mercer.NRBFRegressor(random_state=0).fit(X, y)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     mercer.save(model, os.path.join(folder, "sinc.mercer"))
    ...     again = mercer.load(os.path.join(folder, "sinc.mercer"))
    >>> bool((again.predict(X) == model.predict(X)).all())
    True
    """
    from safetensors.numpy import save as as_bytes

    last = model[-1] if isinstance(model, Pipeline) else model
    known = isinstance(last, BaseEstimator) and registry().get(name_of(type(last))) is type(last)
    require(known, "model", "an estimator of mercer, or a pipeline that ends in one", type(last).__name__)
    check_is_fitted(model)
    require(not (small and stages), "stages", "False for a small file", stages)
    encoder = Encoder(stages)
    tree = {"format": FORMAT, "mercer": __version__, "model": encoder.encode(smaller(model) if small else model)}
    again = Decoder(encoder.arrays).decode(tree["model"])  # what cannot be read must not be written
    text = json.dumps(tree, allow_nan=False, separators=(",", ":"))
    data = as_bytes(encoder.arrays, {"mercer": text, "sha256": digest(text, encoder.arrays)})
    require_few_values(text)
    try_one_row(again, len(data))
    write_atomically(path, lambda file: file.write(data))


def require_few_values(text: str) -> None:
    """Refuse a description of more than `MAX_VALUES` lists and objects: reading it would take minutes and gigabytes."""
    wanted = f"of at most {MAX_VALUES} lists and objects"
    many = text.count("[") + text.count("{") > MAX_VALUES
    if many:  # some of them may be brackets in the names of levels
        bare = re.sub(r'"(?:[^"\\]|\\.)*"', "", text)
        require(bare.count("[") + bare.count("{") <= MAX_VALUES, "the description", wanted, "more")


def digest(text: str, arrays: Mapping[str, np.ndarray]) -> str:
    """A checksum of a description and its arrays, by which damage is recognised."""
    total = hashlib.sha256(text.encode())
    for name in sorted(arrays):
        total.update(f"{name} {arrays[name].dtype} {arrays[name].shape}".encode())
        total.update(np.ascontiguousarray(arrays[name]).tobytes())
    return total.hexdigest()


def smaller(model: Any) -> Any:
    """A copy of a fitted model that predicts the same with fewer numbers, or the model where nothing can go."""
    if isinstance(model, Pipeline):
        return Pipeline([*model.steps[:-1], (model.steps[-1][0], smaller(model[-1]))])
    if not (hasattr(model, "expansions_") or hasattr(model, "_models")):
        return model
    made = copy.copy(model)
    for name in INSPECTION_ONLY:
        vars(made).pop(name, None)
    if hasattr(model, "expansions_"):
        made.expansions_ = tuple(_rounded(part) for part in model.expansions_)
    return made


def _rounded(expansion: Expansion) -> Expansion:
    """Round basis vectors and weights to float32 where kernel values are float32."""
    if expansion.dtype != "float32":
        return expansion
    return replace(expansion, basis=_single(expansion.basis), weights=_single(expansion.weights))


def _single(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float32).astype(array.dtype)


def try_one_row(model: Any, size: int) -> None:
    """Let a model predict one row: shapes that disagree show here, and not when it is in use.

    `size` is the number of bytes of its file, which bounds the number of columns.
    """
    if isinstance(model, Pipeline):  # its first columns may be text
        check_is_fitted(model)
        return try_one_row(model[-1], size)
    D = model.n_features_in_
    require(type(D) is int and 1 <= D <= size, "n_features_in_", "an integer of columns", D)
    row, device = np.zeros((1, D)), getattr(model, "device", None)
    if hasattr(model, "table_") and not hasattr(model, "get_support"):  # columns of any kind may be missing
        row = np.full((1, D), np.nan)  # but a selector would give them back
    for name in ("basis_", "means_") if not hasattr(model, "table_") else ():
        known = getattr(model, name, None)
        if isinstance(known, np.ndarray) and known.ndim == 2 and known.shape[1] == D and len(known):
            row = known[:1].astype(np.float64)
            break
    if device is not None:
        model.device = "cpu"
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        answers = [getattr(model, ask)(row) for ask in ("predict", "predict_proba", "transform") if hasattr(model, ask)]
    for answer in answers:
        finite = isinstance(answer, np.ndarray) and (answer.dtype.kind not in "fc" or bool(np.isfinite(answer).all()))
        require(finite, "the prediction of the model", "finite numbers", answer)
    if device is not None:
        model.device = device
    require(bool(answers), "the model", f"one that answers, as a {name_of(type(model))} does", "one that does not")
