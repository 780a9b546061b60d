"""Base of the mixtures of local experts: parameters, the fit, and functions of new rows."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace
from typing import Annotated, Any, ClassVar, Self

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from mercer.base.estimator import BaseKernelEstimator
from mercer.base.out_of_fold import Refits
from mercer.base.parameters import AUTO, check, integer, literal, number
from mercer.clock import Clock
from mercer.data import RowSource, current_group
from mercer.engine import Plan, Sample, each_block, make_plan
from mercer.engine.plan import generator
from mercer.mixture.em import EMResult, Mixture, posterior
from mercer.mixture.experts import Experts, LinearExperts, NoExperts, NoisyExperts
from mercer.mixture.features import all_columns, columns
from mercer.mixture.fit import MixtureSettings, fit_mixture
from mercer.mixture.gates import COVARIANCES, column_variances, rounding_variance
from mercer.mixture.n_components import ChosenSize, Trials, chosen_size
from mercer.parts import is_auto, require
from mercer.preprocessing.duplicates import MERGED_ROWS, collect_small_table, fitting_group, merged
from mercer.preprocessing.inputs import InputMap, code_targets, standardised
from mercer.preprocessing.read import TableData, read, read_new
from mercer.preprocessing.validate import checked_targets, host, penalty_in_units, unit_weights, warn_of_small_weights
from mercer.progress import step_callbacks, with_progress

#: Names of options in scikit-learn, and ours.
ALIASES = {"diag": "diagonal", "kmeans": "k-means++", "random_from_data": "random"}


@dataclass(eq=False, repr=False)
class MixtureEstimator(BaseKernelEstimator):
    """A mixture of local experts; subclasses define the experts, their training and their predictions.

    Parameters
    ----------
    n_components : int or "auto", default "auto"
        Components, each with its local model. "auto" takes the smallest number whose score is within one standard error
        of the best, among 1 … `max_components`. The score is cross-validated (minus the root mean square error; of
        classes the share that is right), for every number up to 10, then in steps of a fifth; or it is the
        leave-one-out error in closed form where training is by "leave-one-out", for numbers that double.
    covariance_type : "full", "diagonal" (or "diag"), "spherical" or "tied", default "diagonal"
        Shape of the gates' covariances; "tied" is one full matrix for all.
    max_components : int, default 20
        Largest number tried by ``n_components="auto"``.
    n_folds : int, default 3
        Folds used by ``n_components="auto"``.
    n_init : int, default 3
        EM runs. Their starts are, in turn, partitions by k-means over the inputs, by k-means over inputs and targets,
        and by random rows. The best after 30 iterations on at most 20 000 rows continues on all rows.
    init : "k-means++" (or "kmeans") or "random" (or "random_from_data"), default "k-means++"
        "random" starts every run from random rows.
    max_iter : int, default 200
        Largest number of EM iterations.
    tol : float, default 1e-5
        Rise of the log-likelihood per row below which EM stops.
    covariance_floor : float, default 1e-4
        No covariance is below this share of the inputs' variance in any direction, no noise variance below this
        share of the targets'. A column whose values are multiples of a step h has no covariance below e h²/12:
        otherwise components would collapse onto single values.
    scale_inputs : bool or "standard", default True
        Standardise each column; with False all columns are centred and divided by one number.
    dtype : "auto", "float32" or "float64", default "auto"
        Precision of the stored rows, "auto" being float64; sums and densities are always float64.

    Attributes
    ----------
    weights_ : ndarray of shape (k,)
        Shares p(j) of the components.
    means_ : ndarray of shape (k, D)
        Centres of the gates, in the inputs' own units.
    covariances_ : ndarray of shape (k, D, D) or (k, D)
        Their covariances in these units, or the diagonals of diagonal ones.
    n_components_ : int
        Components in use.
    n_iter_ : int
        Iterations done.
    stop_reason_ : str
        Why they ended, in words.
    log_likelihood_path_ : ndarray
        Penalised log-likelihood per row after each iteration.
    cv_results_ : dict of arrays
        Scores behind ``n_components="auto"``, named as in scikit-learn's `GridSearchCV`; of "leave-one-out" minus the
        mean loss of rows, its deviation over rows, the standard error of its difference from the best, width and λ.
    regularization_ : float
        λ used; 0 for models of densities.
    mixture_ : Mixture
        The model itself, for coded inputs and targets.
    inputs_ : InputMap
        How inputs are coded.
    targets_ : RealTargets or ClassTargets
        How targets are coded.
    """

    n_components: Annotated[int | str, AUTO | integer()] = "auto"
    _: KW_ONLY
    covariance_type: Annotated[str, literal(*COVARIANCES, "diag")] = "diagonal"
    max_components: Annotated[int, integer()] = 20
    n_folds: Annotated[int, integer(2)] = 3
    n_init: Annotated[int, integer()] = 3
    init: Annotated[str, literal("k-means++", "random", "kmeans", "random_from_data")] = "k-means++"
    max_iter: Annotated[int, integer()] = 200
    tol: Annotated[float, number(0.0)] = 1e-5
    covariance_floor: Annotated[float, number(1e-12, 1.0, open_high=True)] = 1e-4

    #: Whether the targets are classes.
    _is_classifier: ClassVar[bool]
    #: λ for `regularization="auto"` where training does not find it.
    _plain_penalty: ClassVar[float] = 1e-2
    #: Whether a larger mixture starts from a smaller one.
    _grows: ClassVar[bool] = True

    # Hooks of subclasses

    @abstractmethod
    def _encode(self, targets: Any, y: np.ndarray) -> np.ndarray:
        """Code the targets for the experts, one row each."""

    @abstractmethod
    def _score(self, targets: Any, predictions: Tensor, y: Tensor, weight: Tensor) -> float:
        """Score predictions against coded targets `y` (p × n); larger is better."""

    @abstractmethod
    def _described(self, fitted: EMResult, inputs: InputMap, targets: Any, sample: Sample) -> dict[str, Any]:
        """Fitted attributes of the experts, in the user's units."""

    @abstractmethod
    def _calibrated(self, fitted: EMResult, targets: Any, given: TableData, refits: MixtureRefits) -> dict[str, Any]:
        """Fit the calibration or the intervals to out-of-fold predictions."""

    def _experts(self, sample: Sample, setting: MixtureSettings) -> Callable[[int], Experts]:
        """The first experts of k components, as a function of k; none if EM fits the inputs alone."""
        return lambda k: NoExperts()

    def _predictor(self, mixture: Mixture, output_weights: Any) -> Callable[[Tensor], Tensor]:
        """A function from a block's inputs (D × n) to its predicted targets or class probabilities (q × n)."""
        return conditional_mean(mixture)

    def _train(
        self, sample: Sample, k: int, setting: MixtureSettings, rng: np.random.Generator, start: Mixture | None = None
    ) -> EMResult:
        return fit_mixture(sample, k, self._experts(sample, setting), setting, rng, start)

    def _em_share(self) -> float:
        """EM's share of a time budget; the rest is for the steps after it."""
        return 1.0

    def _wanted(self, k: int, n_classes: int) -> int:
        """Number of components of a model of size k."""
        return k

    # Fitting

    @with_progress
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit to rows `X` (array, frame, tensor, file or row source) and targets `y`.

        Ctrl-C keeps the mixture of the last iteration and raises KeyboardInterrupt; while ``n_components="auto"`` is
        being found there is none yet, and an earlier model stays.
        """
        check(self)
        group = current_group()
        clock = Clock(self.time_budget, group=group)
        given = collect_small_table(
            read(self, X, y, sample_weight, classes=self._is_classifier, group=group), MERGED_ROWS
        )
        self._keep(**fitting_group(given, group).first(lambda: self._fitted(given, clock)))
        clock.raise_interrupt()
        return self

    def _fitted(self, given: TableData, clock: Clock) -> dict[str, Any]:
        """Fit to the table and return the fitted attributes."""
        shard = given.shard
        weight, unit = unit_weights(given.weight, shard)
        ridge = self._ridge(unit, shard.total(weight.sum()))
        targets = code_targets(given.y, weight, classes=self._is_classifier, shard=shard)
        given, Y = merged(replace(given, weight=weight), self._encode(targets, given.y))
        plan = self._plan(given.rows.n_rows)
        inputs, variance = _inputs(given, plan, self.scale_inputs)
        coded, w = (torch.as_tensor(a, device=plan.device) for a in (Y, given.weight))
        sample = Sample(inputs.rows(given.rows, plan), coded, w, plan)
        setting = self._setting(ridge, variance, clock, len(targets.classes) if self._is_classifier else 0)
        setting = replace(setting, rounding=rounding_variance(sample))
        rng = generator(self.random_state, shard.group)
        trials = self._trials(setting, targets)
        size = self._size(sample, trials, rng)
        setting = setting if size.ridge is None else replace(setting, ridge=size.ridge)
        before = clock.elapsed()
        k = size.sizes[-1]
        fitted = self._train(sample, k, setting, rng, size.start)
        seconds = clock.elapsed() - before + size.seconds
        labels = Y[sample.alive, 0] if self._is_classifier else np.zeros(len(sample.alive))
        unheard = replace(trials, setting=replace(setting, callbacks=()), located=size.located)
        refits = MixtureRefits(sample, labels, clock, seconds, self._calibration_folds, unheard, size.sizes)
        fitted = replace(fitted, mixture=fitted.mixture.to("cpu"))
        return {
            **given.columns(),
            **gate_attributes(fitted, self._wanted(k, setting.n_classes), inputs),
            **self._described(fitted, inputs, targets, sample),
            **self._calibrated(fitted, targets, given, refits),
            "classes_": targets.classes if self._is_classifier else None,
            "targets_": targets,
            "inputs_": inputs,
            "mixture_": fitted.mixture,
            "cv_results_": size.results,
            "regularization_": setting.ridge * unit,
        }

    def _ridge(self, unit: float, total: float) -> float:
        """λ for weights divided by `unit`, whose sum then is `total`; 0 for models of densities."""
        given = getattr(self, "regularization", 0.0)
        if isinstance(given, str):
            return penalty_in_units(self._plain_penalty, unit)
        warn_of_small_weights(given, unit, total, "regularization")
        return penalty_in_units(float(given), unit)

    def _plan(self, n_rows: int) -> Plan:
        """Plan of the work: rows in `dtype`; densities and sums are always float64, since they cancel."""
        held = "float64" if is_auto(self.dtype) else self.dtype
        return make_plan(n_rows, self.device, held, self.memory_limit)

    def _setting(self, ridge: float, variance: Tensor, clock: Clock, n_classes: int) -> MixtureSettings:
        return MixtureSettings(
            kind=ALIASES.get(self.covariance_type, self.covariance_type),
            floor=self.covariance_floor,
            n_init=self.n_init,
            max_iter=self.max_iter,
            tol=self.tol,
            init=ALIASES.get(self.init, self.init),
            callbacks=step_callbacks("EM", self.max_iter, lambda result: len(result.path) - 1),
            variance=variance,
            ridge=ridge,
            clock=clock,
            share=self._em_share(),
            n_classes=n_classes,
        )

    def _size(self, sample: Sample, trials: Trials, rng: np.random.Generator) -> ChosenSize:
        """The number of components: given, or selected by cross-validation with a start and its scores."""
        if not isinstance(self.n_components, str):
            return ChosenSize([self.n_components])
        return chosen_size(sample, trials, self.max_components, self.n_folds, rng)

    def _trials(self, setting: MixtureSettings, targets: Any) -> Trials:
        """The functions that fit and score models of several sizes."""

        def score(fitted: EMResult, test: Sample) -> float:
            predictions = self._predictor(fitted.mixture, fitted.output_weights)(all_columns(test))
            return self._score(targets, predictions, test.Y.T, test.weight)

        return Trials(self._train, score, setting, self._grows)

    # Functions of new rows

    def _each_row(self, X: Any, make: Callable[[Mixture], Callable[..., Tensor]], *beside: Tensor) -> np.ndarray:
        """Apply the function that `make` returns to each block (D × n) and the same columns of `beside`: n × q."""
        check_is_fitted(self)
        return self._each_read_row(read_new(self, X), make, *beside)

    def _each_read_row(
        self, source: RowSource, make: Callable[[Mixture], Callable[..., Tensor]], *beside: Tensor
    ) -> np.ndarray:
        """The same for rows that were read."""
        plan = self._plan(source.n_rows)
        mixture = self.mixture_.to(plan.device)
        function = make(mixture)
        found: list[Tensor] = []

        def visit(where: slice, block: Tensor) -> None:
            values = function(columns(block), *(more[:, where].to(plan.device) for more in beside)).T.cpu()
            if not found:
                found.append(torch.empty(source.n_rows, values.shape[1], dtype=torch.float64))
            found[0][where] = values

        each_block(self.inputs_.rows(source, plan), plan, mixture.block_rows(plan), visit)
        return found[0].numpy()

    def gate_probabilities(self, X: Any) -> np.ndarray:
        """p(j | x): the responsibility of each component for rows `X` without their targets, n × k."""
        return self._each_row(X, gate_probabilities)

    def responsibilities(self, X: Any, y: Any) -> np.ndarray:
        """p(j | x, y): the responsibility of each component for rows `X` with targets `y`, n × k."""
        check_is_fitted(self)
        y = checked_targets(host(y), self._is_classifier, self)
        if self._is_classifier:
            self.targets_.require_known(y, "y")
        Y, n = self._encode(self.targets_, y), read_new(self, X).n_rows
        require(len(Y) == n, "y", f"of length {n}", len(Y))
        return self._each_row(X, responsibilities, torch.as_tensor(np.ascontiguousarray(Y.T)))

    def score_samples(self, X: Any) -> np.ndarray:
        """log p(x) under the mixture of the gates, in the inputs' own units."""
        return self._each_row(X, log_densities)[:, 0] - np.log(self.inputs_.scale).sum()


