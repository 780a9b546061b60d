"""Fitted models as ONNX graphs; `onnx` is imported by the functions that need it."""
