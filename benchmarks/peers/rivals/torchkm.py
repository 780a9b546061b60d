"""TorchKM: support vector machine (two classes) or median regression, its penalty by its own cross-validation."""

from __future__ import annotations

from collections.abc import Iterator

from rivals import Given, OverLengths, Setting


def sweep(given: Given) -> Iterator[Setting]:
    """Low rank, since its exact solver holds the n × n kernel matrix; its σ = ¼ is our length 1."""
    from torchkm import TorchKMKQR, TorchKMSVC

    family = TorchKMKQR if given.task == "regression" else TorchKMSVC
    for landmarks in (300, 1000):
        options = {"nC": 8, "cv": 3, "device": given.device, "random_state": given.seed}
        model = family(rbf_sigma=0.25, low_rank=True, num_landmarks=landmarks, nys_k=landmarks, **options)
        yield Setting(f"low rank, {landmarks} landmarks", OverLengths(model, given), tuned=True)
