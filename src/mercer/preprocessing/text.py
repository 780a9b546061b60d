"""Free text as coordinates, by the words and pairs of words that it holds.

A text is a vector of length one: counts of its terms on a logarithmic scale, times the rarity of each term (tf-idf).
Its coordinates are the largest principal directions of these vectors, and a ridge regression of the targets on them.
The directions have one common scale, on which two texts have a mean squared distance of one, as two levels have.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse
from scipy.sparse.linalg import svds

from mercer.data.raw import FEW_ROWS, RawColumn, as_levels
from mercer.preprocessing.columns import Code

if TYPE_CHECKING:  # text and linear models take 0.1 s, and are imported where texts are read
    from sklearn.feature_extraction.text import CountVectorizer

#: Terms are words, signs of punctuation, and pairs of these.
TOKENS, LONGEST_TERM = r"\w+|[^\w\s]", 2
#: Most terms of a column, the most frequent ones; most directions; texts from which both are learned.
MOST_TERMS, DIRECTIONS, MOST_TEXTS = 5000, 30, 20_000
#: Penalties of the regression, from which the cross-fitted error chooses.
PENALTIES = (0.1, 1.0, 10.0)
#: Free text has a median of this many words, and fewer rows per distinct value than its mean target would need.
WORDS_OF_TEXT, ROWS_PER_TEXT = 3, 5


@dataclass(frozen=True)
class Text(Code):
    """Coordinates of free text; missing text is empty text.

    >>> column = RawColumn("review", "category", np.array([0, 1, 2]), ("bad, really bad", "good fun", "very good"))
    >>> code = Text.of(0, column, np.ones(3), n_outputs=1)
    >>> code.encode(column).shape, [term for term in code.terms if "bad" in term]
    ((3, 3), ['bad', 'bad ,', 'really bad'])
    """

    terms: tuple[str, ...] = field(repr=False)
    rarity: np.ndarray = field(repr=False)  # terms
    directions: np.ndarray = field(repr=False)  # terms × k
    slopes: np.ndarray = field(repr=False)  # terms × p, of the ridge regression
    intercept: np.ndarray = field(repr=False)  # p
    penalty: float = 1.0

    @classmethod
    def of(cls, index: int, column: RawColumn, weight: np.ndarray, n_outputs: int) -> Text:
        """The code of a column whose rows have these weights; the regression is still zero."""
        used, place = np.unique(column.values, return_inverse=True)
        some = np.linspace(0, len(used) - 1, min(len(used), MOST_TEXTS)).astype(int)
        each = np.bincount(place, weights=weight)[some]  # the weight of each distinct text
        vectorizer = _vectorizer()
        counts = vectorizer.fit_transform(_texts(column, used[some]))
        rarity = 1 + np.log(each.sum() / (each @ (counts > 0)))
        rows = _unit_rows(counts, rarity)
        k = min(DIRECTIONS, min(rows.shape) - 1)
        directions = np.zeros((rows.shape[1], 0))
        if k > 0:
            start = np.random.default_rng(0).uniform(-1, 1, min(rows.shape))
            directions = svds(rows.multiply(np.sqrt(each)[:, None]).tocsr(), k, v0=start)[2][::-1].T
            Z = rows @ directions
            spread = each @ (Z - np.average(Z, axis=0, weights=each)) ** 2 / each.sum()
            scale = np.sqrt(2 * max(spread.sum(), 1e-12))  # texts may differ in capitals alone
            directions = (directions / scale).astype(np.float32)  # half of a model file
        slopes = np.zeros((rows.shape[1], n_outputs))
        return cls(index, tuple(vectorizer.get_feature_names_out()), rarity, directions, slopes, np.zeros(n_outputs))

    @property
    def width(self) -> int:
        return self.directions.shape[1] + self.slopes.shape[1]

    @property
    def parts(self) -> tuple[tuple[int, bool], ...]:
        both = (self.directions.shape[1], True), (self.slopes.shape[1], False)
        return tuple(part for part in both if part[0])

    @property
    def description(self) -> str:
        trend = " and a linear trend" if self.slopes.shape[1] else ""
        return f"text: {self.directions.shape[1]} directions{trend} of {len(self.terms)} words and pairs of words"

    def encode(self, column: RawColumn, *others: RawColumn) -> np.ndarray:
        rows, place = self._distinct(column)
        return np.hstack([rows @ self.directions, rows @ self.slopes + self.intercept])[place]

    def rows(self, column: RawColumn) -> scipy.sparse.csr_array:
        """The vector of each row's text, n × terms."""
        rows, place = self._distinct(column)
        return rows[place]

    def without(self, k: int, text: str) -> str:
        """A text without one of the terms."""
        words = [rf"\b{re.escape(word)}\b" if word.isalnum() else re.escape(word) for word in self.terms[k].split()]
        return re.sub(r"\s*".join(words), " ", text, flags=re.IGNORECASE)

    def _distinct(self, column: RawColumn) -> tuple[scipy.sparse.csr_array, np.ndarray]:
        """The vectors of the distinct texts, and the place of each row's text among them."""
        column = as_levels(column)
        used, place = np.unique(column.values, return_inverse=True)
        counts = _vectorizer(self.terms).transform(_texts(column, used))
        return _unit_rows(counts, self.rarity), place


