"""Files of results: read, and their folders checked and made, with one line that names what the disk refuses."""

from __future__ import annotations

import os
from pathlib import Path

from expunge.core.errors import InputError


def in_words(error: OSError) -> str:
    """The reason, without the error's number."""
    return error.strerror or str(error)


def read_text(path: Path) -> str:
    """Read a file of UTF-8 text."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path} cannot be read: {in_words(error)}") from None
    except UnicodeDecodeError:
        raise InputError(f"{path} is not UTF-8 text") from None


def make_folder(folder: Path) -> None:
    """Make a folder for files if it is missing. Refuse it in one line if that fails."""
    check_folder(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{str(folder)!r} cannot be written to: {in_words(error)}") from None


def check_folder(folder: Path) -> None:
    """Refuse a folder that cannot be written to or made. Nothing is made yet."""
    try:
        there = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    except OSError as error:
        raise InputError(f"{str(folder)!r} cannot be written to: {in_words(error)}") from None
    if not there.is_dir():
        raise InputError(f"{str(folder)!r} cannot be written to: {there.name!r} is not a folder")
    if not os.access(there, os.W_OK | os.X_OK):
        raise InputError(f"{str(folder)!r} cannot be written to: {there.name!r} is not writable")
