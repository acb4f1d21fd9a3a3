"""A deployment on disk: records with true erasure, models, requests, books; SQLite and files."""

from expunge.store.batches import Batch, Name, lasting_names
from expunge.store.columns import Form
from expunge.store.ensembles import (
    Staged,
    dump_classes,
    erase,
    load_classes,
    read_records,
    read_state,
    stage,
    stage_first,
    switch,
    write_first,
)
from expunge.store.files import FolderLock, explained, flush_file, flush_files
from expunge.store.requests import Request, RequestBook
from expunge.store.store import BookKeeper, ClosedBooks, Present, Store

__all__ = [
    "Batch",
    "BookKeeper",
    "ClosedBooks",
    "FolderLock",
    "Form",
    "Name",
    "Present",
    "Request",
    "RequestBook",
    "Staged",
    "Store",
    "dump_classes",
    "erase",
    "explained",
    "flush_file",
    "flush_files",
    "lasting_names",
    "load_classes",
    "read_records",
    "read_state",
    "stage",
    "stage_first",
    "switch",
    "write_first",
]
