"""The sparse priors of Thesis09 (section 4.3): the covariance that each assumes of training rows and of new rows.

With A = K_nm L⁻ᵀ and K_mm = L Lᵀ, all of them replace the covariance of the rows by A Aᵀ + α diag(K − A Aᵀ).
"""

from __future__ import annotations

from typing import ClassVar

from mercer.parts import Component, component


class Approximation(Component):
    """A prior for training rows and for new rows; concrete forms carry the thesis' abbreviations."""

    #: α: the share of the variance that the inducing inputs do not explain which the training rows keep.
    alpha: ClassVar[float] = 0.0
    #: Whether the evidence pays for that variance (Titsias' bound).
    bound: ClassVar[bool] = False
    #: Whether new rows have only the variance that the inducing inputs explain.
    degenerate: ClassVar[bool] = False
    #: Whether the inducing inputs are rows, and those rows are all that the model sees.
    dense: ClassVar[bool] = False
    #: Whether inducing variables have a distribution of their own, which follows random batches of rows.
    stochastic: ClassVar[bool] = False


@component
class Full(Approximation):
    """The full Gaussian process on all rows."""

    short_name = "full"
    dense = True


@component
class SubsetOfData(Approximation):
    """SD: the full Gaussian process on a subset of the rows (section 4.3.2)."""

    short_name = "sd"
    dense = True


@component
class SubsetOfRegressors(Approximation):
    """SR: covariance Q everywhere, so that the variance of new rows falls to zero away from the inducing inputs."""

    short_name = "sr"
    degenerate = True


@component
class ProjectedProcess(Approximation):
    """PP: covariance Q for training rows, the kernel's own variance for new rows (eq. 4.44)."""

    short_name = "pp"


@component
class PseudoInputs(Approximation):
    """SPGP: covariance Q + diag(K − Q), the same process for training and new rows (eq. 4.48)."""

    short_name = "spgp"
    alpha = 1.0


@component
class Variational(Approximation):
    """PP's predictions under Titsias' (2009) bound on the full model's evidence; not in the thesis.

    The bound subtracts tr(K − Q) / 2σ², so that inducing inputs that explain the rows badly are never preferred.
    """

    short_name = "variational"
    bound = True


@component
class StochasticVariational(Approximation):
    """SVGP: PP's predictions under a variational distribution of the inducing variables (`mercer.gp.svgp`).

    It serves every log-concave likelihood, and Titsias' bound is its limit for a Gaussian one; not in the thesis.
    """

    short_name = "svgp"
    bound = True
    stochastic = True
