"""One judge for all papers: our runs beside a printed number, the difference in standard errors.

    from judge import judge
    print(judge([93.1, 93.9, 94.0], 92.6, n_test=1500))        # reproduced (+1.3 s.e.)

A printed number is either one run, as uncertain as any one of ours, or a mean of several with their spread. Differences
of more than two standard errors are real: "better" or "worse" says in which direction ours lie. What no spread is known
of is not judged but told.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import isfinite, nan, sqrt

import numpy as np

#: Standard errors beyond which a difference is no accident.
REAL = 2.0


@dataclass(frozen=True)
class Verdict:
    """Our mean, the printed number, and their difference in standard errors; positive where ours is the better."""

    ours: float
    printed: float
    difference: float

    @property
    def word(self) -> str:
        """ "reproduced", "better", "worse", or "no spread"."""
        if not isfinite(self.difference):
            return "no spread"
        return "reproduced" if abs(self.difference) <= REAL else "better" if self.difference > 0 else "worse"

    def __str__(self) -> str:
        if self.word == "no spread":
            return f"no spread, ours less printed {self.ours - self.printed:+.3g}"
        return f"{self.word} ({self.difference:+.1f} s.e.)"


def standard_error(values: Sequence[float]) -> float:
    """Of the mean of several runs; of one run nobody knows."""
    return float(np.std(values, ddof=1) / sqrt(len(values))) if len(values) > 1 else nan


def in_standard_errors(
    ours: float, spread: float, n: int, printed: float, printed_spread: float | None = None, printed_n: int = 1
) -> float:
    """Our mean less the printed one, over √(s²/n + s²/n of the paper); a paper that prints no spread has ours."""
    theirs = spread if printed_spread is None else printed_spread
    error = sqrt(spread**2 / n + theirs**2 / printed_n) if isfinite(spread) else nan
    return 0.0 if ours == printed else (ours - printed) / error if isfinite(error) and error > 0 else nan


def judge(
    runs: Sequence[float],
    printed: float,
    *,
    higher: bool = True,
    n_test: int | None = None,
    printed_spread: float | None = None,
    printed_runs: int = 1,
) -> Verdict:
    """Our runs beside a printed number: one run without a spread, or the mean of `printed_runs` that have one.

    `higher` numbers are better ones. Where numbers are percentages of `n_test` rows that differ from run to run, the
    spread of a run is at least that of counting them, √(p(1 − p)/n): three splits tell little about their spread.
    """
    ours = float(np.mean(runs))
    spread = float(np.std(runs, ddof=1)) if len(runs) > 1 else nan
    if n_test is not None:
        share = min(max(ours / 100, 0.5 / n_test), 1 - 0.5 / n_test)
        spread = float(np.nanmax([spread, 100 * sqrt(share * (1 - share) / n_test)]))
    difference = in_standard_errors(ours, spread, len(runs), printed, printed_spread, printed_runs)
    return Verdict(ours, printed, difference if higher else -difference)


def tally(verdicts: Iterable[Verdict]) -> str:
    """How often each word was said.

    >>> tally([judge([1.0, 1.2], 1.1), judge([3.0, 3.1], 1.1)])
    '1 reproduced, 1 better, 0 worse'
    """
    said = Counter(verdict.word for verdict in verdicts)
    text = ", ".join(f"{said[word]} {word}" for word in ("reproduced", "better", "worse"))
    return text + (f", {said['no spread']} without a spread" if said["no spread"] else "")
