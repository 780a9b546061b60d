"""Where pictures are drawn: the axes that were given, or new ones."""

from __future__ import annotations

from typing import Any


def axes(ax: Any, width: float = 5.0, height: float = 3.4) -> Any:
    """These axes, or new ones of this size in inches; Matplotlib is imported here and nowhere else."""
    if ax is not None:
        return ax
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        raise ImportError("pictures are drawn by Matplotlib: pip install 'mercer[plots]'") from None
    return plt.subplots(figsize=(width, height), layout="constrained")[1]
