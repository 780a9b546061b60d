"""Sparse matrices: narrow ones are tables like any other, wide ones stay sparse in fit and predict."""

import pickle
import tracemalloc

import numpy as np
import pytest
import scipy.sparse
import torch

from mercer import GreedyKernelRegressor, KernelBoostingClassifier, KernelBoostingRegressor, SparseGPRegressor
from mercer.kernels import Bias, Gaussian, Laplacian, Linear, Matern32, Normalized, Polynomial
from mercer.kernels.sparse_rows import Entries, SparseRowKernel

pytestmark = pytest.mark.usefixtures("two_folds", "short_selections")

WIDE = 600


def text_like(n, D=WIDE, seed=0):
    """Counts of words, the first of which come in many rows, and targets that a few of them make."""
    rng = np.random.default_rng(seed)
    words = np.minimum((D ** rng.random((n, 12)) - 1).astype(int), D - 1)
    X = scipy.sparse.coo_array((np.ones(words.size), (np.repeat(np.arange(n), 12), words.reshape(-1))), shape=(n, D))
    X = X.tocsr()
    return X, np.asarray(X[:, [1, 3]].sum(1)).reshape(-1) - np.asarray(X[:, [2, 5]].sum(1)).reshape(-1)


@pytest.mark.parametrize(
    "kernel",
    [
        Gaussian(2.0),
        3.0 * Matern32(4.0) + Bias(0.5),
        Linear(),
        Polynomial(2, 0.1, 1.0),
        Normalized(Linear()),
        Gaussian(2.0) * Linear(),
    ],
    ids=repr,
)
def test_tiles_by_products_are_those_of_dense_rows(kernel):
    X, _ = text_like(30)
    entries, dense = Entries.of(X), torch.from_numpy(X.toarray())
    numbers = torch.arange(30, dtype=torch.float64)[:, None]
    numbered = SparseRowKernel(kernel, entries, entries)
    # |x|² + |z|² − 2xᵀz of integers is exact; a dense kernel centres first, which rounds a few times
    np.testing.assert_allclose(
        numbered(numbers[:20], numbers[5:]), kernel(dense[:20], dense[5:]), rtol=1e-12, atol=1e-12
    )
    np.testing.assert_allclose(numbered.diag(numbers), kernel.diag(dense), rtol=1e-12, atol=1e-12)


