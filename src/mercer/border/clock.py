"""When a loop should end before its work is done: time is used up, or the user interrupted the fit."""

from __future__ import annotations

from dataclasses import dataclass, field

from mercer.border.budget import Budget
from mercer.data import Group
from mercer.data.group import ALONE


@dataclass
class Clock:
    """A time budget, and whether the user interrupted; asked by every loop, which then keeps what it has.

    >>> from mercer.border.budget import Budget
    >>> Clock(Budget(1e-9)).over()
    'the time budget of 1e-09 s was used up after 0.0 s'
    >>> Clock().over() is None
    True
    """

    budget: Budget = field(default_factory=Budget)
    #: Processes that end together: the first one looks at its watch for all.
    group: Group = ALONE
    #: Set by a loop that kept what it had when the user interrupted it: what comes after it ends at once.
    interrupted: bool = False

    def over(self, ahead: float = 0.0, share: float = 1.0) -> str | None:
        """Why a piece of work that takes `ahead` more seconds should not begin; `share` of the budget is its own."""
        return self.group.first(lambda: self._over(ahead, share))

    def _over(self, ahead: float, share: float) -> str | None:
        spent = self.budget.spent()
        if self.interrupted:
            return f"interrupted after {spent:.1f} s"
        if self.budget.left(share) > ahead:
            return None
        return f"the time budget of {self.budget.seconds:g} s was used up after {spent:.1f} s"
