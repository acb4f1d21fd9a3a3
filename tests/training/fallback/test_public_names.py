from __future__ import annotations

import inspect

import expunge.training.fallback


def test_all_is_exact():
    names = {
        name
        for name, value in vars(expunge.training.fallback).items()
        if not name.startswith("_") and not inspect.ismodule(value)
    }
    assert set(expunge.training.fallback.__all__) == names
