"""Kernels as sums of products over the inputs, which is what makes exact explanations affordable.

A product kernel is variance · Π_d exp(−a_d(x_d, z_d)): one factor for each input. Sums, products and multiples of such
kernels are sums of them again. Matérn and rational quadratic kernels are mixtures of Gaussians, hence sums of products
too (`ExponentialSum`). A linear kernel is a sum over the inputs instead, which is simpler still. Other kernels
(polynomial, any function) tie their inputs together and are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product

import numpy as np
import torch
from scipy.special import gammaln
from scipy.stats import gamma as gamma_distribution
from torch import Tensor

from mercer.kernels import (
    Bias,
    Gaussian,
    Kernel,
    Laplacian,
    Linear,
    Matern12,
    Matern32,
    Matern52,
    Product,
    RationalQuadratic,
    Scaled,
    Separable,
    Stationary,
    Sum,
)
from mercer.kernels.partitioned import Partitioned
from mercer.kernels.radial import Radial

#: Advice for models that have no such form.
ELSEWHERE = (
    "for other models take `sklearn.inspection.permutation_importance`, or fit with kernel='gaussian' or 'laplacian'"
)
#: By how much a kernel of unit variance is off; a third of it by the step, by what lies beyond the last nodes, and by
#: scales left out for the distances at hand.
TOLERANCE = 5e-11
THIRD = TOLERANCE / 3
#: A factor exp(−sa) with sa above FAR is zero to 13 digits. Scales that stand for infinity and for zero.
FAR, INFINITE, LEAST = 30.0, 1e60, 1e-30


@dataclass(frozen=True)
class Power:
    """The exponents |(x_d − z_d) · rate_d|^power of one factor for each input."""

    rates: Tensor  # D × 1 × 1
    power: float


@dataclass(frozen=True)
class Term:
    """variance · Π_d exp(−Σ_powers |…|), a mixture of such products, or with `additive` variance · Σ_d x_d z_d."""

    variance: float
    powers: tuple[Power, ...] = ()
    additive: bool = False
    mixture: ExponentialSum | None = None
    radial: Radial | None = None  # the kernel that the mixture is

    def profile(self, exponents: Tensor) -> tuple[Callable[[Tensor], Tensor], Tensor]:
        """The mixture's value as a function of a sum, which it may overwrite, and what is to be summed."""
        assert self.radial is not None
        return self.radial.profile, exponents * -(self.radial.log_base_scale**2)

    def products(self) -> list[Term]:
        """The products that a mixture is the sum of."""
        if self.mixture is None:
            return [self]
        found = []
        for scale, weight in zip(self.mixture.scales, self.mixture.weights, strict=True):
            powers = tuple(Power(power.rates * scale ** (1 / power.power), power.power) for power in self.powers)
            found.append(Term(self.variance * float(weight), powers))
        return found

    def exponents(self, X: Tensor, Z: Tensor, columns: Sequence[int]) -> Tensor:
        """Σ of a_d over some columns d, between the rows of `X` and of `Z`: n × m."""
        out = X.new_zeros(len(X), len(Z))
        for d in columns:
            out += self._each(X.T[d : d + 1], Z.T[d : d + 1], slice(d, d + 1))[0]
        return out

    def by_group(self, X: Tensor, Z: Tensor, groups: Sequence[Sequence[int]]) -> Tensor:
        """The same for each of several groups of columns, groups × n × m; `Z` is D × m."""
        if self.powers and all(list(group) == [d] for d, group in enumerate(groups)):
            return self._each(X.T.contiguous(), Z, slice(None))  # else columns would lie side by side
        return torch.stack([self.exponents(X, Z.T, group) for group in groups])

    def _each(self, X: Tensor, Z: Tensor, columns: slice) -> Tensor:
        """a_d of each column, columns × n × m, of rows given by column."""
        apart = X[:, :, None] - Z[:, None]
        out: Tensor | None = None
        for factor in self.powers:
            rate = factor.rates[columns].to(X.device)
            scaled = apart.mul_(rate) if len(self.powers) == 1 else apart * rate
            scaled = scaled.square_() if factor.power == 2 else scaled.abs_()
            scaled = scaled if factor.power in (1, 2) else scaled.pow_(factor.power)
            out = scaled if out is None else out.add_(scaled)
        return torch.zeros_like(apart) if out is None else out