@dataclass(frozen=True)
class TextRegression:
    """Ridge regressions of targets on the vectors of texts (n × terms), fitted to all rows and to the other folds."""

    rows: scipy.sparse.csr_array
    targets: np.ndarray
    folds: np.ndarray

    def fit(self, weight: np.ndarray, penalty: float) -> tuple[np.ndarray, np.ndarray]:
        """Slopes (terms × p) and intercepts."""
        from sklearn.linear_model import Ridge

        seen = weight > 0
        model = Ridge(penalty, solver="sparse_cg", tol=1e-6).fit(self.rows[seen], self.targets[seen], weight[seen])
        return model.coef_.reshape(self.targets.shape[1], -1).T, np.atleast_1d(model.intercept_)

    def out_of_fold(self, weight: np.ndarray, penalty: float) -> np.ndarray:
        """Predictions for rows by those of positive weight in the other folds; for rows of weight zero by all folds."""
        out = np.empty(self.targets.shape)
        row_fold = np.where(weight > 0, self.folds, -1)
        for fold in np.unique(row_fold):
            rest = np.where(row_fold == fold, 0.0, weight)
            here = row_fold == fold
            slopes, intercept = self.fit(rest if rest.any() else weight, penalty)
            out[here] = self.rows[here] @ slopes + intercept
        return out

    def best_penalty(self, weight: np.ndarray) -> float:
        """The penalty of least squared error out of fold, over all targets."""
        spread = np.average((self.targets - np.average(self.targets, axis=0, weights=weight)) ** 2, 0, weight)
        scale = np.where(spread > 0, spread, 1.0)
        squares = [((self.out_of_fold(weight, penalty) - self.targets) ** 2 / scale).sum(1) for penalty in PENALTIES]
        return PENALTIES[int(np.argmin([weight @ square for square in squares]))]


def is_free_text(column: RawColumn) -> bool:
    """Whether a column of levels has fewer than five rows per distinct value, and a median of three words or more."""
    used = np.unique(column.values[~column.missing])
    if len(used) <= max(FEW_ROWS, int((~column.missing).sum()) / ROWS_PER_TEXT):
        return False
    some = used[np.linspace(0, len(used) - 1, 1000).astype(int)]
    return float(np.median([len(text.split()) for text in _texts(column, some)])) >= WORDS_OF_TEXT


def _vectorizer(terms: tuple[str, ...] | None = None) -> CountVectorizer:
    from sklearn.feature_extraction.text import CountVectorizer

    return CountVectorizer(
        token_pattern=TOKENS, ngram_range=(1, LONGEST_TERM), vocabulary=terms, max_features=MOST_TERMS
    )


def _texts(column: RawColumn, codes: np.ndarray) -> list[str]:
    """The texts of these levels; that of a missing one is empty."""
    return ["" if code < 0 else column.levels[code] for code in codes]


def _unit_rows(counts: scipy.sparse.csr_array, rarity: np.ndarray) -> scipy.sparse.csr_array:
    """Counts on a logarithmic scale, times the rarity of each term, in rows of length one."""
    from sklearn.preprocessing import normalize

    rows = scipy.sparse.csr_array(counts, dtype=np.float64)
    rows.data = (1 + np.log(rows.data)) * rarity[rows.indices]
    return normalize(rows)
