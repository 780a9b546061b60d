"""Large tables for `large.py`: land or sea, and the torques of a robot's arm (`pin`)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

Table = tuple[np.ndarray, np.ndarray]
#: Rows made at a time.
PIECE = 1_000_000
#: Accelerations of the arm's joints lie within this, in rad/s².
ACCELERATION = 10.0
#: Joints of the arm that have a torque; two more are those of its gripper.
JOINTS = 7


def globe() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Which cells of the globe are sea, and the factors of their unit vectors: by latitude and by longitude.

    The package `global-land-mask` has them; where it is not installed, its file is looked for in MERCER_DATA.
    """
    try:
        import global_land_mask

        folder = Path(global_land_mask.__file__).parent
    except ImportError:
        folder = Path(os.environ["MERCER_DATA"])
    found = np.load(folder / "globe_combined_mask_compressed.npz")
    lat, lon = np.radians(found["lat"]), np.radians(found["lon"])
    height = np.stack([np.cos(lat), np.cos(lat), np.sin(lat)], 1).astype(np.float32)
    unit = np.stack([np.cos(lon), np.sin(lon), np.ones_like(lon)], 1).astype(np.float32)
    return found["mask"], height, unit


def random_cells(n: int, seed: int) -> Iterator[Table]:
    """Unit vectors of random cells of the globe, and whether they are land, a million at a time."""
    sea, height, unit = globe()
    rng = np.random.default_rng(seed)
    for begin in range(0, n, PIECE):
        size = min(PIECE, n - begin)
        i, j = rng.integers(len(height), size=size), rng.integers(len(unit), size=size)
        yield height[i] * unit[j], (~sea[i, j]).astype(np.int8)


def land_or_sea(n: int, seed: int) -> Table:
    """The same in one piece."""
    X, y = zip(*random_cells(n, seed), strict=True)
    return np.concatenate(X), np.concatenate(y)


def every_cell(n_test: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """All 933 120 000 cells but a random part of them, in the order of the globe, and that part."""
    sea, height, unit = globe()
    wide = len(unit)
    held = np.zeros(sea.size, bool)
    held[np.random.default_rng(seed).choice(sea.size, n_test, replace=False, shuffle=False)] = True
    X, y = torch.empty(sea.size - n_test, 3), np.empty(sea.size - n_test, np.int8)
    at, by_longitude = 0, torch.from_numpy(unit)
    for i in range(len(height)):
        free = np.flatnonzero(~held[i * wide : (i + 1) * wide])
        torch.mul(by_longitude[free], torch.from_numpy(height[i]), out=X[at : at + len(free)])
        y[at : at + len(free)] = ~sea[i, free]
        at += len(free)
    i, j = np.divmod(np.flatnonzero(held), wide)
    return X.numpy(), y, height[i] * unit[j], (~sea[i, j]).astype(np.int8)


def in_parquet(n: int, seed: int, path: Path) -> None:
    """Random cells in a file, in row groups of a million, the targets in a column of their own."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = ["x0", "x1", "x2"]
    with pq.ParquetWriter(path, pa.schema([*((name, pa.float32()) for name in names), ("y", pa.int8())])) as file:
        for X, y in random_cells(n, seed):
            file.write_table(pa.table([*(pa.array(X[:, j]) for j in range(3)), pa.array(y)], names=[*names, "y"]))


def write_torques(n: int, path: Path) -> None:
    """Torques of a Panda arm by inverse dynamics at random states, in a file without the states: see `torques`.

    Needs `pin` and `example-robot-data`. In float16, whose rounding leaves an NMSE near 1e-7.
    """
    import pinocchio

    data = "share/example-robot-data/robots/panda_description/urdf/panda.urdf"
    folder = next(one for one in Path(pinocchio.__file__).parents if (one / data).exists())
    model = pinocchio.buildModelFromUrdf(str(folder / data))
    low = np.concatenate([model.lowerPositionLimit, -model.velocityLimit, np.full(model.nv, -ACCELERATION)])
    high = np.concatenate([model.upperPositionLimit, model.velocityLimit, np.full(model.nv, ACCELERATION)])
    scratch, y = model.createData(), np.empty((n, JOINTS), np.float16)
    for k, state in enumerate(_states(n, low, high).astype(np.float64)):
        y[k] = pinocchio.rnea(model, scratch, *state.reshape(3, -1))[:JOINTS]
    np.savez_compressed(path, y=y, low=low, high=high)


def torques(path: Path) -> Table:
    """States of an arm (27 positions, velocities and accelerations of its joints) and the 7 torques they take."""
    stored = np.load(path)
    y = stored["y"].astype(np.float64)
    return _states(len(y), stored["low"], stored["high"]), y


def _states(n: int, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Uniform random states; the same ones on every machine, so that a file need not hold them."""
    shares = np.random.default_rng(0).random((n, len(low)), dtype=np.float32)
    return (low + (high - low) * shares).astype(np.float32)
