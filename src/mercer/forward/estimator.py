"""What greedy and boosted models share: one fit, its history, stages, warm starts and probabilities."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from mercer.border.estimator import require_number, require_whole
from mercer.border.targets import ClassTargets, RealTargets, fit_temperature, probabilities
from mercer.data import ArrayRows, RowSource
from mercer.forward.kernel_estimator import KernelEstimator, with_index
from mercer.forward.loop import ForwardFit
from mercer.forward.problem import Problem
from mercer.forward.stopping import Stopping, TimeBudget, Validation
from mercer.losses import Logistic, Loss, Softmax
from mercer.parts import require


class ForwardEstimator(KernelEstimator):
    """A kernel expansion grown step by step; subclasses say how (`_start`, `_rules`, `_finish`)."""

    loss: Any
    validation_fraction: float | None
    patience: int
    time_budget: float | None
    warm_start: bool
    verbose: bool
    callbacks: Any

    def _require_parameters(self) -> None:
        super()._require_parameters()
        require_whole("patience", self.patience)
        if self.validation_fraction is not None:
            share, wanted = self.validation_fraction, "None or between 0 and 1"
            require_number("validation_fraction", share, wanted, np.nextafter(0, 1), 1.0)
        if self.time_budget is not None:
            wanted = "None or a positive number of seconds"
            require_number("time_budget", self.time_budget, wanted, np.nextafter(0, 1))
        several = self.callbacks is None or isinstance(self.callbacks, Iterable)
        good = several and all(callable(callback) for callback in self.callbacks or ())
        require(good, "callbacks", "None or several functions of the fit", self.callbacks)

    def _targets(self, y: np.ndarray, weight: np.ndarray) -> Any:
        raise NotImplementedError

    def _start(self, problem: Problem, validation: Tensor | None, rng: np.random.Generator) -> ForwardFit:
        raise NotImplementedError

    def _rules(self) -> list[Stopping]:
        raise NotImplementedError

    #: Whether the basis vectors left the rows they started from.
    _moved = False

    def _finish(self, fit: ForwardFit, index: Tensor, weights: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Rows, basis vectors and weights of the final model, from those of the last step kept."""
        return index, fit.problem.basis(index), weights

    def _calibrate(self, fit: ForwardFit, basis: Tensor, weights: Tensor) -> None:
        """What classifiers add: the temperature of their probabilities."""

    def _stored(self, rows: np.ndarray) -> np.ndarray:
        """Rows of the training table as they came."""
        return self._source.take(rows).cpu().numpy()

    def _check(self, **check: Any) -> dict[str, Any]:
        return check

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, *, X_val: Any = None, y_val: Any = None) -> Any:
        """Fit to rows `X` (array, frame, tensor, file or row source) and targets `y`.

        `X_val`, `y_val`: rows to watch instead of a `validation_fraction` of the training rows. With
        ``warm_start=True`` a second call on the same rows goes on where the first one stopped.
        """
        self._require_parameters()
        fit = getattr(self, "_fit", None) if self.warm_start else None
        if fit is None:
            fit = self._begin(X, y, sample_weight, X_val, y_val)
        else:
            source, _, _ = self._read(X, y, sample_weight, **self._check())
            shape, wanted = (source.n_rows, source.n_columns), self._shape
            require(shape == wanted, "X", f"of shape {wanted} as in the first fit, or warm_start=False", shape)
        rules = self._rules()
        if self.time_budget is not None:
            rules.append(TimeBudget(self.time_budget))
        if fit.validation is not None:
            rules.append(Validation(self.patience))
        self.stop_reason_ = fit.run(rules, self.callbacks or (), self.verbose)
        best = [rule.best(fit.history) for rule in rules]
        n_steps = min([k for k in best if k is not None], default=fit.n_steps)
        self._conclude(fit, n_steps)
        return self

    def _begin(self, X: Any, y: Any, sample_weight: Any, X_val: Any, y_val: Any) -> ForwardFit:
        source, y, weight = self._read(X, y, sample_weight, **self._check())
        self._shape = source.n_rows, source.n_columns
        self._coding = self._targets(y, weight)
        source, Y, weight, self._original = self._merge(source, self._coding.encode(y), weight)
        rng = check_random_state(self.random_state)
        source, Y, weight, held_out = self._hold_out(source, Y, weight, X_val, y_val, rng)
        if self._pairwise:
            source = with_index(source)
        problem = self._problem(source, Y, weight, self._loss())
        validation = None if held_out is None else torch.as_tensor(held_out, device=problem.plan.device)
        self._source = source
        return self._start(problem, validation, np.random.default_rng(rng.randint(2**31)))

    def _loss(self) -> Loss:
        return Loss.resolve(self.loss, "loss")

    def _hold_out(
        self, source: RowSource, Y: np.ndarray, weight: np.ndarray, X_val: Any, y_val: Any, rng: Any
    ) -> tuple[RowSource, np.ndarray, np.ndarray, np.ndarray | None]:
        """Rows to watch get weight zero: a share of the training rows, or rows given and put at the end."""
        if X_val is not None:
            require(isinstance(source, ArrayRows), "X_val", "None where X is a file or a row source", type(X_val))
            assert isinstance(source, ArrayRows)
            require(y_val is not None, "y_val", "given with X_val", None)
            X_val, y_val = np.asarray(X_val, dtype=source.X.dtype), np.asarray(y_val)
            require(len(y_val) == len(X_val), "y_val", f"of the length of X_val, {len(X_val)}", len(y_val))
            require(
                X_val.ndim == 2 and X_val.shape[1] == source.n_columns,
                "X_val",
                f"of {source.n_columns} columns",
                X_val.shape,
            )
            held = np.arange(source.n_rows, source.n_rows + len(X_val))
            rows = ArrayRows(np.concatenate([source.X, X_val]))
            return (
                rows,
                np.concatenate([Y, self._coding.encode(y_val)]),
                np.append(weight, np.zeros(len(held))),
                held,
            )
        if self.validation_fraction is None:
            return source, Y, weight, None
        share = self.validation_fraction
        alive = np.flatnonzero(weight > 0)
        require(len(alive) >= 4, "the number of rows", "at least 4 to hold some out for validation", len(alive))
        held = rng.choice(alive, min(max(round(share * len(alive)), 1), len(alive) - 2), replace=False)
        weight = weight.copy()
        weight[held] = 0.0
        return source, Y, weight, held

    def _conclude(self, fit: ForwardFit, n_steps: int) -> None:
        """Store the model of the first `n_steps` steps, and the history of all of them."""
        path, device = fit.path(), fit.problem.plan.device
        W = path.weights(n_steps)
        alive = np.flatnonzero((W != 0).any(1)) if n_steps < path.n_steps else np.arange(len(W))
        index = torch.as_tensor(path.rows[alive], device=device)
        self.n_steps_ = n_steps
        index, basis, weights = self._finish(fit, index, torch.as_tensor(W[alive], device=device))
        self._calibrate(fit, basis, weights)
        self._store(self._source, index, weights, self._original)
        if self._moved:
            self.basis_ = self._in_own_units(basis)
        self._path, self._stage_rows = path, self._stored(path.rows)
        history = fit.history
        self.objective_path_ = np.array(history.objective)
        self.history_ = {
            "n_basis": np.array(history.n_basis),
            "objective": np.array(history.objective),
            "residual_norm": np.array(history.residual_norm),
            "seconds": np.array(history.seconds),
            "validation": np.array(history.validation),
            "mdl": np.array(history.description_length()),
            "aic": np.array(history.information_criterion()),
        }
        if self.warm_start:
            self._fit = fit
        else:
            del self._source

    def _staged_values(self, X: Any, steps: Any) -> Iterator[np.ndarray]:
        """Values of the model after each of some numbers of steps, n × p each, from one pass over `X`."""
        check_is_fitted(self)
        steps = list(steps)
        W = np.concatenate([self._path.weights(k) for k in steps], axis=1)
        values = self._values(X, W, self._stage_rows)
        yield from np.split(values, len(steps), axis=1)


