"""bertkit index"""

import logging
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from bertkit.cli.models import EMBEDDING_MODEL
from bertkit.cli.output import Device, emit, note
from bertkit.errors import UsageError
from bertkit.files import extension
from bertkit.files.whole_files import check_writable

if TYPE_CHECKING:
    from bertkit.documents.document import SkippedFile
    from bertkit.search.planning import IndexReport

STORE = Path(".bertkit-index")
"""The default folder of the index."""

Store = Annotated[Path, Parameter(help="The folder of the index.")]

_PARTS_SHOWN = 3
"""Number of skipped parts, such as rows, that are listed of a file."""
_WITHOUT_TEXT_SHOWN = 20
"""Number of skipped files without text that are listed."""


class _Notes(logging.Handler):
    """Prints what is logged as notes."""

    def emit(self, record: logging.LogRecord) -> None:
        note(record.getMessage())


@contextmanager
def _printed_log() -> Iterator[None]:
    """Print what is logged: with a line for each file, unless a bar shows the progress on a terminal."""
    log, notes = logging.getLogger("bertkit"), _Notes()
    level = log.level
    log.addHandler(notes)
    log.setLevel(logging.WARNING if sys.stderr.isatty() else logging.INFO)
    try:
        yield
    finally:
        log.removeHandler(notes)
        log.setLevel(level)


@_printed_log()
def command(
    *paths: str,
    store: Store = STORE,
    model: str | None = None,
    column: str | None = None,
    exclude: list[str] | None = None,
    include: list[str] | None = None,
    kind: Annotated[str | None, Parameter(name="--as")] = None,
    passage_length: int | None = None,
    overlap: int | None = None,
    query_prompt: Annotated[str | None, Parameter(allow_leading_hyphen=True)] = None,
    document_prompt: Annotated[str | None, Parameter(allow_leading_hyphen=True)] = None,
    no_prompt: Annotated[bool, Parameter(negative=())] = False,
    scan: str | None = None,
    sparse: str | None = None,
    language: str | None = None,
    remove: Annotated[bool, Parameter(negative=())] = False,
    watch: Annotated[bool, Parameter(negative=())] = False,
    dry_run: bool = False,
    export: Path | None = None,
    precision: str | None = None,
    device: Device = "auto",
) -> None:
    """Index files and folders for `bertkit search`, or bring an index up to date with them.

    Only what changed is embedded. Files that are no longer in a folder are removed from the index, as are those of a
    path that no longer exists. After Ctrl-C, the next run resumes.

    Parameters
    ----------
    paths
        Files and folders. Folders are searched for text, source code, office documents, e-mail and tables, except for
        hidden files and those that .gitignore names.
    model
        A folder, a hub name, or the import name of an installed model package; by default that of the index, or
        all-MiniLM-L6-v2 for a new index.
    column
        The column or key that holds the text of rows, or several as in title,body: each table is read by those it has.
        By default that of the previous run, or text, or the only one, or the one with sentences, which is noted.
    exclude
        Files and folders to omit: a name, or a pattern as in .gitignore; can be repeated.
    include
        Of folders, only files with such a name; can be repeated.
    kind
        Read all files as this kind, text or an extension such as md, instead of by their names.
    passage_length
        Maximum number of characters in a passage; by default that of the previous run, or 800.
    overlap
        Maximum number of characters that a passage repeats from the previous one, in whole sentences; by default that
        of the previous run, or 150.
    query_prompt
        Prefix of queries; by default that of the index, or the model's for a new one.
    document_prompt
        Prefix of passages; by default likewise.
    no_prompt
        Use no prompts.
    scan
        How searches by meaning read the vectors of a new index: int8 (the default) or float32, which are exact, or
        1-bit, which is faster and approximate.
    sparse
        A SPLADE model for learned sparse vectors of a new index, which searches then use, too.
    language
        Language of the documents of a new index, for the stems of words: english (the default), german, french, ...
    remove
        Remove the paths, and all that is below them, from the index, or documents by their ids. Files that exist come
        back when their folder is indexed again, unless you exclude them.
    watch
        After that, wait for changes of the paths, and index each, until Ctrl-C.
    dry_run
        Read the files, and list the changes and what would be skipped without making them.
    export
        A parquet file to write all passages to, with their vectors; without paths, nothing is updated first.
    precision
        As in bertkit embed; by default that of the index, or float32 for a new one.
    """
    from bertkit.documents.passages import PassageOptions
    from bertkit.documents.sources import FileOptions
    from bertkit.documents.watching import changes_at
    from bertkit.search.index import Index
    from bertkit.search.planning import IndexReport, plan
    from bertkit.search.store.database import has_store
    from bertkit.search.updating import last_passages, preview

    files = FileOptions(tuple(exclude or ()), tuple(include or ()), kind or "")
    if not paths and export is None:
        raise UsageError("index requires files or folders, such as: bertkit index docs/")
    given = {name: value for name, value in (("length", passage_length), ("overlap", overlap)) if value is not None}
    is_new = not has_store(store)
    passages = PassageOptions(**given) if is_new else PassageOptions()  # checked before the model is loaded
    if dry_run and export is not None:
        raise UsageError("--dry-run writes nothing: omit it, or --export")
    if is_new and (remove or not paths):
        raise UsageError(f"{store} holds no index to {'change' if remove else 'export'}: name its folder with --store")
    if watch and (dry_run or remove or export is not None):
        raise UsageError("--watch indexes files until you stop it: omit it, or --dry-run, --remove and --export")
    if remove and (given or export is not None or (column, kind, exclude, include) != (None,) * 4):
        raise UsageError("--remove takes paths, --store and --dry-run: omit the other options")
    changes = changes_at(paths, store) if watch else ()
    if export is not None:
        check_writable(export, *paths, endings=(".parquet",))
    report, num_passages = IndexReport(), 0
    if dry_run and is_new:
        preview(plan(None, paths, passages, column, files, report)[0], passages, report)
    else:
        with Index.open(
            store,
            model or (EMBEDDING_MODEL if is_new else None),
            precision=precision,
            device=device,
            query_prompt=query_prompt,
            document_prompt=document_prompt,
            no_prompt=no_prompt,
            scan=scan,
            sparse=sparse,
            language=language,
        ) as index:
            is_by_cosine = index.store.identity.similarity == "cosine"
            if is_new and is_by_cosine and (other := index.encoder.model.sentence_settings.other_than_cosine):
                name = index.store.identity.model_name
                note(f"{name} is published with the {other}: the index compares by the cosine")
            passages = replace(last_passages(index.store), **given)
            if remove:
                report = index.remove([*paths], dry_run=dry_run)
            else:
                report = index.add([*paths], passages=passages, column=column, files=files, dry_run=dry_run)
            num_passages = len(index)
            if export is not None:
                index.export(export)
            if watch:
                _print_report(report, store, num_passages, dry_run)
                for _ in changes:
                    before = {*report.skipped}
                    report = index.add([*paths], passages=passages, column=column, files=files)
                    for row in _changes(report):
                        note(f"{row.pop('change')} {' from '.join(row.values())}")
                    _print_skipped(one for one in report.skipped if one not in before)
                return
    if dry_run or remove:
        emit(_changes(report))
    if export is not None:
        note(f"{export}: {num_passages} passages")
    if paths:
        _print_report(report, store, num_passages, dry_run)


