"""Bulk embedding: files are embedded in shards, by any number of processes, and a restart repeats no finished shard.

A job is a folder: plan.json, which is never changed; for each shard a parquet file of records; and, written last, a
marker with the checksum of that file. The file is named by its checksum, so a process that writes other bytes for the
same shard, as another processor can, leaves the file of a marker unchanged. Ids and texts are those that
`bertkit index` gives the same files.
"""

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Self
from uuid import uuid4

from tqdm import tqdm

from bertkit.documents.document import SkippedFile, SourceFile, file_state
from bertkit.documents.passages import PassageOptions
from bertkit.documents.readers import read_documents
from bertkit.documents.sources import content_of, find_sources
from bertkit.errors import DataError, UsageError, check_type, checked_count, checked_path
from bertkit.files.formats import check_format
from bertkit.files.whole_files import only_writer, whole_file
from bertkit.search.encoder import Encoder
from bertkit.search.parquet import read_records, write_records
from bertkit.search.passage_records import PassageRecords, without_zeros
from bertkit.search.records import Identity, Record
from bertkit.search.store.record_rows import batches_of

FORMAT = 2
SHARD_BYTES = 1 << 26
_PLAN = "plan.json"


@dataclass(frozen=True)
class _Plan:
    """What plan.json holds."""

    identity: Identity
    passages: PassageOptions
    column: str | None
    shards: tuple[tuple[SourceFile, ...], ...]