class ForwardRegressor(RegressorMixin, ForwardEstimator):
    """Targets are numbers, in one column or several."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _check(self, **check: Any) -> dict[str, Any]:
        return {"multi_output": True, "y_numeric": True}

    def _targets(self, y: np.ndarray, weight: np.ndarray) -> RealTargets:
        return RealTargets.of(y, weight)

    def _loss(self) -> Loss:
        loss = super()._loss()
        require(loss.quadratic, "loss", "'squared' for regression: the others are for classes", self.loss)
        return loss

    def predict(self, X: Any) -> np.ndarray:
        """Predicted targets, of the shape `y` had in `fit`."""
        check_is_fitted(self)
        return self._coding.decode(self._values(X))

    def staged_predict(self, X: Any) -> Iterator[np.ndarray]:
        """Predictions after each step, before any polish."""
        for values in self._staged_values(X, range(1, self.n_steps_ + 1)):
            yield self._coding.decode(values)


class ForwardClassifier(ClassifierMixin, ForwardEstimator):
    """Targets are classes: two, or more that share their basis vectors."""

    def _targets(self, y: np.ndarray, weight: np.ndarray) -> ClassTargets:
        check_classification_targets(y)
        self.classes_ = np.unique(y[weight > 0])
        if len(self.classes_) < 2:
            raise ValueError(f"y must hold at least 2 classes, got 1 class: {self.classes_[0]!r}")
        return ClassTargets(self.classes_)

    def _loss(self) -> Loss:
        loss = super()._loss()
        if isinstance(loss, Logistic | Softmax):  # one loss, in its form for two classes or for more
            return Softmax() if len(self.classes_) > 2 else Logistic()
        return loss

    def _calibrate(self, fit: ForwardFit, basis: Tensor, weights: Tensor) -> None:
        """On the rows held out if there are any, else on the training rows; logistic losses need none."""
        self.temperature_ = 1.0
        problem = fit.problem
        if isinstance(problem.loss, Logistic | Softmax) or len(basis) == 0:
            return
        rows = problem.candidates() if fit.validation is None else fit.validation
        rows = rows[:: max(len(rows) // 5000, 1)]
        values = self.kernel_(problem.basis(rows).double(), basis.double()) @ weights
        weight = problem.weight[rows] if fit.validation is None else torch.ones(len(rows))
        self.temperature_ = fit_temperature(*(a.double().cpu().numpy() for a in (values, problem.y[rows], weight)))

    def decision_function(self, X: Any) -> np.ndarray:
        """Decision values: one column per class, or one number where there are two classes."""
        values = self._values(X)
        return values[:, 0] if values.shape[1] == 1 else values

    def predict(self, X: Any) -> np.ndarray:
        """The class of each row."""
        check_is_fitted(self)
        return self._coding.decode(self._values(X))

    def staged_predict(self, X: Any) -> Iterator[np.ndarray]:
        """Classes after each step, before any polish."""
        for values in self._staged_values(X, range(1, self.n_steps_ + 1)):
            yield self._coding.decode(values)

    def predict_proba(self, X: Any) -> np.ndarray:
        """Class probabilities in the order of `classes_`; calibrated where the loss gives none itself."""
        check_is_fitted(self)
        return probabilities(self._values(X), self.temperature_)