def _changes(report: "IndexReport") -> list[dict[str, str]]:
    """A row for each file that changed, or would."""
    return [
        *({"change": "new", "file": name} for name in report.new),
        *({"change": "changed", "file": name} for name in report.changed),
        *({"change": "renamed", "file": name, "from": old} for old, name in report.renamed),
        *({"change": "removed", "file": name} for name in report.removed),
    ]


def _print_report(report: "IndexReport", store: Path, num_passages: int, dry_run: bool) -> None:
    note(
        f"{'would be ' if dry_run else ''}{len(report.new)} new, {len(report.changed)} changed, "
        f"{len(report.renamed)} renamed, {len(report.removed)} removed, {report.num_unchanged} unchanged files"
    )
    for name, path in report.replaced:
        note(f"{name} {'would replace' if dry_run else 'replaced'} {path}, which exists: give full paths to keep both")
    if dry_run:
        note(f"{report.num_passages} passages in the new and changed files")
    else:
        note(f"{store}: {num_passages} passages, {report.num_embedded} embedded now")
    if report.num_cut:
        note(
            f"{report.num_cut} passages exceed the model's length limit and were cut: choose a smaller --passage-length"
        )
    _print_skipped(report.skipped)


def _print_skipped(files: "Iterable[SkippedFile]") -> None:
    """Print what was skipped; files without text last, and only some: a folder of pictures must not hide the document
    that could not be read."""
    num_parts = Counter[str]()
    without_text: list[SkippedFile] = []  # and excluded ones
    for skipped in files:
        if skipped.is_other_format or skipped.is_excluded:
            without_text.append(skipped)
            continue
        num_parts[skipped.path] += 1
        if num_parts[skipped.path] <= _PARTS_SHOWN:
            note(f"skipped {skipped.path}: {skipped.why}")
    for path, number in num_parts.items():
        if number > _PARTS_SHOWN:
            note(f"skipped {number - _PARTS_SHOWN} more parts of {path}")
    for skipped in without_text[:_WITHOUT_TEXT_SHOWN]:
        note(f"skipped {skipped.path}: {skipped.why}")
    if further := Counter(extension(skipped.path) or "no extension" for skipped in without_text[_WITHOUT_TEXT_SHOWN:]):
        kinds = ", ".join(f"{number} {ending}" for ending, number in further.most_common(_WITHOUT_TEXT_SHOWN))
        note(f"skipped {further.total()} more files without text or excluded ones: {kinds}")
