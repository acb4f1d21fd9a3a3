"""From a factory to a module that is ready to train or to vote, and its weights to and from plain arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from expunge.core.errors import ExpungeError, InputError, ParameterError
from expunge.core.features import Features
from expunge.training.learners.pytorch.extra import Named, first_line, import_extra, resolve, seeded
from expunge.training.learners.pytorch.rows import Shard, as_numbers

State = dict[str, NDArray[Any]]

_OWNED = "_expunge_owned"


class Network:
    """An architecture: every model of a learner is this and a `State`.

    What differs between two modules of the factory must be in parameters and buffers, since only those are kept. Not a
    record that a store would write down: a stored model must not be able to name code.
    """

    def __init__(self, factory: Named, *, num_classes: int | None, device: str, dtype: str) -> None:
        self.factory = factory
        self.num_classes = num_classes
        self.device = device
        self.dtype = dtype

    def place(self) -> Any:
        """The torch device; `auto` is the first GPU where there is one."""
        torch = import_extra("torch")
        has_gpu = torch.cuda.is_available()
        if self.device == "auto":
            return torch.device("cuda" if has_gpu else "cpu")
        if self.device.startswith("cuda") and not has_gpu:
            raise ParameterError(f"device {self.device!r} is not available here")
        return torch.device(self.device)

    def number_type(self) -> Any:
        """The torch type in which to train."""
        return getattr(import_extra("torch"), self.dtype)

    def build(self) -> Any:
        """A module with fresh weights, drawn from torch's global generator."""
        torch = import_extra("torch")
        with torch.device("cpu"):
            module = resolve(self.factory, option="factory")()
        if not isinstance(module, torch.nn.Module):
            raise ParameterError(f"factory must return a torch.nn.Module, got {module!r}")
        _take_over(module)
        return module.to(device=self.place(), dtype=self.number_type())

    def loaded(self, state: Mapping[str, NDArray[Any]]) -> Any:
        """A module for voting, with these weights: in evaluation mode, in single precision."""
        with seeded(0, device=self.place(), dtype=self.number_type()):  # the weights it starts with mean nothing
            module = self.build()
        write_state(module, state)
        return module.float().eval()

    def training_data(self, shard: Shard) -> tuple[Any, Any, Any]:
        """A shard as tensors."""
        torch = import_extra("torch")
        labels = torch.tensor(shard.y, dtype=torch.int64, device=self.place())
        factors = None
        if shard.weights is not None:
            factors = torch.tensor(shard.weights, dtype=self.number_type(), device=self.place())
        return self.tensor(shard.X, self.number_type()), labels, factors

    def tensor(self, X: Features, dtype: Any) -> Any:
        """Rows as a tensor of its own, aligned as torch does it: sums do not depend on where numpy put the rows."""
        return import_extra("torch").tensor(as_numbers(X), dtype=dtype, device=self.place())

    def check_scores(self, module: Any, X: Any, y: Any) -> None:
        """One score for each class, tried on the first rows (which also lets lazy layers find their sizes)."""
        torch = import_extra("torch")
        rows = X[:2]
        try:
            with torch.no_grad():
                scores = module.eval()(rows)
        except Exception as error:
            shape = tuple(rows.shape[1:])
            raise ParameterError(f"the module fails on rows of the shape {shape}: {first_line(error)}") from error
        found = tuple(getattr(scores, "shape", ()))
        classes = self.num_classes
        if classes is None and len(found) == 2:
            classes = max(found[1], int(y.max()) + 1)
        if found != (len(rows), classes):
            expected = f"({len(rows)}, {'classes' if classes is None else classes})"
            raise ParameterError(f"the module must return a score for every class: shape {expected}, got {found}")


def _take_over(module: Any) -> None:
    """Refuse parameters that another module had: trained on one shard, they would carry it into the next."""
    for name, parameter in module.named_parameters():
        if hasattr(parameter, _OWNED):
            raise ParameterError(f"factory must make new parameters on every call, but {name!r} was returned before")
        setattr(parameter, _OWNED, True)


def read_state(module: Any) -> State:
    """Copies of all parameters and buffers (running statistics, and also those that a state dict leaves out)."""
    return {name: tensor.detach().cpu().numpy().copy() for name, tensor in _tensors(module).items()}


def write_state(module: Any, state: Mapping[str, NDArray[Any]]) -> None:
    """Put arrays in the place of a module's parameters and buffers; they must fit."""
    torch = import_extra("torch")
    own = _tensors(module)
    for name in sorted(own.keys() ^ state.keys()):
        lacks = "the stored model has no" if name in own else "the factory's module has no"
        raise InputError(f"the stored model does not fit the factory: {lacks} {name!r}")
    is_lazy = torch.nn.parameter.is_lazy
    for name, tensor in own.items():
        if not is_lazy(tensor) and tuple(tensor.shape) != state[name].shape:
            shapes = f"{state[name].shape} instead of {tuple(tensor.shape)}"
            raise InputError(f"the stored model does not fit the factory: {name!r} has shape {shapes}")
    tensors = {name: torch.tensor(array) for name, array in state.items()}
    with torch.no_grad():
        if any(is_lazy(tensor) for tensor in own.values()):
            module.load_state_dict(tensors, strict=False)  # lazy layers take their sizes from it
        for name, tensor in _tensors(module).items():
            tensor.copy_(tensors[name])


def check_finite(module: Any) -> None:
    """Refuse a model whose weights have run away."""
    torch = import_extra("torch")
    for name, parameter in module.named_parameters():
        if not bool(torch.isfinite(parameter).all()):
            raise ExpungeError(f"training diverged: {name!r} is not finite (a smaller learning rate may help)")


def _tensors(module: Any) -> dict[str, Any]:
    # Tied weights are listed under each of their names.
    parameters = dict(module.named_parameters(remove_duplicate=False))
    return parameters | dict(module.named_buffers(remove_duplicate=False))
