"""A deployment on disk: records with true erasure, models, requests and budgets, in SQLite and files."""

from expunge.folder.store.files import FolderLock
from expunge.folder.store.replacement import is_vacant, recover_replacement, replace_folder, workshop
from expunge.folder.store.store import Store

__all__ = ["FolderLock", "Store", "is_vacant", "recover_replacement", "replace_folder", "workshop"]
