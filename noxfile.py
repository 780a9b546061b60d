#!/usr/bin/env -S uv run --script
# /// script
# dependencies = ["nox>=2025.2.9"]
# ///
"""The commands of the Makefile for machines without make: `pip install nox`, then `nox -s tests`."""

from __future__ import annotations

import nox

nox.needs_version = ">=2025.2.9"
nox.options.default_venv_backend = "uv|virtualenv"
CONSTRAINTS = ("--constraint", "constraints.txt")


def install(session: nox.Session, extra: str) -> None:
    """Install torch first, as pinned, then the package with an extra."""
    session.install(*CONSTRAINTS, "torch")
    session.install(*CONSTRAINTS, "--editable", f".[{extra}]")


@nox.session
def check(session: nox.Session) -> None:
    """Lint, format, types, layers and spelling."""
    install(session, "dev")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("mypy")
    session.run("lint-imports")
    session.run("codespell")


@nox.session
def tests(session: nox.Session) -> None:
    """All tests but long ones and those of clusters."""
    install(session, "dev")
    command = ("python", "-m", "pytest", "-n", "2", "--dist", "worksteal", *session.posargs)
    session.run(*command, env={"OMP_NUM_THREADS": "1"})


@nox.session(default=False)
def demo(session: nox.Session) -> None:
    """The demonstration of the README."""
    install(session, "dev")
    session.run("python", "examples/demo.py")


@nox.session(default=False)
def build(session: nox.Session) -> None:
    """Build wheel and source distribution, and check them."""
    session.install("build", "twine", "check-wheel-contents")
    session.run("python", "-m", "build")
    session.run("twine", "check", "--strict", "dist/*")
    session.run("check-wheel-contents", "dist")


if __name__ == "__main__":
    nox.main()
