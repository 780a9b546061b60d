"""Boost10's figures 2, 4, 5 and 6 in one picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from papers.regression import Curve


def draw(
    printed: dict[str, list[Curve]], subsets: dict[int, list[Curve]], covtype: dict[str, Any], folder: Path
) -> None:
    """The curves of KIN40K by method and by subset, one line a split, and those of COVTYPE by what made them."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, 2, figsize=(11, 8), layout="constrained")
    for i, (name, many) in enumerate(printed.items()):
        for k, one in enumerate(many):
            style = {"color": f"C{i}", "lw": 0.8, "label": None if k else name}
            axes[0, 0].loglog(one.seconds, one.nmse, **style)
            axes[0, 1].loglog(one.vectors, one.nmse, **style)
    for i, (T, many) in enumerate(subsets.items()):
        for k, one in enumerate(many):
            axes[1, 0].loglog(one.seconds, one.nmse, color=f"C{i}", lw=0.8, label=None if k else f"T = {T}")
    axes[0, 0].set(title="Figure 2: KIN40K", xlabel="CPU seconds", ylabel="test NMSE, %")
    axes[0, 1].set(title="Figure 4, on KIN40K", xlabel="basis vectors", ylabel="test NMSE, %")
    axes[1, 0].set(title="Figure 5, on KIN40K", xlabel="CPU seconds", ylabel="test NMSE, %")
    last = axes[1, 1]
    last.set(title="Figure 6: COVTYPE", xlabel="seconds", ylabel="test error, %")
    for name, mark in (("boosting", "-"), ("cvm", "--")):
        if covtype[name] is not None:
            points = [(p["seconds"], p["error"]) for p in covtype[name]["points"]]
            last.loglog(*zip(*points, strict=True), mark, label=f"{name}, one GPU")
    last.loglog([17_000, 25_000], [2.19, 2.02], "kD", label="printed")
    last.loglog([25_000], [2.27], "k^", label="printed, CVM")
    for axis in axes.ravel():
        axis.grid(alpha=0.3, which="both")
        axis.legend(frameon=False, fontsize=8)
    figure.savefig(folder / "boost10.png", dpi=110)
    plt.close(figure)
