"""What is in service as one ONNX graph, which other programs run without Python: the average of the shards' models.

skl2onnx turns each model into a graph, and these are joined: every model is asked, and the mean of their probabilities
or values comes out. ONNX counts in 32 bits, so results agree with ours up to rounding. The file is a copy: deletions do
not reach it, and the file says so. It needs the extra `onnx`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import Pipeline

from expunge.core.errors import MissingExtraError, ParameterError
from expunge.core.features import is_frame, is_sparse
from expunge.core.files import write_whole
from expunge.core.version import __version__
from expunge.serving.copies import NOTICE, Copy, copy_of
from expunge.training.learners import Abstainer, ConstantModel, ScikitModel, ScikitRegression

__all__ = ["save", "to_onnx"]

_OPSET: Final = {"": 18, "ai.onnx.ml": 1}
_IR_VERSION: Final = 8  # what runtimes of 2022 and later read


def to_onnx(model: Any) -> Any:
    """The ensemble (or the student) as one ONNX model.

    Its input is `X`, a table of 32-bit numbers; if the estimator chooses columns by name there is one input for each
    column, of shape rows × 1. A classifier's outputs are `label` and `probabilities`, a regressor's is `variable`.

    Parameters
    ----------
    model
        A fitted estimator, a deployment or an open folder, as `expunge.serving.copies.copy_of` takes it.

    Returns
    -------
    onnx.ModelProto
        The model. Its documentation says that deletions do not reach it.

    Raises
    ------
    ParameterError
        If it cannot be written as an ONNX graph. `MissingExtraError`, a kind of it, if skl2onnx is not installed.
        `NotPublishedError`, another kind, under a promise that publishes no models.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from expunge import UnlearningClassifier
    >>> model = UnlearningClassifier(n_shards=3, random_state=0).fit(*load_iris(return_X_y=True))
    >>> [each.name for each in to_onnx(model).graph.output]
    ['label', 'probabilities']
    """
    copy = copy_of(model)
    onnx = _import_onnx()
    asked, constants = _models_to_ask(copy)
    inputs, types = _inputs(copy, asked[0])
    graphs = [_convert(each, types, copy.is_regression) for each in asked]
    return _joined(onnx, copy, graphs, inputs, constants)


def save(model: Any, path: str | Path) -> None:
    """Write `to_onnx(model)` into a file, whole or not at all.

    Parameters
    ----------
    model
        As in `to_onnx`.
    path
        The file, such as `model.onnx`.

    Raises
    ------
    ParameterError
        As `to_onnx`. Nothing is written.
    """
    made = to_onnx(model).SerializeToString()
    write_whole(Path(path), made)


def _import_onnx() -> Any:
    try:
        import onnx
        import skl2onnx  # noqa: F401
    except ImportError as error:
        raise MissingExtraError(f"this needs skl2onnx: pip install 'expunge[onnx]' ({error})") from None
    return onnx


def _models_to_ask(copy: Copy) -> tuple[list[Any], list[int]]:
    """The fitted estimators, and the class codes of models that always give the same answer."""
    if copy.combination != "mean" and len(copy.models) > 1:
        raise ParameterError("no ONNX of combine='median': ONNX has no median; use combine='mean'")
    asked, constants = [], []
    for each in copy.models:
        if isinstance(each, ConstantModel):
            constants.append(each.code)
        elif isinstance(each, ScikitModel | ScikitRegression):
            if isinstance(each, ScikitModel) and not hasattr(each, "probabilities"):
                name = type(each.estimator).__name__
                raise ParameterError(f"no ONNX of {name}: it has no probabilities, so shards would have to be counted")
            asked.append(each)
        elif not isinstance(each, Abstainer):
            kind = type(copy.learner).__name__
            raise ParameterError(f"no ONNX of {kind}: skl2onnx knows estimators of scikit-learn only")
    if not asked:
        raise ParameterError("no ONNX: no shard has a model to ask; each is without records or has one class")
    return asked, constants


def _inputs(copy: Copy, model: Any) -> tuple[list[tuple[str, Any]], list[tuple[str, Any]]]:
    """Names and types of the graph's inputs, and of those that skl2onnx is told."""
    from skl2onnx.common.data_types import FloatTensorType, StringTensorType

    pattern, (_, columns) = copy.pattern, copy.layout
    if is_sparse(pattern):
        raise ParameterError("no ONNX of sparse rows: give the estimator arrays or a data frame")
    first = model.estimator.steps[0][1] if isinstance(model.estimator, Pipeline) else model.estimator
    if is_frame(pattern) and isinstance(first, ColumnTransformer):
        kinds = [FloatTensorType if _is_number(kind) else StringTensorType for kind in pattern.dtypes]
        types = [(str(name), kind([None, 1])) for name, kind in zip(columns, kinds, strict=True)]
        return types, types
    kinds = [*pattern.dtypes] if is_frame(pattern) else [pattern.dtype]
    if not all(map(_is_number, kinds)):
        raise ParameterError("no ONNX of texts, unless a ColumnTransformer chooses the columns of a data frame by name")
    width = len(columns) if is_frame(pattern) else columns[0] if columns else 0
    types = [("X", FloatTensorType([None, width]))]
    return types, types


def _is_number(kind: Any) -> bool:
    return getattr(kind, "kind", "O") in "fiub"


def _convert(model: Any, types: Sequence[tuple[str, Any]], is_regression: bool) -> Any:
    from skl2onnx import to_onnx as convert

    options = {} if is_regression else {"zipmap": False}
    try:
        return convert(model.estimator, initial_types=list(types), options=options, target_opset=_OPSET), model
    except Exception as error:  # of many kinds, with pages of advice
        line = next((each for each in str(error).splitlines() if each.strip()), type(error).__name__)
        name = _innermost(model.estimator)
        raise ParameterError(f"no ONNX of {name}: skl2onnx cannot convert it: {line.strip():.120}") from None


