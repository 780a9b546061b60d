"""Writes the page of all public names: `python docs/api_pages.py FILE`, before the site is built.

The lists come from `__all__`, so that a name cannot be forgotten; groups follow the packages that names live in.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from pathlib import Path
from types import ModuleType

import mercer

#: Where a public name of `mercer` lives, and what its group is called; the first that fits.
GROUPS = {
    "mercer.forward": "Boosting, greedy selection, metrics",
    "mercer.gp": "Gaussian processes",
    "mercer.mixture": "Mixtures of local experts",
    "mercer.empirical": "Several empirical kernels",
    "mercer.selection": "Tuning",
    "mercer": "Reports, explanations, files",
}
#: Modules whose own lists are public too.
MODULES = {
    "mercer.kernels": "Kernels",
    "mercer.losses": "Losses",
    "mercer.data": "Row sources",
    "mercer.datasets": "Data sets",
    "mercer.distributed": "Several processes",
    "mercer.distributed.dask": "Dask",
    "mercer.plots": "Plots",
}


def names_of(module: ModuleType) -> list[str]:
    """Its public classes and functions: those it lists, else those it defines."""
    listed = getattr(module, "__all__", None)
    if listed is None:
        own = {
            name: value for name, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__
        }
        listed = sorted(name for name in own if not name.startswith("_"))
    return [
        name for name in listed if inspect.isclass(getattr(module, name)) or inspect.isfunction(getattr(module, name))
    ]


def table(title: str, module: str, names: list[str]) -> str:
    """A headline and the summary of some names, classes and functions each with their template."""
    text = f"{title}\n{'-' * len(title)}\n\n.. currentmodule:: {module}\n\n"
    found = importlib.import_module(module)
    for template, chosen in (
        ("class", [name for name in names if inspect.isclass(getattr(found, name))]),
        ("function", [name for name in names if not inspect.isclass(getattr(found, name))]),
    ):
        if chosen:
            lines = "\n".join(f"   {name}" for name in chosen)
            text += f".. autosummary::\n   :toctree: api\n   :template: {template}.rst\n\n{lines}\n\n"
    return text


def page() -> str:
    """The whole page."""
    groups: dict[str, list[str]] = {}
    for name in mercer.__all__:
        home = getattr(mercer, name).__module__
        groups.setdefault(next(one for one in GROUPS if home.startswith(one)), []).append(name)
    text = "API reference\n=============\n\nEvery public class and function, by subject.\n\n"
    text += "".join(table(title, "mercer", sorted(groups[one])) for one, title in GROUPS.items() if one in groups)
    for one, title in MODULES.items():
        names = names_of(importlib.import_module(one)) if present(one) else []
        text += table(title, one, names) if names else ""
    return text


def present(module: str) -> bool:
    """Whether a module and all that it needs are there."""
    try:
        importlib.import_module(module)
    except ImportError:
        return False
    return True


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), encoding="utf-8")
