"""What all mixtures of local experts share at the border: reading rows, choosing their size, looking inside."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import torch
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from mercer.border.budget import Budget
from mercer.border.clock import Clock
from mercer.border.estimator import RowEstimator, require_number, require_whole
from mercer.border.weights import unit_weights
from mercer.data import PreparedRows, RowSource
from mercer.engine import Plan, each_block, make_plan
from mercer.mixture.em import Mixture, Sample, columns
from mercer.mixture.experts import Experts
from mercer.mixture.fit import Fitted, Setting, fit_mixture
from mercer.mixture.gates import COVARIANCES
from mercer.mixture.growth import grown
from mercer.mixture.inside import gate_probabilities, log_densities, responsibilities
from mercer.mixture.size import choice_sample, judged_sizes
from mercer.parts import require

INITS = ("k-means++", "random")
#: What scikit-learn calls them.
ALIASES = {"diag": "diagonal", "kmeans": "k-means++", "random_from_data": "random"}
#: Prepared inputs beyond this are not told apart: the answers of linear experts stay finite numbers.
FARTHEST = 1e150


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
        time_budget: float | None = None,
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
        self.time_budget = time_budget
        self.scale_inputs = scale_inputs
        self.device = device
        self.dtype = dtype
        self.memory_limit = memory_limit
        self.random_state = random_state
        self.verbose = verbose
        self.callbacks = callbacks

    # What subclasses fill in

    def _coded(self, y: np.ndarray, weight: np.ndarray) -> tuple[Any, np.ndarray]:
        """What codes the targets, and the coded targets, one row each."""
        raise NotImplementedError

    def _encoded(self, y: Any) -> np.ndarray:
        """Targets of new rows, coded as those of fit."""
        raise NotImplementedError

    def _check(self) -> dict[str, Any]:
        return {}

    def _experts(self, sample: Sample, setting: Setting) -> Callable[[int], Experts]:
        raise NotImplementedError

    def _answers(self, mixture: Mixture, readout: Tensor | None) -> Callable[[Tensor], Tensor]:
        """A function from a block's inputs (D × n) to its predicted targets or class probabilities (q × n)."""
        raise NotImplementedError

    def _score(self, answers: Tensor, y: Tensor, weight: Tensor) -> float:
        raise NotImplementedError

    def _fold_labels(self, y: np.ndarray) -> np.ndarray:
        """What folds should hold in equal shares: classes; of numbers, nothing."""
        return np.zeros(len(y))

    def _keep(self, mixture: Mixture, readout: Tensor | None) -> None:
        """Store what the targets add to the fitted attributes."""

    def _ridge(self, unit: float, total: float) -> float:
        """λ for weights divided by `unit`, whose sum then is `total`."""
        return 0.0

    #: Whether a larger mixture starts from a smaller one.
    _grows = True

    @property
    def _em_share(self) -> float:
        """How much of a time budget is EM's: the rest is for what follows it."""
        return 1.0

    def _train(
        self, sample: Sample, k: int, setting: Setting, rng: np.random.Generator, start: Mixture | None = None
    ) -> Fitted:
        return Fitted(fit_mixture(sample, k, self._experts(sample, setting), setting, rng, start))

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
        for name, known in (("covariance_type", COVARIANCES), ("init", INITS)):
            value = getattr(self, name)
            require(isinstance(value, str) and _meant(value) in known, name, f"one of {list(known)}", value)
        if self.time_budget is not None:
            wanted = "None or a number of seconds above 0"
            require_number("time_budget", self.time_budget, wanted, np.nextafter(0, 1))
        several = self.callbacks is None or isinstance(self.callbacks, Iterable)
        good = several and all(map(callable, self.callbacks or ()))
        require(good, "callbacks", "None or several functions of the fit", self.callbacks)

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Any:
        """Fit to rows `X` (array, frame, tensor, file or row source) and targets `y`."""
        clock = Clock(Budget(self.time_budget))
        self._require_parameters()
        source, y, weight = self._read(X, y, sample_weight, **self._check())
        weight, unit = unit_weights(weight)
        ridge = self._ridge(unit, float(weight.sum()))
        self._coding, Y = self._coded(y, weight)
        source, Y, weight, _ = self._merge(source, Y, weight)
        plan = self._plan(source.n_rows)
        self._scale_inputs(source, weight, plan)
        targets, w = (torch.as_tensor(a, dtype=torch.float64, device=plan.device) for a in (Y.T.copy(), weight))
        sample = Sample(self._prepared(source, plan), targets, w, plan)
        rng = np.random.default_rng(check_random_state(self.random_state).randint(2**31))
        setting = self._setting(ridge, clock)
        auto = self.n_components == "auto"
        k, start = self._chosen(sample, setting, rng) if auto else (self.n_components, None)
        self._store(self._train(sample, k, setting, rng, start), k)
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

    def _setting(self, ridge: float, clock: Clock) -> Setting:
        return Setting(
            kind=_meant(self.covariance_type),
            floor=self.covariance_floor,
            n_init=self.n_init,
            max_iter=self.max_iter,
            tol=self.tol,
            init=_meant(self.init),
            callbacks=tuple(self.callbacks or ()),
            verbose=self.verbose,
            variance=torch.as_tensor(self._variance),
            ridge=ridge,
            clock=clock,
            share=self._em_share,
        )

    def _chosen(self, sample: Sample, setting: Setting, rng: np.random.Generator) -> tuple[int, Mixture | None]:
        """The size by cross-validation, and a mixture to start from that has grown to it as the judged ones did."""

        def scores(train: Sample, test: Sample, sizes: list[int], own: np.random.Generator) -> Iterator[float]:
            x = columns(test.rows.take(torch.arange(test.rows.n_rows)))
            for fitted in self._growing(train, sizes, setting, own):
                yield self._score(self._answers(fitted.mixture, fitted.readout)(x), test.y, test.weight)

        some, clock = choice_sample(sample, rng, setting.clock), setting.clock
        sizes, self.cv_results_ = judged_sizes(
            some, self._fold_labels, scores, self.max_components, self.n_folds, rng, clock
        )
        start = None
        for fitted in self._growing(some, sizes[:-1], setting, rng) if self._grows else ():
            start = grown(fitted.mixture, sizes[-1])
            if clock.over(share=0.75):
                break
        return sizes[-1], start

    def _growing(
        self, sample: Sample, sizes: list[int], setting: Setting, rng: np.random.Generator
    ) -> Iterator[Fitted]:
        """A fit of each size, started from the one before it with its worst components split."""
        fitted: Fitted | None = None
        for k in sizes:
            start = None if fitted is None or not self._grows else grown(fitted.mixture, k)
            fitted = self._train(sample, k, setting, rng, start)
            yield fitted

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
        self._keep(self._mixture, self._readout)

    def _mixtures(self) -> int:
        """How many mixtures of `n_components` there are."""
        return 1

    # Looking inside, and predicting

    def _each_row(self, X: Any, answers: Callable[[Mixture], Callable[..., Tensor]], *given: Tensor) -> np.ndarray:
        """What a function of each block (D × n), and of the same columns of what is `given`, says: n × q."""
        check_is_fitted(self)
        source = self._new_rows(X)
        plan = self._plan(source.n_rows)
        mixture = self._mixture.to(plan.device)
        answer = answers(mixture)
        found: list[Tensor] = []

        def visit(where: slice, block: Tensor) -> None:
            x = columns(block).clamp_(-FARTHEST, FARTHEST)
            values = answer(x, *(one[:, where].to(plan.device) for one in given)).T.cpu()
            if not found:
                found.append(torch.empty(source.n_rows, values.shape[1], dtype=torch.float64))
            found[0][where] = values

        shift, scale = torch.as_tensor(self.input_mean_), torch.as_tensor(self.input_scale_)
        rows = PreparedRows(source, plan.device, plan.dtype, shift, scale)
        each_block(rows, plan, mixture.block_rows(plan), visit)
        return found[0].numpy()

    def _predicted(self, X: Any) -> np.ndarray:
        """Answers for new rows, n × q."""

        def answers(mixture: Mixture) -> Callable[[Tensor], Tensor]:
            readout = None if self._readout is None else self._readout.to(mixture.gates.weights.device)
            return self._answers(mixture, readout)

        return self._each_row(X, answers)

    def gate_probabilities(self, X: Any) -> np.ndarray:
        """p(j | x): how far each component is responsible at rows `X` before their targets are seen, n × k."""
        return self._each_row(X, gate_probabilities)

    def responsibilities(self, X: Any, y: Any) -> np.ndarray:
        """p(j | x, y): how far each component is responsible for rows `X` with targets `y`, n × k."""
        check_is_fitted(self)
        Y, n = self._encoded(y), self._new_rows(X).n_rows
        require(len(Y) == n, "y", f"of length {n}", len(Y))
        return self._each_row(X, responsibilities, torch.as_tensor(np.ascontiguousarray(Y.T), dtype=torch.float64))

    def score_samples(self, X: Any) -> np.ndarray:
        """log p(x) under the mixture of the gates, in the inputs' own units."""
        return self._each_row(X, log_densities)[:, 0] - np.log(self.input_scale_).sum()


def _meant(name: str) -> str:
    """The name by which we know what scikit-learn may call otherwise."""
    return ALIASES.get(name, name)
