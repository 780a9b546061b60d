"""Cells of tables 2 and 3: a method on one split of one set, with what it chose and the time of its last fit."""

from __future__ import annotations

from typing import Any

import numpy as np
from papers.measure import clock
from papers.mekl13 import protocol
from papers.mekl13.rivals import RIVALS, TEN, Pairwise, scores

from mercer import MultiKernelMHKSClassifier, RPEMEKLClassifier
from mercer.base.out_of_fold import stratified_folds

SIZES = (0.1, 0.2, 0.3, 0.4, 0.5)
#: Small problems by the thousand: one core each, so that cells may be measured side by side.
SAME: dict[str, Any] = {"scale_inputs": False, "device": "cpu", "multiclass": "one-vs-one"}

Cell = dict[str, Any]


def coupled_cell(name: str, seed: int, printed: bool = True) -> Cell:
    """RPEMEKL, RPEMEKL with p = 0.1 N alone, and MultiK-MHKS.

    As printed: raw inputs, and start and stop of table 1. Otherwise: standardised inputs, and the package's start.
    """
    data, how = protocol.split(name, seed, raw=printed), {"random_state": seed, "literal": printed}
    found = {"RPEMEKL": rpemekl(name, data, how, SIZES), "RPEMEKL p=0.1": rpemekl(name, data, how, SIZES[:1])}
    return found | {"MultiK-MHKS": multik(name, data, how, found["RPEMEKL"]["chosen"])}


def today_cell(name: str, seed: int) -> Cell:
    """`RPEMEKLClassifier()` and `MultiKernelMHKSClassifier()` on the inputs as they are."""
    data = protocol.split(name, seed, raw=True)
    makers = {"RPEMEKL": RPEMEKLClassifier, "MultiK-MHKS": MultiKernelMHKSClassifier}
    fitted = {key: make(random_state=seed, device="cpu").fit(data.X, data.y) for key, make in makers.items()}
    return {key: {"accuracy": model.score(data.X_test, data.y_test)} for key, model in fitted.items()}


def rpemekl(name: str, data: protocol.Split, how: dict[str, Any], sizes: tuple[float, ...]) -> Cell:
    """c, λ and p by cross-validation; the time is that of the final members alone (as in table 3)."""
    options = SAME | how
    grid = {"regularization": "paper", "coupling": "paper", "n_folds": _folds(name)}
    fewer = (0.1, 0.3) if name in protocol.LARGE else (0.1, 0.3, 0.5) if name in protocol.MANY else SIZES
    tried = tuple(s for s in sizes if s in fewer)
    model = RPEMEKLClassifier("paper", **grid, subset_size=tried, **options).fit(data.X, data.y)
    chosen = {"regularization": model.regularization_, "coupling": model.coupling_, "subset_size": model.subset_size_}
    seconds = _seconds(lambda: RPEMEKLClassifier("paper", **chosen, **options).fit(data.X, data.y))
    return {"accuracy": model.score(data.X_test, data.y_test), "seconds": seconds, "chosen": chosen}


def multik(name: str, data: protocol.Split, how: dict[str, Any], chosen: Cell) -> Cell:
    """MultiK-MHKS with c and λ by cross-validation; on the large sets with those that RPEMEKL chose."""
    options = SAME | how
    if name not in protocol.LARGE:
        grid = {"regularization": "paper", "coupling": "paper", "n_folds": _folds(name)}
        model = MultiKernelMHKSClassifier("paper", **grid, **options).fit(data.X, data.y)
        chosen = {"regularization": model.regularization_, "coupling": model.coupling_}
    chosen = {key: chosen[key] for key in ("regularization", "coupling")}
    model = MultiKernelMHKSClassifier("paper", **chosen, **options)
    seconds = _seconds(lambda: model.fit(data.X, data.y))
    return {"accuracy": model.score(data.X_test, data.y_test), "seconds": seconds, "chosen": chosen}


def rival_cell(name: str, seed: int, method: str, printed: bool = True) -> Cell:
    """A rival whose parameters are chosen by as many folds of the same rows as RPEMEKL's are."""
    fit, choices = RIVALS[method]
    data = protocol.split(name, seed, raw=printed)
    X, y, n = data.X, data.y, _folds(name)
    fold = stratified_folds(y, n, np.random.default_rng(seed))
    total = np.zeros(len(choices))
    kernels = TEN if method == "MKDA(SDP)" else None
    for k in range(n if len(choices) > 1 else 0):
        here, held = fold != k, fold == k
        if len(np.unique(y[here])) > 1:
            total += scores(fit, choices, X[here], y[here], X[held], y[held])
    best = int(np.argmax(total))
    made: list[Pairwise] = []
    seconds = _seconds(lambda: made.append(Pairwise.fit(fit, X, y, choices[best], kernels)))
    accuracy = made[0].score(data.X_test, data.y_test)
    return {"accuracy": accuracy, "seconds": seconds, "chosen": choices[best], "edge": _edge(choices, best)}


def _edge(choices: list[Any], best: int) -> bool:
    """Whether the first parameter that was chosen is the smallest or largest one tried."""
    first = [choice[0] if isinstance(choice, tuple) else choice for choice in choices]
    return first[best] in (min(first), max(first))


def _folds(name: str) -> int:
    return 2 if name in protocol.LARGE else 3


def _seconds(fit: Any) -> float:
    """CPU seconds of one fit: the least of five, or of as many as take a second together; the first warms up."""
    taken: list[float] = []
    while len(taken) < 5 and sum(taken) < 1:
        began = clock()
        fit()
        taken.append(clock() - began)
    return min(taken)


def objective_path(name: str) -> Cell:
    """Figure 1: ln L over ten iterations from the start of table 1, first member of the first split."""
    data = protocol.split(name, 0, raw=True)
    options: dict[str, Any] = {
        "literal": True,
        "subset_size": 0.3,
        "n_members": 1,
        "tol": 0.0,
        "max_iter": 10,
        "random_state": 0,
    }
    model = RPEMEKLClassifier("paper", 1.0, 1.0, **SAME, **options).fit(data.X, data.y)
    return {"path": np.log(model.objective_path_[:, 0]).tolist()}
