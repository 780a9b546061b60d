"""scikit-learn's own estimator checks, for every public estimator: with quick settings where defaults are slow."""

from __future__ import annotations

from typing import Any

import pytest
from sklearn.utils.estimator_checks import estimator_checks_generator

import mercer
from mercer.kernels import Gaussian

pytestmark = pytest.mark.usefixtures("two_folds", "short_selections")

#: Nothing to tune; what is tuned by default is checked with other estimators.
FIXED: dict[str, Any] = {"kernel": Gaussian(2.0), "regularization": 0.1}
TWO: dict[str, Any] = {"kernels": [Gaussian(1.0), Gaussian(3.0)]}
HALF: dict[str, Any] = TWO | {"subset_size": 0.5, "n_members": 2}
#: Of local models: the penalty is searched for by one regressor and one classifier alone.
ONE_START: dict[str, Any] = {"n_init": 1, "max_iter": 4}
#: What makes some of them quick; an estimator that is not here is checked with its defaults.
OPTIONS: dict[str, dict[str, Any]] = {
    "KernelBoostingRegressor": {"metric": None},  # selection of kernels and column maps alone
    "KernelBoostingClassifier": FIXED,
    "GradientMetric": {"metric": "diagonal", "scale_inputs": "standard"},
    "GreedyKernelRegressor": FIXED | {"n_basis": 6},
    "GreedyKernelClassifier": FIXED | {"n_basis": 6},
    "GreedyNystroem": FIXED | {"n_components": 5},
    "MHKSClassifier": FIXED | {"max_iter": 4},
    "MultiKernelMHKSClassifier": TWO | {"multiclass": "one-vs-rest", "max_iter": 4},
    "RPEMEKLClassifier": HALF | {"max_iter": 3, "regularization": 0.1, "coupling": 0.1},
    "RPEMEKLRegressor": HALF | {"regularization": (0.1, 1.0), "n_folds": 2},
    "SparseGPRegressor": {"kernel": Gaussian(2.0), "optimize_kernel": True, "n_inducing": 6, "max_iter": 1},
    "SparseGPClassifier": {"kernel": Gaussian(2.0), "n_inducing": 4, "optimize_inducing": False},
    "ARDSelector": {"models": [mercer.SparseGPRegressor(4, kernel="gaussian", ard=True, tuning_rows=20, max_iter=1)]},
    "NRBFRegressor": ONE_START | {"n_components": 3, "regularization": 0.01},
    "ENRBFRegressor": ONE_START | {"n_components": 3},
    "NRBFClassifier": ONE_START | {"n_components": 3, "regularization": 0.01},
    "ENRBFClassifier": ONE_START | {"n_components": 2},
    "GaussianMixtureClassifier": ONE_START | {"n_components": 2},
    "CommonBasisMixtureClassifier": ONE_START | {"n_components": 4},
}
ESTIMATORS = {name: kind for name in mercer.__all__ if isinstance(kind := getattr(mercer, name), type)}
#: One estimator of each family: the same lines read tables for all. Containers, types of numbers, shapes of new rows
#: and of targets and weights, numbers of columns, kinds of labels, pipelines, parameters, and SciPy's sparse tables in
#: ten formats are checked with these alone. So are checks that are repeated with rows that cannot be written to: one
#: check of such rows, `check_readonly_memmap_input`, is left to all. Accuracy on blobs and a line, weights of classes,
#: and rows of weight two that are rows twice are here, too, since each family has tests of its own that ask for more.
#: `make test-long` makes every check of every one.
OF_EACH_FAMILY = ("KernelBoostingClassifier", "SparseGPRegressor", "MHKSClassifier", "NRBFRegressor", "GreedyNystroem")
FORMATS = {
    "check_class_weight_classifiers",
    "check_classifier_data_not_an_array",
    "check_classifiers_classes",
    "check_classifiers_train",
    "check_dict_unchanged",
    "check_dont_overwrite_parameters",
    "check_dtype_object",
    "check_estimator_sparse_array",
    "check_estimator_sparse_tag",
    "check_estimators_dtypes",
    "check_estimators_fit_returns_self",
    "check_estimators_overwrite_params",
    "check_f_contiguous_array_estimator",
    "check_fit2d_predict1d",
    "check_fit_check_is_fitted",
    "check_fit_score_takes_y",
    "check_n_features_in",
    "check_n_features_in_after_fitting",
    "check_pipeline_consistency",
    "check_positive_only_tag_during_fit",
    "check_regressor_data_not_an_array",
    "check_regressors_train",
    "check_sample_weight_equivalence_on_dense_data",
    "check_sample_weight_equivalence_on_sparse_data",
    "check_sample_weights_list",
    "check_sample_weights_not_an_array",
    "check_sample_weights_not_overwritten",
    "check_sample_weights_pandas_series",
    "check_sample_weights_shape",
    "check_set_params",
    "check_supervised_y_2d",
    "check_transformer_data_not_an_array",
}
#: The same ten formats in SciPy's older class, for one estimator.
FORMATS_OF_ONE = {"check_estimator_sparse_matrix": "NRBFRegressor"}


def checks():
    for name, kind in ESTIMATORS.items():
        for estimator, check in estimator_checks_generator(kind(**OPTIONS.get(name, {}))):
            words = ",".join((check.func.__name__, *(f"{key}={value}" for key, value in check.keywords.items())))
            repeated = check.func.__name__ in FORMATS or "readonly_memmap" in check.keywords
            one = name == FORMATS_OF_ONE.get(check.func.__name__, name)
            always = one and (name in OF_EACH_FAMILY or not repeated)
            yield pytest.param(estimator, check, id=f"{name}-{words}", marks=[] if always else [pytest.mark.long])


def test_options_are_for_estimators_that_exist():
    assert ESTIMATORS.keys() >= OPTIONS.keys()


@pytest.mark.parametrize(("estimator", "check"), [*checks()])
def test_an_estimator_keeps_scikit_learns_contract(estimator, check):
    check(estimator)
