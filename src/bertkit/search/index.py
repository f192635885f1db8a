"""Index of documents: search of passages by words, by meaning, or both."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, get_args

from bertkit.documents.document import Document
from bertkit.errors import MissingHeadError, StoreError, UsageError, check_several, checked_count, checked_path
from bertkit.search.filters import Filter
from bertkit.search.parquet import export_parquet
from bertkit.search.query import Query
from bertkit.search.ranking import Mode, results_of
from bertkit.search.records import listed
from bertkit.search.results import FoundAnswer, Result, Results, text_around
from bertkit.search.sparse import SparseIndex
from bertkit.search.store.database import has_store
from bertkit.search.store.vector_store import VectorStore
from bertkit.search.tables import Tables
from bertkit.search.words import LANGUAGES
from bertkit.tasks import Question

if TYPE_CHECKING:
    from bertkit.documents.passages import PassageOptions
    from bertkit.documents.sources import FileOptions
    from bertkit.inference import InferenceReport
    from bertkit.inference.text_encoder import TextEncoder
    from bertkit.model import Model
    from bertkit.search.encoder import Encoder
    from bertkit.search.planning import IndexReport


class Index(AbstractContextManager["Index"]):
    """Documents that can be searched, in a folder.

    Args:
        store: the store of the passages.
        tables: the text index that the store was opened with.
        encoder: for queries and documents; None: the store's model, loaded at first use.
        device: device of that model.
    """

    def __init__(
        self, store: VectorStore, tables: Tables, encoder: Encoder | None = None, device: str = "auto"
    ) -> None:
        self.store, self._tables, self._encoder, self._device = store, tables, encoder, device

    @classmethod
    def open(
        cls,
        folder: str | Path,
        model: str | Path | None = None,
        *,
        precision: str | None = None,
        device: str = "auto",
        query_prompt: str | None = None,
        document_prompt: str | None = None,
        no_prompt: bool = False,
        scan: str | None = None,
        sparse: str | Path | None = None,
        language: str | None = None,
    ) -> Self:
        """Open the index in a folder, or create one with ``model``.

        The words of texts that were added by a store without an index are added to it.

        Args:
            folder: folder of the index.
            model: a folder, a hub name, or the import name of a model package. The model of an existing index cannot be
                changed, nor its precision and prompts. Vectors are compared by the cosine, those of a model that is
                published with the dot product by that; not by other distances that a model can be published with.
            precision: precision of the encoder: "float32", "bfloat16", "float16", "int8" or "auto"; None: that of the
                index, "float32" for a new one.
            device: device of the models, and of the scan of vectors, see `VectorStore.create`.
            query_prompt: prepended to queries; None: that of the index, the model's own for a new one.
            document_prompt: prepended to passages; None: likewise.
            no_prompt: use no prompts, even if the model stores some.
            scan: how a search reads the vectors of a new index, see `VectorStore.create`; None: "int8". It cannot be
                changed.
            sparse: a SPLADE model for learned sparse vectors of a new index, which searches then use, too; None: that
                of the index, if any.
            language: language of the word stems of a new index, one that `snowballstemmer` names; None: "english". It
                cannot be changed.

        Raises:
            StoreError: no index in the folder, and no model given; or words to add to an index that cannot be written.
            UsageError: not the model, precision, prompts, scan, sparse model or language of the index, an unknown
                language, or a model of a family that uses prompts and stores none.
        """
        folder = checked_path("the folder of an index", folder)
        if language not in (None, *LANGUAGES):
            raise UsageError(f"language={language!r}: expected one of {', '.join(LANGUAGES)}")
        vectors = None if sparse is None else SparseIndex(folder, sparse, device=device)
        encoder, similarity = None, None
        if has_store(folder):
            with VectorStore.open(folder) as store:
                known = store.identity
            if no_prompt or (precision, query_prompt, document_prompt) != (None, None, None):
                model = model or known.model_name or None  # to compare the options
            precision, similarity = precision or known.precision, known.similarity
            if not no_prompt:
                query_prompt = known.query_prompt if query_prompt is None else query_prompt
                document_prompt = known.document_prompt if document_prompt is None else document_prompt
        if model is not None:
            from bertkit.search.encoder import Encoder

            encoder = Encoder.of(
                model,
                precision=precision or "float32",
                device=device,
                query_prompt=query_prompt,
                document_prompt=document_prompt,
                no_prompt=no_prompt,
                similarity=similarity,
            )
        is_new = not has_store(folder)  # another process can have created it while the model was loaded
        tables = Tables(folder, vectors if is_new else None, device, language)
        if is_new:
            if vectors is not None:
                vectors.model.embed_sparse(["a text"])  # a model without such vectors is refused before any work
            if encoder is None:
                raise StoreError(
                    f"{folder} holds no index: create one with bertkit index, or Index.open(folder, model)"
                )
            store = VectorStore.create(folder, encoder.identity, tables, scan or "int8", device)
            return cls(store, tables, encoder, device)
        store = VectorStore.open(folder, tables, device)
        try:
            if encoder is not None:
                store.identity.check(encoder.identity)
            if scan not in (None, store.scan):
                raise UsageError(f"{folder} has scan={store.scan!r}, not {scan!r}: omit it, or index into a new folder")
            if vectors is not None:
                with store.snapshot() as snapshot:
                    tables.check_sparse(snapshot.connection, vectors)
            index = cls(store, tables, encoder, device)
            if store.complete_text_index():
                index._write_postings()
            with store.snapshot() as snapshot:
                known_language = tables.language(snapshot.connection)
            if language not in (None, known_language):
                raise UsageError(
                    f"{folder} has language={known_language!r}, not {language!r}: omit it, or index into a new folder"
                )
        except BaseException:
            store.close()
            raise
        return index

    @property
    def encoder(self) -> Encoder:
        """The model of the index with its prompts: `embed_query`, `embed_document`."""
        if self._encoder is None:
            from bertkit.search.encoder import Encoder

            if_moved = "; if it was moved: bertkit index FILES --model ITS_NEW_FOLDER"
            self._encoder = Encoder.of_identity(self.store.identity, self._device, if_moved)
        return self._encoder

    @property
    def is_exact(self) -> bool:
        """Search by meaning finds exactly the nearest; False for the scan "1-bit", which can miss some."""
        from bertkit.neighbors import SCANS

        return SCANS[self.store.scan].is_exact

    def add(
        self,
        sources: str | Path | Document | Iterable[str | Path | Document],
        *,
        passages: PassageOptions | None = None,
        column: str | None = None,
        files: FileOptions | None = None,
        dry_run: bool = False,
        progress: bool | None = None,
    ) -> IndexReport:
        """Add files, folders or `Document` objects, or bring the index up to date with them.

        Only changes are embedded. Files that are no longer in a folder are removed, and renamed ones are recognized by
        content. Every thousand passages are a commit, so an interrupted call keeps what it finished.

        Args:
            sources: paths of files or of folders; or documents, each of which replaces the document with its id. The
                files of a path that no longer exists are removed.
            passages: how documents are split; None: as the files of the last run, if any.
            column: key or column of the text of rows, or several as in "title,body", of which a table may lack some;
                None: that of the last run, or "text", the only one, or the one with sentences. Others are metadata.
            files: which files of folders are read, and as what; None: all that hold text.
            dry_run: read the files and report the changes without making them; only for files.
            progress: show a bar after two seconds; None: on a terminal.

        Raises:
            DataError: none of the paths exists and can be read.
            StoreError: another process writes to the index, or the disk is full.
            UsageError: sources of another type; a document whose id is the name of a file of the index; or metadata
                that cannot be stored, or with the key "context", which names the title and headings above a passage.
        """
        from bertkit.documents.sources import FileOptions
        from bertkit.search.planning import IndexReport, plan  # readers of files, which a search has no use for
        from bertkit.search.updating import add_documents, last_passages, preview, update

        given = listed("sources", sources, str | PathLike | Document, "a path or a Document")
        documents = list({one.id: one for one in given if isinstance(one, Document)}.values())  # the last of each id
        paths = [one for one in given if not isinstance(one, Document)]
        if dry_run and documents:
            raise UsageError("dry_run compares files with the index: pass paths, not documents")
        options = passages or last_passages(self.store)
        report = IndexReport()
        files = files or FileOptions()
        if paths and dry_run:
            with self.store.snapshot() as snapshot:
                jobs, _ = plan(snapshot.connection, paths, options, column, files, report)
            preview(jobs, options, report)
        elif paths:
            update(self.store, self.encoder, paths, options, column, files, report, progress)
        if documents:
            add_documents(self.store, self.encoder, documents, options, report)
        if not dry_run:
            if self._encoder is not None:
                self.store.rename_moved_model(self._encoder.identity.model_name)
            with self.store.snapshot() as snapshot:
                self._tables.rename_moved_model(self.store, snapshot)
            self._write_postings()
        return report

    def remove(self, names: str | Path | Iterable[str | Path], *, dry_run: bool = False) -> IndexReport:
        """Remove files, folders with all that is below them, or documents; as one change.

        A file that exists comes back when it is added again, also with its folder: exclude it then.

        Args:
            names: paths, from the working directory or as results name them; or ids of documents.
            dry_run: report what would be removed.

        Returns:
            A report whose ``removed`` are names of files and ids of documents, and whose ``skipped`` are not in the
            index.

        Raises:
            DataError: none of them is in the index.
            StoreError: another process writes to the index, or the disk is full.
            UsageError: names of another type, or an empty one.
        """
        from bertkit.search.planning import IndexReport, plan_removal
        from bertkit.search.updating import remove

        given, report = listed("names", names, str | PathLike, "a path or the id of a document"), IndexReport()
        if not all(map(str, given)):
            raise UsageError("a name is empty: expected a file or folder, such as . for this one, or a document")
        if dry_run:
            with self.store.snapshot() as snapshot:
                plan_removal(snapshot.connection, given, report)
        else:
            remove(self.store, given, report)
            self._write_postings()
        return report

    def search(
        self,
        query: str,
        k: int = 10,
        *,
        mode: Mode = "hybrid",
        plain: bool = False,
        where: Filter | None = None,
        reranker: Model | None = None,
        report: InferenceReport | None = None,
    ) -> Results:
        """The ``k`` passages that fit a query best.

        In the modes "hybrid" and "lexical", passages must contain each `"quoted phrase"` of the query, must not contain
        a word or phrase after ``-``, and must be of a file whose name contains what follows ``file:``, or is like it if
        it has * or ?. See `Query`.

        Scores: cosines (-1 to 1) for "dense", BM25 for "lexical", products for "sparse", for "hybrid" the cosine plus
        up to 1 for words and 3 for each code, or reciprocal ranks; or those of a reranker.

        Args:
            mode: "dense" compares meaning, by vectors, exactly if `is_exact`; "lexical" compares words, by BM25;
                "sparse" compares learned sparse vectors, by their product, if the index has them; "hybrid" adds the
                scores of the first two, see `fuse_scores`: the ``k`` largest sums, exactly if `is_exact`; a code of the
                query that up to fifty passages contain puts these first. With learned sparse vectors, or a model whose
                vectors are compared by products, the first hundred of each ranking, or ``k``, are joined by reciprocal
                rank fusion. A query without a token that the model knows is near no passage
                by meaning.
            plain: take the query as it is, for texts that were not written as queries: its quotation marks, - and file:
                have no meaning.
            where: filter on the metadata of passages.
            reranker: a cross-encoder that reranks the first hundred; the others follow with their scores.
            report: receives the counts of embedding the query. Without it, a query that is cut issues a
                TruncationWarning.

        Raises:
            UsageError: a query that is empty or not a str, or has a quotation mark without a second one; ``k`` below 1,
                an unknown mode, or a reranker with several labels.
        """
        options: dict[str, Any] = {"mode": mode, "plain": plain, "where": where, "reranker": reranker}
        return self.search_many([query], k, **options, report=report)[0]

    def search_many(
        self,
        queries: Sequence[str],
        k: int = 10,
        *,
        mode: Mode = "hybrid",
        plain: bool = False,
        where: Filter | None = None,
        reranker: Model | None = None,
        report: InferenceReport | None = None,
    ) -> list[Results]:
        """`search` for each of several queries, in less time: they share a pass over the vectors."""
        if mode not in get_args(Mode):
            raise UsageError(f"mode={mode!r}: expected one of {', '.join(map(repr, get_args(Mode)))}")
        k = checked_count("k", k)
        check_several("queries", queries)
        vectors, identity, has_words = None, None, mode in ("hybrid", "lexical")
        every = [Query.checked(query, plain=plain or not has_words) for query in queries]
        if mode in ("hybrid", "dense"):
            with self.store.expected():
                texts = [asked.text for asked in every]
                vectors = self.encoder.embed_query(texts, report)
                vectors[self.encoder.are_unknown(texts)] = 0
                identity = self.encoder.identity
        with self.store.snapshot() as snapshot:
            return results_of(every, k, where, snapshot, self._tables, mode, vectors, identity, reranker)

    def around(self, result: Result, num_passages: int) -> tuple[int, str]:
        """The text of a result with up to ``num_passages`` passages before and after it, see `text_around`."""
        with self.store.snapshot() as snapshot:
            return text_around(snapshot, result, num_passages)

    def answer(self, question: str, answerer: Model, k: int = 5, *, where: Filter | None = None) -> list[FoundAnswer]:
        """Extractive answers: spans of the ``k`` best passages, the most probable first.

        Args:
            answerer: a question answering model. If it may predict "no answer", passages without an answer are skipped.

        Raises:
            MissingHeadError: not a question answering model.
        """
        return self.answers_from(question, self.search(question, k, where=where), answerer)

    def answers_from(self, question: str, results: Sequence[Result], answerer: Model) -> list[FoundAnswer]:
        """`answer` for passages that a search returned."""
        from bertkit.model import check_model

        check_model(answerer, "the model for answers")
        task = answerer.trained.task
        if task.example_type is not Question:
            raise MissingHeadError(f"the model for answers is for {task.name}: expected one for question-answering")
        if not results:
            return []
        predictions = answerer.predict([Question(question, result.text) for result in results])
        answers = [
            FoundAnswer(
                answer.text,
                result.start + answer.start,
                result.start + answer.end,
                result.document_id,
                answer.probability,
                result,
            )
            for result, prediction in zip(results, predictions, strict=True)
            if (answer := prediction.answer) is not None
        ]
        return sorted(answers, key=lambda one: -one.probability)

    def keys(self) -> list[str]:
        """The metadata keys that passages have."""
        with self.store.snapshot() as snapshot:
            return snapshot.keys()

    def export(self, path: str | Path) -> int:
        """Write every passage with its vector to a parquet file, see `export_parquet`; returns their number."""
        return export_parquet(self.store, path)

    def with_encoder(self, model: TextEncoder) -> Index:
        """This index with another object for the same model, such as one that shares batches with other callers."""
        return Index(self.store, self._tables, self.encoder._replace(model=model), self._device)

    def __len__(self) -> int:
        """Number of passages."""
        return self.store.count()

    def close(self) -> None:
        """Release files, so that another process may write."""
        self.store.close()

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _write_postings(self) -> None:
        with self.store.snapshot() as snapshot:
            self._tables.write_postings(snapshot)
