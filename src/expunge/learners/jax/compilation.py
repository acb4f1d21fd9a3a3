"""Keeping compiled programs between processes."""

from __future__ import annotations

from pathlib import Path

import jax


def use_compilation_cache(folder: str | Path) -> None:
    """Keep every compiled program in `folder` and find it there again, in any later process."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
