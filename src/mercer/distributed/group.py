"""The collectives: the only place where processes talk to each other, by torch.distributed.

gloo carries them between CPUs, NCCL between GPUs. Waiting has an end: a process that does not answer in time, or whose
connection breaks, ends the fit of all others with a sentence that names it. A process that works alone for longer tells
the others at intervals that it is at work. Where the group has a secret, messages are signed
(`mercer.distributed.signed`).
"""

from __future__ import annotations

import os
import pickle
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from mercer.data.group import Group
from mercer.distributed.signed import Signature

T = TypeVar("T")

#: Bytes of the head of a message, its length among them: what fits into it needs no second message.
HEAD, LENGTH = 256, 8
#: The head of a process that is still at work, and how often such heads are sent: so many times in a timeout.
AT_WORK, BEATS = b"\xff" * HEAD, 4
#: Connections to a store that may wait to be accepted.
BACKLOG = 1024
#: Seconds that those who noticed a loss wait for each other's word, to tell who is silent.
GRACE = 3.0


class LostProcessError(RuntimeError):
    """Some processes did not answer; `ranks` are theirs."""

    def __init__(self, sentence: str, ranks: list[int]) -> None:
        super().__init__(sentence, ranks)  # both, so that it can be sent to another process
        self.ranks = ranks

    def __str__(self) -> str:
        return self.args[0]


