"""One line for each table and figure of MEKL13, of table 2 one for each method, for docs/reproduce.md."""

from __future__ import annotations

from typing import Any

import numpy as np
from judge import tally
from measure import EARLIER, Store
from notes import seconds, timed_by
from report import record, results, verdict


def summary(paper: dict[str, Any], store: Store) -> list[list[str]]:
    found, table = results(store), paper["table2"]
    rows = [["Table 1", "the algorithm", "implemented: its steps are tested against a literal table 1"]]
    for i, method in enumerate(table["columns"]):
        own = {n: found[n] for n in table["rows"] if n != "letter" and found.get(n, {}).get(method)}
        said = {n: verdict(cells, method, table["rows"][n][i]) for n, cells in own.items()}
        worse = [f"{n} {v.difference:+.1f}" for n, v in said.items() if v.word == "worse"]
        outcome = tally(said.values()) + (f"; worse: {', '.join(worse)} s.e." if worse else "")
        outcome += " (glass: the paper's has its row number, which tells the class)" if "glass" in str(worse) else ""
        old = any(cell["code"] == EARLIER for cells in own.values() for cell in cells[method].values())
        outcome += " †" if old else ""
        rows.append([f"Table 2, {method}", "accuracies, standardised inputs", outcome])
    raw = {n: verdict(found[n], "raw", table["rows"][n][0]) for n in ("glass", "iris") if found.get(n, {}).get("raw")}
    outcome = "; ".join(f"{n} {v} ({len(found[n]['raw'])} splits)" for n, v in raw.items()) or "not measured yet"
    rows.append(["Table 2, RPEMEKL", "raw inputs, glass with its row number", outcome])
    rows.append(["Table 2, letter", "432 inputs", "data not to be had: not UCI's letter, on which ours are measured"])
    won, tied, lost = record(found, "MultiK-MHKS")
    outcome = f"significantly better on {won}, worse on {lost}, no difference on {tied} sets"
    word = "so here" if won > lost else "differs"
    rows.append(["Table 2, p-values", "RPEMEKL is more accurate than MultiK-MHKS", f"{word}: {outcome}"])
    both = [cells for cells in found.values() if cells.get("RPEMEKL") and cells.get("MultiK-MHKS")]
    both = [cells for cells in both if np.isfinite(seconds(cells, "RPEMEKL") + seconds(cells, "MultiK-MHKS"))]
    faster = sum(seconds(cells, "RPEMEKL") < seconds(cells, "MultiK-MHKS") for cells in both)
    word = "so here" if faster == len(both) else "differs"
    outcome = f"{word}: on {faster} of {len(both)}, all by {timed_by(found)}"
    rows.append(["Table 3", "RPEMEKL is faster than MultiK-MHKS on all sets", outcome])
    falls = [100 * (1 - np.exp(cell["path"][-1] - cell["path"][4])) for cell in store.under("figure1/").values()]
    if falls:
        outcome = f"reproduced: from the fifth to the tenth it falls by at most {max(falls):.3f} %"
        rows.append(["Figure 1", "the objective settles within ten iterations", outcome])
    return rows
