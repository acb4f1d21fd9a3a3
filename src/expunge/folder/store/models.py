"""The models in force, on the disk: each is read and checked when it is first needed.

Accepting a deletion needs no model, and applying it needs those of the shards that it touches. So opening a folder only
looks whether the files are there.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, overload

from expunge.core.errors import ExpungeError, FormatError
from expunge.core.place import Place
from expunge.folder.codec import decode_model
from expunge.folder.store.files import explain_errors
from expunge.folder.store.keyfile import KeyFile
from expunge.folder.store.packs import parted, read_model
from expunge.training.learners import Learner, Model, SlicedLearner
from expunge.training.learners.protocol import ShardData

ModelFile = tuple[str, str, bytes]  # name, format, digest


class StoredModels(Sequence[Model]):
    """The models of all shards, which stay on the disk until they are asked for. It never changes.

    Parameters
    ----------
    places
        Where the model of each shard is.
    """

    def __init__(self, places: Sequence[_Place]) -> None:
        self._places = tuple(places)

    @classmethod
    def find(
        cls,
        folder: Path | Place,
        files: Sequence[ModelFile],
        learner: Learner | SlicedLearner,
        *,
        trusted: Sequence[str],
        keys: KeyFile | None = None,
        cells: Sequence[int | None] = (),
        rows: Callable[[int], ShardData] | None = None,
    ) -> StoredModels:
        """Check that the files are there, without reading them.

        Parameters
        ----------
        folder
            The deployment's folder.
        files
            Name, format and SHA-256 digest of each shard's file.
        learner
            What trained the models, told the classes.
        trusted
            The modules or classes of the operator's own that models are made of.
        keys, cells
            What the models are encrypted with, and where the key of each lies.
        rows
            Reads the records of a shard, for models that were stored beside them.

        Raises
        ------
        FormatError
            If a file is missing, or its name leads elsewhere.
        """
        models = Place.hold(folder) / "models"
        there = set(models.names())
        for name, _, _ in files:
            if name not in there:
                raise _missing(models / name)
        return cls(
            [
                _StoredModel(
                    models / name,
                    shard,
                    form,
                    digest,
                    learner,
                    tuple(trusted),
                    None if keys is None else partial(_unsealed, keys, cells[shard]),
                    None if rows is None else partial(rows, shard),
                )
                for shard, (name, form, digest) in enumerate(files)
            ]
        )

    def with_changed(self, models: Mapping[int, Model]) -> StoredModels:
        """The same models but for these shards; the others stay where they are, read or not."""
        places = list(self._places)
        for shard, model in models.items():
            places[shard] = _KnownModel(model)
        return StoredModels(places)

    def keep(self, shards: Iterable[int]) -> None:
        """Read these models now: their files are about to be removed, and a prediction may still need them.

        A file that cannot be read says so when it is needed.
        """
        for shard in shards:
            with suppress(ExpungeError):
                self.settle([shard])

    def settle(self, shards: Iterable[int]) -> None:
        """Read these models, with the records of those that were stored beside them."""
        for shard in shards:
            model: Any = self._places[shard].get()
            if hasattr(model, "settle"):
                model.settle()

    @property
    def beside_records(self) -> list[int]:
        """The shards whose models may have left their records for later."""
        return [shard for shard, place in enumerate(self._places) if place.needs_records]

    def move(self, place: Place, but: Iterable[int]) -> None:
        """From now on read all models but these from another file, which holds the same bytes.

        When this returns, none of them is being read from the file before.
        """
        left = set(but)
        for shard, each in enumerate(self._places):
            if shard not in left and isinstance(each, _StoredModel):
                each.move(place)

    @property
    def num_read(self) -> int:
        """How many models are in memory."""
        return sum(place.is_read for place in self._places)

    @overload
    def __getitem__(self, shard: int) -> Model: ...

    @overload
    def __getitem__(self, shard: slice) -> tuple[Model, ...]: ...

    def __getitem__(self, shard: int | slice) -> Model | tuple[Model, ...]:
        if isinstance(shard, slice):
            return tuple(place.get() for place in self._places[shard])
        return self._places[shard].get()

    def __len__(self) -> int:
        return len(self._places)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and len(self) == len(other) and all(map(_are_equal, self, other))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<{len(self)} models on the disk, {self.num_read} of them read>"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled, it is a tuple of models: it does not depend on files."""
        return tuple, (list(self),)


def _are_equal(left: Model, right: Model) -> bool:
    return left is right or bool(left == right)


class _KnownModel:
    """A model in memory."""

    is_read, needs_records = True, False

    def __init__(self, model: Model) -> None:
        self._model = model

    def get(self) -> Model:
        return self._model


class _StoredModel:
    """A model in a file. Several threads may ask for it, and all get the same object."""

    def __init__(
        self,
        place: Place,
        shard: int,
        form: str,
        digest: bytes,
        learner: Learner | SlicedLearner,
        trusted: tuple[str, ...],
        unseal: Callable[[bytes], bytes] | None,
        rows: Callable[[], ShardData] | None,
    ) -> None:
        self._place, self._shard, self._form, self._digest = place, shard, form, digest
        self._learner, self._trusted, self._unseal, self._rows = learner, trusted, unseal, rows
        self._lock = threading.Lock()
        self._model: Model | None = None

    @property
    def is_read(self) -> bool:
        return self._model is not None

    @property
    def needs_records(self) -> bool:
        return hasattr(self._learner, "dump_summary")

    def get(self) -> Model:
        if self._model is None:
            with self._lock:
                if self._model is None:
                    self._model = self._read()
        return self._model

    def move(self, place: Place) -> None:
        """From now on read from another file, which holds the same bytes."""
        with self._lock:
            self._place = place

    def _read(self) -> Model:
        with explain_errors(self._place.parent.parent.path):
            try:
                data = read_model(self._place, self._shard)
                if self._unseal is not None:
                    data = self._unseal(data)
            except FileNotFoundError:
                raise _missing(self._place) from None
        if hashlib.sha256(data).digest() != self._digest:
            raise FormatError(f"the model file {self._place} is not what was written: its content has another digest")
        content = parted(self._place.name, data, b"")[0]
        return decode_model(self._learner, self._form, content, trusted=self._trusted, rows=self._rows)


def _unsealed(keys: KeyFile, cell: int | None, content: bytes) -> bytes:
    return content if cell is None else keys.unseal(content, cell) or b""


_Place = _KnownModel | _StoredModel


def _missing(place: Place) -> FormatError:
    return FormatError(f"the model file {place} is missing")
