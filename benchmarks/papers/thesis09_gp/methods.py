"""Chapter 5's models and problems, with every choice on which the thesis is silent.

As there: standardised inputs, an ARD Gaussian kernel (ours has a constant added, whose variance is tuned as well), a
random subset of rows for SD and SR/PP, whose kernel and rows are SD's; SPGP optimises kernel and inducing inputs
together, from random rows. "Several random initializations are tried in each experiment": three for every model, each
of at most 62 steps, on E. coli of at most 300, so that searches come to their ends. The best start is the one of most
evidence; of SD's subsets, the one under whose model other training rows are most likely, since evidences of different
rows cannot be compared.
"""

from __future__ import annotations

import os
from functools import partial
from typing import Any

import numpy as np
import torch
from papers.measure import clock

from mercer import ARDSelector, SparseGPClassifier
from mercer.datasets import THREE_GAUSSIANS, available, load, make_redundant_gaussians, make_three_gaussians

Split = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
#: Starts beyond the first, and steps: those of SPGP are Adam's, after which come a quarter as many of L-BFGS.
RESTARTS, STEPS = 2, {"full": 62, "sd": 62, "pp": 62, "spgp": 50}
#: Steps on E. coli, whose rows are few.
LONG = 300
#: Sizes beyond which a fit takes one core an hour: these are fitted on a GPU where there is one.
ON_A_GPU = 1024
#: The thesis' 13 words (section 5.3.4).
WORDS = (
    "word_freq_our", "word_freq_remove", "word_freq_receive", "word_freq_money", "word_freq_hp", "word_freq_george",
    "word_freq_lab", "word_freq_telnet", "word_freq_technology", "word_freq_original", "word_freq_edu",
    "word_freq_conference", "char_freq_$",
)  # fmt: skip


def ecoli(seed: int = 0) -> Split:
    """All rows for training and for testing, as there."""
    data = load("ecoli")
    return data.X, data.y, data.X, data.y


def spam(seed: int = 0) -> Split:
    data = load("spambase")
    order = np.random.default_rng(seed).permutation(len(data.y))
    train, test = order[:3101], order[3101:]
    return data.X[train], data.y[train], data.X[test], data.y[test]


def usps_published(seed: int = 0) -> Split:
    """Digits 3 and 5 of Rasmussen and Williams' repartition, which the thesis has: 767 and 773 rows."""
    data = load("usps_resampled")
    return data.X, data.y, data.X_test, data.y_test


def has_published() -> bool:
    return "MERCER_DATA" in os.environ and "usps_resampled" in available()


def usps(seed: int = 0) -> Split:
    """As many digits at random, from the other files of the same digits."""
    data = load("usps")
    X, y = np.concatenate([data.X, data.X_test]), np.concatenate([data.y, data.y_test])
    chosen = np.random.default_rng(seed).permutation(np.flatnonzero((y == 3) | (y == 5)))
    train, test = chosen[:767], chosen[767:]
    return X[train], y[train], X[test], y[test]


SPLITS = {"ecoli": ecoli, "usps": usps, "published": usps_published, "spam": spam}


def classifier(m: int, approximation: str, seed: int = 0, **options: Any) -> SparseGPClassifier:
    as_there = {"kernel": "gaussian", "ard": True, "inducing": "random", "scale_inputs": "standard", "device": "cpu"}
    budget = {"max_iter": STEPS[approximation], "n_restarts": RESTARTS}
    return SparseGPClassifier(m, approximation=approximation, **as_there | budget | {"random_state": seed} | options)


def measured(model: SparseGPClassifier, split: Split) -> dict[str, Any]:
    """Accuracy in percent, seconds of training and of evaluation, steps of the start that was kept."""
    X, y, X_test, y_test = split
    began = clock(model.device)
    model.fit(X, y)
    trained = clock(model.device)
    right = float(np.mean(model.predict(X_test) == y_test))
    return {"accuracy": 100 * right, "train_s": trained - began, "evaluate_s": clock(model.device) - trained}


def projected(m: int, subset: SparseGPClassifier, split: Split) -> dict[str, Any]:
    """SR/PP with the kernels and rows of a fitted SD model; for several classes one model per class."""
    X, y, X_test, y_test = split
    kernels = subset.kernel_ if isinstance(subset.kernel_, list) else [subset.kernel_]
    bases = subset.basis_ if isinstance(subset.basis_, list) else [subset.basis_]
    now = partial(clock, subset.device)
    began, probabilities, seconds = now(), [], 0.0
    for c, (kernel, basis) in enumerate(zip(kernels, bases, strict=True)):
        one = classifier(m, "pp", kernel=kernel, inducing=basis, device=subset.device)
        one.fit(X, y if len(kernels) == 1 else y == subset.classes_[c])
        started = now()
        probabilities.append(one.predict_proba(X_test)[:, 1])
        seconds += now() - started
    trained = now() - began - seconds
    p = np.stack(probabilities, 1)
    label = subset.classes_[(p[:, 0] > 0.5).astype(int) if p.shape[1] == 1 else p.argmax(1)]
    return {"accuracy": 100 * float(np.mean(label == y_test)), "train_s": trained, "evaluate_s": seconds}


# The cells of tables 5-4, 5-7 and 5-8


def device_for(name: str, m: int) -> str:
    """Where a size is fitted: the largest of spam on a GPU, if there is one."""
    return "cuda" if name == "spam" and m >= ON_A_GPU and torch.cuda.is_available() else "cpu"


