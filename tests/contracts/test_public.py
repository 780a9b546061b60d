"""What `mercer` offers, name by name: documented, with an example, and nothing hidden from `help()`."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.base import BaseEstimator

import mercer
from mercer.kernels import Gaussian

over_names = pytest.mark.parametrize("name", mercer.__all__)
ESTIMATORS = [name for name in mercer.__all__ if isinstance(getattr(mercer, name), type)]
over_estimators = pytest.mark.parametrize("name", ESTIMATORS)


def documentation(name: str) -> str:
    return inspect.getdoc(getattr(mercer, name)) or ""


def section(text: str, title: str) -> str:
    """The lines under a numpydoc title, up to the next one."""
    found = re.search(rf"^{title}\n-+\n(.*?)(?=^[A-Z][A-Za-z ]+\n-+\n|\Z)", text, re.MULTILINE | re.DOTALL)
    return found.group(1) if found else ""


def test_every_name_exists_once_and_nothing_else_is_exported():
    assert len(set(mercer.__all__)) == len(mercer.__all__)
    assert all(hasattr(mercer, name) for name in mercer.__all__)
    public = {name for name, value in vars(mercer).items() if not name.startswith("_") and not inspect.ismodule(value)}
    assert public == set(mercer.__all__)


def test_an_import_loads_neither_torch_nor_scikit_learn():
    code = """
import sys
import mercer
assert not {"torch", "sklearn", "pandas"} & set(sys.modules)
assert "KernelBoostingRegressor" in dir(mercer)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.long
def test_an_estimator_loads_no_other_family():
    """The order of layers, which `make lint` looks through, leaves no other; here is what it cannot see."""
    code = """
import sys
from mercer import KernelBoostingRegressor
assert not {"mercer.gp", "mercer.mixture", "mercer.empirical", "mercer.reporting"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_parts_that_are_not_imported_are_there_when_asked_for():
    assert callable(mercer.plots.plot_selection)
    assert callable(mercer.datasets.make_smooth_regression)
    with pytest.raises(AttributeError, match="no attribute 'plot'"):
        mercer.plot  # noqa: B018


@over_names
def test_a_name_comes_with_a_sentence_and_an_example(name):
    text = documentation(name)
    assert re.match(r"[A-Z].*\.(\n|$)", text.split("\n\n")[0].replace("\n", " ") + "\n"), "no first sentence"
    assert ">>>" in section(text, "Examples")


@over_estimators
def test_an_estimator_lists_its_parameters_and_what_fit_leaves(name):
    text = documentation(name)
    listed = section(text, "Parameters")
    for parameter in inspect.signature(getattr(mercer, name)).parameters:
        assert re.search(rf"\b{parameter}\b", listed), f"{parameter} is not explained"
    assert re.search(r"\w_\b", section(text, "Attributes"))


@over_names
def test_a_parameter_with_a_default_says_so(name):
    parameters = inspect.signature(getattr(mercer, name)).parameters
    for line in re.findall(r"^\w.*", section(documentation(name), "Parameters"), re.MULTILINE):
        for parameter in re.findall(r"\w+", line.partition(" : ")[0]):
            has_default = parameter in parameters and parameters[parameter].default is not inspect.Parameter.empty
            assert not has_default or re.search(r"default|optional", line), line


@over_estimators
def test_an_estimator_is_made_without_arguments_and_keeps_what_it_is_given(name):
    face = getattr(mercer, name)
    assert issubclass(face, BaseEstimator)
    assert list(face().get_params(deep=False)) == sorted(inspect.signature(face).parameters)


@pytest.mark.parametrize("name", sorted(set(mercer.__all__) - set(ESTIMATORS)))
def test_a_function_explains_its_arguments(name):
    text = documentation(name)
    for parameter in inspect.signature(getattr(mercer, name)).parameters:
        assert re.search(rf"\b{parameter}\b", text), f"{parameter} is not explained"


# What single functions promise


def table(n: int = 80) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (n, 2))
    return X, np.sin(2 * X[:, 0]) + 0.1 * rng.normal(size=n)


def test_select_basis_gives_the_rows_that_the_greedy_regressor_takes():
    X, y = table()
    how = {"kernel": Gaussian(1.0), "criterion": "max-res", "n_basis": 7, "regularization": 0.1, "random_state": 0}
    rows = mercer.select_basis(X, y, **how)
    np.testing.assert_array_equal(rows, mercer.GreedyKernelRegressor(**how).fit(X, y).basis_indices_)
    assert len(set(rows.tolist())) == 7


def test_tune_kernel_finds_the_length_scale_that_made_the_data():
    """Functions drawn from the Gaussian process itself: the evidence of 150 rows knows its scale within a factor 1.5.

    The relative deviation of such an estimate is some 1/√n per effective degree of freedom: 0.1 to 0.2 here.
    """
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 10, (150, 1))
    K = np.exp(-0.5 * ((X - X.T) / 1.0) ** 2)
    y = np.linalg.cholesky(K + 1e-8 * np.eye(150)) @ rng.normal(size=150) + 0.1 * rng.normal(size=150)
    tuned = mercer.tune_kernel(X, y, kernel="gaussian", ard=False)
    length = [value for key, value in tuned.kernel.get_params().items() if key.endswith("length_scale")]
    assert np.log(np.asarray(length, dtype=float)).item() == pytest.approx(0.0, abs=np.log(1.5))


def test_an_old_name_of_a_picture_draws_it_and_warns():
    pytest.importorskip("matplotlib").use("Agg")
    lines = [{"candidate": f"standard, none, {k}", "rows": 100, "loss": 0.5, "seconds": 1.0} for k in ("a", "b")]
    with pytest.warns(FutureWarning, match="called plot_selection"):
        axes = mercer.plots.plot_race(SimpleNamespace(tuning_report_=lines))
    assert axes.get_xlabel() == "seconds"
