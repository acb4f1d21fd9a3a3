"""The JAX stack is an extra: whoever has not got it is told in one line how to get it.

Keeping compiled programs between processes.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from expunge.core.errors import ExpungeError

_NEEDED = ("jax", "optax")


class MissingExtraError(ExpungeError, ImportError):
    """A part of expunge was used whose optional packages are not installed."""


def require_jax() -> None:
    """Nothing where JAX and Optax can be imported, a one-line error otherwise."""
    for name in _NEEDED:
        try:
            import_module(name)
        except ImportError as error:
            message = f"the JAX learner needs {name}, which is not installed: pip install 'expunge[jax]'"
            raise MissingExtraError(message) from error


def use_compilation_cache(folder: str | Path) -> None:
    """Keep every compiled program in `folder` and find it there again, in any later process."""
    import jax

    Path(folder).mkdir(parents=True, exist_ok=True)
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