def subset_cell(name: str, m: int, seed: int) -> dict[str, Any]:
    """SD, and SR/PP with its kernel and rows; SR/PP's training time is added to that of SD, without which it is not."""
    split, device = SPLITS[name](seed), device_for(name, m)
    subset = classifier(m, "sd", seed, device=device, **steps_for(name))
    own = measured(subset, split)
    more = {f"pp_{key}": value for key, value in projected(m, subset, split).items()}
    return own | more | {"device": device}


def spgp_cell(name: str, m: int, seed: int) -> dict[str, Any]:
    device = device_for(name, m)
    made = classifier(m, "spgp", seed, device=device, **steps_for(name))
    return measured(made, SPLITS[name](seed)) | {"device": device}


def steps_for(name: str) -> dict[str, Any]:
    return {"max_iter": LONG} if name == "ecoli" else {}


def today_cell(name: str, m: int, seed: int) -> dict[str, Any]:
    """`SparseGPClassifier(m)` on the same rows."""
    return measured(SparseGPClassifier(m, random_state=seed, device="cpu"), SPLITS[name](seed))


def full_cell(name: str, seed: int) -> dict[str, Any]:
    """All rows, and the relevance of the inputs for each class: inverse length-scales of sum 1."""
    device = device_for(name, 10**9)
    model = classifier(1, "full", seed, device=device, **steps_for(name))
    found = measured(model, SPLITS[name](seed))
    inverse = np.atleast_2d(model.inverse_length_scales_)
    return found | {"device": device, "relevance": np.round(inverse / inverse.sum(1, keepdims=True), 5).tolist()}


# Inputs chosen


def alone_cell(seed: int) -> dict[str, Any]:
    """Section 5.3.1: a full model of one input alone, right on so many of its 200 training rows."""
    X, y = make_redundant_gaussians(200, random_state=seed)
    return {f"x{j + 1}": measured(classifier(1, "full", seed), _only(X, y, [j]))["accuracy"] for j in (0, 1, 2)}


def _only(X: np.ndarray, y: np.ndarray, inputs: Any) -> Split:
    return X[:, inputs], y, X[:, inputs], y


def scales_cell(seed: int, prior: float | None, approximation: str = "spgp") -> dict[str, Any]:
    """Table 5-3: length-scales of six inputs, in units of the inputs; SPGP of ten inducing inputs.

    The text has other models give much the same: the full one, SD of half of the rows and PP of ten inducing inputs.
    """
    X, y = make_redundant_gaussians(200, random_state=seed)
    model = classifier(100 if approximation == "sd" else 10, approximation, seed, length_scale_prior=prior).fit(X, y)
    return {"length_scales": (model.inputs_.scale / model.inverse_length_scales_).tolist()}


def alm_cell(seed: int) -> dict[str, Any]:
    """Section 5.3.2: E. coli by alm1 and alm2 alone, full model."""
    X, y, _, _ = ecoli()
    return measured(classifier(1, "full", seed), _only(X, y, [5, 6]))


def words_cell(seed: int, which: str) -> dict[str, Any]:
    """Section 5.3.4: SPGP of 256 on 13 words: the thesis', or the thirteen of most votes of three models."""
    X, y, X_test, y_test = spam(seed)
    names = load("spambase").info["features"]
    chosen = [names.index(word) for word in WORDS]
    if which == "voted":
        voters = [classifier(512, "sd", seed), classifier(64, "spgp", seed), classifier(64, "spgp", seed + 100)]
        chosen = np.flatnonzero(ARDSelector(voters, n_features_to_select=13).fit(X, y).get_support()).tolist()
    found = measured(classifier(256, "spgp", seed), (X[:, chosen], y, X_test[:, chosen], y_test))
    return found | {"words": [names[j] for j in chosen]}


def pixels_cell(seed: int) -> dict[str, Any]:
    """Section 5.3.5: SPGP of 512 on all pixels, then on the 105 and the 37 of largest relevance."""
    X, y, X_test, y_test = usps(seed)
    ranking, found = np.arange(256), {}
    for n in (256, 105, 37):
        chosen = np.sort(ranking[:n])
        model = classifier(512, "spgp", seed)
        cell = measured(model, (X[:, chosen], y, X_test[:, chosen], y_test))
        if n == 256:
            ranking = np.argsort(-model.inverse_length_scales_)
        found |= {f"{key}_{n}": value for key, value in cell.items()}
    return found | {"ranking": ranking.tolist()}


def boundary_models(
    seed: int, **budget: Any
) -> tuple[np.ndarray, np.ndarray, np.ndarray, dict[str, SparseGPClassifier]]:
    """Figures 5-1 to 5-4: 200 rows, ten of them as inducing inputs of all, all inputs standardised by the 200."""
    X, y = make_three_gaussians(200, random_state=seed)
    full = classifier(1, "full", seed, **budget).fit(X, y)
    Z = X[np.random.default_rng(seed).choice(200, 10, replace=False)]
    fixed: dict[str, Any] = {"kernel": full.kernel_, "optimize_inducing": False, "inducing": Z}
    models = {"full": full}
    for name in ("sd", "pp", "spgp"):
        models[name] = classifier(10, name, seed, **fixed).fit(X, y)
    return X, y, Z, models


def boundary_cell(seed: int) -> dict[str, Any]:
    """On 10 000 new rows: how often each model says what the full one says, and what Bayes' rule says."""
    *_, models = boundary_models(seed)
    new, _ = make_three_gaussians(10_000, random_state=10_000 + seed)
    said = {name: model.predict_proba(new)[:, 1] > 0.5 for name, model in models.items()}
    bayes = THREE_GAUSSIANS.posterior(new) > 0.5
    as_full = {f"{name}_as_full": 100 * float(np.mean(own == said["full"])) for name, own in said.items()}
    return as_full | {f"{name}_as_bayes": 100 * float(np.mean(own == bayes)) for name, own in said.items()}
