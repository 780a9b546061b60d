"""Documentation where it belongs: a parameter is explained by the class that declares it, and shown by every face.

The docstring of a face is its own, with the parameters and attributes that its bases explain set in.
"""

from __future__ import annotations

import inspect
import re

#: Sections whose entries are inherited, in the order numpydoc wants them.
INHERITED = ("Parameters", "Attributes")


def explained(cls: type) -> str:
    """The docstring of `cls` with what its bases say of their parameters and attributes, its own words first.

    >>> class Base:
    ...     '''A base.
    ...
    ...     Parameters
    ...     ----------
    ...     speed : float
    ...         How fast.
    ...     '''
    >>> class Car(Base):
    ...     '''A car.'''
    >>> print(explained(Car))
    A car.
    <BLANKLINE>
    Parameters
    ----------
    speed : float
        How fast.
    """
    summary, own = _sections(cls.__doc__ or "")
    bases = [_sections(base.__dict__.get("__doc__") or "")[1] for base in cls.__mro__[1:]]
    known: dict[str, str] = {}
    for title in INHERITED:
        entries: dict[str, str] = {}
        for body in (one.get(title, "") for one in (own, *bases)):
            for name, text in _entries(body).items():
                entries.setdefault(name, text)
        if entries:
            known[title] = "\n".join(entries.values())
    rest = {title: body for title, body in own.items() if title not in INHERITED}
    parts = [f"{title}\n{'-' * len(title)}\n{body}" for title, body in (known | rest).items()]
    return "\n\n".join([summary, *parts])


def _sections(doc: str) -> tuple[str, dict[str, str]]:
    """What stands before the first headline, and the text under each."""
    pieces = re.split(r"^([A-Z][A-Za-z ]*)\n-+\n", inspect.cleandoc(doc), flags=re.MULTILINE)
    return pieces[0].strip(), {title: body.strip("\n") for title, body in zip(pieces[1::2], pieces[2::2], strict=True)}


def _entries(body: str) -> dict[str, str]:
    """The entries of a section by name: a line without indent, and what is indented under it."""
    found = re.findall(r"^\S.*(?:\n(?:[ \t].*|)(?=\n|$))*", body, flags=re.MULTILINE)
    return {entry.split(":")[0].split("(")[0].strip(): entry.rstrip() for entry in found}
