"""What all mixtures of local experts share at the border: reading rows, choosing their size, looking inside."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from mercer.border.estimator import RowEstimator, require_number, require_whole
from mercer.data import PreparedRows, RowSource
from mercer.engine import Plan, each_block, make_plan
from mercer.mixture.em import EMResult, Mixture, Sample, columns, posterior
from mercer.mixture.experts import Experts
from mercer.mixture.fit import Setting, fit_mixture
from mercer.mixture.gates import COVARIANCES
from mercer.mixture.growth import grown
from mercer.mixture.size import best_size
from mercer.parts import require

INITS = ("k-means++", "random")


@dataclass
class Fitted:
    """A run of EM, and output weights where they are fitted on top of it."""

    result: EMResult
    readout: Tensor | None = None

    @property
    def mixture(self) -> Mixture:
        return self.result.mixture


class MixtureEstimator(RowEstimator):
    """A mixture of local experts; subclasses say which (`_experts`), how trained (`_train`) and what it answers."""

    def __init__(
        self,
        n_components: Any = 5,
        *,
        covariance_type: str = "diagonal",
        max_components: int = 20,
        n_folds: int = 3,
        n_init: int = 3,
        init: str = "k-means++",
        max_iter: int = 200,
        tol: float = 1e-5,
        covariance_floor: float = 1e-4,
        scale_inputs: bool = True,
        device: Any = "auto",
        dtype: Any = "auto",
        memory_limit: Any = None,
        random_state: Any = None,
        verbose: bool = False,
        callbacks: Any = None,
    ) -> None:
        self.n_components = n_components
        self.covariance_type = covariance_type
        self.max_components = max_components
        self.n_folds = n_folds
        self.n_init = n_init
        self.init = init
        self.max_iter = max_iter
        self.tol = tol
        self.covariance_floor = covariance_floor
        self.scale_inputs = scale_inputs
        self.device = device
        self.dtype = dtype
        self.memory_limit = memory_limit
        self.random_state = random_state
        self.verbose = verbose
        self.callbacks = callbacks

    # What subclasses fill in

    def _targets(self, y: np.ndarray, weight: np.ndarray) -> Any:
        raise NotImplementedError

    def _check(self) -> dict[str, Any]:
        return {}

    def _experts(self, sample: Sample) -> Callable[[int], Experts]:
        raise NotImplementedError

    def _answers(self, fitted: Fitted) -> Callable[[Tensor], Tensor]:
        """A function from a block's inputs (D × n) to its predicted targets or class probabilities (q × n)."""
        raise NotImplementedError

    def _score(self, answers: Tensor, y: Tensor, weight: Tensor) -> float:
        raise NotImplementedError

    def _fold_labels(self, y: np.ndarray) -> np.ndarray:
        """What folds should hold in equal shares: classes; of numbers, nothing."""
        return np.zeros(len(y))

    def _keep(self, fitted: Fitted) -> None:
        """Store what the targets add to the fitted attributes."""

    def _train(
        self, sample: Sample, k: int, setting: Setting, rng: np.random.Generator, start: Mixture | None = None
    ) -> Fitted:
        return Fitted(fit_mixture(sample, k, self._experts(sample), setting, rng, start))

    # Fitting

    def _require_parameters(self) -> None:
        if isinstance(self.n_components, str):
            require(self.n_components == "auto", "n_components", "'auto' or a whole number", self.n_components)
        else:
            require_whole("n_components", self.n_components)
        for name in ("max_components", "n_init", "max_iter"):
            require_whole(name, getattr(self, name))
        require_whole("n_folds", self.n_folds, 2)
        require_number("tol", self.tol, "a number of at least 0", 0.0)
        wanted = "a number of at least 1e-12 and below 1"
        require_number("covariance_floor", self.covariance_floor, wanted, 1e-12, 1.0)
        kinds = list(COVARIANCES)
        require(self.covariance_type in kinds, "covariance_type", f"one of {kinds}", self.covariance_type)
        require(self.init in INITS, "init", f"one of {list(INITS)}", self.init)
        several = self.callbacks is None or isinstance(self.callbacks, Iterable)
        good = several and all(callable(callback) for callback in self.callbacks or ())
        require(good, "callbacks", "None or several functions of the fit", self.callbacks)

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Any:
        """Fit to rows `X` (array, frame, tensor, file or row source) and targets `y`."""
        self._require_parameters()
        source, y, weight = self._read(X, y, sample_weight, **self._check())
        self._coding = self._targets(y, weight)
        source, Y, weight, _ = self._merge(source, self._coding.encode(y), weight)
        plan = self._plan(source.n_rows)
        self._scale_inputs(source, weight, plan)
        as_tensor: dict[str, Any] = {"dtype": torch.float64, "device": plan.device}
        sample = Sample(
            self._prepared(source, plan),
            torch.as_tensor(np.ascontiguousarray(Y.T), **as_tensor),
            torch.as_tensor(weight, **as_tensor),
            plan,
        )
        rng = np.random.default_rng(check_random_state(self.random_state).randint(2**31))
        setting = self._setting()
        asked = self._choose(sample, setting, rng) if self.n_components == "auto" else self.n_components
        fitted = self._train(sample, asked, setting, rng)
        self._store(fitted, asked)
        return self

    def _plan(self, n_rows: int) -> Plan:
        """Rows are held in `dtype`; densities and sums are always float64, which their cancellations need."""
        return make_plan(n_rows, self.device, "float64" if self.dtype == "auto" else self.dtype, self.memory_limit)

    def _scale_inputs(self, source: RowSource, weight: np.ndarray, plan: Plan) -> None:
        """Columns are centred in any case; without `scale_inputs` all are divided by one common number."""
        self._scale_columns(source, weight, plan, enabled=True)
        own = self.input_scale_
        if not self.scale_inputs:
            self.input_scale_ = np.full_like(own, np.sqrt(np.mean(own**2)))
        self._variance = (own / self.input_scale_) ** 2

    def _setting(self) -> Setting:
        return Setting(
            kind=self.covariance_type,
            floor=self.covariance_floor,
            n_init=self.n_init,
            max_iter=self.max_iter,
            tol=self.tol,
            init=self.init,
            callbacks=tuple(self.callbacks or ()),
            verbose=self.verbose,
            variance=torch.as_tensor(self._variance),
        )

    def _choose(self, sample: Sample, setting: Setting, rng: np.random.Generator) -> int:
        """The number of components by cross-validation; each size starts from the one before it."""

        def scores(train: Sample, test: Sample, sizes: list[int]) -> list[float]:
            x = columns(test.rows.take(torch.arange(test.rows.n_rows)))
            found: list[float] = []
            fitted: Fitted | None = None
            for k in sizes:
                start = None if fitted is None else grown(fitted.mixture, k)
                fitted = self._train(train, k, setting, rng, start)
                found.append(self._score(self._answers(fitted)(x), test.y, test.weight))
            return found

        size, self.cv_results_ = best_size(sample, self._fold_labels, scores, self.max_components, self.n_folds, rng)
        return size

    def _store(self, fitted: Fitted, asked: int) -> None:
        result = fitted.result
        self._mixture = result.mixture.to("cpu")
        self._readout = None if fitted.readout is None else fitted.readout.cpu()
        gates = self._mixture.gates
        self.n_components_ = gates.n_components
        self.log_likelihood_path_ = np.array(result.path)
        self.n_iter_ = max(len(result.path) - 1, 1)
        self.stop_reason_ = result.stop_reason
        wanted = asked * self._mixtures()
        if self.n_components_ < wanted:
            self.stop_reason_ += f"; {self.n_components_} of {wanted} components were of use"
        s = self.input_scale_
        self.weights_ = gates.weights.numpy()
        self.means_ = gates.means.numpy() * s + self.input_mean_
        covariances = gates.covariances.numpy()
        self.covariances_ = covariances * s**2 if covariances.ndim == 2 else covariances * s * s[:, None]
        self._keep(Fitted(EMResult(self._mixture, result.path, result.stop_reason), self._readout))

    def _mixtures(self) -> int:
        """How many mixtures of `n_components` there are."""
        return 1

    # Looking inside, and predicting

    def _each_row(self, X: Any, function: Callable[[Mixture], Callable[[slice, Tensor], Tensor]]) -> np.ndarray:
        """What a function says of each row, n × q, block by block."""
        check_is_fitted(self)
        source = self._new_rows(X)
        plan = self._plan(source.n_rows)
        mixture = self._mixture.to(plan.device)
        answer = function(mixture)
        found: list[Tensor] = []

        def visit(where: slice, block: Tensor) -> None:
            values = answer(where, columns(block)).T.cpu()
            if not found:
                found.append(torch.empty(source.n_rows, values.shape[1], dtype=torch.float64))
            found[0][where] = values

        shift, scale = torch.as_tensor(self.input_mean_), torch.as_tensor(self.input_scale_)
        rows = PreparedRows(source, plan.device, plan.dtype, shift, scale)
        each_block(rows, plan, mixture.block_rows(plan), visit)
        return found[0].numpy()

    def _predicted(self, X: Any) -> np.ndarray:
        """Answers for new rows, n × q."""

        def function(mixture: Mixture) -> Callable[[slice, Tensor], Tensor]:
            readout = None if self._readout is None else self._readout.to(mixture.gates.weights.device)
            answers = self._answers(Fitted(EMResult(mixture, [], ""), readout))
            return lambda where, x: answers(x)

        return self._each_row(X, function)

    def gate_probabilities(self, X: Any) -> np.ndarray:
        """p(j | x): how far each component is responsible at rows `X` before their targets are seen, n × k."""

        def function(mixture: Mixture) -> Callable[[slice, Tensor], Tensor]:
            log_gates = mixture.log_gates()
            return lambda where, x: posterior(log_gates(x))[0]

        return self._each_row(X, function)

    def responsibilities(self, X: Any, y: Any) -> np.ndarray:
        """p(j | x, y): how far each component is responsible for rows `X` with targets `y`, n × k."""
        check_is_fitted(self)
        Y = torch.as_tensor(np.ascontiguousarray(self._coding.encode(np.asarray(y)).T), dtype=torch.float64)

        def function(mixture: Mixture) -> Callable[[slice, Tensor], Tensor]:
            log_joint, experts, layout = mixture.log_joint(), mixture.experts, mixture.layout
            targets = Y.to(mixture.gates.weights.device)

            def answer(where: slice, x: Tensor) -> Tensor:
                block = targets[:, where]
                return posterior(log_joint(x, block, layout.of(x, experts.further(x, block))))[0]

            return answer

        return self._each_row(X, function)

    def score_samples(self, X: Any) -> np.ndarray:
        """log p(x) under the mixture of the gates, in the inputs' own units."""

        def function(mixture: Mixture) -> Callable[[slice, Tensor], Tensor]:
            log_gates = mixture.log_gates()
            return lambda where, x: posterior(log_gates(x))[1][None]

        return self._each_row(X, function)[:, 0] - np.log(self.input_scale_).sum()
