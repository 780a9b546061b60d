"""The collectives: the only place where processes talk to each other, by torch.distributed.

gloo carries them between CPUs, NCCL between GPUs. Waiting has an end: a process that does not answer in time, or whose
connection breaks, ends the fit of all others with a sentence that names it.
"""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from mercer.data.group import Group

T = TypeVar("T")

#: Bytes of the head of a message, its length among them: what fits into it needs no second message.
HEAD, LENGTH = 256, 8
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

    `bytes` and `calls` count what this process sent into collectives, so that costs can be told.
    """

    def __init__(self, rank: int, size: int, store: Any, timeout: float, backend: str = "gloo") -> None:
        import torch.distributed as dist

        self.rank, self.size, self.timeout, self.bytes, self.calls = rank, size, timeout, 0, 0
        self._leading = False
        if backend == "nccl":  # a lost process is then an error here, and not the end of this one without a word
            os.environ.setdefault("TORCH_NCCL_BLOCKING_WAIT", "1")
        self._wire = torch.device("cuda" if backend == "nccl" else "cpu")
        self._store, limit = store, timedelta(seconds=timeout)
        store.set_timeout(limit)
        self._joined(limit)  # torch numbers its groups: one that failed to form would have another number next time
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=limit)

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
        answer: Any
        answer, body = self._answer(make) if self.rank == 0 else (None, b"")
        body = self._broadcast(body)
        if self.rank != 0:  # a function of the user's cannot be sent: then every process does the same work
            answer = pickle.loads(body) if body else self._answer(make)[0]
        made, error = answer
        if error is not None:
            raise error
        return made

    def dealt(self, n: int, make: Callable[[Sequence[int]], list[T]]) -> list[T]:
        if self.size == 1 or self._leading:
            return make(range(n))
        _, body = self._answer(lambda: make(range(self.rank, n, self.size)))
        bodies = self.gather(body)
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

    def same(self, value: Tensor) -> Tensor:
        if self._leading:
            return value
        import torch.distributed as dist

        sent = value.detach().to(self._wire, copy=True).contiguous()
        self._talk(lambda: dist.broadcast(sent, 0), sent)
        return sent.to(value.device)

    def gather(self, thing: T) -> list[T]:
        if self._leading:
            return [thing]
        import torch.distributed as dist

        def everyones(bodies: Tensor) -> list[bytes]:
            sent = bodies.to(self._wire)
            found = [torch.empty_like(sent) for _ in range(self.size)]
            self._talk(lambda: dist.all_gather(found, sent), sent)
            return [one.cpu().numpy().tobytes() for one in found]

        mine = pickle.dumps(thing)
        heads = everyones(_padded(_head(mine), HEAD))
        lengths = [_length(head) for head in heads]
        rest = max(lengths) + LENGTH - HEAD
        tails = everyones(_padded(mine[HEAD - LENGTH :], rest)) if rest > 0 else [b""] * self.size
        bodies = [(head[LENGTH:] + tail)[:n] for head, tail, n in zip(heads, tails, lengths, strict=True)]
        return [pickle.loads(body) for body in bodies]

    def _broadcast(self, body: bytes) -> bytes:
        """The first process's bytes: in one message where they are few, in two where not."""
        head = self.same(_padded(_head(body), HEAD)).cpu().numpy().tobytes()
        length = _length(head)
        rest = length + LENGTH - HEAD
        if rest <= 0:
            return head[LENGTH : LENGTH + length]
        tail = self.same(_padded(body[HEAD - LENGTH :], rest))
        return head[LENGTH:] + tail.cpu().numpy().tobytes()

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
    """A store at a free port, where the processes of a group find each other; it lives as long as it is held."""
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    return TCPStore(host, 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=timeout))


def reach_store(host: str, port: int, timeout: float) -> Any:
    """The store that somebody else keeps."""
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    return TCPStore(host, port, is_master=False, timeout=timedelta(seconds=timeout))


def environment_store(rank: int, size: int, timeout: float) -> Any:
    """The store whose address the environment says, as `torchrun` sets it."""
    from torch.distributed.rendezvous import rendezvous

    store, _, _ = next(rendezvous("env://", rank, size, timeout=timedelta(seconds=timeout)))
    return store
