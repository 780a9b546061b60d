"""A fit that survives its process: after each learner what cannot be found again is written to a folder.

That is little: the rows and weights of every learner, the kernels chosen, and the state of the random numbers. Values
of the model at the rows are not kept, whoever holds them: a fit that goes on lets the learners be absorbed once more,
at one product with the kernel each, by the very code that absorbed them first. So it ends with the model of an
undisturbed fit, on any number of processes. Files hold numbers and names only, and are replaced whole or not at all.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from torch import Tensor

from mercer.atomic_write import write_atomically
from mercer.base.parameters import FOLDER, NONE
from mercer.codec import Decoder, Encoder, NotEncodableError
from mercer.data import Group
from mercer.forward.absorb import Block
from mercer.forward.learners import Learner
from mercer.forward.span import Functions
from mercer.forward.warm_start import hashed
from mercer.parts import component, require
from mercer.preprocessing.read import TableData

#: Raised when files change so that other versions cannot read them.
FORMAT = 3
#: Parameters that may differ between the fit that wrote a checkpoint and the one that goes on from it.
FREE = ("checkpoint", "device", "memory_limit")
#: What the state of a fit consists of.
STATE = ("rng", "choice", "grown", "states", "keys")
#: What is asked of a folder that cannot be read.
WHOLE = "a checkpoint that is whole; remove the folder to begin anew"
#: Writing takes at most about this share of the time.
SHARE = 0.05


@component
class Resumed(Learner):
    """The learners of an earlier fit, then those of `learner`; random numbers go on where that fit left them."""

    learner: Learner
    kept: list[Any] = field(default_factory=list)
    state: Any = None

    def next(self, block: Block, step: int, rng: np.random.Generator) -> Functions | None:
        if step >= len(self.kept):
            return self.learner.next(block, step, rng)
        index, A = (torch.as_tensor(one, device=block.f.device) for one in self.kept[step])
        index = block.inside(index)
        if step + 1 == len(self.kept):
            rng.bit_generator.state = self.state
        K = block.problem.matrix(block.problem.basis(index))
        return Functions(index, A, K.product(A).T.contiguous())


@dataclass
class Checkpoint:
    """The state of a fit in a folder; `grown` are rows and weights of every learner, member by member.

    Stages and further models are members like the first, in the order in which they were begun; what `keys` say of
    their kernels must be said again when they are, else they are grown anew.
    """

    folder: Path
    group: Group
    seen: dict[str, Any]
    rng_state: Any
    choice: Any = None
    grown: list[list[tuple[np.ndarray, np.ndarray]]] = field(default_factory=list)
    states: list[Any] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    _next: float = 0.0
    _followed: int = 0

    @classmethod
    def open(cls, folder: Any, group: Group, seen: dict[str, Any], rng: np.random.Generator) -> Checkpoint:
        """The checkpoint of this fit, begun anew where the folder has none; that of another fit is refused."""
        path = Path(folder)
        found = group.first(lambda: _read(path, seen))
        if found is None:
            return cls(path, group, seen, rng.bit_generator.state)
        rng.bit_generator.state = found["rng"]
        return cls(path, group, seen, found["rng"], found["choice"], found["grown"], found["states"], found["keys"])

    def chosen(self, choose: Callable[[], Any], rng: np.random.Generator) -> Any:
        """The members of an earlier fit, or those chosen now."""
        if self.choice is not None:
            choice, rng.bit_generator.state = self.choice
            return choice
        choice = replace(choose(), begun=None)  # its learners are to be kept from the first one on
        self.choice = choice, rng.bit_generator.state
        return choice

    def follow(self, fit: Any) -> None:
        """Let the next fit begin with the learners kept for it, and keep those that it adds."""
        if not fit.learner.resumes:
            return
        place, rng, self._followed = self._followed, fit.rng, self._followed + 1
        key = _text((fit.problem.kernel, fit.problem.lam))
        if place < len(self.keys) and self.keys[place] != key:  # time or rounding led elsewhere
            del self.grown[place:], self.states[place:], self.keys[place:]
        if place == len(self.grown):
            self.grown.append([])
            self.states.append(None)
            self.keys.append(key)
        if self.grown[place]:
            fit.learner = Resumed(fit.learner, list(self.grown[place]), self.states[place])

        def after(now: Any) -> None:
            if now.n_steps <= len(self.grown[place]):
                return
            term = (now.current or now.blocks[-1]).terms[-1]
            self.grown[place].append((_host(term.index), _host(term.A)))
            self.states[place] = rng.bit_generator.state
            self.group.first(self._write_in_time)

        fit.keeper = after

    def _write_in_time(self) -> None:
        began = time.monotonic()
        if began >= self._next:
            self.write()
            self._next = time.monotonic() + (time.monotonic() - began) / SHARE

    def finish(self) -> None:
        """Write what has come since the folder was last written."""
        self.group.first(self.write)

    def write(self) -> None:
        """Replace what the folder holds, in one step: until then, and where that fails, the old state stands."""
        encoder = Encoder()
        state = {"rng": self.rng_state, "states": self.states, "grown": self.grown, "keys": self.keys}
        encoded = {name: encoder.encode(value, name) for name, value in state.items()}
        try:
            encoded["choice"] = encoder.encode(self.choice, "the kernel")
        except NotEncodableError:  # a function of the user's: it is given again, and what was tuned is tuned again
            encoded["choice"] = None
        memory = io.BytesIO()
        np.savez(memory, **encoder.arrays)  # type: ignore[arg-type]
        body = memory.getvalue()
        digest = hashlib.sha256(body).hexdigest()
        name = f"learners-{digest[:16]}.npz"
        head = {"format": FORMAT, "arrays": name, "sha256": digest, "seen": self.seen, "state": encoded}
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_atomically(self.folder / name, lambda file: file.write(body))
            write_atomically(self.folder / "fit.json", lambda file: file.write(json.dumps(head).encode()))
        except OSError as error:
            raise OSError(
                f"the checkpoint in {self.folder} could not be written ({error}); what was written before stands"
            ) from error
        for old in self.folder.glob("learners-*.npz"):
            if old.name != name:
                old.unlink(missing_ok=True)


def fingerprint(
    face: Any, given: TableData, targets: np.ndarray, X_val: Any, y_val: Any, free: tuple[str, ...]
) -> dict[str, Any]:
    """Rows, targets, weights and settings, as text that does not depend on which process holds which rows."""
    numbers = given.shard.global_indices(np.arange(given.rows.n_rows))
    rows = np.zeros(1, dtype=np.uint64)
    for start, block in given.rows.blocks(1 << 16):
        rows += _hashes(block.cpu().numpy(), numbers[start : start + len(block)])
    sums = [
        rows,
        *(
            _hashes(values.reshape(len(values), math.prod(values.shape[1:])), numbers)
            for values in (targets, given.weight)
        ),
    ]
    total = given.rows.total(torch.from_numpy(np.concatenate(sums).view(np.int64))).numpy().view(np.uint64)
    n = int(given.shard.total(given.rows.n_rows))
    table = {
        "X": f"{n} × {given.rows.n_columns}, hash {total[0]:016x}",
        "y": f"{total[1]:016x}",
        "sample_weight": f"{total[2]:016x}",
        "X_val": "none" if X_val is None else hashed(X_val),
        "y_val": "none" if y_val is None else hashed(y_val),
    }
    settings = {name: value for name, value in face.get_params(deep=False).items() if name not in (*free, *FREE)}
    return {"table": table, "settings": {name: _text(value) for name, value in settings.items()}}


def _hashes(values: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """The sum of one hash for each row and its number: in any order, on any number of processes, the same."""
    mixed = (numbers.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    for column in np.ascontiguousarray(values.T, dtype=np.float64):
        mixed = (mixed ^ (column + 0.0).view(np.uint64)) * np.uint64(0xBF58476D1CE4E5B9)
        mixed ^= mixed >> np.uint64(29)
    return np.array([mixed.sum(dtype=np.uint64)])


def _read(folder: Path, seen: dict[str, Any]) -> dict[str, Any] | None:
    """What a folder holds, if anything; damage and another fit's state are refused."""
    if not (folder / "fit.json").exists():
        return None
    with _damage_as_a_sentence(folder):
        head = json.loads((folder / "fit.json").read_bytes())
        body = (folder / head["arrays"]).read_bytes()
        written_as = head["format"]
        good = hashlib.sha256(body).hexdigest() == head["sha256"]
        seen_then = {kind: dict(head["seen"][kind]) for kind in seen} if good else {}
    wanted = f"of format {FORMAT}, which this version writes; remove the folder to begin anew"
    require(written_as == FORMAT, f"checkpoint={str(folder)!r}", wanted, f"format {written_as} of another version")
    require(good, f"checkpoint={str(folder)!r}", WHOLE, "files that were cut short")
    for kind, then in seen_then.items():
        for name in sorted({*then, *seen[kind]}):
            wanted = f"that of the fit in checkpoint={str(folder)!r}, {then.get(name)}, or the folder another"
            require(then.get(name) == seen[kind].get(name), name, wanted, seen[kind].get(name))
    with _damage_as_a_sentence(folder), np.load(io.BytesIO(body), allow_pickle=False) as arrays:
        decoder = Decoder(dict(arrays))
        state = {name: decoder.decode(head["state"][name]) for name in STATE}
        np.random.default_rng().bit_generator.state = state["rng"]  # which refuses anything else
        return state


