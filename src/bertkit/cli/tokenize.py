"""bertkit tokenize"""

import sys
from collections.abc import Iterator
from itertools import chain, islice
from typing import Any

from bertkit.cli.models import EMBEDDING_MODEL, open_tokenizer
from bertkit.cli.output import emit
from bertkit.corpus.texts import read_texts
from bertkit.errors import UsageError
from bertkit.tokenizer import Encoding, Tokenizer
from bertkit.tokenizer.layout import OnLong


def command(
    *texts: str,
    pair: str | None = None,
    model: str = EMBEDDING_MODEL,
    max_length: int | None = None,
    on_long: OnLong = "error",
    stride: int | None = None,
    pad_to: int | None = None,
    special_tokens: bool = False,
    lowercase: bool | None = None,
) -> None:
    """Show the tokens of texts.

    Parameters
    ----------
    texts
        Texts to tokenize; without any, each line of standard input.
    pair
        A second text for each text: [CLS] text [SEP] pair [SEP].
    model
        A model folder, a vocab.txt, a hub name, or the import name of an installed model package.
    max_length
        Maximum sequence length in tokens, special tokens included.
    on_long
        Policy for longer texts.
    stride
        Number of tokens from the start of one window to the next (with --on-long window).
    pad_to
        Pad each row to this number of tokens with [PAD], and show its attention_mask. Without --max-length it is also
        the maximum length.
    special_tokens
        Convert a literal "[MASK]" in a text to that special token.
    lowercase
        With a vocab.txt: whether it is uncased; by default it is, unless many entries have uppercase letters.
    """
    tokenizer = open_tokenizer(model, lowercase)
    limit = pad_to if max_length is None else max_length
    if pad_to is not None and limit is not None and limit > pad_to:
        raise UsageError(f"--max-length {max_length} is more than --pad-to {pad_to}")
    if on_long != "error" and limit is None:
        raise UsageError(f"--on-long {on_long} requires --max-length or --pad-to: without a limit no text is too long")

    def rows() -> Iterator[dict[str, Any]]:
        num_texts = 0
        for chunk in _some(iter(texts) if texts else read_texts("-")):
            pairs = None if pair is None else [pair] * len(chunk)
            for encoding in tokenizer.encode_batch(
                chunk,
                pairs,
                max_length=limit,
                on_long=on_long,
                stride=stride,
                special_tokens_in_text=special_tokens,
                first_index=num_texts,
            ):
                yield _row(tokenizer, encoding, pad_to)
            num_texts += len(chunk)

    if sys.stdout.isatty():
        for row in rows():
            _print(row)
            print()
    else:
        emit(rows())


def _some(texts: Iterator[str]) -> Iterator[list[str]]:
    """Groups of a thousand texts; the first text alone, so that interactive input is answered at once."""
    for first in texts:
        yield list(chain([first], islice(texts, 0 if sys.stdin.isatty() else 1_000)))


def _row(tokenizer: Tokenizer, encoding: Encoding, pad_to: int | None) -> dict[str, Any]:
    num_pads = 0 if pad_to is None else pad_to - len(encoding)
    pad_id = tokenizer.pad_id if num_pads else 0
    row: dict[str, Any] = {
        "tokens": tokenizer.tokens(encoding) + [tokenizer.vocabulary.special.pad] * num_pads,
        "input_ids": encoding.input_ids.tolist() + [pad_id] * num_pads,
        "token_type_ids": encoding.token_type_ids.tolist() + [0] * num_pads,
    }
    if pad_to is not None:
        row["attention_mask"] = [1] * len(encoding) + [0] * num_pads
    row["special_tokens_mask"] = encoding.special_tokens_mask.astype(int).tolist() + [1] * num_pads
    row["offsets"] = encoding.offsets.tolist() + [[0, 0]] * num_pads
    row["word_ids"] = encoding.word_ids.tolist() + [-1] * num_pads
    row["num_tokens_cut"] = encoding.num_tokens_cut
    row["cut_spans"] = encoding.cut_spans
    return row


def _print(row: dict[str, Any]) -> None:
    """One line for each token."""
    length = len(row["tokens"])
    per_token = {key: values for key, values in row.items() if isinstance(values, list) and len(values) == length}
    emit([dict(zip(per_token, values, strict=True)) for values in zip(*per_token.values(), strict=True)])
    if row["num_tokens_cut"]:
        print(f"{row['num_tokens_cut']} tokens cut, characters {row['cut_spans']}")
