"""What the figures were measured with: versions, cores and the date, and nothing that names the machine."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
import sklearn

from expunge.core.version import __version__


@dataclass(frozen=True, slots=True)
class Environment:
    """Versions, cores, date."""

    date: str
    expunge: str
    python: str
    numpy: str
    scikit_learn: str
    num_cores: int

    @classmethod
    def current(cls) -> Environment:
        """This process, now."""
        return cls(
            date=datetime.now(UTC).date().isoformat(),
            expunge=__version__,
            python=platform.python_version(),
            numpy=np.__version__,
            scikit_learn=sklearn.__version__,
            num_cores=_num_cores(),
        )


def _num_cores() -> int:
    """The cores that this process may use, where the system says so."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
