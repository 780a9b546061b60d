"""A text table that would take 40 GB if it were dense: 100 000 documents of 50 000 words, fitted by its entries.

    python benchmarks/speed/sparse.py [--rows 100000] [--words 50000] [--length 60] [--threads 2] [--linear]

Documents are drawn from one of two mixtures of topics over words of Zipf's frequencies, a fifth of them with the other
class's label; columns are the logarithms of counts, rows of unit length. The classifier is as it comes, with a seed.
`--linear` also fits scikit-learn's ridge classifier, which is made for such tables. Peak memory is that of the process,
which begins at that of the libraries.
"""

from __future__ import annotations

import argparse
import resource
import time

import numpy as np
import scipy.sparse
import torch
from sklearn.linear_model import RidgeClassifier
from sklearn.preprocessing import normalize

from mercer import KernelBoostingClassifier


def documents(n: int, words: int, length: int, seed: int) -> tuple[scipy.sparse.csr_array, np.ndarray]:
    """Counts of words and the class of each document."""
    rng = np.random.default_rng(0)
    frequency = 1 / np.arange(1, words + 1)
    topics = np.stack([frequency * rng.gamma(0.3, size=words) for _ in range(20)])
    topics /= topics.sum(1, keepdims=True)
    shares = rng.dirichlet(np.full(20, 0.5), 2)
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    topic = np.array([rng.choice(20, p=shares[label]) for label in y])
    place = rng.random((n, length))
    columns = np.empty((n, length), dtype=np.int64)
    for k in range(20):
        mine = topic == k
        columns[mine] = np.searchsorted(np.cumsum(topics[k]), place[mine]).clip(max=words - 1)
    entries = np.ones(n * length), (np.repeat(np.arange(n), length), columns.reshape(-1))
    X = scipy.sparse.coo_array(entries, shape=(n, words)).tocsr()
    X.data = np.log1p(X.data)
    flipped = rng.random(n) < 0.2
    return scipy.sparse.csr_array(normalize(X)), np.where(flipped, 1 - y, y)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rows", type=int, default=100_000)
    options.add_argument("--words", type=int, default=50_000)
    options.add_argument("--length", type=int, default=60)
    options.add_argument("--threads", type=int, default=2)
    options.add_argument("--linear", action="store_true")
    given = options.parse_args()
    torch.set_num_threads(given.threads)
    X, y = documents(given.rows, given.words, given.length, 1)
    X_test, y_test = documents(10_000, given.words, given.length, 2)
    size = X.data.nbytes + X.indices.nbytes + X.indptr.nbytes
    print(
        f"{X.shape[0]} × {X.shape[1]}, {X.nnz} entries, {size / 2**20:.0f} MiB (dense {8e-9 * np.prod(X.shape):.0f} GB)"
    )
    models = {"mercer": KernelBoostingClassifier(random_state=0)}
    models |= {"ridge": RidgeClassifier()} if given.linear else {}
    for name, model in models.items():
        began, cpu = time.perf_counter(), time.process_time()
        model.fit(X, y)
        fitted = time.perf_counter() - began, time.process_time() - cpu
        error = 100 * np.mean(model.predict(X_test) != y_test)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        print(f"{name:8s} {error:6.2f} % wrong, fit {fitted[0]:7.1f} s ({fitted[1]:.1f} s of CPU), peak {peak:.2f} GiB")


if __name__ == "__main__":
    main()
