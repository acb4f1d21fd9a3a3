"""Whoever answers, kept between two openings of a folder: nothing is calibrated, taught or charged for twice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from expunge.errors import FormatError, ParameterError
from expunge.learners.protocol import for_classes
from expunge.publishing import (
    Calibration,
    DirectFront,
    Front,
    Opening,
    Round,
    RoutedRound,
    RouterFront,
    StudentFront,
    StudentRound,
    Traffic,
)
from expunge.store import Store
from expunge.store.codec import decode, decode_model, encode, encode_model

_FRONT, _STUDENT, _LESSON = "front", "student", "lesson"


def put_front(store: Store, front: Front, trusted: Sequence[str]) -> None:
    """Write the front itself down, at creation."""
    if not isinstance(front, DirectFront | RouterFront | StudentFront):
        raise ParameterError(f"a deployment on disk publishes direct, by router or by student, got {front!r}")
    encoded = encode(front, trusted=trusted)
    store.put_object(_FRONT, encoded.format, encoded.data)


def get_front(store: Store, trusted: Sequence[str]) -> Front:
    """The front that was written down."""
    found = store.object(_FRONT)
    if found is None:
        raise FormatError(f"{store.folder} does not say who answers: it is damaged")
    return cast("Front", decode(*found, trusted=trusted))


def put_round(store: Store, front: Front, serving: Round, classes: Any, trusted: Sequence[str]) -> dict[str, Any]:
    """Write down what the round found out; inside the caller's transaction. What is returned goes with the round."""
    if isinstance(serving, RoutedRound):
        found = serving.calibration
        return {"calibration": [found.threshold, found.ensemble_share, found.dirty_chance]}
    if isinstance(serving, StudentRound):
        student = for_classes(cast("StudentFront", front).student, classes)  # type: ignore[arg-type]
        model = encode_model(student, serving.model, trusted=trusted)
        lesson = encode((serving.kept, serving.labels), trusted=trusted)
        store.put_object(_STUDENT, model.format, model.data)
        store.put_object(_LESSON, lesson.format, lesson.data)
    return {}


def get_round(store: Store, front: Front, opening: Opening, trusted: Sequence[str]) -> Round:
    """The round as it was."""
    if isinstance(front, RouterFront):
        threshold, share, chance = store.present.serving["calibration"]
        model = front.fallback.fit_records(opening.state.records)
        return RoutedRound(opening.settled(), front.fallback, model, Calibration(threshold, share, chance), Traffic())
    if isinstance(front, StudentFront):
        student, lesson = store.object(_STUDENT), store.object(_LESSON)
        if student is None or lesson is None:
            raise FormatError(f"{store.folder} has no student: it is damaged")
        learner = for_classes(front.student, opening.state.records.classes)  # type: ignore[arg-type]
        kept, labels = decode(*lesson, trusted=trusted)
        return StudentRound(decode_model(learner, *student, trusted=trusted), kept, labels, was_trained=False)
    return front.open_round(opening)
