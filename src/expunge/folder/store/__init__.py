"""A deployment on disk: records with true erasure, models, requests, books; SQLite and files."""

from expunge.folder.store.batches import Batch, Name, lasting_names
from expunge.folder.store.columns import Form
from expunge.folder.store.ensembles import dump_classes, erase, load_classes, read_records, read_state, switch
from expunge.folder.store.files import FolderLock, explained, flush_files
from expunge.folder.store.replacement import exchange, hidden, is_vacant, settle
from expunge.folder.store.requests import Request, RequestBook
from expunge.folder.store.stages import FirstStage, Stage, Staged, stage
from expunge.folder.store.store import BookKeeper, ClosedBooks, Present, Store

__all__ = [
    "Batch",
    "BookKeeper",
    "ClosedBooks",
    "FirstStage",
    "FolderLock",
    "Form",
    "Name",
    "Present",
    "Request",
    "RequestBook",
    "Stage",
    "Staged",
    "Store",
    "dump_classes",
    "erase",
    "exchange",
    "explained",
    "flush_files",
    "hidden",
    "is_vacant",
    "lasting_names",
    "load_classes",
    "read_records",
    "read_state",
    "settle",
    "stage",
    "switch",
]
