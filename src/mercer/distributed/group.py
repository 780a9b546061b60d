"""Collectives of several processes, by torch.distributed: the only module in which processes communicate.

The backend is gloo between CPUs and NCCL between GPUs. Every wait has a timeout: a process that does not answer in
time, or whose connection breaks, ends the fit of all others with an error that names it. A process that computes alone
for longer sends heartbeats. If the group has a secret, messages are signed.
"""

from __future__ import annotations

import hmac
import os
import pickle
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from mercer.data.shard import Group

T = TypeVar("T")

#: Bytes of the head of a message, and of the length at its beginning; a short message fits into the head.
HEAD, LENGTH = 256, 8
#: The head that a computing process sends instead, and the number of heartbeats in a timeout.
HEARTBEAT, BEATS = b"\xff" * HEAD, 4
#: Connections to a store that may wait to be accepted.
BACKLOG = 1024
#: Seconds that processes wait for each other's report after a loss, to find out who is silent.
GRACE = 3.0
#: Bytes of a signature.
TAG = 32


class LostProcessError(RuntimeError):
    """Processes did not answer; `ranks` are theirs."""

    def __init__(self, sentence: str, ranks: list[int]) -> None:
        super().__init__(sentence, ranks)  # both, so that it can be pickled
        self.ranks = ranks

    def __str__(self) -> str:
        return self.args[0]


