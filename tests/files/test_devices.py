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

#: Answers of another device, of the largest: float32 kernel values, times weights of both signs.
WITHIN = 1e-3
ELSEWHERE = """
import sys, numpy as np, torch, mercer
from tests.files.models import said
assert not torch.cuda.is_available()
model = mercer.load(sys.argv[1])
assert model.device in ("auto", "cpu"), model.device
np.savez(sys.argv[2], **said(model))
model.save(sys.argv[3])
"""


@pytest.mark.parametrize("name", public_estimators())
def test_a_model_of_a_gpu_answers_without_one_and_comes_back(name, tmp_path):
    model = clone(fitted(name))
    if "device" not in model.get_params(deep=False):
        pytest.skip("has no device")
    model.set_params(device="cuda").fit(ROWS, targets_for(name))
    there, numbers, back = (tmp_path / part for part in ("gpu.mercer", "said.npz", "cpu.mercer"))
    model.save(there)
    here, again = said(model), said(mercer.load(there))
    for ask, answer in here.items():
        assert np.array_equal(answer, again[ask]), ask
    without = os.environ | {"CUDA_VISIBLE_DEVICES": ""}
    subprocess.run([sys.executable, "-c", ELSEWHERE, there, numbers, back], env=without, check=True)
    with np.load(numbers, allow_pickle=True) as elsewhere:
        for ask, answer in here.items():
            if answer.dtype.kind == "f":
                other = elsewhere[ask]
                np.testing.assert_allclose(other, answer, rtol=0, atol=WITHIN * np.abs(answer).max(), err_msg=ask)
    returned = mercer.load(back, device="cuda")
    assert returned.device == "cuda"
    for ask, answer in said(returned).items():
        assert np.array_equal(answer, here[ask]), ask
