"""The command line, ``mercer``."""

from mercer.cli.commands import BROKEN, DONE, INTERRUPTED, REFUSED, main

__all__ = ["BROKEN", "DONE", "INTERRUPTED", "REFUSED", "main"]
