"""The demonstration behind `expunge demo`."""

from expunge.demo.story import DemoReport, Step, run_demo

__all__ = ["DemoReport", "Step", "run_demo"]