def terms_of(kernel: Kernel, n_inputs: int) -> list[Term]:
    """The kernel as a sum of terms; refuse, in a sentence, a kernel that is no such sum.

    >>> from mercer.kernels import Bias, Gaussian, Polynomial
    >>> [(term.variance, len(term.powers)) for term in terms_of(2 * Gaussian([1.0, 3.0]) + Bias(0.5), 2)]
    [(2.0, 1), (0.5, 0)]
    >>> terms_of(Polynomial(), 2)
    Traceback (most recent call last):
    ...
    ValueError: the kernel must be a product over its inputs or a mixture of such (Gaussian, Laplacian, Matérn, ...
    """
    if isinstance(kernel, Sum):
        return [*terms_of(kernel.left, n_inputs), *terms_of(kernel.right, n_inputs)]
    if isinstance(kernel, Scaled):
        variance = float(kernel.variance)
        return [replace(term, variance=term.variance * variance) for term in terms_of(kernel.kernel, n_inputs)]
    if isinstance(kernel, Product):
        both = product(terms_of(kernel.left, n_inputs), terms_of(kernel.right, n_inputs))
        return [term for left, right in both for term in _multiplied(left, right, kernel)]
    if isinstance(kernel, Bias):
        return [Term(float(kernel.variance))]
    if isinstance(kernel, Linear):
        return [Term(1.0, additive=True)]
    if isinstance(kernel, Gaussian):
        return [Term(1.0, (_power(0.5**0.5, kernel, n_inputs, 2.0),))]
    if isinstance(kernel, Laplacian):
        return [Term(1.0, (_power(1.0, kernel, n_inputs, 1.0),))]
    if isinstance(kernel, Separable) and kernel.p == kernel.q:
        return [Term(1.0, (_power(1.0, kernel, n_inputs, float(kernel.p)),))]
    if isinstance(kernel, Matern12 | Matern32 | Matern52 | RationalQuadratic):
        rates = _power(float(kernel.coefficient) ** 0.5, kernel, n_inputs, 2.0)
        rational = isinstance(kernel, RationalQuadratic)
        mixture = rational_quadratic(float(kernel.alpha)) if rational else matern(kernel.smoothness)
        return [Term(1.0, (rates,), mixture=mixture, radial=kernel)]
    raise _refusal(kernel)


def diagonal_of(transform: np.ndarray | None) -> bool:
    """Whether a transform of the inputs leaves each column by itself."""
    return transform is None or transform.ndim == 1 or bool((transform == np.diag(np.diag(transform))).all())


def _refusal(kernel: Kernel) -> ValueError:
    if isinstance(kernel, Partitioned):
        return ValueError(f"local_stage must be False in fit, got a model with a local stage; {ELSEWHERE}")
    wanted = "a product over its inputs or a mixture of such (Gaussian, Laplacian, Matérn, their sums and products)"
    return ValueError(f"the kernel must be {wanted}, got {kernel!r}; {ELSEWHERE}")


def _multiplied(left: Term, right: Term, kernel: Kernel) -> list[Term]:
    variance = left.variance * right.variance
    if left.additive or right.additive:
        rest = right if left.additive else left
        if rest.additive or rest.powers:
            raise _refusal(kernel)
        return [Term(variance, additive=True)]
    if not left.powers or not right.powers:  # a mixture stays one
        return [replace(left if left.powers else right, variance=variance)]
    return [Term(a.variance * b.variance, a.powers + b.powers) for a, b in product(left.products(), right.products())]


def _power(factor: float, kernel: Stationary, n_inputs: int, power: float) -> Power:
    given = kernel.length_scale
    lengths = given.detach().cpu().numpy() if isinstance(given, Tensor) else np.asarray(given, dtype=np.float64)
    return Power(torch.as_tensor(np.full(n_inputs, factor / lengths))[:, None, None], power)


