"""Files of every released version load in this one, and say what they said then."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import mercer
from tests.files.models import said

FILES = sorted(Path(__file__).parent.glob("*/*.mercer"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_file_of_an_earlier_version_says_what_it_said(path):
    told = json.loads(path.with_suffix(".json").read_text())
    answers = said(mercer.load(path), np.array(told["rows"]))
    assert set(told["said"]) <= set(answers)
    for ask, before in told["said"].items():
        now, before = answers[ask], np.array(before)
        assert now.shape == before.shape
        if now.dtype.kind == "f":
            # other machines round exponentials otherwise; weights of a hundred times the targets' size, of both signs,
            # carry that into the sums, still far from what anybody would call another prediction
            np.testing.assert_allclose(now, before, rtol=1e-6, atol=1e-6 * np.abs(before).max())
        else:
            assert (now == before).all()


def test_there_are_files_of_a_version_for_every_estimator():
    assert {path.stem for path in FILES} >= {name for name in mercer.__all__ if isinstance(getattr(mercer, name), type)}
