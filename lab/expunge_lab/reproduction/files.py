"""Files of results: written whole or not at all, with one line that names the file when the disk refuses."""

from __future__ import annotations

import os
from pathlib import Path

from expunge.core.errors import InputError


def in_words(error: OSError) -> str:
    """Why, without the number."""
    return error.strerror or str(error)


def read_text(path: Path) -> str:
    """A file of UTF-8 text."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path} cannot be read: {in_words(error)}") from None
    except UnicodeDecodeError:
        raise InputError(f"{path} is not UTF-8 text") from None


def write_whole(path: Path, content: bytes) -> Path:
    """Put a file in place, complete; on a full disk the old one stays."""
    target = path.resolve()  # what a link points to is replaced, not the link
    try:
        if target.exists() and not target.is_file():
            target.write_bytes(content)  # a pipe or a device, which nothing can take the place of
        else:
            _replace(target, content)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {in_words(error)}") from None
    return path


def _replace(path: Path, content: bytes) -> None:
    part = path.with_name(f".{path.name}.part")
    try:
        part.write_bytes(content)
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def make_folder(folder: Path) -> None:
    """So that files can be written there, if it is not there yet."""
    check_folder(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{str(folder)!r} cannot be written to: {in_words(error)}") from None


def check_folder(folder: Path) -> None:
    """Whether files can be written there, or the folder be made; nothing is made yet."""
    try:
        there = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    except OSError as error:
        raise InputError(f"{str(folder)!r} cannot be written to: {in_words(error)}") from None
    if not there.is_dir():
        raise InputError(f"{str(folder)!r} cannot be written to: {there.name!r} is not a folder")
    if not os.access(there, os.W_OK | os.X_OK):
        raise InputError(f"{str(folder)!r} cannot be written to: {there.name!r} is not writable")