@dataclass(frozen=True)
class MixtureRefits(Refits):
    """Refits of the same size and settings, grown as the model was: a new start may end at twice its error.

    Least variances of the columns are those of the remaining rows. Rows that are held out would otherwise raise them
    where a column differs from a constant in these rows alone.
    """

    trials: Trials
    sizes: list[int]

    def refit(self, rows: np.ndarray) -> EMResult:
        weight, rng = self.sample.weight.clone(), np.random.default_rng(0)
        weight[rows] = 0.0
        sample = replace(self.sample, weight=weight)
        variance, rounding = column_variances(sample), rounding_variance(sample)
        setting = replace(self.trials.setting, variance=variance, rounding=rounding)
        trials = replace(self.trials, setting=setting)
        return trials.train(sample, self.sizes[-1], setting, rng, trials.start(sample, self.sizes, rng))


def _inputs(given: TableData, plan: Plan, scale_inputs: bool | str) -> tuple[InputMap, Tensor]:
    """Code the columns, which are always centred; return the coding and the variances of the coded columns."""
    inputs = standardised(given, plan)
    scale = inputs.scale
    if not scale_inputs:
        largest = scale.max()  # divided out first, so that no square overflows
        inputs = replace(inputs, scale=np.full_like(scale, largest * np.sqrt(np.mean((scale / largest) ** 2))))
    return inputs, torch.as_tensor((scale / inputs.scale) ** 2)