def _innermost(estimator: Any) -> str:
    last = estimator.steps[-1][1] if isinstance(estimator, Pipeline) else estimator
    return type(last).__name__


def _joined(
    onnx: Any, copy: Copy, graphs: Sequence[tuple[Any, Any]], inputs: Sequence[tuple[str, Any]], constants: list[int]
) -> Any:
    """One graph that asks all models and averages them."""
    nodes: list[Any] = []
    tensors: list[Any] = []
    names = {name for name, _ in inputs}
    tables: list[str] = []
    for number, (proto, model) in enumerate(graphs):
        own = onnx.compose.add_prefix(proto, f"shard{number}/", rename_inputs=False).graph
        nodes += own.node
        tensors += own.initializer
        found = own.output[-1].name
        tables.append(_spread(onnx, copy, model, number, found, nodes, tensors))
    total = tables[0] if len(tables) == 1 else "expunge/sum"
    if len(tables) > 1:
        nodes.append(onnx.helper.make_node("Sum", tables, [total]))
    if constants:
        row = np.bincount(constants, minlength=len(copy.classes)).astype(np.float32)[np.newaxis]
        tensors.append(onnx.numpy_helper.from_array(row, "expunge/constants"))
        nodes.append(onnx.helper.make_node("Add", [total, "expunge/constants"], ["expunge/with_constants"]))
        total = "expunge/with_constants"
    count = np.array(len(tables) + len(constants), dtype=np.float32)
    tensors.append(onnx.numpy_helper.from_array(count, "expunge/count"))
    mean = "variable" if copy.is_regression else "probabilities"
    nodes.append(onnx.helper.make_node("Div", [total, "expunge/count"], [mean]))
    outputs = [onnx.helper.make_tensor_value_info(mean, onnx.TensorProto.FLOAT, [None, None])]
    if not copy.is_regression:
        outputs.insert(0, _label(onnx, copy, nodes, tensors))
    given = [graphs[0][0].graph.input[n] for n in range(len(names))]
    graph = onnx.helper.make_graph(nodes, "expunge", given, outputs, initializer=tensors, doc_string=NOTICE)
    opsets = [onnx.helper.make_opsetid(domain, version) for domain, version in _OPSET.items()]
    made = onnx.helper.make_model(
        graph,
        opset_imports=opsets,
        ir_version=_IR_VERSION,
        producer_name="expunge",
        producer_version=__version__,
        doc_string=NOTICE,
    )
    onnx.helper.set_model_props(made, {"expunge": NOTICE, "models": str(len(copy.models)), "round": str(copy.round)})
    onnx.checker.check_model(made)
    return made


def _spread(onnx: Any, copy: Copy, model: Any, number: int, found: str, nodes: list[Any], tensors: list[Any]) -> str:
    """The model's table as 32-bit numbers with a column for each class, 0 for one that its shard never saw."""
    here = f"expunge/{number}/"
    nodes.append(onnx.helper.make_node("Cast", [found], [f"{here}table"], to=onnx.TensorProto.FLOAT))
    if copy.is_regression:
        return f"{here}table"
    own = len(model.estimator.classes_)
    places = np.asarray(model.spread(np.eye(own), len(copy.classes)), dtype=np.float32)
    if np.array_equal(places, np.eye(len(copy.classes))):
        return f"{here}table"
    tensors.append(onnx.numpy_helper.from_array(places, f"{here}places"))
    nodes.append(onnx.helper.make_node("MatMul", [f"{here}table", f"{here}places"], [f"{here}spread"]))
    return f"{here}spread"


def _label(onnx: Any, copy: Copy, nodes: list[Any], tensors: list[Any]) -> Any:
    """The class with the largest mean, the first among equals; or that of the threshold, where it reaches it."""
    classes, kind = _plain_classes(copy.classes)
    codes, labels = "expunge/code", "expunge/classes"
    if copy.cut is None or len(copy.classes) == 1:
        nodes.append(onnx.helper.make_node("ArgMax", ["probabilities"], [codes], axis=1, keepdims=0))
    else:
        code, least = copy.cut
        out = np.zeros((1, len(copy.classes)), dtype=np.float32)
        out[0, code] = -2.0  # below every probability
        for name, value in (("out", out), ("cut", np.int64(code)), ("least", np.float32(least))):
            tensors.append(onnx.numpy_helper.from_array(np.asarray(value), f"expunge/{name}"))
        made = onnx.helper.make_node
        nodes += [
            made("Add", ["probabilities", "expunge/out"], ["expunge/others"]),
            made("ArgMax", ["expunge/others"], ["expunge/other"], axis=1, keepdims=0),
            made("Gather", ["probabilities", "expunge/cut"], ["expunge/own"], axis=1),
            made("GreaterOrEqual", ["expunge/own", "expunge/least"], ["expunge/is_reached"]),
            made("Where", ["expunge/is_reached", "expunge/cut", "expunge/other"], [codes]),
        ]
    tensors.append(onnx.numpy_helper.from_array(classes, labels))
    nodes.append(onnx.helper.make_node("Gather", [labels, codes], ["label"], axis=0))
    return onnx.helper.make_tensor_value_info("label", getattr(onnx.TensorProto, kind), [None])


def _plain_classes(classes: Iterable[Any]) -> tuple[Any, str]:
    array = np.asarray(classes)
    for kinds, dtype, name in (("b", np.bool_, "BOOL"), ("iu", np.int64, "INT64"), ("f", np.float64, "DOUBLE")):
        if array.dtype.kind in kinds:
            return array.astype(dtype), name
    return np.array([str(each) for each in array.tolist()], dtype=object), "STRING"