@contextmanager
def _damage_as_a_sentence(folder: Path) -> Iterator[None]:
    """Turn what damaged files lead to into a sentence with the name of the folder."""
    try:
        yield
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, ImportError, OSError) as error:
        seen = f"damaged files ({type(error).__name__}: {error})"
        raise ValueError(f"checkpoint={str(folder)!r} must be {WHOLE}, got {seen}") from None


def _host(values: Tensor) -> np.ndarray:
    return values.detach().cpu().numpy()


def _text(value: Any) -> str:
    """A parameter as text, without the address of what has one."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))


@dataclass(eq=False, repr=False, kw_only=True)
class Resumable:
    """The parameter of forward models whose fit may be kept in a folder.

    Parameters
    ----------
    checkpoint : path or None, default None
        A folder in which the state of the fit is kept after each learner. A fit that was interrupted or killed goes on
        from there when it is started again on the same rows and parameters, on any number of processes; another
        fit's folder is refused.
    """

    checkpoint: Annotated[Any, NONE | FOLDER] = None

    def _checkpoint(
        self: Any, given: TableData, targets: Any, X_val: Any, y_val: Any, rng: np.random.Generator
    ) -> Checkpoint | None:
        if self.checkpoint is None:
            return None
        require(not self.warm_start, "warm_start", "False where there is a checkpoint", True)
        y = targets.numbers(given.y) if self._classes else given.y
        seen = fingerprint(self, given, y, X_val, y_val, self._growing)
        return Checkpoint.open(self.checkpoint, given.shard.group, seen, rng)
