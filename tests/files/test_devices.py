"""Models go from a GPU to a machine without one and back; run where there is a CUDA device."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from sklearn.base import clone

import mercer
from tests.files.models import ROWS, fitted, public_estimators, said, targets_for

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

NAMES = [name for name in public_estimators() if name != "ARDSelector"]  # which has no device of its own
#: Roundings of a kernel value: differences of coordinates as large as ten length-scales, their squares, exp.
ROUNDINGS = 100 * np.finfo(np.float64).eps
ELSEWHERE = """
import sys
from pathlib import Path
import numpy as np
import torch
import mercer
from tests.files.models import said
assert not torch.cuda.is_available()
for path in Path(sys.argv[1]).glob("*.mercer"):
    model = mercer.load(path)
    assert model.device in ("auto", "cpu"), model.device
    np.savez(path.with_suffix(".npz"), **{ask: one for ask, one in said(model).items() if one.dtype.kind == "f"})
    model.save(path.with_suffix(".back"))
"""


def within(model, answer):
    """How far answers of another device may be: kernel values' rounding times all weights, which have both signs."""
    size = float(np.abs(answer).max())
    for one in getattr(model, "expansions_", ()):
        largest = float(one.kernel.diag(torch.as_tensor(one.basis)).max())
        units = float(np.max(model.targets_.scale)) if hasattr(getattr(model, "targets_", None), "scale") else 1.0
        size += units * largest * float(np.abs(one.weights).sum(0).max())
    return ROUNDINGS * (size + float(np.abs(getattr(model, "normalization_", np.zeros(1))).sum(0).max()))


@pytest.fixture(scope="module")
def travelled(tmp_path_factory):
    """Models of a GPU, and a folder of their files, of what they said without one, and of files written there."""
    folder = tmp_path_factory.mktemp("models")
    models = {}
    for name in NAMES:
        model = clone(fitted(name)).set_params(device="cuda", dtype="float64")
        models[name] = model.fit(ROWS, targets_for(name))
        models[name].save(folder / f"{name}.mercer")
    without = os.environ | {"CUDA_VISIBLE_DEVICES": ""}
    subprocess.run([sys.executable, "-c", ELSEWHERE, folder], env=without, check=True)
    return models, folder


@pytest.mark.parametrize("name", NAMES)
def test_a_model_of_a_gpu_answers_without_one_and_comes_back(name, travelled):
    models, folder = travelled
    here = said(models[name])
    with np.load(folder / f"{name}.npz") as elsewhere:
        for ask in elsewhere:
            atol = within(models[name], here[ask])
            np.testing.assert_allclose(elsewhere[ask], here[ask], rtol=0, atol=atol, err_msg=ask)
    for again in (mercer.load(folder / f"{name}.mercer"), mercer.load(folder / f"{name}.back", device="cuda")):
        assert again.device == "cuda"
        for ask, answer in said(again).items():
            assert np.array_equal(answer, here[ask]), ask


@pytest.mark.parametrize("name", NAMES)
def test_a_model_of_float32_products_is_the_same_on_its_own_device(name, tmp_path):
    model = clone(fitted(name)).set_params(device="cuda", dtype="float32").fit(ROWS, targets_for(name))
    model.save(tmp_path / "m.mercer")
    model.save(tmp_path / "small.mercer", small=True)
    for path in tmp_path.iterdir():
        for ask, answer in said(mercer.load(path)).items():
            assert np.array_equal(answer, said(model)[ask]), (path.name, ask)
