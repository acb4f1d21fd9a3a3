"""Torch and Opacus, loaded when first used; the user's own functions, found by name; training from a seed alone.

Torch's layers draw from the process's global generator: their initial weights, dropout, and the noise of DP-SGD. So
`seeded` takes that generator over, starts it from the seed, and restores it afterwards. It does the same with the
global generators of numpy and Python, for factories and training functions that use those. One lock keeps two threads
from taking over at the same time. Linear algebra runs on one thread meanwhile, so that sums do not depend on the number
of cores.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expunge.core.checks import require_count
from expunge.core.errors import ExpungeError, MissingExtraError, ParameterError
from expunge.core.imports import import_named, names_code

Named = Callable[..., Any] | str


def import_extra(name: str) -> Any:
    """The module `name` of torch or Opacus, or one line that says how to install it."""
    package = name.partition(".")[0]
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != package:
            raise
        message = f"this needs {package}, which is not installed: pip install 'expunge[torch]'"
        raise MissingExtraError(message) from None


def resolve(named: Named, *, option: str) -> Callable[..., Any]:
    """A callable as it is, or the one that 'package.module:name' stands for."""
    found: Any = import_named(named, option=option) if names_code(named) else named
    if not callable(found):
        raise ParameterError(f"{option} must be a callable or 'package.module:name', got {named!r}")
    return found  # type: ignore[no-any-return]


def first_line(error: Exception) -> str:
    """What torch, Opacus or the user's module says, without the pages that may follow."""
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}".removesuffix(": ")


_LOCK = threading.RLock()
_STATE_BYTES = 5056  # of torch's Mersenne twister: a header of 24 bytes, 624 words of 8 bytes, what is left of normals
_KEY = slice(24, 24 + 624 * 8)


@contextmanager
def seeded(seed: int, *, device: Any, dtype: Any) -> Iterator[None]:
    """Everything random inside depends on `seed` alone; outside nothing is changed."""
    seed = require_count("seed", seed, least=0, most=2**64 - 1)  # numpy and Python would take None for "some seed"
    torch = import_extra("torch")
    with _LOCK, ExitStack() as stack:
        stack.callback(torch.set_num_threads, torch.get_num_threads())
        stack.callback(torch.set_default_dtype, torch.get_default_dtype())
        stack.callback(torch.set_rng_state, torch.get_rng_state())
        stack.callback(np.random.set_state, np.random.get_state())  # noqa: NPY002
        stack.callback(random.setstate, random.getstate())
        torch.set_num_threads(1)
        torch.set_default_dtype(dtype)
        torch.set_rng_state(torch.from_numpy(_generator_state(torch, seed)))
        np.random.seed(np.random.SeedSequence(seed).generate_state(4))  # noqa: NPY002
        random.seed(seed)
        if device.type == "cuda":
            stack.callback(torch.cuda.set_rng_state, torch.cuda.get_rng_state(device), device)
            stack.enter_context(torch.cuda.device(device))
            torch.cuda.manual_seed(seed)
            stack.enter_context(torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True))
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        yield


def _generator_state(torch: Any, seed: int) -> NDArray[np.uint8]:
    """A state of torch's CPU generator with all bits of the seed in it.

    `torch.manual_seed` keeps the lowest 32 bits only: few enough to try them all, and to find the noise of DP-SGD.
    """
    state: NDArray[np.uint8] = torch.Generator().manual_seed(0).get_state().numpy().copy()
    if state.size != _STATE_BYTES:
        raise ExpungeError(f"torch {torch.__version__} keeps its random state in an unknown form")
    key: NDArray[np.uint32] = np.random.MT19937(np.random.SeedSequence(seed)).state["state"]["key"]
    state[_KEY] = key.astype(np.uint64).view(np.uint8)
    return state
