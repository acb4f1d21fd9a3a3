"""What is in service as an MLflow model (the `pyfunc` flavour), saved, logged and loaded without running stored code.

Under the exact promise the model is the ensemble, and under a student the student. The files hold arrays and plain
values, as those of a folder do; they hold no record and no key. The model is a copy: deletions do not reach it, and its
files say so. It needs the extra `mlflow`.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import sklearn

from expunge.core.errors import FormatError, MissingExtraError
from expunge.core.version import __version__
from expunge.folder.codec import Encoded, decode, encode
from expunge.serving.copies import NOTICE, Copy, copy_of
from expunge.training.learners.parts import model_of, parts_of

__all__ = ["load_model", "log_model", "save_model"]

_VERSION: Final = 2


def save_model(model: Any, path: str | Path, *, trusted: Sequence[str] = ()) -> None:
    """Save what is in service as an MLflow model in a folder.

    Parameters
    ----------
    model
        A fitted estimator, a deployment or an open folder, as `expunge.serving.copies.copy_of` takes it.
    path
        The folder, which must not exist yet.
    trusted
        Classes (`package.module:Class`) and modules of your own that the model needs.

    Raises
    ------
    MissingExtraError
        If MLflow is not installed.
    NotPublishedError
        Under a promise that publishes no models.
    ModelFormatError
        If loading the model would run code that is not trusted.
    """
    pyfunc = _import_pyfunc()
    with tempfile.TemporaryDirectory() as place:
        pyfunc.save_model(path=os.fspath(path), **_arguments(model, Path(place), trusted))


def log_model(model: Any, name: str = "model", *, trusted: Sequence[str] = ()) -> Any:
    """Log what is in service as an MLflow model of the active run.

    Parameters
    ----------
    model
        As in `save_model`.
    name
        The model's name.
    trusted
        As in `save_model`.

    Returns
    -------
    mlflow.models.model.ModelInfo
        What MLflow says about the logged model, such as its `model_uri`.

    Raises
    ------
    ParameterError
        As `save_model`.
    """
    pyfunc = _import_pyfunc()
    with tempfile.TemporaryDirectory() as place:
        return pyfunc.log_model(name=name, **_arguments(model, Path(place), trusted))


def load_model(uri: str | Path, *, trusted: Sequence[str] = ()) -> Copy:
    """Load a model that `save_model` or `log_model` wrote.

    `mlflow.pyfunc.load_model` loads it too, for programs that know MLflow only: `predict(rows)` gives labels or values,
    and `predict(rows, params={"probabilities": True})` probabilities.

    Parameters
    ----------
    uri
        The folder, or any place that MLflow knows, such as `runs:/…`.
    trusted
        Classes and modules whose code may run.

    Returns
    -------
    Copy
        It has `predict` and `predict_proba`.

    Raises
    ------
    FormatError
        If it is no such model, is damaged, or names code that is not trusted.
    """
    _import_pyfunc()
    from mlflow.artifacts import download_artifacts
    from mlflow.models import Model

    here = Path(download_artifacts(artifact_uri=os.fspath(uri)))
    try:
        flavour = Model.load(os.fspath(here)).flavors["python_function"]
        data = here / flavour["data"]
    except Exception:
        raise FormatError(f"{uri} is no model that expunge.mlflow saved") from None
    return _read(data, trusted)


def _import_pyfunc() -> Any:
    try:
        import mlflow.pyfunc
    except ImportError as error:
        raise MissingExtraError(f"this needs MLflow: pip install 'expunge[mlflow]' ({error})") from None
    return mlflow.pyfunc


def _arguments(model: Any, place: Path, trusted: Sequence[str]) -> dict[str, Any]:
    """What MLflow is told. It asks no network for packages, because their list is given."""
    from mlflow.models.signature import ModelSignature
    from mlflow.types.schema import ParamSchema, ParamSpec

    copy = copy_of(model)
    data = place / "data"
    data.mkdir()
    packed = _packed(copy, trusted)
    (data / f"copy.{packed.format}").write_bytes(packed.data)
    (data / "NOTICE.txt").write_text(f"{NOTICE}\n", encoding="utf-8")
    asked = (
        {}
        if copy.is_regression
        else {"signature": ModelSignature(params=ParamSchema([ParamSpec("probabilities", "boolean", False)]))}
    )
    return {
        "loader_module": "expunge.mlflow",
        "data_path": os.fspath(data),
        "pip_requirements": [
            f"expunge[mlflow]=={__version__}",
            f"scikit-learn=={sklearn.__version__}",
            f"numpy=={np.__version__}",
        ],
        "metadata": {"expunge": NOTICE, "kind": copy.kind, "round": copy.round, "models": len(copy.models)},
        **asked,
    }


def _packed(copy: Copy, trusted: Sequence[str]) -> Encoded:
    fields = {name: getattr(copy, name) for name in Copy.__dataclass_fields__}
    fields["models"] = [parts_of(copy.learner, each) for each in copy.models]
    return encode({"version": _VERSION, **fields}, trusted=trusted)


def _read(data: Path, trusted: Sequence[str]) -> Copy:
    listed = sorted(data.glob("copy.*"))
    if len(listed) != 1:
        raise FormatError(f"{data} holds no model that expunge.mlflow saved")
    found = listed[0]
    fields = dict(decode(found.suffix[1:], found.read_bytes(), trusted=trusted))
    if fields.pop("version", None) != _VERSION:
        raise FormatError(f"{found} was written by another version of expunge")
    models = fields.pop("models")
    copy = Copy(models=(), **fields)
    return replace(copy, models=tuple(model_of(copy.learner, each) for each in models))


class _PyFunc:
    """What MLflow calls."""

    def __init__(self, copy: Copy) -> None:
        self._copy = copy

    def predict(self, model_input: Any, params: dict[str, Any] | None = None) -> Any:
        """Labels or values; probabilities if `params` say so."""
        wants = bool((params or {}).get("probabilities"))
        return self._copy.predict_proba(model_input) if wants else self._copy.predict(model_input)


def _load_pyfunc(path: str) -> _PyFunc:
    """Load the model for `mlflow.pyfunc.load_model`. The variable EXPUNGE_TRUST names trusted code, not the file."""
    return _PyFunc(_read(Path(path), os.environ.get("EXPUNGE_TRUST", "").split()))