def gate_probabilities(mixture: Mixture) -> Callable[[Tensor], Tensor]:
    """p(j | x), k × n."""
    log_gates = mixture.log_gates()
    return lambda x: posterior(log_gates(x))[0]


def responsibilities(mixture: Mixture) -> Callable[[Tensor, Tensor], Tensor]:
    """p(j | x, y), k × n, of inputs and their targets (p × n)."""
    log_joint, experts, layout = mixture.log_joint(), mixture.experts, mixture.layout

    def answer(x: Tensor, y: Tensor) -> Tensor:
        return posterior(log_joint(x, y, layout.of(x, experts.further(x, y))))[0]

    return answer


def log_densities(mixture: Mixture) -> Callable[[Tensor], Tensor]:
    """log p(x), 1 × n."""
    log_gates = mixture.log_gates()
    return lambda x: posterior(log_gates(x))[1][None]


def conditional_mean(mixture: Mixture) -> Callable[[Tensor], Tensor]:
    """E[y | x] = Σ_j p(j | x) E[y | x, j] (eq. 2.6, 3.4), p × n."""
    log_gates, experts = mixture.log_gates(), mixture.experts

    def answer(x: Tensor) -> Tensor:
        A, _ = posterior(log_gates(x))
        return (A[:, None] * experts.mean(x)).sum(0)

    return answer


