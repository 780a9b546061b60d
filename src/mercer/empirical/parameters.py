"""Parameters that some of the faces on empirical kernels share: declared, ranged and explained once."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from numbers import Integral
from typing import Annotated, Any

from mercer.base.parameters import NONE, Rule, integer, literal, number, sequence_of


def one_or_several(least: float) -> Rule:
    """The paper's candidates, or a number of at least `least`, or several."""
    return literal("paper") | number(least) | sequence_of(number(least))


def _is_jobs(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool) and 0 < abs(int(value)) < 2**16


#: Rows of a map: all, a number, or a share.
ROWS = NONE | integer() | number(0.0, 1.0, open_low=True, wanted="a share above 0 and at most 1")
JOBS = NONE | Rule("an integer other than 0 (below 65536)", _is_jobs)


@dataclass(eq=False, repr=False)
class SeveralKernels:
    """The parameters of faces that couple several kernels.

    Parameters
    ----------
    kernels : "paper", a kernel, name or function, or several, default "paper"
        "paper": the normalised linear kernel and Gaussians at the mean distance between rows and at a tenth of it.
        For a penalty c_l of its own scale a kernel: c/c_l times k_l.
    regularization : float, "paper" or several floats, default 1.0
        The penalty c; the best by cross-validation of several, "paper" being 2⁻⁴, …, 2⁴ times the mean weight of rows.
        Against a number, weights count as in scikit-learn's `Ridge`.
    coupling : float, "paper" or several floats, default 1.0
        λ ≥ 0, what draws the kernels' functions towards their mean; the best by cross-validation of several, together
        with c. Maps and moments are shared by all pairs of candidates.
    """

    kernels: Any = "paper"
    regularization: Annotated[Any, one_or_several(0.0)] = 1.0
    coupling: Annotated[Any, one_or_several(0.0)] = 1.0


@dataclass(eq=False, repr=False)
class RandomMembers:
    """The parameters of faces whose members are made of random rows.

    Parameters
    ----------
    n_members : int, default 3
        H, members of each machine.
    subset_size : int, float, None or several, default 300
        p, random rows that make the maps of a member: a number, a share of the rows (of the two classes, under
        one-vs-one), or all for None; the best of several by cross-validation.
    """

    _: KW_ONLY
    n_members: Annotated[int, integer()] = 3
    subset_size: Annotated[Any, ROWS | sequence_of(ROWS)] = 300
