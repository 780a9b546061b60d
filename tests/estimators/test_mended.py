"""Reproducers of reports that no other test repeats (`tests/regressions.md` lists all of them)."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from mercer import ARDSelector, ENRBFRegressor, GreedyKernelRegressor, GreedyNystroem, SparseGPRegressor, select_basis
from mercer.data import CsvRows
from mercer.kernels import Gaussian

pytestmark = pytest.mark.usefixtures("two_folds")

rng = np.random.default_rng(0)
X = rng.uniform(-2, 2, (40, 2))
y = np.sin(1.5 * X[:, 0]) + 0.5 * X[:, 1]
GIVEN = {"kernel": Gaussian(), "regularization": 0.1, "random_state": 0}


@pytest.mark.parametrize("criterion", ["ran", "ald"])
def test_a_criterion_that_wants_no_row_takes_one(criterion):
    """Targets without a residual, or one row alone: nothing is new or large enough, a model there is."""
    for rows, targets in ((X, np.zeros(40)), (X[:1], y[:1])):
        model = GreedyKernelRegressor(3, criterion=criterion, **GIVEN).fit(rows, targets)
        np.testing.assert_allclose(model.predict(rows), targets, atol=1e-12)
        features = GreedyNystroem(3, criterion=criterion, **GIVEN).fit(rows, targets).transform(rows)
        assert features.shape[1] >= 1
        assert np.isfinite(features).all()


def test_refining_at_a_penalty_beyond_all_rows_keeps_rows():
    with pytest.warns(UserWarning, match="leaves nothing to learn from"):
        rows = select_basis(X, y, n_basis=5, refine=True, refine_iter=2, **GIVEN | {"regularization": 1e300})
    assert len(set(rows.tolist())) == len(rows) == 5


def test_whether_huge_numbers_are_classes_is_asked_without_a_raw_warning():
    """scikit-learn makes integers of them, which NumPy warns of beyond 64 bits: an error in these tests."""
    assert ARDSelector(random_state=0).fit(X[:12], np.repeat([1e150, -1e150], 6)).get_support().any()


def test_a_selector_reads_new_rows_from_a_file_with_gaps(tmp_path):
    path = tmp_path / "rows.csv"
    rows = [f"{a},{'' if k == 3 else b},{c}" for k, ((a, b), c) in enumerate(zip(X[:20, :2], y[:20], strict=True))]
    path.write_text("\n".join(["a,b,target", *rows]))
    selector = ARDSelector(SparseGPRegressor(4, kernel="gaussian", ard=True, max_iter=1), n_features_to_select=1)
    assert selector.fit(CsvRows(path, target="target")).transform(CsvRows(path, target="target")).shape == (20, 1)


def test_slopes_of_columns_beyond_all_units_are_infinite_without_a_raw_warning():
    fitted = ENRBFRegressor(1, training="em", random_state=0).fit(X * 1e-300, 1e150 * y)
    assert np.isfinite(fitted.predict(X * 1e-300)).all()


def test_every_test_that_the_list_of_reported_faults_names_exists():
    tests, missing, path = Path(__file__).parents[1], [], ""
    page = (tests / "regressions.md").read_text(encoding="utf-8")
    for named, test in re.findall(r"`([\w/]+\.py)?(?:::(test_\w+))?`", page):
        path = named or path
        if test and f"def {test}(" not in (tests / path).read_text():
            missing.append(f"{path}::{test}")
    assert not missing
    assert page.count("::test_") > 100


@pytest.mark.parametrize("targets", ["none", "numbers", "classes"])
def test_features_of_a_column_with_many_levels_are_those_of_the_fitted_encoding(targets):
    """Such a column is encoded by target means: transform must use the encoding of the fit, or none without targets."""
    rng = np.random.default_rng(0)
    levels = np.array([f"level {k}" for k in range(70)])
    frame = pd.DataFrame({"a": rng.normal(size=300), "town": levels[rng.integers(0, 70, 300)]})
    y = {"none": None, "numbers": frame["a"] ** 2, "classes": (frame["a"] > 0).astype(str)}[targets]
    model = GreedyNystroem(10, random_state=0).fit(frame, y)
    features = model.transform(frame)
    assert features.shape[0] == 300
    assert np.isfinite(features).all()
    # features are orthonormal in the kernel's space: at a basis row they have the norm k(x, x) = 1 of the kernel
    norms = np.square(features[model.basis_indices_]).sum(1)
    np.testing.assert_allclose(
        norms, np.diag(model.kernel_(*[torch.as_tensor(model.expansions_[0].basis)] * 2)), rtol=1e-3
    )
