"""bertkit search"""

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

import bertkit
from bertkit.cli.index import STORE
from bertkit.cli.output import emit, note


def command(
    query: Annotated[str, Parameter(allow_leading_hyphen=True)],
    *,
    store: Path = STORE,
    k: Annotated[int, Parameter(name=["-k", "--k"])] = 5,
    mode: Literal["hybrid", "dense", "lexical", "sparse"] = "hybrid",
    answer: str | None = None,
    rerank: str | None = None,
    device: str = "auto",
) -> None:
    """Search an index for passages by words and meaning, or for answers to a question.

    Parameters
    ----------
    query
        A question, or a few words. By words, a passage must contain each "quoted phrase", must not contain a word or
        phrase after -, and must be of a file whose name contains what follows file: (or is like it, with * and ?).
    store
        The folder of the index.
    k
        Number of results.
    mode
        hybrid: by all that the index has; dense: by meaning; lexical: by words; sparse: by learned sparse vectors.
    answer
        A question answering model, to extract answers from the resulting passages.
    rerank
        A cross-encoder, to rerank the first hundred passages.
    device
        auto, cpu, cuda or mps.
    """
    from bertkit.search.index import Index

    with Index.open(store, device="cpu" if mode == "lexical" else device) as index:
        if mode in ("hybrid", "dense") and not index.is_exact:
            note(f"{store} is scanned in 1 bit: by meaning, passages among the nearest can be missing")
        reranker = None if rerank is None else bertkit.load(rerank, device=device)
        results = index.search(query, k, mode=mode, reranker=reranker)
        if results.missing:
            note(f"no passage has: {' '.join(results.missing)}")
        elif not results:
            note("no passage fits the query; the commonest words count only in quotation marks")
        if answer is not None:
            answers = index.answers_from(query, results, bertkit.load(answer, device=device))
            emit(
                {
                    "answer": one.text,
                    "probability": one.probability,
                    "document": one.document_id,
                    "start": one.start,
                    "end": one.end,
                    "snippet": one.result.snippet.text,
                }
                for one in answers
            )
            return
        emit(
            {
                "score": one.score,
                "document": one.document_id,
                "start": one.snippet.start,
                "end": one.snippet.end,
                "context": one.context,
                "snippet": one.snippet.text,
            }
            | ({"also_in": one.other_documents} if one.other_documents else {})
            | ({"file_state": one.file_state} if one.file_state != "current" else {})
            for one in results
        )
