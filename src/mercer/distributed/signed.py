"""Signed messages between the processes of a fit: HMAC-SHA256 with a shared secret.

A message is unpickled, and an address of the store used, only after its signature was checked. The signature covers
the bytes and their purpose (which message, of which process), so that a message cannot be replayed as another one.
Nothing is encrypted.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from typing import Any

#: Bytes of a signature.
TAG = 32


class UntrustedMessageError(RuntimeError):
    """A message whose signature does not belong to the secret of the fit."""


@dataclass(frozen=True, repr=False)
class Signature:
    """Signs and checks messages by a `secret`; without one, they pass unchanged.

    >>> from mercer.distributed.signed import Signature
    >>> message = Signature(b"of this fit").signed(b"hello", "first", 3)
    >>> Signature(b"of this fit").checked(message, "first", 3)
    b'hello'
    >>> Signature(b"of another").checked(message, "first", 3)
    Traceback (most recent call last):
    mercer.distributed.signed.UntrustedMessageError: the message first/3 must be signed with the secret of this fit, ...
    """

    secret: bytes | None = None

    def signed(self, body: bytes, *purpose: Any) -> bytes:
        """Return the signature of the body and its purpose, followed by the body."""
        return body if self.secret is None else self._tag(body, purpose) + body

    def checked(self, message: bytes, *purpose: Any) -> bytes:
        """Return the body of a message; raise an error if it was not signed for this purpose with this secret."""
        if self.secret is None:
            return message
        tag, body = message[:TAG], message[TAG:]
        if not hmac.compare_digest(tag, self._tag(body, purpose)):
            raise UntrustedMessageError(
                f"the message {_name(purpose)} must be signed with the secret of this fit, got {len(message)} bytes "
                "with another signature: a process that does not belong to the fit can reach its connections"
            )
        return body

    def _tag(self, body: bytes, purpose: tuple[Any, ...]) -> bytes:
        assert self.secret is not None
        return hmac.digest(self.secret, _name(purpose).encode() + b"\0" + body, "sha256")


def _name(purpose: tuple[Any, ...]) -> str:
    return "/".join(map(str, purpose))
