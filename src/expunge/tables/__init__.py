"""Tables in files: CSV, Parquet, Arrow and NPZ, read into columns and written whole or not at all.

A `Schema` says what each column is for (label, id, subject, weight, feature). It is kept with the deployment, so that
later files may hold the same columns in any order. An error is one line that names the file, column and row. Rows are
counted from 1, without the header. pandas and pyarrow are loaded when a file is read.
"""

from __future__ import annotations

from expunge.tables.formats import Numbers, Table, encode_answers, read_table, table_format
from expunge.tables.keys import KeyKind, match_class, match_key, match_keys, parse_classes
from expunge.tables.schema import Feature, Labelled, Schema, read_labelled
from expunge.tables.streams import read_stream

__all__ = [
    "Feature",
    "KeyKind",
    "Labelled",
    "Numbers",
    "Schema",
    "Table",
    "encode_answers",
    "match_class",
    "match_key",
    "match_keys",
    "parse_classes",
    "read_labelled",
    "read_stream",
    "read_table",
    "table_format",
]