class BulkEmbedding:
    """A job that embeds files in shards.

    Args:
        folder: folder of the job, made by `create`.

    Raises:
        DataError: the folder holds no plan, or one of another version.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = checked_path("the folder of a job", folder)
        self._plan = _read_plan(self.folder / _PLAN)

    @classmethod
    def create(
        cls,
        folder: str | Path,
        paths: str | Path | Iterable[str | Path],
        encoder: Encoder,
        *,
        passages: PassageOptions | None = None,
        column: str | None = None,
        shard_bytes: int = SHARD_BYTES,
    ) -> Self:
        """Plan a job: list the files and divide them into shards.

        Args:
            folder: a new folder.
            paths: files and folders, as for `Index.add`.
            encoder: the model with its prompts; workers open it by its name, and compare its content.
            passages: how documents are split; None: defaults of `PassageOptions`.
            column: key or column of the text of rows; None: "text", or the only one.
            shard_bytes: a shard ends with the file that reaches this size. Files are not divided.

        Raises:
            DataError: no such file or folder, or no file that can be read.
            UsageError: the folder holds a plan already, or another process is writing one.
        """
        folder = checked_path("the folder of a job", folder)
        check_type("the encoder", encoder, Encoder)
        _check_unplanned(folder)
        shard_bytes = checked_count("shard_bytes", shard_bytes)
        skipped: list[SkippedFile] = []
        sources = find_sources([paths] if isinstance(paths, str | Path) else paths, skipped)
        if not sources:
            first = f", such as {skipped[0].path}: {skipped[0].why}" if skipped else ""
            raise DataError(f"no files to embed; {len(skipped)} were skipped{first}")
        shards: list[list[SourceFile]] = [[]]
        size = 0  # of the last shard, in bytes
        for source in sources:
            if size >= shard_bytes:
                shards.append([])
                size = 0
            size += source.size
            shards[-1].append(replace(source, path=source.path.resolve()))
        plan = {
            "format": FORMAT,
            "identity": asdict(encoder.identity),
            "passages": asdict(passages or PassageOptions()),
            "column": column,
            "shards": [[[one.name, str(one.path), one.size, one.modified] for one in shard] for shard in shards],
        }
        with only_writer(folder):
            _check_unplanned(folder)  # by another process meanwhile
            with whole_file(folder / _PLAN) as file:
                file.write_text(json.dumps(plan, indent=1), encoding="utf-8", newline="\n")
        return cls(folder)

    @property
    def identity(self) -> Identity:
        """Identity of the embedding."""
        return self._plan.identity

    def pending(self) -> list[int]:
        """Numbers of the shards that are not finished."""
        return [number for number in range(len(self._plan.shards)) if not self._marker(number).exists()]

    def run(self, device: str = "auto", progress: bool | None = None) -> None:
        """Embed the shards that are not finished, one after the other, in this process.

        Args:
            progress: show a bar after two seconds; None: on a terminal.

        Raises:
            CheckpointError: the model is missing.
            UsageError: the model has changed.
            DataError: a file has changed since the plan was made.
        """
        encoder = Encoder.of_identity(self.identity, device)
        hidden = None if progress is None else not progress
        for number in tqdm(self.pending(), "embedding", unit="shard", delay=2, disable=hidden, leave=False):
            self.run_shard(number, encoder)

    def run_shard(self, number: int, encoder: Encoder) -> None:
        """Embed one shard, unless it is finished. Processes that embed the same shard write the same records.

        Raises:
            OSError: a file cannot be read.
            DataError: a file has changed since the plan was made.
            DependencyError: a library is not installed here that reads a file.
        """
        if self._marker(number).exists():
            return
        skipped: list[SkippedFile] = []
        written = self.folder / f".shard-{number:05}.{uuid4().hex}"
        try:
            num_records = write_records(written, self._embedded(number, encoder, skipped), self.identity)
            checksum = content_of(written)
            os.replace(written, self._file(number, checksum))
        finally:
            written.unlink(missing_ok=True)
        marker = {
            "num_records": num_records,
            "sha256": checksum,
            "skipped": [[one.path, one.why] for one in skipped],
        }
        with whole_file(self._marker(number)) as file:
            file.write_text(json.dumps(marker), encoding="utf-8", newline="\n")

    def records(self) -> Iterator[Record]:
        """The records of all shards, for the ``add`` of any store.

        Raises:
            DataError: a shard is not finished, or its file is damaged.
        """
        if pending := self.pending():
            raise DataError(
                f"{len(pending)} of {len(self._plan.shards)} shards in {self.folder} are not finished: run the job"
            )
        for number in range(len(self._plan.shards)):
            checksum = json.loads(self._marker(number).read_text(encoding="utf-8"))["sha256"]
            file = self._file(number, checksum)
            if not file.exists() or content_of(file) != checksum:
                raise DataError(f"{file} is damaged: delete {self._marker(number)} and run the job again")
            yield from read_records(file)

    def skipped(self) -> list[SkippedFile]:
        """The files, rows and passages that finished shards lack, with reasons."""
        markers = (self._marker(number) for number in range(len(self._plan.shards)))
        return [
            SkippedFile(*each)
            for marker in markers
            if marker.exists()
            for each in json.loads(marker.read_text(encoding="utf-8"))["skipped"]
        ]

    def _file(self, number: int, checksum: str) -> Path:
        return self.folder / f"shard-{number:05}.{checksum[:16]}.parquet"

    def _marker(self, number: int) -> Path:
        return self.folder / f"shard-{number:05}.done.json"

    def _embedded(self, number: int, encoder: Encoder, skipped: list[SkippedFile]) -> Iterator[Record]:
        for batch in batches_of(self._passages(number, skipped)):
            vectors = encoder.embed_document([record.text for record in batch])
            records = (replace(record, vector=vector) for record, vector in zip(batch, vectors, strict=True))
            yield from without_zeros(records, self.identity, skipped)

    def _passages(self, number: int, skipped: list[SkippedFile]) -> Iterator[Record]:
        records = PassageRecords(self._plan.passages)
        for source in self._plan.shards[number]:
            if file_state(source.path, source.size, source.modified) in ("changed", "missing"):
                raise DataError(
                    f"{source.path} has changed since the plan was made: plan the job again in a new folder"
                )
            with source.path.open("rb"):
                pass  # a file that cannot be read here and now fails the shard, which is tried again
            for document in read_documents(source, self._plan.column, skipped, must_read=True):
                for record, _ in records.of(source.name, document):
                    yield record


def _check_unplanned(folder: Path) -> None:
    if (folder / _PLAN).exists():
        raise UsageError(f"{folder} holds a plan, which cannot be changed: run it, or choose a new folder")


def _read_plan(path: Path) -> _Plan:
    try:
        plan = json.loads(path.read_text(encoding="utf-8"))
        check_format(plan["format"], FORMAT, path, "plan the job again in a new folder", DataError)
        shards = [
            tuple(SourceFile(name, Path(file), size, modified) for name, file, size, modified in shard)
            for shard in plan["shards"]
        ]
        return _Plan(Identity(**plan["identity"]), PassageOptions(**plan["passages"]), plan["column"], tuple(shards))
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}; create the job first") from None
    except DataError:
        raise
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{path} is not a plan of bulk embedding: {error}") from None
