"""One line for each table and figure of chapters 2 and 3, for docs/reproduce.md."""

from __future__ import annotations

from typing import Any

from judge import tally
from laser import laser_verdicts, needs
from measure import Store
from report import size_verdicts, size_word, wdbc_verdict

HOSPITAL = "data not to be had (a hospital's)"


def summary(paper: dict[str, Any], store: Store) -> list[list[str]]:
    laser = laser_verdicts(paper["table2_3"]["rows"], store)
    errors = "; ".join(f"{name}: {tally(said)}" for name, said in laser.items())
    errors = store.mark("laser/", errors)
    wdbc = [v for row in paper["table3_3"]["rows"] if (v := wdbc_verdict(row, store)) is not None]
    sets = {key.split("/")[0] for key in store.under("several/")}
    instead = f"{HOSPITAL}; its models on {len(sets)} public sets of several classes instead"
    more, equal, fewer = needs(paper["table2_3"]["rows"], store, "ENRBF", "NRBF by gradient")
    said = f"needs more at {more} of {more + equal + fewer} numbers of lags, as many at {equal}, fewer at {fewer}"
    claim = f"{'so here' if more > fewer else 'differs'}: NRBF by gradient {said}"
    steps = "implemented: an iteration is tested against a slow one by the book, slopes against autograd"
    return [
        ["Tables 2-1 and 3-1", "EM for NRBF and for ENRBFC", steps],
        [
            paper["figure2"]["where"].split(",")[0],
            "components on sin²",
            _sizes("sin2", paper["figure2"]["rows"], store),
        ],
        ["Table 2-2, figures 2-7 and 2-8", "intensive care", HOSPITAL],
        ["Table 2-3", "laser series, errors", f"{errors} (standard errors over three folds)"],
        ["Table 2-3", "NRBF needs more components than ENRBF", claim],
        ["Table 2-4", "list of literature", "nothing to reproduce"],
        [
            paper["figure3"]["where"].split(",")[0],
            "components on three Gaussians",
            _sizes("gaussians", paper["figure3"]["rows"], store),
        ],
        ["Table 3-2", "models side by side, in words", "nothing to reproduce"],
        ["Table 3-3", "Wisconsin, our ten-fold accuracy against what is printed", store.mark("wdbc/", tally(wdbc))],
        ["Table 3-4", "ovarian tumours, five classes", instead],
    ]


def _sizes(kind: str, printed: list[dict[str, Any]], store: Store) -> str:
    said = size_verdicts(kind, printed, store)
    return store.mark(f"{kind}/", "; ".join(f"{model}: {size_word(verdict)}" for model, verdict in said.items()))
