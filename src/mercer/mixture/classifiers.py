"""Radial basis function mixtures for classes (Thesis09, chapter 3): local logistic models, and normalised RBF nets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from mercer.base.calibration import Temperature
from mercer.base.classifier import SetClassifier, fit_set_scores
from mercer.base.estimator import estimator_dataclass
from mercer.base.parameters import AUTO, integer, literal, number
from mercer.base.probability_calibration import LabelledProbabilities, fit_power_and_bias, log_probabilities
from mercer.base.uncertainty import LEAST_CURVATURE
from mercer.clock import StopReason
from mercer.engine import Sample
from mercer.mixture.class_experts import LogisticExperts, indicators
from mercer.mixture.closed_form import (
    LEAST_OF_CLASSES,
    PENALTIES,
    GateSearch,
    doubled_sizes,
    located_size,
    location_reason,
)
from mercer.mixture.em import EMResult, Mixture, fit_em, posterior
from mercer.mixture.estimator import MixtureEstimator, MixtureRefits
from mercer.mixture.experts import Experts
from mercer.mixture.features import all_columns
from mercer.mixture.fit import MixtureSettings
from mercer.mixture.local_logistic import fit_by_gradients
from mercer.mixture.n_components import ChosenSize, Trials
from mercer.mixture.output_weights import logistic_weights
from mercer.mixture.uncertainty import UncertainClasses, weight_posterior
from mercer.preprocessing.inputs import ClassTargets, InputMap
from mercer.preprocessing.read import TableData
from mercer.progress import report_step

#: The largest curvature of the logistic loss; that of the squared loss is one.
LOGISTIC_CURVATURE = 0.25
#: Training rows for calibration if none can be held out.
CALIBRATION_ROWS = 2000


@dataclass(eq=False, repr=False)
class MixtureClassifier(UncertainClasses, SetClassifier, MixtureEstimator):
    """Targets are classes.

    Attributes
    ----------
    classes_ : ndarray
        The classes.
    calibration_ : PowerAndBias
        Map of the mixture's log probabilities to those of `predict_proba`, fitted to out-of-fold predictions: in five
        folds up to 1000 rows, otherwise with about a tenth of the rows held out. Training rows are used if the table is
        divided among processes or a time budget leaves no time for a refit. A mixture that is no better than the class
        frequencies predicts these.
    """

    _is_classifier: ClassVar[bool] = True
    #: Whether local models have slopes, where gates are found by leave-one-out errors.
    _linear: ClassVar[bool] = False
    #: Whether they are shares of classes.
    _shares: ClassVar[bool] = False
    #: Bounds of λ where leave-one-out errors find it.
    _penalty_range: ClassVar[tuple[float, float]] = (0.0, np.inf)

    def _size(self, sample: Sample, trials: Trials, rng: np.random.Generator) -> ChosenSize:
        if getattr(self, "training", "em") != "leave-one-out":
            return super()._size(sample, trials, rng)
        setting = trials.setting
        codes = 2 * indicators(sample.Y.T, setting.n_classes).T - 1
        coded = replace(sample, Y=codes[:, 1:] if setting.n_classes == 2 else codes)
        penalties = [c for c in PENALTIES if c >= LEAST_OF_CLASSES]
        k = self.n_components
        sizes = doubled_sizes(self.max_components) if isinstance(k, str) else [k]
        search = GateSearch(setting, sizes, self._linear, penalties, classes=True, shares=self._shares)
        size = located_size(coded, search, rng)
        if size.ridge is None or not isinstance(getattr(self, "regularization", 0.0), str):
            return replace(size, ridge=None)
        return replace(size, ridge=float(np.clip(LOGISTIC_CURVATURE * size.ridge, *self._penalty_range)))

    def _calibrated(
        self, fitted: EMResult, targets: ClassTargets, given: TableData, refits: MixtureRefits
    ) -> dict[str, Any]:
        report_step("calibration")
        sample = refits.sample

        def probabilities(model: EMResult, rows: Sample) -> np.ndarray:
            x = all_columns(rows)
            return self._predictor(model.mixture.to(x.device), model.output_weights)(x).T.double().cpu().numpy()

        found = None if sample.rows.shard.divided else refits.out_of_fold(probabilities)
        part = sample.part(sample.spaced(CALIBRATION_ROWS) if found is None else found[0])
        p = probabilities(fitted, part) if found is None else found[1]
        log_p = log_probabilities(p)
        true, weight = part.Y[:, 0].long().cpu().numpy(), part.weight.double().cpu().numpy()
        link = fit_power_and_bias(LabelledProbabilities(log_p, true, weight))
        curvature = max(float(np.average((p * (1 - p)).mean(1), weights=weight)), LEAST_CURVATURE)
        mixture, ridge = fitted.mixture.to(sample.plan.device), refits.trials.setting.ridge
        return {
            "calibration_": link,
            "set_scores_": fit_set_scores(link.probabilities(log_p), true, weight),
            "_weight_posterior": weight_posterior(sample, mixture, ridge, self._linear, curvature),
        }

    def _encode(self, targets: ClassTargets, y: np.ndarray) -> np.ndarray:
        return targets.class_indices(y).astype(np.float64)[:, None]

    def _score(self, targets: ClassTargets, answers: Tensor, y: Tensor, weight: Tensor) -> float:
        """The accuracy."""
        return float(((answers.argmax(0) == y[0]) * weight).sum() / weight.sum())

    def predict_proba(self, X: Any) -> np.ndarray:
        """Class probabilities in the order of `classes_`."""
        return self._calibration.probabilities(self._log_probabilities(X))

    def _log_probabilities(self, X: Any) -> np.ndarray:
        """Logarithms of the probabilities before calibration."""
        weights = getattr(self, "_readout", None)
        return log_probabilities(self._each_row(X, lambda mixture: self._predictor(mixture, weights)))

    @property
    def _calibration(self) -> Any:
        """The calibration of the model; files of version 0.2 have none."""
        return getattr(self, "calibration_", Temperature())

    def predict(self, X: Any) -> np.ndarray:
        """The class of each row."""
        check_is_fitted(self)
        return self.classes_[self.predict_proba(X).argmax(1)]


def fit_experts(sample: Sample, mixture: Mixture, setting: MixtureSettings) -> EMResult:
    """Fit the local models by EM, the gates being fixed: the conditional likelihood of the classes."""
    fixed = replace(mixture, fixed=True)
    return fit_em(sample, fixed, setting.max_iter, setting.tol, setting.callbacks, clock=setting.clock)


@estimator_dataclass
class ENRBFClassifier(MixtureClassifier):
    r"""Extended normalised RBF classifier: local logistic models, blended by the posterior of a Gaussian mixture.

    .. math:: P(y = c \mid x) = \sum_j p(j \mid x)\, \mathrm{softmax}_c(w_{jc}^\top x + b_{jc}),

    with one logistic function per component for two classes. EM maximises the joint log-likelihood
    :math:`\sum_n \omega_n \log \sum_j p(j)\,\mathcal N(x_n; \mu_j, \Sigma_j)\,P(y_n \mid x_n, j)` less
    :math:`(\lambda/2) \sum_j \|w_j\|^2`, subject to a floor on the covariances. It never falls. The M step of the
    experts is one Newton step of IRLS, shortened where needed; the thesis iterates it to its end each time
    (`newton_steps`), which takes many passes over the rows to the same fixed points. (Its eq. 3.6 prints "arg min" for
    the M step; the maximum is meant, and its likelihood below eq. 3.4 lacks the logarithm.)

    Parameters
    ----------
    training : "leave-one-out" or "em", default "leave-one-out"
        "leave-one-out" takes centres by k-means and one covariance for all gates, as `NRBFClassifier` does; width and
        size have the least leave-one-out errors of local linear models of the classes as ±1, and EM fits the local
        logistic models alone: the conditional likelihood, by L-BFGS from 256 coefficients of a component on. "em"
        maximises the joint likelihood of inputs and classes over gates and local models.
    regularization : "auto" or float, default "auto"
        λ, on inputs of unit variance; 1/C of scikit-learn's `LogisticRegression`, which one component is. "auto" is a
        quarter of the penalty of the local linear models, between 0.1 and 1, and 1 for "em". Weights of rows count
        against a number; without it their unit means nothing.
    newton_steps : int, default 1
        Newton steps of the local models in each iteration of EM at most. Above one they end when they gain less than
        `tol` per row: 100 is the thesis' IRLS to its end.

    Attributes
    ----------
    coef_ : ndarray of shape (k, D) or (k, C, D)
        Slopes of the local models, in the inputs' own units; of two classes those of the second one.
    intercept_ : ndarray of shape (k,) or (k, C)
        Their values at the origin.

    References
    ----------
    Ma Li, "Computationally efficient models for high-dimensional and large-scale classification problems", thesis
    (2009), section 3.1, table 3-1.

    Examples
    --------
    >>> from mercer import ENRBFClassifier
    >>> from mercer.datasets import make_three_gaussians
    >>> X, y = make_three_gaussians(random_state=0)
    >>> model = ENRBFClassifier(n_components=3, random_state=0).fit(X, y)
    >>> print(f"accuracy {model.score(*make_three_gaussians(2000, random_state=1)):.1f}")
    accuracy 0.8
    >>> model.coef_.shape
    (3, 2)
    """

    _: KW_ONLY
    training: Annotated[str, literal("leave-one-out", "em")] = "leave-one-out"
    regularization: Annotated[float | str, AUTO | number(0.0)] = "auto"
    newton_steps: Annotated[int, integer()] = 1

    _linear: ClassVar[bool] = True
    _plain_penalty: ClassVar[float] = 1.0
    _penalty_range: ClassVar[tuple[float, float]] = (0.1, 1.0)

    def _train(
        self, sample: Sample, k: int, setting: MixtureSettings, rng: np.random.Generator, start: Mixture | None = None
    ) -> EMResult:
        if self.training == "em" or start is None:
            return super()._train(sample, k, setting, rng, start)
        experts = self._experts(sample, setting)(k)
        assert isinstance(experts, LogisticExperts)
        fit = fit_by_gradients if experts.many else fit_experts
        return fit(sample, replace(start, experts=experts), setting)

    def _experts(self, sample: Sample, setting: MixtureSettings) -> Callable[[int], Experts]:
        D, C = sample.rows.n_columns, setting.n_classes

        def experts(k: int) -> Experts:
            made = LogisticExperts.start(k, D, C, setting.ridge, sample.total_weight, sample.plan.device)
            return replace(made, newton_steps=self.newton_steps)

        return experts

    def _described(self, fitted: EMResult, inputs: InputMap, targets: ClassTargets, sample: Sample) -> dict[str, Any]:
        experts = fitted.mixture.experts
        assert isinstance(experts, LogisticExperts)
        with np.errstate(over="ignore", invalid="ignore"):  # slopes for inputs of size 1e-308 are beyond float64
            slopes = np.nan_to_num(experts.coef[:, :, 1:].numpy() / inputs.scale)
            intercept = np.nan_to_num(experts.coef[:, :, 0].numpy() - slopes @ inputs.mean)
        two = slopes.shape[1] == 1
        return {"coef_": slopes[:, 0] if two else slopes, "intercept_": intercept[:, 0] if two else intercept}


@estimator_dataclass
class NRBFClassifier(MixtureClassifier):
    r"""Two-step normalised RBF classifier: a Gaussian mixture of the inputs, then a logistic model of its activations.

    .. math:: P(y = c \mid x) = \mathrm{softmax}_c\Big(\sum_j w_{jc}\, p(j \mid x)\Big),

    the weights by IRLS (by L-BFGS where they are very many) with the penalty :math:`(\lambda/2)\|w\|^2`.

    Parameters
    ----------
    training : "leave-one-out" or "two-step", default "leave-one-out"
        "leave-one-out" takes centres by k-means and one covariance for all gates: of the shape `covariance_type`, where
        "diagonal" means one over the squared relevance of each column if relevances lower the error. Width and size
        have the least leave-one-out errors (squared hinge, in closed form, on at most 1000 rows) of a ridge regression
        of the classes as ±1. "two-step" fits a Gaussian mixture to the inputs by EM.
    regularization : "auto" or float, default "auto"
        λ; weights of rows count against it. "auto" is a quarter of the penalty of that ridge regression, a quarter
        being the largest curvature of the logistic loss, and 0.01 for "two-step". At least 1e-9 for each row, so that
        the weights of separable classes are finite.

    Attributes
    ----------
    coef_ : ndarray of shape (k,) or (k, C)
        The output weights.

    References
    ----------
    Ma Li, "Computationally efficient models for high-dimensional and large-scale classification problems", thesis
    (2009), section 3.2.3, eq. 3.18.

    Examples
    --------
    >>> from mercer import NRBFClassifier
    >>> from mercer.datasets import make_three_gaussians
    >>> X, y = make_three_gaussians(random_state=0)
    >>> print(f"accuracy {NRBFClassifier(random_state=0).fit(X, y).score(X, y):.1f}")
    accuracy 0.8
    """

    _: KW_ONLY
    training: Annotated[str, literal("leave-one-out", "two-step")] = "leave-one-out"
    regularization: Annotated[float | str, AUTO | number(0.0)] = "auto"
    max_components: Annotated[int, integer()] = 160

    def _em_share(self) -> float:
        return 0.8

    def _train(
        self, sample: Sample, k: int, setting: MixtureSettings, rng: np.random.Generator, start: Mixture | None = None
    ) -> EMResult:
        if self.training == "leave-one-out":
            assert start is not None
            result = EMResult(start, [0.0], location_reason(setting.clock, "gates and size"))
        else:
            result = super()._train(sample, k, setting, rng, start)
        weights, why = logistic_weights(sample, result.mixture, setting.n_classes, setting.ridge, setting.clock)
        both = StopReason(f"{result.stop_reason}; then {why}", *result.stop_reason.kinds, *why.kinds)
        return replace(result, stop_reason=both, output_weights=weights)

    def _predictor(self, mixture: Mixture, output_weights: Any) -> Callable[[Tensor], Tensor]:
        log_gates, W = mixture.log_gates(), torch.as_tensor(output_weights, device=mixture.gates.weights.device)

        def answer(x: Tensor) -> Tensor:
            f = W.T @ posterior(log_gates(x))[0]
            return torch.softmax(f, 0) if len(f) > 1 else torch.cat([torch.sigmoid(-f), torch.sigmoid(f)])

        return answer

    def _described(self, fitted: EMResult, inputs: InputMap, targets: ClassTargets, sample: Sample) -> dict[str, Any]:
        assert fitted.output_weights is not None
        W = fitted.output_weights.cpu().numpy()
        return {"coef_": W[:, 0] if W.shape[1] == 1 else W, "_readout": W}
