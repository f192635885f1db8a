"""Write vectors to npy, jsonl or parquet files, streaming and atomically."""

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy

from bertkit.files.json_files import json_lines, write_json_lines
from bertkit.files.tables import required_parquet
from bertkit.files.whole_files import check_writable, whole_file

FORMATS = (".npy", ".jsonl", ".parquet")

Embedded = Iterable[tuple[list[str], np.ndarray]]
"""Texts, and their (n, E) float32 vectors."""


def check_vector_file(path: Path, *inputs: str | Path | None) -> None:
    """Check that a file of vectors can be written, before any work is done.

    Raises:
        UsageError: as `check_writable`.
        DependencyError: parquet without pyarrow.
    """
    check_writable(path, *inputs, endings=FORMATS)
    if path.suffix == ".parquet":
        required_parquet()


def write_vectors(path: Path, embedded: Embedded) -> None:
    """Write vectors by extension: npy holds the (N, E) array, jsonl and parquet hold each text with its vector."""
    check_vector_file(path)
    if path.suffix == ".jsonl":
        write_json_lines(path, _rows(embedded))
        return
    with whole_file(path) as temporary:
        if path.suffix == ".npy":
            with open(temporary, "wb") as file:
                _write_npy(file, embedded)
        else:
            _write_parquet(temporary, embedded)


def print_vectors(embedded: Embedded) -> None:
    """Print vectors as JSON lines: text, embedding."""
    sys.stdout.writelines(json_lines(_rows(embedded)))


def _write_npy(file: IO[bytes], embedded: Embedded) -> None:
    """Write an npy file. The number of rows is known only at the end; numpy's header leaves room for it."""
    shape = (0, 0)
    _write_npy_header(file, shape)
    for _, vectors in embedded:
        shape = (shape[0] + len(vectors), vectors.shape[1])
        file.write(np.ascontiguousarray(vectors, np.float32).tobytes())
    start = file.tell() - shape[0] * shape[1] * 4
    file.seek(0)
    _write_npy_header(file, shape)
    if file.tell() != start:
        raise AssertionError(f"the npy header of shape {shape} does not fit the room left for it")


def _write_npy_header(file: IO[bytes], shape: tuple[int, int]) -> None:
    npy.write_array_header_1_0(file, {"shape": shape, "fortran_order": False, "descr": "<f4"})


def _rows(embedded: Embedded) -> Iterator[dict[str, Any]]:
    for texts, vectors in embedded:
        for text, vector in zip(texts, vectors.tolist(), strict=True):
            yield {"text": text, "embedding": vector}


def _write_parquet(path: Path, embedded: Embedded) -> None:
    import pyarrow as pa
    from pyarrow.parquet import ParquetWriter

    writer = None
    try:
        for texts, vectors in embedded:
            embedding = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), vectors.shape[1])
            table = pa.table({"text": texts, "embedding": embedding})
            writer = writer or ParquetWriter(path, table.schema)
            writer.write_table(table)
    finally:
        if writer is not None:
            writer.close()
