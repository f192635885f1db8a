"""One text through the whole of BERT: characters, tokens, embeddings, query times key, softmax, heads, layers,
prediction, each step with its numbers and a sentence."""

from collections.abc import Sequence
from dataclasses import dataclass
from os import fsencode
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote

import numpy as np

from bertkit.errors import UsageError, checked_path
from bertkit.files.whole_files import check_folder_writable, whole_file
from bertkit.inference import Trace
from bertkit.inspection.attention import AttentionView, score_of
from bertkit.inspection.contextual import cosines
from bertkit.inspection.inputs import InputView, inspect_input
from bertkit.inspection.predictions import LensView, inspect_lens
from bertkit.inspection.view import View
from bertkit.model import Model, check_model
from bertkit.pages import Markup, data, element, heat_map, page, paragraph, section, share_bar, table

_MOST_ROWS = 12
_INDEX_TITLE = "Look inside"


@dataclass(frozen=True, eq=False)
class TeachingView(View):
    """Every step for one text, with details for one token and one head."""

    title: ClassVar[str] = "A text inside BERT"
    trace: Trace
    input: InputView
    lens: LensView | None  # None without a trained masked LM head
    position: int  # index of the followed token
    layer: int  # from 1, layer of the followed head
    head: int  # from 1

    def numbers(self) -> dict[str, Any]:
        record = self.trace.layers[self.layer]
        return {
            "text": self.trace.text,
            "tokens": list(self.trace.tokens),
            "offsets": self.trace.offsets,
            "input_ids": self.trace.input_ids,
            "followed": {"position": self.position, "layer": self.layer, "head": self.head},
            "embedding_shares": self.input.shares,
            "query": record.query[self.head - 1, self.position],
            "scores": record.attention_scores[self.head - 1, self.position],
            "weights": record.attention_probs[self.head - 1, self.position],
            "layer_cosines": self.layer_cosines(),
            "predictions": None if self.lens is None else self.lens.top_tokens,
        }

    def layer_cosines(self) -> np.ndarray:
        """(S,) cosine of the followed token's vector after each layer with its input."""
        states = self.trace.hidden_states[:, self.position]
        return cosines(states[:1], states)[0]

    def parts(self) -> list[Markup]:
        trace, record = self.trace, self.trace.layers[self.layer]
        length, token = len(trace), trace.tokens[self.position]
        head_dim, num_heads = record.query.shape[-1], len(record.query)
        num_layers = len(trace.hidden_states) - 1
        query, keys = record.query[self.head - 1, self.position], record.key[self.head - 1]
        scores = record.attention_scores[self.head - 1, self.position]
        weights = record.attention_probs[self.head - 1, self.position]
        order = np.argsort(-weights, kind="stable")[:_MOST_ROWS]
        split = [[trace.tokens[n], int(trace.input_ids[n]), *self._characters(n)] for n in range(length)]
        shares = self.input.shares
        sums = [
            [trace.tokens[n], *(float(np.linalg.norm(part[n])) for part in self.input.parts_of_sum.values()),
             *(float(values[n]) for values in shares.values())]
            for n in range(length)
        ]  # fmt: skip
        names = list(self.input.parts_of_sum)
        largest = np.argsort(-np.abs(query * keys[order[0]]), kind="stable")[:5]
        written = [[f"{query[k] * keys[order[0], k]:.2f}" for k in largest]]
        cosine = self.layer_cosines()
        others = np.stack([trace.layers[self.layer].attention_probs[n, self.position] for n in range(num_heads)])
        parts = [
            paragraph("The text: ", data(trace.text)),
            paragraph("Followed below: the token ", data(token), f", in layer {self.layer}, head {self.head}."),
            section(
                "1. Characters become tokens",
                paragraph(f"{len(trace.text)} characters are split into {length} tokens of a fixed vocabulary; a word "
                          "that is not in it becomes several pieces."),
                table(["token", "number", "from", "to"], split),
            ),
            section(
                f"2. {len(names)} embeddings are added up" if len(names) > 1 else "2. Each token has an embedding",
                paragraph(f"Each token becomes {trace.hidden_states.shape[-1]} numbers: " + " plus ".join(names)
                          + ", then normalized. Lengths of the parts and their shares of the sum:"),
                table(["token", *(f"{what} of {name}" for what in ("length", "share") for name in names)], sums),
            ),
            section(
                "3. Query times key makes a score",
                paragraph("The query of ", data(token), f" and the key of each token have {head_dim} numbers, which "
                          f"are multiplied; {score_of(record)} (√{head_dim} = {head_dim ** 0.5:.2f}). The five "
                          "largest products with ", data(trace.tokens[order[0]]), ":"),
                table([f"element {k + 1}" for k in largest], written),
            ),
            section(
                "4. Softmax makes weights of scores",
                paragraph(f"e to the power of each score, divided by the sum over all {length} tokens: the weights are "
                          "positive and add up to 1."),
                table(["to token", "score", "weight"],
                      [[trace.tokens[n], float(scores[n]), share_bar(float(weights[n]))] for n in order]),
            ),
            section(
                f"5. {num_heads} heads work in parallel",
                paragraph(f"Each head of layer {self.layer} weighs the tokens for ", data(token), " in its own way; "
                          "their results are concatenated."),
                heat_map("Weights of each head", others, [str(n + 1) for n in range(num_heads)], list(trace.tokens),
                         row_name="head", column_name="token", full=1.0),
            ),
            section(
                f"6. {num_layers} layers, one after the other",
                paragraph("Each layer adds the outputs of its heads and its feed-forward network. Similarity of the "
                          "vector to its input (cosine):"),
                table(["after layer", "cosine with the input"], [[n, float(value)] for n, value in enumerate(cosine)]),
            ),
            self._prediction(),
        ]  # fmt: skip
        return parts

    def _characters(self, index: int) -> list[object]:
        start, end = self.trace.offsets[index].tolist()
        return [start, end] if end > start else [None, None]

    def _prediction(self) -> Markup:
        title = "7. A prediction"
        if self.lens is None:
            return section(title, paragraph("This model has no trained masked LM head: its vectors are its result."))
        layers = zip(self.lens.top_tokens, self.lens.top_probs[:, self.position].tolist(), strict=True)
        rows = [[n, tokens[self.position], share_bar(prob)] for n, (tokens, prob) in enumerate(layers)]
        return section(
            title,
            paragraph("The masked LM head turns a vector into a probability for every entry of the vocabulary. Its "
                      "prediction at this position after each layer:"),
            table(["after layer", "most likely token", "probability"], rows),
        )  # fmt: skip


