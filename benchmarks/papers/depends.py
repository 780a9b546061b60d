"""The source that a cell depends on: the functions that ran while its kind was measured, and a digest of their code.

The digest also sees constants of modules and fields of classes that these functions name. It does not see what cannot
change a result: comments, docstrings, annotations, and what an error says (a cell that has a result met none, or caught
it by its class), nor in which module a function lies. Cells whose functions have another digest today are marked.
"""

from __future__ import annotations

import ast
import hashlib
import sys
import threading
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

ROOT = Path(__file__).parents[2]
#: Parts that measure and report; no result depends on them.
MACHINERY = tuple(f"benchmarks/papers/{name}.py" for name in ("depends", "measure", "run", "judge", "pages", "rows"))


def functions_of(function: Callable[..., Any], arguments: tuple[Any, ...]) -> list[str]:
    """Run a function, and name the functions of this repository that were called, as "module.py:Class.name"."""
    return traced(function, arguments)[1]


def traced(function: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[Any, list[str]]:
    """What a function returns, and the functions that it called."""
    codes: set[CodeType] = set()

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            codes.add(frame.f_code)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        result = function(*arguments)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
    own = (str(ROOT / "src" / "mercer"), str(ROOT / "benchmarks" / "papers"))
    found = set()
    for code in codes:
        if code.co_filename.startswith(own) and not code.co_qualname.startswith("<"):
            module = Path(code.co_filename).resolve().relative_to(ROOT).as_posix()
            found.add(f"{module}:{code.co_qualname.split('.<locals>')[0]}")
    return result, sorted(name for name in found if not name.startswith(MACHINERY))


@cache
def digest(functions: tuple[str, ...]) -> str:
    """The first digits of a digest of functions and of what they name; a function that is gone changes it.

    >>> digest(()) == digest(("benchmarks/papers/gone.py:f",))
    False
    """
    classes: dict[str, set[str]] = {}
    parts, names = set(), set()
    for name in functions:
        qualified = name.partition(":")[2]
        module = _module_of(name)
        node = _parsed(module)[0].get(qualified)
        classes.setdefault(module, set()).add(qualified.rpartition(".")[0])
        parts.add(f"{qualified} gone" if node is None else f"{qualified} {_text(node)}")
        names |= set() if node is None else _names(node)
    for module, owners in classes.items():
        for owner, target, text in _parsed(module)[1]:
            if target in names and (not owner or owner in owners):
                parts.add(f"{owner}.{target} {text}")
    return hashlib.sha1("\n".join(sorted(parts)).encode()).hexdigest()[:10]


def _module_of(name: str) -> str:
    """The module of a function: the one that its name has, or the only other one if it has moved there."""
    module, _, qualified = name.partition(":")
    if qualified in _parsed(module)[0]:
        return module
    others = [other for other in _modules(ROOT) if qualified in _parsed(other)[0]]
    return others[0] if len(others) == 1 else module


@cache
def _modules(root: Path) -> list[str]:
    found = [path for part in ("src/mercer", "benchmarks/papers") for path in (root / part).rglob("*.py")]
    return sorted(path.relative_to(root).as_posix() for path in found)


@cache
def _parsed(module: str) -> tuple[dict[str, ast.AST], list[tuple[str, str, str]]]:
    """Functions of a module by qualified name; and its assignments as owner (a class or nothing), target and text."""
    path = ROOT / module
    if not path.exists():
        return {}, []
    functions: dict[str, ast.AST] = {}
    assignments: list[tuple[str, str, str]] = []

    def visit(body: list[ast.stmt], owner: str) -> None:
        for node in body:
            if isinstance(node, ast.FunctionDef):
                functions[f"{owner}.{node.name}".lstrip(".")] = node
            elif isinstance(node, ast.ClassDef):
                visit(node.body, f"{owner}.{node.name}".lstrip("."))
            elif isinstance(node, ast.Assign | ast.AnnAssign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                for target in (n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)):
                    assignments.append((owner, target, _text(node)))

    visit(ast.parse(path.read_text(encoding="utf-8")).body, "")
    return functions, assignments


def _text(node: ast.AST) -> str:
    """The tokens of a node without docstrings, annotations and messages, alike in all versions of Python."""
    return " ".join(_tokens(node))


def _tokens(node: ast.AST) -> Iterator[str]:
    body = getattr(node, "body", None)
    skipped = body[0] if isinstance(node, ast.FunctionDef) and body and _is_text(body[0]) else None
    yield type(node).__name__
    if isinstance(node, ast.Raise):
        node = node.exc.func if isinstance(node.exc, ast.Call) else node
    for name, value in ast.iter_fields(node):
        if name in ("type_params", "kind", "type_comment", "ctx", "annotation", "returns"):
            continue
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, ast.AST):
                yield from () if part is skipped else _tokens(part)
            elif part is not None:
                yield repr(part)


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


@cache
def _names(node: ast.AST) -> frozenset[str]:
    """Names and attributes that occur in a function."""
    nodes = list(ast.walk(node))
    names = {n.id for n in nodes if isinstance(n, ast.Name)} | {n.attr for n in nodes if isinstance(n, ast.Attribute)}
    return frozenset(names)
