"""Rows and query answers as Arrow tables and pandas frames; the libraries are imported when asked for."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from monitoring.errors import MissingDependency
from monitoring.rows import COLUMNS, CaptureRow
from monitoring.store.contract import Frame

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa


def to_arrow(rows: Sequence[CaptureRow]) -> pa.Table:
    """Give rows as an Arrow table with the columns of `captures`."""
    arrow = import_extra("pyarrow")
    kinds = {
        "String": arrow.string(), "UInt16": arrow.uint16(), "Int16": arrow.int16(), "UInt32": arrow.uint32(),
        "UInt64": arrow.uint64(), "Array(UInt32)": arrow.list_(arrow.uint32()),
    }  # fmt: skip
    # Large: a column of `data` may pass the 2 GiB that 32-bit offsets reach.
    schema = arrow.schema([(name, arrow.large_binary() if name == "data" else kinds[kind]) for name, kind in COLUMNS])
    columns = {name: [_plain(getattr(row, name)) for row in rows] for name, _ in COLUMNS}
    return arrow.table(columns, schema=schema)


def to_pandas(rows: Sequence[CaptureRow]) -> pd.DataFrame:
    """Give rows as a pandas frame with the columns of `captures`."""
    pandas = import_extra("pandas")
    return pandas.DataFrame({name: [_plain(getattr(row, name)) for row in rows] for name, _ in COLUMNS})


def frame_to_pandas(frame: Frame) -> pd.DataFrame:
    """Give the answer of `Store.query` as a pandas frame."""
    return import_extra("pandas").DataFrame(list(frame.rows), columns=list(frame.names))


def import_extra(name: str) -> Any:
    """Import a library of the `frames` extra, or say how to get it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingDependency(f"{name} is not installed", hint='pip install "lockgate[frames]"') from error


def _plain(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value
