"""Products with a few columns by machine code, against double precision."""

import pytest
import torch

from mercer.codegen import compiled as module
from mercer.codegen.compiled import thin_product


@pytest.mark.parametrize("enough", [0, 10**9])
@pytest.mark.parametrize(("n", "p"), [(3, 1), (64, 4), (101, 5), (70, 8)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_thin_product_is_that_of_double_precision(monkeypatch, dtype, n, p, enough):
    monkeypatch.setattr(module, "ENOUGH", enough)
    monkeypatch.setattr(module, "NUMBERS_SUMMED", 32)
    rng = torch.Generator().manual_seed(n)
    A = torch.randn(n, n, generator=rng, dtype=dtype)
    A = A + A.T
    V = torch.randn(n, p, generator=rng, dtype=torch.float64) * torch.logspace(-60, 60, p, dtype=torch.float64)
    exact = A.double() @ V
    # one rounding for each of n sums, and one of the columns themselves; n for the other product
    roundings = (n + 1) * torch.finfo(dtype).eps + n * torch.finfo(torch.float64).eps
    bound = roundings * (A.double().abs() @ V.abs())
    assert bool(((thin_product(A, V) - exact).abs() <= bound).all())
