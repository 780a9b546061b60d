"""Objects of this package as JSON and arrays, and back: one codec for model files and checkpoints."""

from mercer.codec.tree import Decoder, Encoder, NotEncodableError

__all__ = ["Decoder", "Encoder", "NotEncodableError"]
