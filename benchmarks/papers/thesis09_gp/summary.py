"""One line for each table and figure of chapter 5, for docs/reproduce.md."""

from __future__ import annotations

from typing import Any

import numpy as np
from judge import judge, tally
from measure import Store
from report import KINDS, boundaries, verdicts


def summary(paper: dict[str, Any], store: Store) -> list[list[str]]:
    rows = [["Table 4-1", "list of literature", "nothing to reproduce"]]
    if said := boundaries(store):
        rows.append(["Figures 5-1 to 5-4", "SR/PP and SPGP are nearer to the full model than SD", said[-1].strip()])
    for key, label in (("prior", "with the weak prior"), ("none", "without it")):
        scales = [cell["length_scales"] for cell in store.under(f"scales/{key}/").values()]
        last = sum(set(np.argsort(s)[-2:]) == {4, 5} for s in scales)
        outcome = f"so in {last} of {len(scales)} draws; printed one draw, in which it is"
        rows.append([f"Table 5-3, {label}", "noise has the longest length-scales", outcome])
    alone = list(store.under("alone/").values())
    if alone:
        printed = paper["artificial"]["alone"]
        said = [f"{key} {judge([cell[key] for cell in alone], value, n_test=200)}" for key, value in printed.items()]
        rows.append(["Section 5.3.1", "accuracy by one input alone", "; ".join(said)])
    for name in ("ecoli", "spam", "usps"):
        found = {kind: own for kind, own in verdicts(name, paper[name], store).items() if own}
        said = [f"{KINDS.get(kind, kind)}: {tally(own) if len(own) > 1 else own[0]}" for kind, own in found.items()]
        rows.append(
            [
                paper[name]["where"].split(",")[0],
                paper[name]["what"].split(",")[0],
                store.mark(f"{name}/", "; ".join(said)),
            ]
        )
    for cell in store.under("alm/").values():
        outcome = f"{cell['accuracy']:.2f} % (printed {paper['ecoli']['alm']}), one run on the training rows"
        rows.append(["Section 5.3.2", "E. coli by alm1 and alm2", outcome])
    words = [cell["accuracy"] for cell in store.under("words/thesis/").values()]
    if words:
        rows.append(["Section 5.3.4", "spam by the 13 words", str(judge(words, paper["spam"]["words"], n_test=1500))])
    pixels = list(store.under("pixels/").values())
    if not pixels:
        rows.append(["Section 5.3.5, figure 5-6", "USPS by 256, 105 and 37 pixels", "not measured yet"])
    else:
        printed = {n: value[0] for n, value in paper["usps"]["pixels"].items()}
        said = [f"{n}: {judge([c[f'accuracy_{n}'] for c in pixels], v, n_test=773)}" for n, v in printed.items()]
        rows.append(["Section 5.3.5, figure 5-6", "USPS by 256, 105 and 37 pixels", "; ".join(said)])
    rows.append(["Tables 5-5, 5-6, figure 5-5", "EEG emotions", "data not to be had (private laboratory)"])
    formulas = "formulas: gradients are tested against finite differences and autograd"
    return [*rows, ["Tables 5-1, 5-2", "derivatives of the SPGP kernel", formulas]]
