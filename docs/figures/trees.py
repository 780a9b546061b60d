"""Draw the picture of the README from ``benchmarks/peers/judged_trees.jsonl``: ``python docs/figures/trees.py``.

``benchmarks/peers/foreign.py --part judge --rows 2000`` made the file. Errors on the
splits of TabArena are those of the table in ``docs/benchmarks.md``. The script also prints the numbers that the README
quotes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

FOLDER = Path(__file__).parent
FILE = FOLDER.parents[1] / "benchmarks/peers/judged_trees.jsonl"
#: Key of the file, name, colour.
METHODS = [("ours", "mercer", "#1f6f8b"), ("catboost", "CatBoost", "#e08e0b"), ("lightgbm", "LightGBM", "#7a7a7a")]
#: Errors below a thousandth count as equal, as in foreign.py.
LOW = 1e-3
#: Published models in the columns of the table of TabArena.
PUBLISHED = ["LightGBM", "TabM", "RealTabPFN-2.5", "best tuned"]


def read() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Errors and CPU seconds (tables × methods), and which tables have numbers; tables that all methods have fitted."""
    errors, seconds, numbers = [], [], []
    for line in map(json.loads, FILE.read_text().splitlines()):
        by = "error" if line["task"] == "number" else "log_loss"
        if all(by in line[key] for key, _, _ in METHODS):
            errors.append([line[key][by] + LOW for key, _, _ in METHODS])
            seconds.append([line[key]["seconds"] for key, _, _ in METHODS])
            numbers.append(line["task"] == "number")
    return np.array(errors), np.array(seconds), np.array(numbers)


def read_arena() -> np.ndarray:
    """Errors of mercer and of the published models on the tables of TabArena."""
    section = (FOLDER.parent / "benchmarks.md").read_text().split("## Official TabArena splits")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")][2:]
    return np.array([[float(cell.strip(" *")) for cell in line.split("|")[2:-1]] for line in lines])


def tell(errors: np.ndarray, seconds: np.ndarray, numbers: np.ndarray) -> None:
    for kind, rows in (("regression", numbers), ("classification", ~numbers)):
        for i, (_, name, _) in enumerate(METHODS[1:], start=1):
            ratio = errors[rows, 0] / errors[rows, i]
            print(f"{kind}, {rows.sum()} tables: error over that of {name} {np.exp(np.log(ratio).mean()):.3f}, "
                  f"lower on {np.mean(ratio < 1):.0%}")  # fmt: skip
    arena = read_arena()
    for name, ratio in zip(PUBLISHED, (arena[:, :1] / arena[:, 1:]).T, strict=True):
        print(f"TabArena, {len(ratio)} tables: error over that of {name} {np.exp(np.log(ratio).mean()):.3f}")
    medians = np.median(seconds, axis=0).round(2).tolist()
    print("median CPU seconds", dict(zip([name for _, name, _ in METHODS], medians, strict=True)))


def draw_ratios(ax: Any, errors: np.ndarray) -> None:
    """The sorted ratios of our error to that of each other method."""
    for i, (_, name, colour) in enumerate(METHODS[1:], start=1):
        ratio = np.sort(errors[:, 0] / errors[:, i])
        label = f"over {name}: lower on {np.mean(ratio < 1):.0%} of the tables"
        ax.plot(np.linspace(0, 100, len(ratio)), ratio.clip(0.4), ".-", ms=5, lw=1, color=colour, label=label)
    ax.axhline(1, color="0.3", lw=1)
    ax.set(yscale="log", ylim=(0.4, 1.6), xlabel="tables, sorted, in %", ylabel="error of mercer over the other's")
    ax.set_yticks([0.4, 0.5, 0.7, 1, 1.4], ["0.4", "0.5", "0.7", "1", "1.4"])
    ax.minorticks_off()
    ax.legend(frameon=False, fontsize=9, loc="lower right")
    ax.set_title(f"{len(errors)} tables: error", fontsize=11)


def draw_times(ax: Any, errors: np.ndarray, seconds: np.ndarray) -> None:
    """Error over that of LightGBM (median of the tables) against CPU seconds (median, and the middle 80 %)."""
    relative = np.median(errors / errors[:, -1:], axis=0)
    for i, (_, name, colour) in enumerate(METHODS):
        low, middle, high = np.quantile(seconds[:, i], [0.1, 0.5, 0.9])
        ax.plot([low, high], [relative[i]] * 2, color=colour, lw=5, alpha=0.3, solid_capstyle="round")
        ax.plot(middle, relative[i], "o", ms=9, color=colour)
        ax.annotate(name, (middle, relative[i]), (0, 9), textcoords="offset points", ha="center", color=colour)
    ax.set(xscale="log", xlabel="seconds of one core for a fit", ylabel="error over that of LightGBM (median)")
    ax.set_xticks([0.03, 0.1, 0.3, 1, 3, 10], ["0.03", "0.1", "0.3", "1", "3", "10"])
    ax.set_ylim(min(relative) - 0.02, 1.02)
    ax.minorticks_off()
    ax.set_title("error against time", fontsize=11)


def draw_arena(ax: Any, arena: np.ndarray) -> None:
    """Our error over that of each published model, table by table, and the geometric mean."""
    ratios = arena[:, :1] / arena[:, 1:]
    for j, ratio in enumerate(ratios.T):
        ax.plot(np.full(len(ratio), j), ratio, "o", ms=5, color=METHODS[0][2], alpha=0.4)
        mean = np.exp(np.log(ratio).mean())
        ax.plot([j - 0.25, j + 0.25], [mean] * 2, color=METHODS[0][2], lw=3)
        ax.annotate(f"{mean:.2f}", (j + 0.3, mean), va="center", fontsize=9)
    ax.axhline(1, color="0.3", lw=1)
    ax.set(yscale="log", ylabel="error of mercer over the other's", xlim=(-0.5, len(PUBLISHED) - 0.3))
    ax.set_xticks(range(len(PUBLISHED)), PUBLISHED, fontsize=9)
    ax.set_yticks([0.6, 0.7, 0.8, 0.9, 1, 1.1], ["0.6", "0.7", "0.8", "0.9", "1", "1.1"])
    ax.minorticks_off()
    ax.set_title(f"TabArena, {len(arena)} tables: one mercer, bagged others", fontsize=11)


def main() -> None:
    errors, seconds, numbers = read()
    tell(errors, seconds, numbers)
    figure, axes = plt.subplots(1, 3, figsize=(14, 4), layout="constrained")
    draw_ratios(axes[0], errors)
    draw_times(axes[1], errors, seconds)
    draw_arena(axes[2], read_arena())
    for ax in axes:
        ax.grid(alpha=0.25)
        ax.spines[["top", "right"]].set_visible(False)
    figure.savefig(FOLDER / "trees.png", dpi=120)


if __name__ == "__main__":
    main()
