"""Tables in files: CSV, Parquet and NPZ, read into columns and written whole or not at all.

What the columns mean to a deployment (label, id, subject, weight, features) is a `Schema`, kept with the deployment, so
that later files may hold the same columns in any order. Mistakes are one line that names the file, column and row; rows
are counted from 1, without the header. pandas and pyarrow are loaded when a file is read.
"""

from __future__ import annotations

from expunge.tables.keys import match_key, match_keys, match_labels, parse_classes, read_keys, read_labels
from expunge.tables.reading import FORMATS, Numbers, Table, read_table, table_format
from expunge.tables.schema import Feature, Labelled, Schema, read_labelled
from expunge.tables.writing import Draft, encode_answers

__all__ = [
    "FORMATS",
    "Draft",
    "Feature",
    "Labelled",
    "Numbers",
    "Schema",
    "Table",
    "encode_answers",
    "match_key",
    "match_keys",
    "match_labels",
    "parse_classes",
    "read_keys",
    "read_labelled",
    "read_labels",
    "read_table",
    "table_format",
]
