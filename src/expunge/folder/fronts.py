"""Storing the front of a deployment, so that no router or student is made, or paid for, twice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

from numpy.typing import NDArray

from expunge.core.blocks import Block
from expunge.core.errors import FormatError, ParameterError, RecordError
from expunge.core.features import as_features, cast_like, describe, row_keys
from expunge.core.records import Records
from expunge.folder.codec import decode, decode_model, encode, encode_model
from expunge.folder.store import Store
from expunge.serving import publishing
from expunge.serving.publishing import Front, Round
from expunge.training.ensemble import EnsembleState
from expunge.training.fallback.protocol import rows_of_records
from expunge.training.learners.protocol import for_classes

_FRONT, _STUDENT, _LESSON = "front", "student", "lesson"


def put_front(store: Store, front: Front, trusted: Sequence[str]) -> None:
    """Store the front when the folder is created."""
    known = publishing.ExactFront | publishing.DirectFront | publishing.RouterFront | publishing.StudentFront
    if not isinstance(front, known):
        raise ParameterError(f"a deployment on disk publishes direct, by router or by student, got {front!r}")
    encoded = encode(front, trusted=trusted)
    store.put_object(_FRONT, encoded.format, encoded.data)


def get_front(store: Store, trusted: Sequence[str]) -> Front:
    """Read the front."""
    found = store.object(_FRONT)
    if found is None:
        raise FormatError(f"{store.folder} does not say what answers queries: it is damaged")
    return cast("Front", decode(*found, trusted=trusted, any_release=True))


def put_round(store: Store, front: Front, serving: Round, classes: Any, trusted: Sequence[str]) -> dict[str, Any]:
    """Store what a round has learned, inside the caller's transaction. Return what goes into the round's own row."""
    if isinstance(serving, publishing.RoutedRound):
        found = serving.calibration
        return {"calibration": [found.threshold, found.ensemble_share, found.dirty_chance]}
    if isinstance(serving, publishing.StudentRound):
        student = for_classes(cast("publishing.StudentFront", front).student, classes)  # type: ignore[arg-type]
        model = encode_model(student, serving.model, trusted=trusted)
        lesson = encode((serving.kept, serving.labels, serving.can_be_kept), trusted=trusted)
        store.put_object(_STUDENT, model.format, model.data)
        store.put_object(_LESSON, lesson.format, lesson.data)
    return {}


def get_round(store: Store, front: Front, opening: publishing.RoundContext, trusted: Sequence[str]) -> Round:
    """Read the round that was stored."""
    if isinstance(front, publishing.RouterFront):
        threshold, share, chance = store.position.serving["calibration"]
        model = front.fallback.fit_records(opening.state.records)
        return publishing.RoutedRound(
            opening.settled(),
            front.fallback,
            model,
            publishing.Calibration(threshold, share, chance),
            publishing.Traffic(),
        )
    if isinstance(front, publishing.StudentFront):
        student, lesson = store.object(_STUDENT), store.object(_LESSON)
        if student is None or lesson is None:
            raise FormatError(f"{store.folder} has no student: it is damaged")
        learner = for_classes(front.student, opening.state.records.classes)  # type: ignore[arg-type]
        kept, labels, can_be_kept = decode(*lesson, trusted=trusted)
        taught = decode_model(learner, *student, trusted=trusted)
        return publishing.StudentRound(taught, kept, labels, was_trained=False, can_be_kept=can_be_kept)
    return front.open_round(opening)


def moved_round(serving: Round, state: EnsembleState) -> Round:
    """Return the round on the same dataset after its records were rewritten, perhaps into other slots."""
    if isinstance(serving, publishing.RoutedRound):
        opening, model = replace(serving.opening, state=state), serving.model
        if state.records.num_slots != serving.opening.state.records.num_slots:  # a model may know records by their slot
            model = serving.fallback.fit_records(state.records)
        return replace(serving, opening=opening, model=model)
    if isinstance(serving, publishing.DirectRound):
        return replace(serving, opening=replace(serving.opening, state=state))
    return serving


class Admission:
    """Refuses records that the front cannot handle when a request brings them.

    If such a record were accepted, it would keep all pending requests from being applied.
    """

    def __init__(self, front: Front, classes: NDArray[Any]) -> None:
        self._front = front
        self._classes = classes
        self._public: frozenset[bytes] | None = None

    def check(self, block: Block | None) -> None:
        """Raise an error that names the first such record."""
        if block is None or len(block) == 0:
            return
        if isinstance(self._front, publishing.StudentFront):
            self._refuse_public(self._front, block)
        if isinstance(self._front, publishing.RouterFront):
            layout = describe(block.features)
            records = Records.restored(block, dead=(), classes=self._classes, allow_missing=True, layout=layout)
            rows_of_records(records, records.live_slots())

    def _refuse_public(self, front: publishing.StudentFront, block: Block) -> None:
        if self._public is None:
            self._public = frozenset(row_keys(cast_like(as_features(front.pool), block.features)))
        for row, key in enumerate(row_keys(block.features)):
            record = block.id_of(block.start + row)
            if key in self._public or record in front.pool_ids:
                raise RecordError(f"record {record!r} is also in the public pool", record)
