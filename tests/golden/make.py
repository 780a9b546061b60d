"""``python -m tests.golden.make VERSION``: the files of a version, written once, at its release, and read for ever.

Beside each model lies what it said of a few rows. Files of a released version are never written again.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

from tests.files.models import NEW, fitted, public_estimators, said


def main(version: str) -> None:
    folder = Path(__file__).parent / version
    folder.mkdir(exist_ok=True)
    for name in public_estimators():
        model = fitted(name)
        model.save(folder / f"{name}.mercer")
        answers = {ask: np.asarray(answer).tolist() for ask, answer in said(model).items()}
        (folder / f"{name}.json").write_text(json.dumps({"rows": NEW.tolist(), "said": answers}))


if __name__ == "__main__":
    main(sys.argv[1])
