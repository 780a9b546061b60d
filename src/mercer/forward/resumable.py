"""Fits that survive their process: what estimators with `checkpoint=` share (`mercer.forward.checkpoint`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from mercer.border.read import Given
from mercer.border.rules import FOLDER, NOTHING
from mercer.forward.checkpoint import Checkpoint, fingerprint
from mercer.parts import require


@dataclass(eq=False, repr=False, kw_only=True)
class Resumable:
    """The parameter of forward models whose fit may be kept in a folder.

    Parameters
    ----------
    checkpoint : path or None, default None
        A folder in which the state of the fit is kept after each learner. A fit that was interrupted or killed goes on
        from there when it is started again on the same rows and parameters, on any number of processes; another
        fit's folder is refused.
    """

    checkpoint: Annotated[Any, NOTHING | FOLDER] = None

    def _checkpoint(self: Any, given: Given, targets: Any, X_val: Any, rng: np.random.Generator) -> Checkpoint | None:
        if self.checkpoint is None:
            return None
        require(not self.warm_start, "warm_start", "False where there is a checkpoint", True)
        y = targets.numbers(given.y) if self._classes else given.y
        seen = fingerprint(self, given, y, X_val, self._growing)
        return Checkpoint.open(self.checkpoint, given.shard.group, seen, rng)