@dataclass(frozen=True, eq=False)
class ExponentialSum:
    r"""φ(A) = Σ_q weights_q exp(−scales_q A); the last scale stands for infinity, where only A = 0 counts.

    With :math:`A = c\,\|(x - z)/\ell\|^2` (`Radial.coefficient`) and τ of a gamma distribution of shape ν,

    .. math:: M_\nu(\sqrt A) = \mathbb{E}\, e^{-A/4\tau}, \qquad (1 + A)^{-\alpha} = \mathbb{E}\, e^{-A\tau}

    for Matérn kernels of smoothness ν and the rational quadratic one (ν = α). The mean is taken by the trapezoidal rule
    in x = log τ, of step h. Its integrand is analytic for \|Im x\| < π/2 and at most that of A = 0 there, whose
    integral along Im x = y is (cos y)^{−ν}; hence for every A ≥ 0 the rule is off by at most

    .. math:: \min_y \frac{2 (\cos y)^{-\nu}}{e^{2\pi y/h} - 1}

    (L. N. Trefethen, J. A. C. Weideman, "The exponentially convergent trapezoidal rule", SIAM Review 56, 2014, theorem
    5.1), and h is chosen by that. The range beyond the last nodes has little of the mass.

    >>> found = matern(1.5)
    >>> bool(abs(found.weights @ np.exp(-found.scales * 4.0) - 3 * np.exp(-2.0)) < 5e-11)
    True
    """

    scales: np.ndarray
    weights: np.ndarray

    def restrict(self, least: float, most: float) -> ExponentialSum:
        """A shorter sum for sums A of exponents none of which is between 0 and `least`, and no sum above `most`.

        `most` is taken to a power of four and `least` to one of 2^16, so that few are computed.
        """
        low, high = (np.log2(max(bound, LEAST)) for bound in (least, most))
        return _restrict(self, 16 * int(np.floor(low / 16)), 2 * int(np.ceil(high / 2)))


@lru_cache(maxsize=256)
def _restrict(whole: ExponentialSum, low: int, high: int) -> ExponentialSum:
    """Scales at which every exponent but 0 is far are one; those at which all are near tell nothing apart."""
    least, most = 2.0**low, 2.0**high
    far = whole.scales * least > FAR
    effect = np.cumsum(whole.weights * np.minimum(whole.scales * most, 1.0))
    kept = ~far & (effect > THIRD)
    weights = np.append(whole.weights[kept], whole.weights[far].sum())
    return ExponentialSum(np.append(whole.scales[kept], INFINITE), weights)


@lru_cache
def matern(smoothness: float) -> ExponentialSum:
    """The Matérn kernel of √A."""
    tau, weights = _nodes(smoothness)
    return ExponentialSum(np.append(0.25 / tau[::-1], INFINITE), np.append(weights[::-1], 1 - weights.sum()))


@lru_cache
def rational_quadratic(alpha: float) -> ExponentialSum:
    """(1 + A)^(−α)."""
    tau, weights = _nodes(alpha)
    return ExponentialSum(np.append(tau, INFINITE), np.append(weights, 0.0))


def step_error(h: float, shape: float) -> float:
    """The bound in `ExponentialSum`."""
    y = np.linspace(0.05, 1.57, 400)
    log_bound = np.log(2.0) - shape * np.log(np.cos(y)) - np.log(np.expm1(2 * np.pi * y / h))
    return float(np.exp(np.min(log_bound)))


def _nodes(shape: float) -> tuple[np.ndarray, np.ndarray]:
    """Values of τ in rising order and their weights."""
    h = 1.0
    while step_error(h, shape) > THIRD:
        h *= 0.97
    lowest = max((np.log(0.5 * THIRD) + gammaln(shape + 1)) / shape, np.log(LEAST))
    highest = np.log(gamma_distribution.isf(0.5 * THIRD, shape))
    x = h * np.arange(np.floor(lowest / h), np.ceil(highest / h) + 1)
    return np.exp(x), h * np.exp(shape * x - np.exp(x) - gammaln(shape))
