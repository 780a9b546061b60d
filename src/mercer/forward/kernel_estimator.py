"""What all kernel expansions share at the border: tuning the kernel, storing the expansion, predicting with it.

An estimator validates, assembles a `Problem`, calls one function and stores what it returns.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from mercer.border.estimator import RowEstimator, require_number, require_whole
from mercer.data import ArrayRows, RowSource, TensorRows, spread_rows
from mercer.engine import KernelMatrix, Plan, make_plan
from mercer.forward.problem import Problem
from mercer.kernels import Kernel, Precomputed, as_kernel
from mercer.losses import Loss, Squared
from mercer.parts import require
from mercer.tuning import precise, tune_kernel, tune_noise
from mercer.tuning.precision import FLOAT32_PENALTY

#: Rows from which is judged whether float32 tiles hold the model.
PRECISION_ROWS = 1000


class KernelEstimator(RowEstimator):
    """Base of the estimators that end as a short kernel expansion ``K(X, basis_) @ dual_coef_``."""

    kernel: Any
    regularization: Any
    tuning_rows: int

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self._pairwise
        return tags

    @property
    def _pairwise(self) -> bool:
        return isinstance(self.kernel, Precomputed) or self.kernel == "precomputed"

    def _require_parameters(self) -> None:
        """Refuse parameters out of range, before any data is looked at."""
        require_whole("tuning_rows", self.tuning_rows, 2)
        self._require_scaling()
        if isinstance(self.regularization, str):
            require(self.regularization == "auto", "regularization", "'auto' or a number", self.regularization)
        else:
            require_number("regularization", self.regularization, "'auto' or a number of at least 0", 0.0)

    def _problem(self, source: RowSource, Y: np.ndarray, weight: np.ndarray, loss: Loss | None = None) -> Problem:
        """Plan, scale and tune: everything an algorithm needs, from numeric targets `Y` (n × p)."""
        rng = check_random_state(self.random_state)
        plan = make_plan(source.n_rows, self.device, self.dtype, self.memory_limit)
        scaled = bool(self.scale_inputs) and not self._pairwise
        self._scale_columns(source, weight, plan, scaled, self._bend(source, Y, weight, plan))
        self.dtype_ = str(plan.dtype).removeprefix("torch.")
        rows = self._prepared(source, plan)
        began = time.perf_counter()
        self._tune(rows, Y, weight, plan, rng)
        steady = self._precise(rows, Y, weight, plan)
        if steady.dtype != plan.dtype:
            plan, rows = steady, self._prepared(source, steady)
            self.dtype_ = str(plan.dtype).removeprefix("torch.")
        self.tuning_seconds_ = time.perf_counter() - began
        as_vector: dict[str, Any] = {"device": plan.device, "dtype": plan.dtype}
        return Problem(
            rows=rows,
            y=torch.as_tensor(Y, **as_vector),
            kernel=self.kernel_,
            lam=self.regularization_,
            plan=plan,
            weight=torch.as_tensor(weight, **as_vector),
            loss=loss or Squared(),
        )

    def _precise(self, rows: RowSource, Y: np.ndarray, weight: np.ndarray, plan: Plan) -> Plan:
        """The plan with tiles that hold the model; where the user insists on float32, a tuned penalty may rise."""
        some = spread_rows(weight, PRECISION_ROWS)
        sample = rows.take(some), torch.as_tensor(Y[some]), weight[some]
        free = {"free_dtype": self.dtype == "auto", "free_penalty": isinstance(self.regularization, str)}
        steady, lam = precise(plan, self.kernel_, self.regularization_, *sample, int((weight > 0).sum()), **free)
        self.regularization_ = float(lam)
        return steady

    def _steadied(self, problem: Problem) -> Problem:
        """The problem with a tuned penalty raised to what float32 tiles can resolve; one given stays as it is."""
        least = FLOAT32_PENALTY * float(problem.weight[problem.weight > 0].mean())
        if self.regularization != "auto" or problem.plan.dtype != torch.float32 or problem.lam >= least:
            return problem
        self.regularization_ = least
        return replace(problem, lam=least)

    def _tune(self, rows: RowSource, Y: np.ndarray, weight: np.ndarray, plan: Plan, rng: Any) -> None:
        """Set `kernel_` and `regularization_`: tuned where the user left them open, else as given."""
        fixed = not isinstance(self.kernel, str) or self.kernel == "precomputed"
        automatic = isinstance(self.regularization, str)
        alive = np.flatnonzero(weight > 0)
        chosen = alive if len(alive) <= self.tuning_rows else rng.choice(alive, self.tuning_rows, replace=False)
        sample = rows.take(chosen), torch.as_tensor(Y[chosen])
        options: dict[str, Any] = {"sample_weight": weight[chosen], "device": plan.device}
        self.kernel_: Kernel
        if fixed:
            self.kernel_ = as_kernel(self.kernel)
            noise = tune_noise(self.kernel_, *sample, **options) if automatic else self.regularization
        else:
            options |= {"n_rows": self.tuning_rows, "max_iter": 50, "tol": 1e-6, "random_state": rng}
            tuned = tune_kernel(*sample, self.kernel, **options)
            self.kernel_, noise = tuned.kernel, tuned.noise if automatic else self.regularization
        self.regularization_ = float(noise)

    def _store(self, source: RowSource, chosen: Tensor, weights: Tensor, original: np.ndarray) -> None:
        """Keep the expansion as arrays, in the inputs' own units."""
        index = chosen.cpu().numpy()
        self.basis_ = source.take(index).cpu().numpy()
        self.basis_indices_ = original[index]
        self.dual_coef_ = weights.cpu().numpy()

    def _values(self, X: Any, weights: np.ndarray | None = None, basis: np.ndarray | None = None) -> np.ndarray:
        """K(X, basis) @ weights in float64 (n × p) for new rows; `basis_` and `dual_coef_` unless told otherwise."""
        check_is_fitted(self)
        source = self._new_rows(X)
        plan = make_plan(source.n_rows, self.device, self.dtype_, self.memory_limit)
        if self._pairwise:
            source = with_index(source)
        basis = self.basis_ if basis is None else basis
        Z = self._prepared(ArrayRows(basis), plan).take(np.arange(len(basis)))
        coef = torch.as_tensor(self.dual_coef_ if weights is None else weights)
        K = KernelMatrix(self._prepared(source, plan), self.kernel_, Z.to(plan.device, plan.dtype), plan)
        return K.product(coef).double().cpu().numpy()


def with_index(source: RowSource) -> TensorRows:
    """Rows of a precomputed kernel with their own index as a last column (see `Precomputed`)."""
    rows = source.take(np.arange(source.n_rows))
    return TensorRows(torch.cat([rows, torch.arange(source.n_rows)[:, None].to(rows)], 1))
