"""Checkpoints: after each learner, a fit writes to a folder what cannot be computed again.

The rows and weights of every learner, the kernels chosen and the state of the random numbers are written. The model's
values at the rows are not, whichever process holds them: a fit that goes on absorbs the kept learners again, at one
product with the kernel each, by the code that absorbed them first. It ends with the model of an undisturbed fit, on any
number of processes. Files hold numbers and names only, and are replaced atomically.
"""

from __future__ import annotations

import hashlib
import io
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch

from mercer.atomic_write import write_atomically
from mercer.base.estimator import to_numpy
from mercer.base.parameters import FOLDER, NONE
from mercer.codec import Decoder, Encoder, NotEncodableError
from mercer.data import Group
from mercer.forward.absorb import Block
from mercer.forward.learners import Learner
from mercer.forward.span import Functions
from mercer.forward.warm_start import Fingerprint, text
from mercer.parts import component, require
from mercer.preprocessing.read import TableData

#: Raised when files change so that other versions cannot read them.
FORMAT = 3
#: Parameters that may differ between the fit that wrote a checkpoint and the one that goes on from it.
FREE = ("checkpoint", "device", "memory_limit")
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
        index, A = (torch.as_tensor(array, device=block.f.device) for array in self.kept[step])
        index = block.local_index(index)
        if step + 1 == len(self.kept):
            rng.bit_generator.state = self.state
        K = block.problem.matrix(block.problem.basis(index))
        return Functions(index, A, K.product(A).T.contiguous())


@dataclass
class KeptModel:
    """Rows and weights of the learners of a model, and the state of the random numbers after the last of them.

    `key` names its kernel and penalty: learners are used again by a model of the same key only.
    """

    key: str
    learners: list[tuple[np.ndarray, np.ndarray]] = field(default_factory=list)
    rng_state: Any = None


@dataclass
class FitState:
    """What a checkpoint holds: the generator's first state, the kernels chosen, and the models in order of their start.

    Stages and further models are models like the first.
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
        except NotEncodableError:  # a function of the user's: it is given again, and what was tuned is tuned again
            tree["choice"] = None
        return tree, encoder.arrays

    @classmethod
    def decode(cls, tree: dict[str, Any], arrays: dict[str, np.ndarray]) -> FitState:
        """Read a state; ValueError, KeyError or TypeError where it is none."""
        decoder = Decoder(arrays)
        rng_state = decoder.decode(tree["rng_state"])
        np.random.default_rng().bit_generator.state = rng_state  # which refuses anything else
        models = [KeptModel(**model) for model in decoder.decode(tree["models"])]
        return cls(rng_state, decoder.decode(tree["choice"]), models)


@dataclass
class Checkpoint:
    """The state of a fit, kept in a folder."""

    folder: Path
    group: Group
    seen: Fingerprint
    state: FitState
    _next_write: float = 0.0
    _n_begun: int = 0

    @classmethod
    def open(cls, folder: Any, group: Group, seen: Fingerprint, rng: np.random.Generator) -> Checkpoint:
        """Open the checkpoint of this fit, or begin one in an empty folder; refuse that of another fit."""
        path = Path(folder)
        found = group.first(lambda: _read(path, seen))
        if found is not None:
            rng.bit_generator.state = found.rng_state
        return cls(path, group, seen, found or FitState(rng.bit_generator.state))

    def chosen(self, choose: Callable[[], Any], rng: np.random.Generator) -> Any:
        """The kernels of an earlier fit, or those chosen now."""
        if self.state.choice is not None:
            choice, rng.bit_generator.state = self.state.choice
            return choice
        choice = replace(choose(), started_fit=None)  # its learners are to be kept from the first on
        self.state.choice = choice, rng.bit_generator.state
        return choice

    def follow(self, fit: Any) -> None:
        """Let the next fit begin with the learners kept for it, and keep those that it adds."""
        if not fit.learner.resumable:
            return
        place, models, rng = self._n_begun, self.state.models, fit.rng
        self._n_begun += 1
        key = text((fit.problem.kernel, fit.problem.lam))
        if place < len(models) and models[place].key != key:  # time or rounding led elsewhere
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
            self.group.first(self._write_in_time)

        fit.after_step = after

    def _write_in_time(self) -> None:
        began = time.monotonic()
        if began >= self._next_write:
            self.write()
            self._next_write = time.monotonic() + (time.monotonic() - began) / SHARE

    def finish(self) -> None:
        """Write what has come since the folder was last written."""
        self.group.first(self.write)

    def write(self) -> None:
        """Replace the contents of the folder atomically: if that fails, the old state stands."""
        tree, arrays = self.state.encode()
        memory = io.BytesIO()
        np.savez(memory, **arrays)  # type: ignore[arg-type]
        body = memory.getvalue()
        digest = hashlib.sha256(body).hexdigest()
        name = f"learners-{digest[:16]}.npz"
        head = {"format": FORMAT, "arrays": name, "sha256": digest, "seen": asdict(self.seen), "state": tree}
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


def _read(folder: Path, seen: Fingerprint) -> FitState | None:
    """Read the state in a folder, if there is one; refuse damage and the state of another fit."""
    if not (folder / "fit.json").exists():
        return None
    with _damage_as_a_sentence(folder):
        head = json.loads((folder / "fit.json").read_bytes())
        version = head["format"]
    wanted = f"of format {FORMAT}, which this version writes; remove the folder to begin anew"
    require(version == FORMAT, f"checkpoint={str(folder)!r}", wanted, f"format {version} of another version")
    with _damage_as_a_sentence(folder):
        body = (folder / head["arrays"]).read_bytes()
        complete = hashlib.sha256(body).hexdigest() == head["sha256"]
        then = Fingerprint(dict(head["seen"]["table"]), dict(head["seen"]["settings"]))
    require(complete, f"checkpoint={str(folder)!r}", WHOLE, "files that were cut short")
    then.require_same(
        seen, lambda value: f"that of the fit in checkpoint={str(folder)!r}, {value}, or the folder another"
    )
    with _damage_as_a_sentence(folder), np.load(io.BytesIO(body), allow_pickle=False) as arrays:
        return FitState.decode(head["state"], dict(arrays))


@contextmanager
def _damage_as_a_sentence(folder: Path) -> Iterator[None]:
    """Turn the errors of damaged files into a sentence that names the folder."""
    try:
        yield
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, OSError) as error:
        seen = f"damaged files ({type(error).__name__}: {error})"
        raise ValueError(f"checkpoint={str(folder)!r} must be {WHOLE}, got {seen}") from None


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
        free = (*self._resumable_params, *FREE)
        seen = Fingerprint.of(self, given, X_val, y_val, free, all_rows=True)
        return Checkpoint.open(self.checkpoint, given.shard.group, seen, rng)
