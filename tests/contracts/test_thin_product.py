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


def test_columns_of_zeros_have_products_of_zeros_beside_others():
    rng = torch.Generator().manual_seed(0)
    A, V = (torch.randn(40, columns, generator=rng, dtype=torch.float64) for columns in (40, 3))
    A = A + A.T
    alone = thin_product(A, V)
    V[:, 1] = 0.0
    assert torch.equal(thin_product(A, V)[:, 1], torch.zeros(40, dtype=torch.float64))
    assert torch.allclose(thin_product(A, V)[:, [0, 2]], alone[:, [0, 2]], rtol=1e-13)
    assert torch.equal(thin_product(A, torch.zeros_like(V)), torch.zeros_like(V))