def mean_and_variance(mixture: Mixture, disagree: bool) -> Callable[[Tensor], Tensor]:
    """E[y | x] and Var[y | x] below it (2p × n); `disagree` adds the variance between local means."""
    log_gates, experts = mixture.log_gates(), mixture.experts
    assert isinstance(experts, NoisyExperts)

    def answer(x: Tensor) -> Tensor:
        A, _ = posterior(log_gates(x))
        m = experts.mean(x)
        f = (A[:, None] * m).sum(0)
        spread = (m - f).square() if disagree else torch.zeros_like(m)
        return torch.cat([f, (A[:, None] * (experts.noise[:, :, None] + spread)).sum(0)])

    return answer


def gate_attributes(fitted: EMResult, wanted: int, inputs: InputMap) -> dict[str, Any]:
    """Fitted attributes of the gates, in the inputs' own units."""
    why, gates = fitted.stop_reason, fitted.mixture.gates
    if gates.n_components < wanted:
        why = why.noting(f"{gates.n_components} of {wanted} components were of use")
    s, covariances = inputs.scale, gates.covariances.numpy()
    with np.errstate(over="ignore"):  # in units of 1e200 a square is infinite
        covariances = covariances * s * s if covariances.ndim == 2 else covariances * s * s[:, None]
    return {
        "weights_": gates.weights.numpy(),
        "means_": gates.means.numpy() * s + inputs.mean,
        "covariances_": covariances,
        "n_components_": gates.n_components,
        "n_iter_": max(len(fitted.path) - 1, 1),
        "stop_reason_": why,
        "log_likelihood_path_": np.array(fitted.path),
    }


def leave_one_out_scale(
    mixture: Mixture, sample: Sample, part: Sample, *, disagree: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    r"""Means, standard deviations and 1 − leverage at rows `part` of a sample, n × p, n × p and n × 1.

    A local model of q weights shares :math:`N_j = N p(j)` rows, so a row has the leverage :math:`q\,p(j \mid x)/N_j` in
    it on average. The gates depend on many rows and are kept as they are.
    """
    x = all_columns(part)
    f, variance = mean_and_variance(mixture, disagree)(x).chunk(2)
    size = 1 + x.shape[0] if isinstance(mixture.experts, LinearExperts) else 1
    rows = sample.total_weight / sample.mean_weight * mixture.gates.weights
    h = (size * gate_probabilities(mixture)(x) / rows.clamp(min=1.0)[:, None]).sum(0)
    kept = 1 - h.clamp(max=0.5)  # larger leverages are far from the average
    mean, std, factor = (values.double().cpu().numpy() for values in (f.T, variance.sqrt().T, kept[:, None]))
    return mean, std, factor
