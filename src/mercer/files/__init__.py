"""Fitted models as files: `save`, `load` and `describe`."""

from mercer.files.load import describe, load
from mercer.files.save import save

__all__ = ["describe", "load", "save"]