def test_a_wide_sparse_table_gives_the_model_of_the_dense_one():
    X, y = text_like(300)
    named = {"kernel": Gaussian(4.0), "regularization": 0.1, "scale_inputs": False, "random_state": 0}
    sparse, dense = KernelBoostingRegressor(**named).fit(X, y), KernelBoostingRegressor(**named).fit(X.toarray(), y)
    new = text_like(50, seed=1)[0]
    np.testing.assert_allclose(sparse.predict(new), dense.predict(new.toarray()), rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(sparse.predict(new.toarray()), sparse.predict(new), rtol=1e-12)
    np.testing.assert_allclose(dense.predict(new), dense.predict(new.toarray()), rtol=1e-12)
    assert scipy.sparse.issparse(sparse.basis_)


def test_the_default_learns_from_words():
    X, y = text_like(400)
    # dense rows would be more than such memory holds at a time, and some of them would have to do
    model = KernelBoostingRegressor(random_state=0, tuning_rows=150, memory_limit="3MiB").fit(X[:200], y[:200])
    assert scipy.sparse.issparse(model.basis_)
    assert model.score(X[200:], y[200:]) > 0.4
    low, high = model.predict_interval(X[200:]).T
    assert 0.8 < np.mean((low <= y[200:]) & (y[200:] <= high)) < 0.98  # 200 rows: three deviations about 0.9
    classes = KernelBoostingClassifier(kernel="gaussian", random_state=0, tuning_rows=150).fit(X[:200], y[:200] > 0)
    assert classes.score(X[200:], y[200:] > 0) > 0.65
    assert np.array_equal(pickle.loads(pickle.dumps(classes)).predict(X[:9]), classes.predict(X[:9]))


def test_memory_is_in_proportion_to_the_entries():
    n, D = 3000, 100_000  # 2.4 GB if it were dense
    X, y = text_like(n, D)
    tracemalloc.start()
    GreedyKernelRegressor(n_basis=20, kernel=Gaussian(3.0), regularization=0.1, random_state=0).fit(X, y).predict(X)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100 * X.nnz * 16  # some copies of the entries and tiles of a few columns; torch's own not counted


def test_stages_and_files_of_a_sparse_model(tmp_path):
    import mercer

    X, y = text_like(200)
    model = GreedyKernelRegressor(n_basis=5, kernel=Gaussian(3.0), regularization=0.1, random_state=0).fit(X, y)
    *_, last = model.staged_predict(X[:7])
    np.testing.assert_allclose(last, model.predict(X[:7]), rtol=1e-8)
    model.save(tmp_path / "sparse.mercer")
    np.testing.assert_allclose(mercer.load(tmp_path / "sparse.mercer").predict(X[:7]), model.predict(X[:7]), rtol=1e-12)


def test_a_libsvm_file_of_many_columns_stays_sparse(tmp_path):
    X, y = text_like(200)
    lines = [
        f"{target} " + " ".join(f"{k + 1}:{v}" for k, v in zip(row.indices, row.data, strict=True))
        for target, row in zip(y, (X[[i]] for i in range(200)), strict=True)
    ]
    last = f"0 {WIDE}:0"  # says how many columns there are
    (tmp_path / "words.svm").write_text("\n".join([*lines, last]) + "\n")
    model = GreedyKernelRegressor(n_basis=10, kernel=Gaussian(3.0), regularization=0.1, random_state=0)
    model.fit(tmp_path / "words.svm", None)
    assert scipy.sparse.issparse(model.basis_)
    np.testing.assert_allclose(model.predict(tmp_path / "words.svm")[:200], model.predict(X), rtol=1e-10)


def test_a_narrow_sparse_table_is_a_table():
    X, y = text_like(120, D=8)
    model = SparseGPRegressor(n_inducing=10, max_iter=5, random_state=0)
    expected = model.fit(X.toarray(), y).predict(X.toarray())
    assert np.array_equal(model.fit(X, y).predict(X), expected)
    assert np.array_equal(model.fit(torch.from_numpy(X.toarray()).to_sparse(), y).predict(X), expected)


def test_what_does_not_go_gets_a_sentence():
    X, y = text_like(300)
    with pytest.raises(ValueError, match="kernel must be radial or of dot products"):
        KernelBoostingRegressor(kernel=Laplacian(1.0), regularization=0.1).fit(X, y)
    bad = X.copy()
    bad.data[0] = np.nan
    with pytest.raises(ValueError, match=r"X must be of finite numbers, got .NaN or infinity"):
        KernelBoostingRegressor().fit(bad, y)
    with pytest.raises(ValueError, match=r"X must be at most .* when made dense, which SparseGPRegressor needs"):
        SparseGPRegressor(memory_limit="1MiB").fit(X, y)


def test_few_dense_rows_have_the_predictions_of_sparse_ones():
    """A short way for few dense rows took their values for row numbers if no column was constant in `fit`."""
    X = scipy.sparse.random(200, 600, density=0.2, random_state=0, format="csr")
    y = np.asarray(X[:, :50].sum(1)).ravel()
    model = KernelBoostingRegressor(kernel=Gaussian(4.0), regularization=0.1, random_state=0).fit(X, y)
    np.testing.assert_allclose(model.predict(X[:10].toarray()), model.predict(X)[:10], rtol=1e-12)


def test_words_that_no_row_of_fit_holds_change_nothing():
    X, y = text_like(200)
    X = X.tolil()
    X[:, 400:] = 0.0
    X[:, 399] = 1.0
    model = KernelBoostingRegressor(kernel=Gaussian(4.0), regularization=0.1, random_state=0).fit(X, y)
    new = text_like(20, seed=1)[0].tolil()
    new[:, 400:] = 0.0
    new[:, 399] = 1.0
    other = new.copy()
    other[:, 450:] = 3.0
    other[:, 399] = 0.0
    np.testing.assert_array_equal(model.predict(other), model.predict(new))
    np.testing.assert_allclose(model.predict(other.toarray()), model.predict(new), rtol=1e-12)
