"""bertkit search"""

import sys
from textwrap import indent
from typing import Annotated, Literal

from cyclopts import Parameter

import bertkit
from bertkit.cli.index import STORE, Store
from bertkit.cli.models import note_unknown
from bertkit.cli.output import Device, bold, emit, note
from bertkit.errors import checked_count


def command(
    query: Annotated[str, Parameter(allow_leading_hyphen=True)],
    *,
    store: Store = STORE,
    k: Annotated[int, Parameter(name=["-k", "--k"])] = 5,
    mode: Literal["hybrid", "dense", "lexical", "sparse"] = "hybrid",
    where: list[str] | None = None,
    context: int = 0,
    json: Annotated[bool, Parameter(negative=())] = False,
    answer: str | None = None,
    rerank: str | None = None,
    device: Device = "auto",
) -> None:
    """Search an index for passages by words and meaning, or for answers to a question.

    Parameters
    ----------
    query
        A question, or a few words. By words, a passage must contain each "quoted phrase", must not contain a word or
        phrase after -, and must be of a file whose name contains what follows file: (or is like it, with * and ?).
    k
        Number of results.
    mode
        hybrid: by all that the index has; dense: by meaning; lexical: by words; sparse: by learned sparse vectors.
        Scores are cosines (-1 to 1) for dense, BM25 (0 and above) for lexical, products for sparse; for hybrid the
        cosine plus up to 1 for words, and 3 for each exact code, or reciprocal ranks with sparse vectors.
    where
        A condition on metadata, such as "year >= 2021", "kind in cats, dogs" or "tags contains x"; or JSON, such as
        {"year": {"$gte": 2021}}. With several, all must hold.
    context
        Print the whole passage with this number of passages before and after it; 0: only its best sentences.
    json
        Print JSON lines on a terminal too, as in a pipe.
    answer
        A question answering model, to extract answers from the resulting passages.
    rerank
        A cross-encoder, to rerank the first hundred passages.
    """
    from bertkit.search.filter_syntax import filter_of_condition
    from bertkit.search.filters import And
    from bertkit.search.index import Index

    condition = And(tuple(map(filter_of_condition, where))) if where else None
    checked_count("context", context, 0)
    with Index.open(store, device="cpu" if mode == "lexical" else device) as index:
        if mode in ("hybrid", "dense") and not index.is_exact:
            note(f"{store} is scanned in 1 bit: by meaning, passages among the nearest can be missing")
        reranker = None if rerank is None else bertkit.load(rerank, device=device)
        report = None
        if mode != "lexical":  # else no text is embedded
            from bertkit.inference import InferenceReport

            report = InferenceReport()
        results = index.search(query, k, mode=mode, reranker=reranker, where=condition, report=report)
        if report is not None:
            note_unknown(report)
            report.warn_of_cuts("shorten them to compare them in full")
        if results.missing_keys:
            note(results.note_of_keys)
        if results.missing:
            note(f"no passage has: {' '.join(results.missing)}")
        if not results and condition is not None and not results.missing_keys:
            note("no passage fits the query and meets --where")
        elif not results and not results.missing and not results.missing_keys:
            note("no passage fits the query; the commonest words count only in quotation marks")
        if answer is not None:
            answers = index.answers_from(query, results, bertkit.load(answer, device=device))
            rows = [
                {
                    "answer": one.text,
                    "probability": one.probability,
                    "document": one.document_id,
                    "line": one.result.line_of(one.start),
                    "start": one.start,
                    "end": one.end,
                    "snippet": one.result.snippet.text,
                }
                for one in answers
            ]
            emit(rows, as_json=json)
            return
        for one in results:
            line = one.line_of(one.snippet.start)
            start, text = index.around(one, context) if context else (one.snippet.start, one.snippet.text)
            if json or not sys.stdout.isatty():
                row = {"score": one.score, "document": one.document_id, "line": line, "start": one.snippet.start}
                row |= {"end": one.snippet.end, "context": one.context, "snippet": one.snippet.text}
                row |= {"around": text} if context else {}
                row |= {"metadata": one.metadata} if one.metadata else {}
                row |= {"file_state": one.file_state} if one.file_state != "current" else {}
                emit([row | ({"also_in": one.other_documents} if one.other_documents else {})], as_json=True)
                continue
            name = one.document_id if line is None else f"{one.metadata.get('source', one.document_id)}:{line}"
            state = "" if one.file_state == "current" else f"({one.file_state}) "
            print(bold(f"{name}  {one.score:.3f}  {state}{one.context}".rstrip(), ()))  # as editors read it
            print(indent(bold(text, [(first - start, last - start) for first, last in one.matches]), "  "))
            if one.other_documents:
                print(bold(f"  also in {', '.join(one.other_documents)}", ()))
