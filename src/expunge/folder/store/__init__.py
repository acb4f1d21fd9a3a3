"""A deployment on disk: records with true erasure, models, requests and budgets, in SQLite and files."""

from expunge.folder.store.files import FolderLock
from expunge.folder.store.replacement import hidden_name, is_vacant, recover_replacement, replace_folder
from expunge.folder.store.store import Store

__all__ = ["FolderLock", "Store", "hidden_name", "is_vacant", "recover_replacement", "replace_folder"]
