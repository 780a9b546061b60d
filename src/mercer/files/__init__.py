"""Fitted models as files: `save`, `load`, `describe` and `to_onnx`."""

from mercer.files.load import describe, load
from mercer.files.onnx.export import to_onnx
from mercer.files.save import save

__all__ = ["describe", "load", "save", "to_onnx"]
