r"""Uncertainty of ensembles of empirical kernels, in parts.

A member that couples M kernels by :math:`\lambda = -1` is ridge regression with the mean :math:`\bar k` of its kernels
and penalty c, so its function has the variance of a Gaussian process of covariance :math:`\bar k`, given its basis
vectors, which stand for all rows (`mercer.forward.uncertainty`). The linear features of the map alone would have no
variance far from the basis vectors. Another coupling changes this little.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import torch

from mercer.base.classifier import DecisionClassifier
from mercer.base.uncertainty import ClassUncertaintyMixin, UncertainRegressor, normal_draws
from mercer.data import TensorRows
from mercer.empirical.ensemble import EnsembleMember, MemberEnsemble, values
from mercer.empirical.kernel_map import mean_kernel
from mercer.engine import Plan, make_plan
from mercer.forward.expansion import Expansion, Objective
from mercer.forward.uncertainty import BasisDistances, FunctionVariance
from mercer.kernels import Kernel
from mercer.parts import require
from mercer.preprocessing.inputs import InputMap
from mercer.preprocessing.read import read_new


class _MemberUncertainty(BasisDistances):
    """The shared part of regressors and classifiers; `_objectives` has the penalty and weight of each machine."""

    ensemble_: ClassVar[MemberEnsemble]
    inputs_: InputMap
    device: Any
    memory_limit: Any
    _objectives: ClassVar[tuple[Objective, ...]]

    def _basis_of_distances(self) -> tuple[Kernel, InputMap, np.ndarray]:
        basis = [np.asarray(members[0].basis, dtype=np.float64) for members in self.ensemble_.machines]
        return mean_kernel(self.ensemble_.machines[0][0].kernels), self.inputs_, np.concatenate(basis)

    def _known_objectives(self) -> tuple[Objective, ...]:
        known = hasattr(self, "_objectives")
        require(known, "the model", "fitted again to have predict_uncertainty", "a file of an earlier version")
        return self._objectives

    def _variance(self, member: EnsembleMember, objective: Objective, plan: Plan) -> FunctionVariance:
        basis = np.asarray(member.basis, dtype=np.float64)
        nothing = np.zeros((len(basis), 1))  # the curvature of the squared loss is that of any function
        return FunctionVariance(
            Expansion(self.inputs_, mean_kernel(member.kernels), basis, nothing, "float64"), objective, plan
        )


class UncertainMembers(_MemberUncertainty, UncertainRegressor):
    """The parts of the uncertainty of a regressor."""

    def _noise_and_model(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        [objective] = self._known_objectives()
        source, members = read_new(self, X), self.ensemble_.machines[0]
        plan = make_plan(source.n_rows, self.device, "float64", self.memory_limit)
        size = self._score_deviation() * self._values_and_scale(X)[1]
        typical = self._score_deviation() * self._typical_scale(members[0], plan)
        noise, model = np.zeros_like(size), np.zeros_like(size)
        for member in members:
            variance = self._variance(member, objective, plan)
            of_noise, of_model = variance.noise_and_model(source, variance.mean_of_new_rows())
            noise += of_noise * size / len(members)
            model += of_model * typical / len(members)
        return noise, model

    def _typical_scale(self, member: EnsembleMember, plan: Plan) -> np.ndarray:
        """The root mean square of the local scale at the basis vectors, 1 × p."""
        basis = torch.as_tensor(member.basis).double()
        f = self.ensemble_.values(TensorRows(basis.to(plan.device)), plan)
        if self.intervals_.local is None:
            return np.ones((1, f.shape[1]))
        scale = self.intervals_.local.at(basis.numpy(), f, self.inputs_.decode(basis))
        return np.sqrt(np.mean(scale**2, axis=0, keepdims=True))


class UncertainVotes(_MemberUncertainty, ClassUncertaintyMixin, DecisionClassifier):
    """The parts of the uncertainty of a classifier: votes and margins of functions that are drawn."""

    def _probability_draws(self, X: Any) -> Iterator[np.ndarray]:
        objectives = self._known_objectives()
        source = read_new(self, X)
        plan = make_plan(source.n_rows, self.device, "float64", self.memory_limit)
        rows = self.inputs_.rows(source, plan)
        found = self.ensemble_.outputs(rows, plan)
        deviations = [
            [self._deviation(member, objective, source, plan) for member in members]
            for members, objective in zip(self.ensemble_.machines, objectives, strict=True)
        ]
        P = found[0][0].shape[1]
        for z in normal_draws(P * len(found)).reshape(-1, len(found), P):
            drawn = [
                [f + deviation * z_of for f, deviation in zip(of_members, wide, strict=True)]
                for of_members, wide, z_of in zip(found, deviations, z, strict=True)
            ]
            yield self.calibration_.probabilities(self.targets_.decisions(self.ensemble_.combined(drawn)))

    def _deviation(self, member: EnsembleMember, objective: Objective, source: Any, plan: Plan) -> np.ndarray:
        """Standard deviations of the values of a member, n × P.

        The variance of codes ±1 around their mean d is 1 − d².
        """
        variance = self._variance(member, objective, plan)
        at_basis = np.clip(values([member], TensorRows(variance.basis), plan)[0], -1, 1)
        left = np.maximum((1 - at_basis**2).mean(0), np.finfo(float).tiny)
        return variance.noise_and_model(source, variance.mean_of_new_rows())[1] * np.sqrt(left)
