"""Continue a fit: warm starts, and checkpoints.

After each learner, a fit writes to a folder what cannot be computed again.

A checkpoint holds the rows and weights of every learner, the selected kernels and the state of the random numbers. It
does not hold the values of the model: a fit that continues absorbs the kept learners again, at one kernel product each,
by the code that absorbed them first. It ends with the model of an uninterrupted fit, on any number of processes. Files
hold numbers and names only, and are replaced atomically.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
import torch

from mercer.atomic_write import write_atomically
from mercer.base.estimator import to_numpy
from mercer.base.parameters import FOLDER, NONE
from mercer.codec import Decoder, Encoder, NotEncodableError
from mercer.data import ArrayRows, Group, spaced_rows
from mercer.data.hashes import hash_table
from mercer.forward.absorb import Block
from mercer.forward.loop import Learner
from mercer.forward.span import Functions
from mercer.parts import component, require
from mercer.preprocessing.read import TableData, read_held_out
from mercer.preprocessing.validate import host

#: Version of the file format; it is increased when older versions cannot read new files.
FORMAT = 3
#: Parameters that may differ between the fit that wrote a checkpoint and the fit that continues it.
FREE = ("checkpoint", "device", "memory_limit")
#: The wanted contents of a folder that cannot be read, in error messages.
UNDAMAGED = "a checkpoint that is whole; remove the folder to begin anew"
#: Rows of a file that a warm start compares. It compares all rows of an array; a checkpoint always compares all rows.
COMPARED_ROWS = 1000
#: Values of a block whose rows are hashed: 32 MiB. Blocks of wide sparse tables are dense.
HASHED_VALUES = 1 << 22


@component
class Resumed(Learner):
    """The learners of an earlier fit, then new ones of `learner`, with the random state that the earlier fit left."""

    learner: Learner
    kept: list[Any] = field(default_factory=list)
    state: Any = None

    def next(self, block: Block, step: int, rng: np.random.Generator) -> Functions | None:
        if step >= len(self.kept):
            return self.learner.next(block, step, rng)
        index, A = (torch.as_tensor(array, device=block.f.device) for array in self.kept[step])
        index = block.local_index(index)
        if step + 1 == len(self.kept):
            rng.bit_generator.state = self.state
        K = block.problem.matrix(block.problem.basis(index))
        return Functions(index, A, K.product(A).T.contiguous())


@dataclass
class KeptModel:
    """Rows and weights of the learners of a model, and the random state after the last learner.

    `key` names kernel and penalty: only a model of the same key uses the learners again.
    """

    key: str
    learners: list[tuple[np.ndarray, np.ndarray]] = field(default_factory=list)
    rng_state: Any = None


@dataclass
class FitState:
    """Contents of a checkpoint: the first random state, the selection, and the models in the order of their start.

    Refinement stages and further models of an average are models, too.
    """

    rng_state: Any
    choice: Any = None
    models: list[KeptModel] = field(default_factory=list)

    def encode(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """The state as JSON and arrays."""
        encoder = Encoder()
        tree = {
            "rng_state": encoder.encode(self.rng_state),
            "models": encoder.encode([vars(model) for model in self.models]),
        }
        try:
            tree["choice"] = encoder.encode(self.choice)
        except NotEncodableError:  # a function of the user's: the selection is repeated
            tree["choice"] = None
        return tree, encoder.arrays

    @classmethod
    def decode(cls, tree: dict[str, Any], arrays: dict[str, np.ndarray]) -> FitState:
        """Read a state; raise ValueError, KeyError or TypeError if it is damaged."""
        decoder = Decoder(arrays)
        rng_state = decoder.decode(tree["rng_state"])
        np.random.default_rng().bit_generator.state = rng_state  # raises if it is not a state
        models = [KeptModel(**model) for model in decoder.decode(tree["models"])]
        return cls(rng_state, decoder.decode(tree["choice"]), models)


@dataclass
class Checkpoint:
    """The state of a fit, kept in a folder; writing takes a share of about `write_share` of the time at most."""

    write_share: ClassVar[float] = 0.05
    folder: Path
    group: Group
    fingerprint: Fingerprint
    state: FitState
    _next_write: float = 0.0
    _n_begun: int = 0

    @classmethod
    def open(cls, estimator: Any, data: TableData, X_val: Any, y_val: Any, rng: np.random.Generator) -> Checkpoint:
        """Open the checkpoint of this fit, or begin one in an empty folder; refuse that of another fit."""
        require(not estimator.warm_start, "warm_start", "False where there is a checkpoint", True)
        free = (*estimator._resumable_params, *FREE)
        fingerprint = Fingerprint.of(estimator, data, X_val, y_val, free, all_rows=True)
        path, group = Path(estimator.checkpoint), data.shard.group
        found = group.first(lambda: _read(path, fingerprint))
        if found is not None:
            rng.bit_generator.state = found.rng_state
        return cls(path, group, fingerprint, found or FitState(rng.bit_generator.state))

    def chosen(self, choose: Callable[[], Any], rng: np.random.Generator) -> Any:
        """The selection of the earlier fit, or of this one."""
        if self.state.choice is not None:
            choice, rng.bit_generator.state = self.state.choice
            return choice
        choice = replace(choose(), started_fit=None)  # the checkpoint keeps learners from the first on
        self.state.choice = choice, rng.bit_generator.state
        return choice

    def follow(self, fit: Any) -> None:
        """Let a fit begin with its kept learners, and keep those that it adds."""
        if not fit.learner.resumable:
            return
        place, models, rng = self._n_begun, self.state.models, fit.rng
        self._n_begun += 1
        key = text((fit.problem.kernel, fit.problem.lam))
        if place < len(models) and models[place].key != key:  # time or rounding led to another model
            del models[place:]
        if place == len(models):
            models.append(KeptModel(key))
        model = models[place]
        if model.learners:
            fit.learner = Resumed(fit.learner, list(model.learners), model.rng_state)

        def after(now: Any) -> None:
            if now.n_steps <= len(model.learners):
                return
            term = (now.current or now.blocks[-1]).terms[-1]
            model.learners.append(to_numpy((term.index, term.A)))
            model.rng_state = rng.bit_generator.state
            self.group.first(self._write_rarely)

        fit.after_step = after

    def _write_rarely(self) -> None:
        began = time.monotonic()
        if began >= self._next_write:
            self.write()
            self._next_write = time.monotonic() + (time.monotonic() - began) / self.write_share

    def finish(self) -> None:
        """Write the learners that were added since the last write."""
        self.group.first(self.write)

    def write(self) -> None:
        """Replace the contents of the folder atomically: if that fails, the old state remains."""
        tree, arrays = self.state.encode()
        memory = io.BytesIO()
        np.savez(memory, **arrays)  # type: ignore[arg-type]
        body = memory.getvalue()
        digest = hashlib.sha256(body).hexdigest()
        name = f"learners-{digest[:16]}.npz"
        head = {"format": FORMAT, "arrays": name, "sha256": digest, "seen": asdict(self.fingerprint), "state": tree}
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


def _read(folder: Path, fingerprint: Fingerprint) -> FitState | None:
    """Read the state in a folder, if there is one; refuse damage and the state of another fit."""
    if not (folder / "fit.json").exists():
        return None
    with _damage_as_value_error(folder):
        head = json.loads((folder / "fit.json").read_bytes())
        version = head["format"]
    wanted = f"of format {FORMAT}, which this version writes; remove the folder to begin anew"
    require(version == FORMAT, f"checkpoint={str(folder)!r}", wanted, f"format {version} of another version")
    with _damage_as_value_error(folder):
        body = (folder / head["arrays"]).read_bytes()
        complete = hashlib.sha256(body).hexdigest() == head["sha256"]
        then = Fingerprint(dict(head["seen"]["table"]), dict(head["seen"]["settings"]))
    require(complete, f"checkpoint={str(folder)!r}", UNDAMAGED, "files that were cut short")
    then.require_same(
        fingerprint, lambda value: f"that of the fit in checkpoint={str(folder)!r}, {value}, or the folder another"
    )
    with _damage_as_value_error(folder), np.load(io.BytesIO(body), allow_pickle=False) as arrays:
        return FitState.decode(head["state"], dict(arrays))


@contextmanager
def _damage_as_value_error(folder: Path) -> Iterator[None]:
    """Turn the errors of damaged files into a ValueError that names the folder."""
    try:
        yield
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, OSError) as error:
        seen = f"damaged files ({type(error).__name__}: {error})"
        raise ValueError(f"checkpoint={str(folder)!r} must be {UNDAMAGED}, got {seen}") from None


@dataclass(eq=False, repr=False, kw_only=True)
class Resumable:
    """Mixin of models whose fit can be kept in a folder.

    Parameters
    ----------
    checkpoint : path or None, default None
        A folder in which the state of the fit is kept after each learner. A fit that was interrupted or killed can be
        continued by starting it again with the same rows and parameters, on any number of processes. The folder of
        another fit is refused.
    """

    checkpoint: Annotated[Any, NONE | FOLDER] = None


@dataclass(frozen=True)
class Fingerprint:
    """Hashes of rows, targets and weights, and the parameters that must not change when a fit is continued.

    The hashes do not depend on which process holds which rows.
    """

    table: dict[str, str]
    settings: dict[str, str]

    @classmethod
    def of(
        cls, estimator: Any, data: TableData, X_val: Any, y_val: Any, free: tuple[str, ...], *, all_rows: bool = False
    ) -> Fingerprint:
        """Take the fingerprint of a fit; parameters named in `free` may change."""
        numbers = data.shard.global_indices(np.arange(data.rows.n_rows))
        rows = sum((hash_table(*part) for part in _parts(data, numbers, all_rows)), start=np.uint64(0))
        hashes = np.array([rows, hash_table(data.y, numbers), hash_table(data.weight, numbers)])
        total = data.rows.total(torch.from_numpy(hashes.view(np.int64))).numpy().view(np.uint64)
        n = int(data.shard.total(data.rows.n_rows))
        table = {
            "X": f"{n} × {data.rows.n_columns}, hash {total[0]:016x}",
            "y": f"{total[1]:016x}",
            "sample_weight": f"{total[2]:016x}",
            "X_val": "none",
            "y_val": "none" if y_val is None else f"{hash_table(host(y_val)):016x}",
        }
        if X_val is not None:
            read_rows, _ = read_held_out(estimator, data, X_val, y_val, classes=estimator._is_classifier)
            table["X_val"] = f"{hash_table(read_rows):016x}"
        if data.row_groups is not None:
            table["groups and time_order"] = f"{hash_table(data.row_groups.key, numbers):016x}"
        settings = {name: text(value) for name, value in estimator.get_params().items() if name not in free}
        return cls(table, settings)

    def require_same(self, now: Fingerprint, wanted: Callable[[str | None], str]) -> None:
        """Refuse another table or other parameters by name; `wanted` makes the message from the value of this one."""
        for then, given in ((self.table, now.table), (self.settings, now.settings)):
            for name in {**then, **given}:
                require(then.get(name) == given.get(name), name, wanted(then.get(name)), given.get(name))


@dataclass(frozen=True)
class WarmStartState:
    """A fit that can be continued: its fingerprint, its task, and the fits of all ensemble members."""

    fingerprint: Fingerprint
    task: Any
    fits: list[Any]

    def require_same(self, now: Fingerprint) -> None:
        """Refuse another table or other parameters by name."""
        self.fingerprint.require_same(
            now, lambda then: f"that of the first fit ({then}) where warm_start=True, or warm_start=False"
        )


def text(value: Any) -> str:
    """A parameter as text, without the address of an object that has no other name."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))


def _parts(data: TableData, numbers: np.ndarray, all_rows: bool) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Blocks of the rows to be hashed, with their numbers."""
    if all_rows or isinstance(data.rows, ArrayRows):
        size = max(HASHED_VALUES // data.rows.n_columns, 1)
        for start, block in data.rows.blocks(size):
            yield block.cpu().numpy(), numbers[start : start + len(block)]
        return
    sample = spaced_rows(np.ones(data.rows.n_rows), COMPARED_ROWS)
    yield data.rows.take(sample).cpu().numpy(), numbers[sample]