def inspect_all(model: Model, text: str) -> TeachingView:
    """The teaching page of a text: it follows the [MASK] of the text, or its first word, in the head with the sharpest
    attention from it to another word.

    Raises:
        OverLengthError: more tokens than the model accepts.
        UsageError: an empty text.
    """
    check_model(model)
    trace = model.trace(text)
    own = np.flatnonzero(~trace.special_tokens_mask)
    if not len(own):
        raise UsageError("the text has no tokens: expected at least one word")
    masks = own[trace.input_ids[own] == model.tokenizer.mask_id]
    position = int(masks[0] if len(masks) else own[0])
    others = own[own != position] if len(own) > 1 else own
    probs = np.stack([layer.attention_probs[:, position] for layer in trace.layers.values()])  # (S, H, L)
    layer, head = np.unravel_index(probs[..., others].max(axis=-1).argmax(), probs.shape[:2])
    has_lens = "masked_lm" in model.checkpoint.trained_heads()
    return TeachingView(
        trace=trace,
        input=inspect_input(model, text),
        lens=inspect_lens(model, text) if has_lens else None,
        position=position,
        layer=list(trace.layers)[int(layer)],
        head=int(head) + 1,
    )


def write_folder(model: Model, text: str, folder: str | Path) -> list[Path]:
    """Write the teaching page of a text, its views and an index page; the folder is created if needed.

    Returns:
        The pages written, the index first.

    Raises:
        OverLengthError, UsageError: as `inspect_all`; the folder cannot be written, or has an index.html that is
            not such an index.
    """
    check_model(model)
    folder = checked_path("the folder to write", folder)
    check_folder_writable(folder)
    _check_index(folder)
    teaching = inspect_all(model, text)
    views: dict[str, View] = {"steps": teaching, "input": teaching.input, "attention": AttentionView(teaching.trace)}
    if teaching.lens is not None:
        views["lens"] = teaching.lens
    pages = {folder / f"{name}.html": view.page() for name, view in views.items()}
    folder.mkdir(parents=True, exist_ok=True)
    for path, content in pages.items():
        with whole_file(path) as temporary:
            temporary.write_text(content, encoding="utf-8", newline="\n")
    return [write_index(folder, [(path, views[path.stem].title) for path in pages], text), *pages]


def write_index(folder: Path, pages: Sequence[tuple[Path, str]], text: str | None = None) -> Path:
    """An index.html with a link to each page of a folder, by its title.

    Raises:
        UsageError: no pages, or an index.html that is not such an index.
    """
    _check_index(folder)
    if not pages:
        raise UsageError(f"{folder} has no HTML pages: write some with bertkit inspect ... --out")
    links = element(
        "ul",
        [
            element("li", element("a", title, href=quote(fsencode(path.name))), f" ({path.name})")
            for path, title in pages
        ],
    )
    content = page(_INDEX_TITLE, [*([paragraph("The text: ", data(text))] if text else []), links])
    path = folder / "index.html"
    with whole_file(path) as temporary:
        temporary.write_text(content, encoding="utf-8", newline="\n")
    return path


def _check_index(folder: Path) -> None:
    """Raise a UsageError for an index.html by someone else, which must not be replaced."""
    path = folder / "index.html"
    title = f"<title>{_INDEX_TITLE}</title>".encode()
    if path.exists() and title not in path.read_bytes():
        raise UsageError(f"{path} is not an index that bertkit wrote: choose another folder, or remove the file")