class ProcessGroup(Group):
    """Several processes; this one has number `rank` of `size`, and they meet at `store`.

    `bytes` and `calls` count what this process sent into collectives. With a `secret`, which all processes must share,
    messages and values of the store are signed and checked.
    """

    def __init__(
        self, rank: int, size: int, store: Any, timeout: float, backend: str = "gloo", secret: bytes | None = None
    ) -> None:
        self.rank = rank
        self.size = size
        self.timeout = timeout
        self.bytes = self.calls = 0
        self._alone = False  # while this process computes something by itself
        self._signature = Signature(secret)
        self._messages = 0
        if backend == "nccl":  # a lost process then raises an error here, instead of aborting this process
            os.environ.setdefault("TORCH_NCCL_BLOCKING_WAIT", "1")
        # with its number: a new thread starts with device 0
        self._device = torch.device("cuda", torch.cuda.current_device()) if backend == "nccl" else torch.device("cpu")
        limit = timedelta(seconds=timeout)
        store.set_timeout(limit)
        self._store = store if secret is None else signed_store(store, self._signature)
        self._wait_for_all(limit)  # before torch numbers the group: a failed attempt would shift the numbers
        dist.init_process_group(backend, store=self._store, rank=rank, world_size=size, timeout=limit)

    def _wait_for_all(self, limit: timedelta) -> None:
        """Wait until every process has joined."""
        keys = [f"mercer/joins/{rank}" for rank in range(self.size)]
        self._store.set(keys[self.rank], "here")
        try:
            self._store.wait(keys, limit)
        except RuntimeError as error:
            missing = [rank for rank, key in enumerate(keys) if not self._store.check([key])]
            raise LostProcessError(
                f"process {self.rank} of {self.size} waited {self.timeout:g} s (timeout) for others that did not join; "
                f"their ranks: {', '.join(map(str, missing))}.",
                missing,
            ) from error
        for key in keys:
            self._store.get(key)  # checks the signature

    def close(self) -> None:
        """Leave the group."""
        if dist.is_initialized():
            dist.destroy_process_group()

    def __enter__(self) -> ProcessGroup:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def sum(self, value: Tensor) -> Tensor:
        if self._alone:
            return value
        sent = value.detach().to(self._device, copy=True).contiguous()
        self._run(lambda: dist.all_reduce(sent), sent)
        return sent.to(value.device)

    def sums(self, *values: Tensor) -> list[Tensor]:
        parts = self.sum(torch.cat([value.reshape(-1) for value in values])).split([value.numel() for value in values])
        return [part.reshape(value.shape) for part, value in zip(parts, values, strict=True)]

    def first(self, make: Callable[[], T]) -> T:
        if self.size == 1 or self._alone:
            return make()
        answer: Any = None
        body = b""
        if self.rank == 0:
            with self._heartbeats(lambda: self._broadcast(_padded(HEARTBEAT, HEAD))):
                answer, body = self._call(make)
        body = self._broadcast_bytes(body)
        if self.rank != 0:  # a result that cannot be pickled is computed by every process
            answer = pickle.loads(body) if body else self._call(make)[0]
        made, error = answer
        if error is not None:
            raise error
        return made

    def share_work(self, n: int, make: Callable[[Sequence[int]], list[T]]) -> list[T]:
        if self.size == 1 or self._alone:
            return make(range(n))
        with self._heartbeats(lambda: self._all_gather(_padded(HEARTBEAT, HEAD))):
            _, body = self._call(lambda: make(range(self.rank, n, self.size)))
        bodies = self._gather_bytes(body)
        if not all(bodies):  # a result that cannot be pickled is computed by every process
            made, error = self._call(lambda: make(range(n)))[0]
        else:
            answers = [pickle.loads(body) for body in bodies]
            error = next((error for _, error in answers if error is not None), None)
            made = [] if error is not None else [answers[k % self.size][0][k // self.size] for k in range(n)]
        if error is not None:
            raise error
        return made

    def _call(self, make: Callable[[], T]) -> tuple[Any, bytes]:
        """Call `make` by itself; return (result, error), and both pickled, or no bytes where that is impossible."""
        answer: Any
        self._alone = True
        try:
            answer = make(), None
        except Exception as failure:
            answer = None, failure
        finally:
            self._alone = False
        try:
            return answer, pickle.dumps(answer)
        except (pickle.PicklingError, AttributeError, TypeError):
            return answer, b""

    @contextmanager
    def _heartbeats(self, send: Callable[[], Any]) -> Iterator[None]:
        """Send heartbeats to the processes that wait for this one, as long as the context lasts.

        They wait for the head of a message; each heartbeat restarts their timeout. A process that was killed or
        stopped sends none.
        """
        done, failures = threading.Event(), []

        def beat() -> None:
            try:
                while not done.wait(self.timeout / BEATS):
                    send()
            except LostProcessError as error:
                failures.append(error)

        thread = threading.Thread(target=beat, name="mercer-heartbeat", daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()
        if failures:
            raise failures[0]

    def broadcast(self, value: Tensor) -> Tensor:
        return value if self._alone else self._broadcast(value)

    def _broadcast(self, value: Tensor) -> Tensor:
        """Return the tensor of the first process."""
        sent = value.detach().to(self._device, copy=True).contiguous()
        self._run(lambda: dist.broadcast(sent, 0), sent)
        return sent.to(value.device)

    def _all_gather(self, value: Tensor) -> list[bytes]:
        """Return the bytes of all processes, the same number from each."""
        sent = value.to(self._device)
        found = [torch.empty_like(sent) for _ in range(self.size)]
        self._run(lambda: dist.all_gather(found, sent), sent)
        return [received.cpu().numpy().tobytes() for received in found]

    def gather(self, thing: T) -> list[T]:
        if self._alone:
            return [thing]
        return [pickle.loads(body) for body in self._gather_bytes(pickle.dumps(thing))]

    def _gather_bytes(self, body: bytes) -> list[bytes]:
        """Return the bytes of each process."""
        self._messages += 1
        message = self._signature.signed(body, "gather", self._messages, self.rank)
        found = _exchange(message, self._all_gather)
        return [self._signature.checked(body, "gather", self._messages, rank) for rank, body in enumerate(found)]

    def _broadcast_bytes(self, body: bytes) -> bytes:
        """Return the bytes of the first process."""
        self._messages += 1
        message = self._signature.signed(body, "first", self._messages)
        (found,) = _exchange(message, lambda sent: [self._broadcast(sent).cpu().numpy().tobytes()])
        return self._signature.checked(found, "first", self._messages)

    def _run(self, collective: Callable[[], Any], sent: Tensor) -> None:
        """Run a collective; if it fails, raise an error that names the silent processes."""
        self.calls += 1
        self.bytes += sent.numel() * sent.element_size()
        began = time.monotonic()
        try:
            collective()
        except RuntimeError as error:
            silent = self._silent_ranks()
            waited = time.monotonic() - began
            names = ", ".join(str(rank) for rank in silent) or "unknown"
            raise LostProcessError(
                f"process {self.rank} of {self.size} waited {waited:.1f} s (timeout {self.timeout:g} s) in vain at its "
                f"collective {self.calls}; ranks that did not answer: {names}. A fit with checkpoint= goes on from its "
                "last learner when it is started again.",
                silent,
            ) from error

    def _silent_ranks(self) -> list[int]:
        """Return the ranks that do not even report that they wait in vain."""
        keys = {rank: f"mercer/waits/{rank}" for rank in range(self.size)}
        try:
            self._store.set(keys[self.rank], "in vain")
            end = time.monotonic() + min(GRACE, self.timeout)
            missing = [rank for rank in keys if not self._store.check([keys[rank]])]
            while missing and time.monotonic() < end:
                time.sleep(0.05)
                missing = [rank for rank in missing if not self._store.check([keys[rank]])]
            return missing
        except RuntimeError:  # the store is lost, and it belongs to the first process
            return [0]


def _exchange(message: bytes, send: Callable[[Tensor], list[bytes]]) -> list[bytes]:
    """Exchange messages of any length: heads of a fixed size, then the rest where a message is longer.

    Heads are sent again as long as a process sends heartbeats instead.
    """
    beginning = _padded(len(message).to_bytes(LENGTH, "little") + message[: HEAD - LENGTH], HEAD)
    heads = send(beginning)
    while HEARTBEAT in heads:
        heads = send(beginning)
    lengths = [int.from_bytes(head[:LENGTH], "little") for head in heads]
    rest = max(lengths) + LENGTH - HEAD
    tails = send(_padded(message[HEAD - LENGTH :], rest)) if rest > 0 else [b""] * len(heads)
    return [(head[LENGTH:] + tail)[:length] for head, tail, length in zip(heads, tails, lengths, strict=True)]


def _padded(body: bytes, size: int) -> Tensor:
    """Convert bytes to a tensor of a size that all processes know."""
    return torch.from_numpy(np.frombuffer(body[:size].ljust(size, b"\0"), dtype=np.uint8).copy())


def open_store(host: str, timeout: float = 600.0) -> Any:
    """Open a store at a free port of this address, where the processes of a group meet.

    It lives as long as it is referenced. If no interface of this machine has the address, because a network translates
    it, the store listens at all interfaces.
    """
    limit = timedelta(seconds=timeout)
    listener = _listening(host)
    port = listener.getsockname()[1]
    store = dist.TCPStore(  # type: ignore[attr-defined]
        host, port, is_master=True, wait_for_workers=False, timeout=limit, master_listen_fd=listener.fileno()
    )
    listener.detach()  # the store closes it
    return store


def _listening(host: str) -> socket.socket:
    """Return a socket that listens at a free port of `host`."""
    family, *_, address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
    try:
        return socket.create_server(address, family=family, backlog=BACKLOG)
    except OSError:
        return socket.create_server(("", 0), family=family, backlog=BACKLOG)


def signed_store(store: Any, signature: Signature) -> Any:
    """Wrap a store: values are signed when set and checked when read.

    gloo keeps the addresses of the processes there.
    """

    class SignedStore(dist.Store):  # type: ignore[name-defined]
        def set(self, key: str, value: Any) -> None:
            body = value.encode() if isinstance(value, str) else bytes(value)
            store.set(key, signature.signed(body, "store", key))

        def get(self, key: str) -> bytes:
            return signature.checked(store.get(key), "store", key)

        def multi_get(self, keys: list[str]) -> list[bytes]:
            return [self.get(key) for key in keys]

        def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:
            store.wait(keys, *(() if timeout is None else (timeout,)))

        def check(self, keys: list[str]) -> bool:
            return bool(store.check(keys))

        def add(self, key: str, amount: int) -> int:
            return int(store.add(key, amount))

        def delete_key(self, key: str) -> bool:
            return bool(store.delete_key(key))

        def set_timeout(self, timeout: timedelta) -> None:
            store.set_timeout(timeout)

    return SignedStore()


def reach_store(host: str, port: int, timeout: float) -> Any:
    """Connect to the store of another process."""
    limit = timedelta(seconds=timeout)
    return dist.TCPStore(host, port, is_master=False, timeout=limit)  # type: ignore[attr-defined]


def environment_store(rank: int, size: int, timeout: float) -> Any:
    """Connect to the store whose address `torchrun` sets in the environment."""
    from torch.distributed.rendezvous import rendezvous

    store, _, _ = next(rendezvous("env://", rank, size, timeout=timedelta(seconds=timeout)))
    return store


class UntrustedMessageError(RuntimeError):
    """A message whose signature does not belong to the secret of the fit."""


@dataclass(frozen=True, repr=False)
class Signature:
    """Signs and checks messages by a `secret`; without one, they pass unchanged.

    Messages have an HMAC-SHA256. One is unpickled, and an address of the store used, only after its signature was
    checked. The signature covers the bytes and their purpose (which message, of which process), so that a message
    cannot be replayed as another one. Nothing is encrypted.
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
