"""Late interaction (ColBERT): token vectors, and scores by the nearest token of a document (MaxSim).

Khattab & Zaharia 2020, "ColBERT", section 3. Shape letters: N texts, T tokens that have a vector, E width, D
hidden_size.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bertkit.architectures import Network
from bertkit.batch import collate
from bertkit.checkpoint import LateInteraction
from bertkit.compiled import compiled
from bertkit.errors import UsageError
from bertkit.executor import map_on_cores
from bertkit.inference.report import InferenceReport
from bertkit.inference.runner import Runner, inferred
from bertkit.inference.score_pairs import paired
from bertkit.later import torch
from bertkit.tokenizer import Encodings
from bertkit.tokenizer.layout import OnLong
from bertkit.tokenizer.ragged import ranges
from bertkit.tokenizer.tokenizer import listed_texts
from bertkit.transformer import DisentangledPositions
from bertkit.transformer.kernels.arrays import Rows, floats
from bertkit.transformer.modules import as_torch

_DOCUMENTS_PER_PART = 64


@dataclass(frozen=True, eq=False)
class TokenVectors:
    """Token vectors of N texts, concatenated."""

    starts: np.ndarray  # (N + 1,) int64: first token of each text
    vectors: np.ndarray  # (T, E) float32

    def __len__(self) -> int:
        return len(self.starts) - 1

    def take(self, numbers: np.ndarray) -> "TokenVectors":
        """The vectors of some texts."""
        sizes = np.diff(self.starts)[numbers]
        return TokenVectors(np.concatenate([[0], sizes.cumsum()]), self.vectors[ranges(self.starts[numbers], sizes)])

    def of_text(self, number: int) -> np.ndarray:
        """(t, E) vectors of one text."""
        return self.vectors[self.starts[number] : self.starts[number + 1]]


def embed_tokens(runner: Runner, late: LateInteraction, texts: Sequence[str], *, as_queries: bool) -> TokenVectors:
    """Token vectors of queries or documents; longer texts are truncated to the length in the model's settings, with a
    TruncationWarning.

    Raises:
        UsageError: a str or a table instead of texts; padded queries, with disentangled attention.
    """
    texts = listed_texts(texts)
    if not len(texts):
        return TokenVectors(np.zeros(1, np.int64), np.empty((0, runner.network.projection.width), np.float32))
    encodings = _encoded(runner, late, texts, as_queries=as_queries)
    InferenceReport.of(encodings, len(texts)).warn("shorten them to encode them in full")
    is_filled = np.zeros(len(encodings.input_ids), bool)
    if as_queries and late.expansion is not None:
        encodings, is_filled = _filled(runner, late, encodings)
    if is_filled.any() and not late.attends:
        parts = [inferred(lambda number=number: _with_unattended(runner, encodings, is_filled, number))
                 for number in range(len(encodings))]  # fmt: skip
        vectors = np.concatenate(parts)
    else:
        vectors: Any = runner.run(
            encodings, lambda batch, indices: _projected(runner.network, runner.encoder(batch).last_hidden_state),
            rows_per_sequence=encodings.seqlens,
        )  # fmt: skip
    kept = np.ones(len(vectors), bool)
    if not as_queries and late.skipped:
        vocabulary = runner.tokenizer.vocabulary
        kept = ~np.isin(encodings.input_ids, [vocabulary.id(token) for token in late.skipped if token in vocabulary])
    counts = np.add.reduceat(kept, encodings.cu_seqlens[:-1])
    return TokenVectors(np.concatenate([[0], counts.cumsum()]), vectors[kept])


def max_sim(queries: TokenVectors, documents: TokenVectors) -> np.ndarray:
    """(Q, N) float32: for each query and document the sum over the query's tokens of the highest inner product with a
    token of the document; 0 for a document without tokens."""
    across = np.ascontiguousarray(documents.vectors.T)  # (E, T)
    results = np.zeros((len(queries), len(documents)), np.float32)

    def work(part: int) -> None:
        end = min(part + _DOCUMENTS_PER_PART, len(documents))
        _max_sim(queries.vectors, queries.starts, across, documents.starts, part, end, results)

    for _ in map_on_cores(work, range(0, len(documents), _DOCUMENTS_PER_PART)):
        pass
    return results


@compiled
def _max_sim(queries, query_starts, across, starts, first, end, results):
    """Fill columns ``first`` to ``end`` of (Q, N) ``results``; ``across`` is (E, T)."""
    num_queries, width = len(query_starts) - 1, len(across)
    for document in range(first, end):
        begin, size = starts[document], starts[document + 1] - starts[document]
        if size == 0:
            continue
        scores = np.empty(size, np.float32)
        for query in range(num_queries):
            total = np.float32(0)
            for token in range(query_starts[query], query_starts[query + 1]):
                scores[:] = 0
                for component in range(width):
                    factor = queries[token, component]
                    for i in range(size):
                        scores[i] += factor * across[component, begin + i]
                best = scores[0]
                for i in range(1, size):
                    best = max(best, scores[i])
                total += best
            results[query, document] = total


def score_tokens(
    runner: Runner,
    late: LateInteraction,
    queries: str | Sequence[str],
    texts: str | Sequence[str],
    *,
    on_long: OnLong = "truncate",
) -> np.ndarray:
    """(N,) float32 MaxSim of each query with its text, or its mean over the query's vectors; as `Model.score_pairs`.

    Raises:
        UsageError: different numbers of queries and texts, or another policy than "truncate".
    """
    if on_long != "truncate":
        raise UsageError(f"on_long={on_long!r}: late interaction truncates texts to the length in the model's settings")
    queries, texts = paired(queries, texts)
    numbers = {query: number for number, query in enumerate(dict.fromkeys(queries))}
    of_queries = embed_tokens(runner, late, list(numbers), as_queries=True)
    of_texts = embed_tokens(runner, late, texts, as_queries=False)
    query_of, scores = np.array([numbers[query] for query in queries], np.int64), np.empty(len(texts), np.float32)
    for number in range(len(numbers)):
        (own,) = np.nonzero(query_of == number)
        of_query = of_queries.take(np.array([number]))
        scores[own] = max_sim(of_query, of_texts.take(own))[0] / (len(of_query.vectors) if late.is_mean else 1)
    return scores


def _encoded(runner: Runner, late: LateInteraction, texts: Sequence[str], *, as_queries: bool) -> Encodings:
    """Encode texts with their marker, a prefix or a token after [CLS]."""
    tokenizer, longest = runner.tokenizer, runner.max_positions
    marker = late.query_marker if as_queries else late.document_marker
    limit = late.query_length if as_queries else late.document_length
    if as_queries and late.expansion is not None and late.cuts_at_expansion:
        limit = late.expansion
    limit = min(limit or tokenizer.model_max_length or longest, longest)
    is_token = late.has_token_markers and marker.strip() in tokenizer.vocabulary
    encodings = tokenizer.encode_batch(
        list(texts) if is_token else [marker + text for text in texts],
        max_length=limit - is_token, on_long="truncate", with_offsets=False,
    )  # fmt: skip
    return _with_tokens(encodings, tokenizer.vocabulary.id(marker.strip()), 1, 1) if is_token else encodings


def _filled(runner: Runner, late: LateInteraction, encodings: Encodings) -> tuple[Encodings, np.ndarray]:
    """Queries padded with [MASK], and (T,) bool, True for the padding."""
    vocabulary = runner.tokenizer.vocabulary
    token = late.expansion_token or vocabulary.special.mask
    missing = np.maximum((late.expansion or 0) - encodings.seqlens, 0)
    filled = _with_tokens(encodings, vocabulary.id(token), None, missing)
    is_filled = np.ones(len(filled.input_ids), bool)
    is_filled[ranges(filled.cu_seqlens[:-1], encodings.seqlens)] = False
    return filled, is_filled


def _with_tokens(encodings: Encodings, token: int, position: int | None, counts: Any) -> Encodings:
    """Encodings with a token inserted into each at a position, None its end, once or ``counts`` times."""
    bounds, number = encodings.cu_seqlens, len(encodings)
    counts = np.broadcast_to(np.asarray(counts), (number,))
    where = np.repeat(bounds[1:] if position is None else bounds[:-1] + position, counts)
    ids = np.insert(encodings.input_ids, where, token)
    return replace(
        encodings, input_ids=ids, token_type_ids=np.zeros_like(ids), special_tokens_mask=np.zeros(len(ids), bool),
        cu_seqlens=bounds + np.concatenate([[0], counts.cumsum()]),
    )  # fmt: skip


def _projected(network: Network, states: Rows) -> Any:
    """(T, D) to (T, E) float32."""
    return floats(network.projection(states if isinstance(states, np.ndarray) else states.float()))


def _with_unattended(runner: Runner, encodings: Encodings, is_filled: np.ndarray, number: int) -> np.ndarray:
    """(t, E) vectors of one query, whose tokens do not attend to its padding."""
    network: Any = as_torch(runner.network)
    device = network.encoder.embeddings.word.weight.device
    if isinstance(network.config.layer(0).positions, DisentangledPositions):  # published code hides all from padding
        raise UsageError(
            f"{network.architecture.model_type} models have no queries with padding that is not attended to: let "
            "tokens attend to it in the settings of the model, or remove the expansion of queries"
        )
    batch = collate(encodings.take(np.array([number]))).to(device)
    attended = torch.from_numpy(~is_filled[slice(*encodings.cu_seqlens[number : number + 2])]).to(device)
    return _projected(network, network.encoder(batch, with_pooled=False, attended=attended).last_hidden_state)
