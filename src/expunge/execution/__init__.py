"""Where shards train: in this process or in several."""

from expunge.execution.local import Executor, Processes, Serial, make_executor

__all__ = ["Executor", "Processes", "Serial", "make_executor"]