class ProcessGroup(Group):
    """Several processes, this one being number `rank` of `size`; `store` is where they found each other.

    `bytes` and `calls` count what this process sent into collectives, so that costs can be told. Where there is a
    `secret`, which all processes must have been given, what they read from each other and from the store is checked
    against it.
    """

    def __init__(
        self, rank: int, size: int, store: Any, timeout: float, backend: str = "gloo", secret: bytes | None = None
    ) -> None:
        import torch.distributed as dist

        self.rank, self.size, self.timeout, self.bytes, self.calls = rank, size, timeout, 0, 0
        self._leading, self._signature, self._messages = False, Signature(secret), 0
        if backend == "nccl":  # a lost process is then an error here, and not the end of this one without a word
            os.environ.setdefault("TORCH_NCCL_BLOCKING_WAIT", "1")
        # a device with its number: threads of their own begin with the first one
        self._wire = torch.device("cuda", torch.cuda.current_device()) if backend == "nccl" else torch.device("cpu")
        limit = timedelta(seconds=timeout)
        store.set_timeout(limit)
        self._store = store if secret is None else signed_store(store, self._signature)
        self._joined(limit)  # torch numbers its groups: one that failed to form would have another number next time
        dist.init_process_group(backend, store=self._store, rank=rank, world_size=size, timeout=limit)

    def _joined(self, limit: timedelta) -> None:
        """Wait until every process is there."""
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
            self._store.get(key)  # with the right signature, where there are any

    def close(self) -> None:
        """Leave the group."""
        import torch.distributed as dist

        if dist.is_initialized():
            dist.destroy_process_group()

    def __enter__(self) -> ProcessGroup:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def sum(self, value: Tensor) -> Tensor:
        if self._leading:
            return value
        import torch.distributed as dist

        sent = value.detach().to(self._wire, copy=True).contiguous()
        self._talk(lambda: dist.all_reduce(sent), sent)
        return sent.to(value.device)

    def sums(self, *values: Tensor) -> list[Tensor]:
        parts = self.sum(torch.cat([value.reshape(-1) for value in values])).split([value.numel() for value in values])
        return [part.reshape(value.shape) for part, value in zip(parts, values, strict=True)]

    def first(self, make: Callable[[], T]) -> T:
        if self.size == 1 or self._leading:  # what the first process asks while it works for all is its own affair
            return make()
        answer: Any = None
        body = b""
        if self.rank == 0:
            with self._at_work(lambda: self._firsts(_padded(AT_WORK, HEAD))):
                answer, body = self._answer(make)
        body = self._broadcast_bytes(body)
        if self.rank != 0:  # a function of the user's cannot be sent: then every process does the same work
            answer = pickle.loads(body) if body else self._answer(make)[0]
        made, error = answer
        if error is not None:
            raise error
        return made

    def share_work(self, n: int, make: Callable[[Sequence[int]], list[T]]) -> list[T]:
        if self.size == 1 or self._leading:
            return make(range(n))
        with self._at_work(lambda: self._everyones(_padded(AT_WORK, HEAD))):
            _, body = self._answer(lambda: make(range(self.rank, n, self.size)))
        bodies = self._gathered(body)
        if not all(bodies):  # a function of the user's cannot be sent: then every process does the same work
            made, error = self._answer(lambda: make(range(n)))[0]
            bodies = []
        else:
            answers = [pickle.loads(one) for one in bodies]
            error = next((error for _, error in answers if error is not None), None)
            made = [] if error is not None else [answers[k % self.size][0][k // self.size] for k in range(n)]
        if error is not None:
            raise error
        return made

    def _answer(self, make: Callable[[], T]) -> tuple[Any, bytes]:
        """What `make` gives or raises, and the same to be sent; nothing where that is impossible."""
        answer: Any
        self._leading = True
        try:
            answer = make(), None
        except Exception as failure:
            answer = None, failure
        finally:
            self._leading = False
        try:
            return answer, pickle.dumps(answer)
        except (pickle.PicklingError, AttributeError, TypeError):
            return answer, b""

    @contextmanager
    def _at_work(self, tell: Callable[[], Any]) -> Iterator[None]:
        """Meanwhile `tell` the processes that wait for this one, again and again, that it is at work.

        They wait for a head of the answer; each head they get instead starts their timeout anew. A process that is
        killed or stopped tells nothing.
        """
        done, failures = threading.Event(), []

        def beat() -> None:
            try:
                while not done.wait(self.timeout / BEATS):
                    tell()
            except LostProcessError as error:
                failures.append(error)

        thread = threading.Thread(target=beat, name="mercer-at-work", daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()
        if failures:
            raise failures[0]

    def broadcast(self, value: Tensor) -> Tensor:
        return value if self._leading else self._firsts(value)

    def _firsts(self, value: Tensor) -> Tensor:
        """The first process's tensor."""
        import torch.distributed as dist

        sent = value.detach().to(self._wire, copy=True).contiguous()
        self._talk(lambda: dist.broadcast(sent, 0), sent)
        return sent.to(value.device)

    def _everyones(self, value: Tensor) -> list[bytes]:
        """The bytes of all processes, as many of each."""
        import torch.distributed as dist

        sent = value.to(self._wire)
        found = [torch.empty_like(sent) for _ in range(self.size)]
        self._talk(lambda: dist.all_gather(found, sent), sent)
        return [one.cpu().numpy().tobytes() for one in found]

    def gather(self, thing: T) -> list[T]:
        if self._leading:
            return [thing]
        return [pickle.loads(body) for body in self._gathered(pickle.dumps(thing))]

    def _gathered(self, body: bytes) -> list[bytes]:
        """The bytes that each process brings, as soon as none is at work any more."""
        self._messages += 1
        mine = self._signature.signed(body, "gather", self._messages, self.rank)
        heads = self._everyones(_padded(_head(mine), HEAD))
        while AT_WORK in heads:
            heads = self._everyones(_padded(_head(mine), HEAD))
        lengths = [_length(head) for head in heads]
        rest = max(lengths) + LENGTH - HEAD
        tails = self._everyones(_padded(mine[HEAD - LENGTH :], rest)) if rest > 0 else [b""] * self.size
        found = [(head[LENGTH:] + tail)[:n] for head, tail, n in zip(heads, tails, lengths, strict=True)]
        return [self._signature.checked(one, "gather", self._messages, rank) for rank, one in enumerate(found)]

    def _broadcast_bytes(self, body: bytes) -> bytes:
        """The first process's bytes: in one message where they are few, in two where not."""
        self._messages += 1
        mine = self._signature.signed(body, "first", self._messages)
        head = AT_WORK
        while head == AT_WORK:
            head = self._firsts(_padded(_head(mine), HEAD)).cpu().numpy().tobytes()
        length = _length(head)
        rest = length + LENGTH - HEAD
        tail = self._firsts(_padded(mine[HEAD - LENGTH :], rest)).cpu().numpy().tobytes() if rest > 0 else b""
        return self._signature.checked((head[LENGTH:] + tail)[:length], "first", self._messages)

    def _talk(self, collective: Callable[[], Any], sent: Tensor) -> None:
        self.calls, self.bytes = self.calls + 1, self.bytes + sent.numel() * sent.element_size()
        began = time.monotonic()
        try:
            collective()
        except RuntimeError as error:
            silent = self._silent()
            waited = time.monotonic() - began
            names = ", ".join(str(rank) for rank in silent) or "unknown"
            raise LostProcessError(
                f"process {self.rank} of {self.size} waited {waited:.1f} s (timeout {self.timeout:g} s) in vain at its "
                f"collective {self.calls}; ranks that did not answer: {names}. A fit with checkpoint= goes on from its "
                "last learner when it is started again.",
                silent,
            ) from error

    def _silent(self) -> list[int]:
        """Ranks that say nothing, not even that they also wait in vain."""
        keys = {rank: f"mercer/waits/{rank}" for rank in range(self.size)}
        try:
            self._store.set(keys[self.rank], "in vain")
            end = time.monotonic() + min(GRACE, self.timeout)
            missing = [rank for rank in keys if not self._store.check([keys[rank]])]
            while missing and time.monotonic() < end:
                time.sleep(0.05)
                missing = [rank for rank in missing if not self._store.check([keys[rank]])]
            return missing
        except RuntimeError:  # the store itself is gone, and it lives with the first process
            return [0]


def _head(body: bytes) -> bytes:
    """The length of a message, and its beginning."""
    return len(body).to_bytes(LENGTH, "little") + body[: HEAD - LENGTH]


def _length(head: bytes) -> int:
    return int.from_bytes(head[:LENGTH], "little")


def _padded(body: bytes, size: int) -> Tensor:
    """Bytes as a tensor of so many; of what others send nothing is known but its size."""
    return torch.from_numpy(np.frombuffer(body[:size].ljust(size, b"\0"), dtype=np.uint8).copy())


def open_store(host: str, timeout: float = 600.0) -> Any:
    """A store at a free port of this address, where the processes of a group find each other.

    It lives as long as it is held. An address that no interface of this machine has, because a network translates it,
    cannot be listened at: then the store listens at all of them.
    """
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    limit = timedelta(seconds=timeout)
    listener = _listening(host)
    port = listener.getsockname()[1]
    store = TCPStore(
        host, port, is_master=True, wait_for_workers=False, timeout=limit, master_listen_fd=listener.fileno()
    )
    listener.detach()  # the store closes it
    return store


def _listening(host: str) -> socket.socket:
    """A socket that listens at a free port of `host`."""
    family, kind, protocol, _, address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
    listener = socket.socket(family, kind, protocol)
    try:
        try:
            listener.bind(address)
        except OSError:
            listener.bind(("", 0))
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


def signed_store(store: Any, signature: Signature) -> Any:
    """The store, whose values are signed by whoever sets them and checked by whoever gets them.

    gloo keeps the addresses of the processes there.
    """
    from torch.distributed import Store  # type: ignore[attr-defined]

    class SignedStore(Store):
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
    """The store that somebody else keeps."""
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    return TCPStore(host, port, is_master=False, timeout=timedelta(seconds=timeout))


def environment_store(rank: int, size: int, timeout: float) -> Any:
    """The store whose address the environment says, as `torchrun` sets it."""
    from torch.distributed.rendezvous import rendezvous

    store, _, _ = next(rendezvous("env://", rank, size, timeout=timedelta(seconds=timeout)))
    return store
