"""Losses: value, slope, curvature and Hessian in the model's outputs; logistic and softmax are written here alone.

Targets are numbers for regression and ±1 for classification. Outputs (or classes against the rest) lie along the
second axis; what comes after it is carried along, so that n × p of one model and k × p × n of k models side by side
are both read. All but `Softmax` work element by element. A loss of the user derives from `Loss`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import Tensor

from mercer.parts import Component, as_float, component, require

#: Halvings of the range of the targets, down to the digits of float32.
BISECTIONS = 30
#: Logarithms of means, in units of the mean of the targets, beyond which losses with a log link are linear.
FAR_MEANS = 30.0


class Loss(Component, ABC):
    """V(y, f), convex and once differentiable in f, with a curvature for Newton steps.

    A regressor takes an object of any subclass as its `loss`. Its methods see tensors of n × p targets and outputs, row
    by row. Targets have mean 0 and standard deviation 1; with ``link = "log"`` they are positive with mean 1, and the
    mean of a row is exp(f).

    >>> import numpy as np
    >>> import torch
    >>> from mercer import KernelBoostingRegressor
    >>> from mercer.losses import Loss
    >>> class LogCosh(Loss):
    ...     "log cosh(y − f): squared near zero, absolute far away."
    ...     def value(self, y, f):
    ...         return torch.logaddexp(y - f, f - y) - np.log(2)
    ...     def residual(self, y, f):
    ...         return torch.tanh(y - f)
    ...     def curvature(self, y, f):
    ...         return 1 - torch.tanh(y - f) ** 2
    >>> X = np.random.default_rng(0).uniform(-2, 2, (200, 2))
    >>> y = np.sin(2 * X[:, 0]) * X[:, 1]
    >>> model = KernelBoostingRegressor(kernel="gaussian", loss=LogCosh()).fit(X[:150], y[:150])
    >>> print(f"R² = {model.score(X[150:], y[150:]):.2f}")
    R² = 1.00
    """

    #: Whether V is a quadratic in f, so that one Newton step from anywhere is exact.
    quadratic: ClassVar[bool] = False
    #: Whether it makes sense of targets that are numbers, not codes of classes.
    for_numbers: ClassVar[bool] = True
    #: "identity" where outputs are means or quantiles of the targets, "log" where they are logarithms of means.
    link: ClassVar[str] = "identity"
    #: Whether outputs meet in V, so that its Hessian has entries between them.
    joint: ClassVar[bool] = False
    #: Whether V is minus the log likelihood of classes, so that decision values are log odds.
    likelihood: ClassVar[bool] = False
    #: Whether Newton's method fits it to all rows at once, where these are few enough.
    newton: ClassVar[bool] = True
    #: Whether gross errors in y call for another selection of kernels without them.
    robust: ClassVar[bool] = False
    #: The largest curvature, or a typical one where it has no bound: the scale of steps.
    bound: ClassVar[float] = 1.0

    @abstractmethod
    def value(self, y: Tensor, f: Tensor) -> Tensor:
        """V(y, f)."""

    @abstractmethod
    def residual(self, y: Tensor, f: Tensor) -> Tensor:
        """−∂V/∂f: what the next learner is fitted to."""

    @abstractmethod
    def curvature(self, y: Tensor, f: Tensor) -> Tensor:
        """∂²V/∂f² (a generalised one where V has a kink in its slope), never negative: the diagonal of the Hessian."""

    def variance_power(self) -> float:
        """p, where the variance of targets grows as the p-th power of their mean; for losses with a log link."""
        return 1.0

    def constant(self, y: Tensor, weight: Tensor) -> Tensor:
        """The constant c of each output that minimises Σ w V(y, c), n × p targets given; by bisection of its slope.

        >>> import torch
        >>> from mercer.losses import Pinball
        >>> round(float(Pinball(0.75).constant(torch.arange(101.0)[:, None], torch.ones(101))), 1)
        75.0
        """
        low, high = y.amin(0), y.amax(0)
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            rises = (weight[:, None] * self.residual(y, middle.expand_as(y))).sum(0) > 0
            low, high = torch.where(rises, middle, low), torch.where(rises, high, middle)
        return (low + high) / 2

    def hessian(self, y: Tensor, f: Tensor) -> Tensor:
        """∂²V/∂f∂fᵀ between the outputs of a row, n × p × p (k × p × p × n): diagonal unless outputs meet in V."""
        return self.curvature(y, f)[:, :, None] * _identity(f)

    def bent(self, y: Tensor, f: Tensor, u: Tensor) -> Tensor:
        """The Hessian of each row times changes `u` of its outputs, n × p."""
        return self.curvature(y, f) * u


@component
class Squared(Loss):
    """½ (y − f)².

    >>> import torch
    >>> from mercer.losses import Squared
    >>> Squared().residual(torch.tensor([1.0]), torch.tensor([0.25])).item()
    0.75
    """

    short_name = "squared"
    quadratic = True

    def value(self, y: Tensor, f: Tensor) -> Tensor:
        return 0.5 * (y - f).square()

    def residual(self, y: Tensor, f: Tensor) -> Tensor:
        return y - f

    def curvature(self, y: Tensor, f: Tensor) -> Tensor:
        return torch.ones_like(f)


@component
class Logistic(Loss):
    """log(1 + exp(−y f)): kernel logistic regression.

    >>> import torch
    >>> from mercer.losses import Logistic
    >>> Logistic().value(torch.tensor([1.0]), torch.tensor([0.0])).item()
    0.693...
    """

    short_name = "logistic"
    for_numbers = False
    likelihood = True
    bound = 0.25

    def value(self, y: Tensor, f: Tensor) -> Tensor:
        return -torch.nn.functional.logsigmoid(y * f)

    def residual(self, y: Tensor, f: Tensor) -> Tensor:
        return y * torch.sigmoid(-y * f)

    def curvature(self, y: Tensor, f: Tensor) -> Tensor:
        return torch.sigmoid(f) * torch.sigmoid(-f)


@component
class SquaredHinge(Loss):
    """max(0, 1 − y f)²: the support vector machine in its primal, smooth form.

    >>> import torch
    >>> from mercer.losses import SquaredHinge
    >>> SquaredHinge().residual(torch.tensor([1.0, 1.0]), torch.tensor([0.5, 2.0])).tolist()
    [1.0, 0.0]
    """

    short_name = "squared-hinge"
    for_numbers = False
    newton = False
    bound = 2.0

    def value(self, y: Tensor, f: Tensor) -> Tensor:
        return squared_hinge(y * f)

    def residual(self, y: Tensor, f: Tensor) -> Tensor:
        return 2 * y * (1 - y * f).clamp(min=0)

    def curvature(self, y: Tensor, f: Tensor) -> Tensor:
        return 2 * (y * f < 1).to(f.dtype)


def squared_hinge(margins: Tensor, enough: float = 1.0) -> Tensor:
    """The square of what margins y·f lack of `enough`."""
    return (enough - margins).clamp(min=0).square()


@component
class Pinball(Loss):
    """The loss of a quantile: τ(y − f) above it, (1 − τ)(f − y) below, and a parabola where y is within δ of f.

    τ is `quantile`; δ = 0.05, in units of the targets' standard deviation, makes it differentiable. A boosted or greedy
    regressor that minimises it is a quantile regression; `predict_quantiles` asks less time and never crosses.

    >>> import torch
    >>> from mercer.losses import Pinball
    >>> Pinball(0.75).value(torch.tensor([1.0, -1.0]), torch.zeros(2)).round(decimals=3).tolist()
    [0.75, 0.25]
    """

    short_name = "pinball"
    newton = False
    bound = 10.0  # 1/2δ
    quantile: float = 0.5

    def _level(self) -> float:
        require(0 < as_float(self.quantile) < 1, "quantile", "a number above 0 and below 1", self.quantile)
        return float(self.quantile)

    def value(self, y: Tensor, f: Tensor) -> Tensor:
        return (self._level() - 0.5) * (y - f) + 0.5 * Absolute().value(y, f)

    def residual(self, y: Tensor, f: Tensor) -> Tensor:
        return self._level() - 0.5 + 0.5 * Absolute().residual(y, f)

    def curvature(self, y: Tensor, f: Tensor) -> Tensor:
        return 0.5 * Absolute().curvature(y, f)


@component
class Huber(Loss):
    """½r² for residuals r = y − f up to δ, and δ|r| − ½δ² beyond: gross errors in y count by their sign alone.

    δ is `delta`, in units of the standard deviation of the targets, whose far values are clipped before it is taken.

    P. J. Huber, "Robust estimation of a location parameter", Annals of Mathematical Statistics 35 (1964).

    >>> import torch
    >>> from mercer.losses import Huber
    >>> Huber(1.0).value(torch.tensor([0.5, 3.0]), torch.zeros(2)).tolist()
    [0.125, 2.5]
    """

    short_name = "huber"
    robust = True
    delta: float = 0.2

    def _delta(self) -> float:
        require(0 < as_float(self.delta) < math.inf, "delta", "a positive number", self.delta)
        return float(self.delta)

    def value(self, y: Tensor, f: Tensor) -> Tensor:
        r = (y - f).abs()
        near = r.clamp(max=self._delta())
        return near * (r - 0.5 * near)

    def residual(self, y: Tensor, f: Tensor) -> Tensor:
        return (y - f).clamp(-self._delta(), self._delta())

    def curvature(self, y: Tensor, f: Tensor) -> Tensor:
        return ((y - f).abs() < self._delta()).to(f.dtype)

    def bent(self, y: Tensor, f: Tensor, u: Tensor) -> Tensor:
        """Changes `u` times the curvature of a parabola above V that touches it at f: every step goes downhill."""
        return u * (self._delta() / (y - f).abs().clamp(min=self._delta()))


@component
class Absolute(Loss):
    """The absolute value of y − f, whose minimum is the median, and a parabola where y is within δ of f.

    δ = 0.05, in units of the targets' standard deviation, makes it differentiable.

    >>> import torch
    >>> from mercer.losses import Absolute
    >>> Absolute().residual(torch.tensor([1.0, -3.0]), torch.zeros(2)).tolist()
    [1.0, -1.0]
    """

    short_name = "absolute"
    robust = True
    bound = 20.0  # 1/δ

    def value(self, y: Tensor, f: Tensor) -> Tensor:
        return self.bound * Huber(1 / self.bound).value(y, f) + 0.5 / self.bound

    def residual(self, y: Tensor, f: Tensor) -> Tensor:
        return (self.bound * (y - f)).clamp(-1.0, 1.0)

    def curvature(self, y: Tensor, f: Tensor) -> Tensor:
        return self.bound * ((y - f).abs() < 1 / self.bound).to(f.dtype)

    def bent(self, y: Tensor, f: Tensor, u: Tensor) -> Tensor:
        """Changes `u` times the curvature of a parabola above V that touches it at f: every step goes downhill."""
        return u / (y - f).abs().clamp(min=1 / self.bound)


class PowerVarianceLoss(Loss):
    """Half the unit deviance of targets whose variance is the p-th power of their mean μ = exp(f), 1 ≤ p ≤ 2.

    The curvature at f = 0 is 1 for a target of 1, whatever p is. Beyond ±`FAR_MEANS`, V continues along its
    tangent, so that no number overflows.
    """

    link = "log"

    def value(self, y: Tensor, f: Tensor) -> Tensor:
        near = f.clamp(-FAR_MEANS, FAR_MEANS)
        return self._deviance(y, near) - self.residual(y, near) * (f - near)

    def residual(self, y: Tensor, f: Tensor) -> Tensor:
        p, f = self.variance_power(), f.clamp(-FAR_MEANS, FAR_MEANS)
        return y * torch.exp((1 - p) * f) - torch.exp((2 - p) * f)

    def curvature(self, y: Tensor, f: Tensor) -> Tensor:
        p, near = self.variance_power(), f.clamp(-FAR_MEANS, FAR_MEANS)
        curvature = (p - 1) * y * torch.exp((1 - p) * near) + (2 - p) * torch.exp((2 - p) * near)
        return torch.where(near == f, curvature, 0.0)

    def _deviance(self, y: Tensor, f: Tensor) -> Tensor:
        """V for f within `FAR_MEANS`."""
        p = self.variance_power()
        if p == 1:
            return torch.xlogy(y, y) - y * f + (torch.exp(f) - y)
        if p == 2:
            return y * torch.exp(-f) - 1 - torch.log(y) + f
        least = y ** (2 - p) / ((1 - p) * (2 - p))
        return least + y * torch.exp((1 - p) * f) / (p - 1) + torch.exp((2 - p) * f) / (2 - p)


@component
class Poisson(PowerVarianceLoss):
    """Counts: μ − y log μ with μ = exp(f), less its least value: half the Poisson deviance.

    >>> import torch
    >>> from mercer.losses import Poisson
    >>> Poisson().residual(torch.tensor([3.0]), torch.zeros(1)).item()  # y − μ
    2.0
    """

    short_name = "poisson"


@component
class Gamma(PowerVarianceLoss):
    """Positive numbers with a constant coefficient of variation: y/μ + log μ with μ = exp(f), less its least value.

    >>> import torch
    >>> from mercer.losses import Gamma
    >>> Gamma().residual(torch.tensor([3.0]), torch.zeros(1)).item()  # y/μ − 1
    2.0
    """

    short_name = "gamma"

    def variance_power(self) -> float:
        return 2.0


@component
class Tweedie(PowerVarianceLoss):
    """Totals that are often zero, such as costs of claims: V of a variance of μ^p, p = `power` between 1 and 2.

    p = 1 is the Poisson and p = 2 the gamma loss.

    B. Jørgensen, "Exponential dispersion models", Journal of the Royal Statistical Society B 49 (1987).

    >>> import torch
    >>> from mercer.losses import Tweedie
    >>> Tweedie(1.5).residual(torch.tensor([3.0]), torch.zeros(1)).item()
    2.0
    """

    short_name = "tweedie"
    power: float = 1.5

    def variance_power(self) -> float:
        require(1 <= as_float(self.power) <= 2, "power", "a number from 1 (Poisson) to 2 (gamma)", self.power)
        return float(self.power)


@component
class Softmax(Loss):
    """log Σ exp(f) − f_y over several classes; targets are +1 for a row's class and −1 for the others.

    >>> import torch
    >>> from mercer.losses import Softmax
    >>> Softmax().residual(torch.tensor([[1.0, -1.0]]), torch.zeros(1, 2)).tolist()
    [[0.5, -0.5]]
    >>> Softmax().hessian(torch.tensor([[1.0, -1.0]]), torch.zeros(1, 2)).tolist()
    [[[0.25, -0.25], [-0.25, 0.25]]]
    >>> Softmax().bent(torch.tensor([[1.0, -1.0]]), torch.zeros(1, 2), torch.tensor([[2.0, 0.0]])).tolist()
    [[0.5, -0.5]]
    """

    short_name = "softmax"
    for_numbers = False
    likelihood = True
    joint = True
    bound = 0.5

    def value(self, y: Tensor, f: Tensor) -> Tensor:
        return (torch.logsumexp(f, 1) - torch.where(y > 0, f, 0.0).sum(1))[:, None]

    def residual(self, y: Tensor, f: Tensor) -> Tensor:
        return (y > 0).to(f.dtype) - torch.softmax(f, 1)

    def curvature(self, y: Tensor, f: Tensor) -> Tensor:
        p = torch.softmax(f, 1)
        return p * (1 - p)

    def hessian(self, y: Tensor, f: Tensor) -> Tensor:
        p = torch.softmax(f, 1)
        return p[:, :, None] * (_identity(f) - p[:, None])

    def bent(self, y: Tensor, f: Tensor, u: Tensor) -> Tensor:
        p = torch.softmax(f, 1)
        return p * (u - (p * u).sum(1, keepdim=True))


def class_likelihood(n_outputs: int) -> Loss:
    """The likelihood of classes coded in so many columns: logistic for one, softmax for more.

    >>> from mercer.losses import class_likelihood
    >>> class_likelihood(1), class_likelihood(3)
    (Logistic(), Softmax())
    """
    return Logistic() if n_outputs == 1 else Softmax()


def _identity(f: Tensor) -> Tensor:
    """The identity between outputs, as wide as Hessians of outputs `f` are."""
    eye = torch.eye(f.shape[1], dtype=f.dtype, device=f.device)
    return eye.reshape(1, *eye.shape, *[1] * (f.ndim - 2))
