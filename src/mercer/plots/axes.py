"""Where pictures are drawn: the axes that were given, or new ones."""

from __future__ import annotations

from typing import Any


def axes(ax: Any, height: float = 3.4) -> Any:
    """These axes, or new ones five inches wide and so many high; Matplotlib is imported here and nowhere else."""
    if ax is not None:
        return ax
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        raise ImportError("pictures are drawn by Matplotlib: pip install 'mercer[plots]'") from None
    return plt.subplots(figsize=(5.0, height), layout="constrained")[1]
