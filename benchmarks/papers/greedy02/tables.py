"""The cells of Greedy02's tables: one function a table, one value a split."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from papers.greedy02 import methods, protocol, rivals, timing

from mercer import GreedyKernelClassifier, GreedyKernelRegressor

Cell = dict[str, Any]


def table1(p: int, seed: int) -> Cell:
    """Normalised residuals of each method at the sizes of the table, on rows drawn with this seed."""
    X, y = protocol.synthetic(p, seed)
    largest = replace(protocol.SYNTHETIC, sizes=protocol.SYNTHETIC.sizes[-1:])  # its path holds those of the others
    split = protocol.Split(X, y, X[:1], y[:1])
    found = {name: method(split, largest).residuals for name, method in methods.METHODS.items()}
    return {f"{name}, n = {n}": float(r[n - 1]) for name, r in found.items() for n in protocol.SYNTHETIC.sizes}


def errors(data: str, seed: int, n_sizes: int | None = None) -> Cell:
    """Tables 2 and 3, figures 5 and 6: squared errors and residuals; MRX also with Algorithm 2's own weights.

    The first `n_sizes` sizes alone if that many are asked for.
    """
    split, setting = nth(data, seed)
    setting = replace(setting, sizes=setting.sizes[:n_sizes])
    cell: Cell = {}
    for name, method in methods.METHODS.items():
        path = method(split, setting)
        for n, error, residual in zip(
            setting.sizes, methods.squared_errors(path, split), path.final_residuals, strict=True
        ):
            cell |= {f"{name}, n = {n}": error, f"residual {name}, n = {n}": float(residual)}
        if name == "mrx":
            for n in setting.sizes:
                own = methods.greedy(n, setting.c, setting.noise, update="mrx", exchange=True).fit(split.X, split.y)
                cell[f"own weights, n = {n}"] = float(np.mean((own.predict(split.X_test) - split.y_test) ** 2))
                cell[f"own residual, n = {n}"] = float(own.history_["residual_norm"][-1] / np.linalg.norm(split.y))
    return cell


def today(data: str, seed: int) -> Cell:
    """`GreedyKernelRegressor(n)` at the largest size of the table, on inputs as they come."""
    split, setting = nth(data, seed)
    model = GreedyKernelRegressor(max(setting.sizes), random_state=0, device="cpu").fit(split.X, split.y)
    return {"error": float(np.mean((model.predict(split.X_test) - split.y_test) ** 2))}


def nth(data: str, seed: int) -> tuple[protocol.Split, protocol.Setting]:
    splits = {"boston": protocol.boston, "abalone": protocol.abalone}[data](seed + 1)
    return list(splits)[seed], {"boston": protocol.BOSTON, "abalone": protocol.ABALONE}[data]


def table4(data: str, seed: int) -> Cell:
    split, setting = nth(data, seed)
    cell: Cell = {}
    for rule in ("mdl", "aic"):
        model = methods.stopped(split, setting.c, rule)
        cell[rule] = float(np.mean((model.predict(split.X_test) - split.y_test) ** 2))
        cell[f"{rule}_n"] = len(model.basis_)
    return cell


def table5(name: str, n_splits: int | None = None, n_basis: int = protocol.RAETSCH_SIZE) -> Cell:
    """Test errors in percent and sizes on all splits of a set, or the first; widths are chosen on the first one."""
    splits = list(protocol.raetsch(name))[:n_splits]
    widths = [w * splits[0].X.shape[1] for w in protocol.WIDTHS_PER_INPUT]
    chosen = methods.choose_widths(splits[0], widths, n_basis)
    cell: Cell = {"n_test": len(splits[0].y_test)} | {f"{key}_c": c for key, c in chosen.items()}
    for split in splits:
        found = {c: methods.both_readings(split, c, n_basis) for c in set(chosen.values())}
        for key, c in chosen.items():
            size, values = found[c][key]
            percent = 100 * methods.wrong_side(values, split.y_test) / len(split.y_test)
            cell.setdefault(key, []).append(percent)
            cell.setdefault(f"{key}_n", []).append(size)
    return cell


def rival5(name: str, which: str) -> Cell:
    return rivals.table5(name, which)


def today5(name: str, n_splits: int | None = None) -> Cell:
    """`GreedyKernelClassifier()` on the same splits."""
    found = []
    for split in list(protocol.raetsch(name))[:n_splits]:
        model = GreedyKernelClassifier(random_state=0, device="cpu").fit(split.X, split.y)
        found.append(100 * float(np.mean(model.predict(split.X_test) != split.y_test)))
    return {"errors": found}


def digit_width(n_rows: int = 2000) -> Cell:
    """Wrong rows by width, from which the one width of table 6 is chosen."""
    widths = [256 * w for w in protocol.USPS_WIDTHS_PER_INPUT]
    return dict(zip(map(str, widths), methods.digit_width_errors(protocol.usps(), widths, n_rows), strict=True))


def digit(which: int, size: int) -> Cell:
    """Wrong test rows of a digit against the rest, and sizes."""
    found = methods.digit(protocol.usps(), which, protocol.USPS_WIDTH, size)
    return found.wrong | {f"{rule}_n": n for rule, n in found.sizes.items()}


def rival6() -> Cell:
    return {f"{digit} {key}": values[0] for digit, cells in rivals.table6().items() for key, values in cells.items()}


def boston_svm() -> Cell:
    return rivals.boston()


def sinc(reading: protocol.SincReading, draws: int = 50) -> Cell:
    """Root mean square errors and sizes of MDL and AIC, a value a draw of the noise."""
    cell: Cell = {f"{rule}{end}": [] for rule in ("aic", "mdl") for end in ("", "_n")}
    for seed in range(draws):
        split = protocol.sinc(seed, reading)
        for rule in ("aic", "mdl"):
            model = methods.stopped(split, reading.c, rule)
            cell[rule].append(float(np.sqrt(np.mean((model.predict(split.X_test) - split.y_test) ** 2))))
            cell[f"{rule}_n"].append(len(model.basis_))
    return cell


def ripley(scale: str, c: float) -> Cell:
    """Test errors in percent and sizes; and where both criteria have their minima on the whole path (figure 2)."""
    split = protocol.ripley(protocol.RIPLEY_SCALES[scale])
    cell: Cell = {}
    for rule in ("aic", "mdl"):
        model = methods.stopped(split, c, rule, min_novelty=protocol.RIPLEY_NOVELTY)
        cell[rule] = methods.percent_wrong(model, split.X_test, split.y_test)
        cell[f"{rule}_n"] = len(model.basis_)
    path = methods.greedy(60, c, min_novelty=0.0).fit(split.X, split.y)
    return cell | {f"{rule}_whole": 1 + int(np.argmin(path.history_[rule])) for rule in ("aic", "mdl")}


def overfitting(seed: int, n_basis: int = 60) -> Cell:
    """Figure 1: test and training error along the sizes without regularisation; sinc stands for unnamed toy data."""
    reading = protocol.SincReading(1.0, 10.0, 1.0)  # narrow kernels, which can follow the noise
    split = protocol.sinc(seed, reading)
    model = methods.greedy(n_basis, reading.c, min_novelty=0.0).fit(split.X, split.y)
    predictions = model.path_predict(split.X_test, range(1, n_basis + 1))
    test = [float(np.sqrt(np.mean((f - split.y_test) ** 2))) for f in predictions]
    return {"train_end": float(model.history_["residual_norm"][-1] / 10), "test_least": min(test), "test_end": test[-1]}


def figure7(n_rows: int) -> Cell:
    """CPU seconds to choose a tenth of the rows, by each method."""
    return timing.seconds(n_rows)
