"""Text of a pre-training run: the vocabulary, and shards of training and held-out tokens."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from bertkit.corpus.documents import Reading, TextLayoutSetting, readable_sentences
from bertkit.corpus.shard_sources import find_sources
from bertkit.corpus.shard_writing import ShardSettings, write_shard
from bertkit.corpus.shards import HELD_OUT, TokenShard, open_shard, token_counts
from bertkit.corpus.texts import files_skipped
from bertkit.errors import UsageError
from bertkit.pretraining.recipe import DataSettings, VocabularySettings
from bertkit.tokenizer import Tokenizer, train_vocabulary

_MUCH_UNKNOWN = 0.01  # of the tokens
_MUCH_MARKED_UP = 0.01  # of the documents: a text about markup has some


def check_texts(
    corpus: Sequence[str | Path], held_out: Sequence[str | Path], data: DataSettings, column: str | None
) -> None:
    """Check the sources of text before they are read.

    Raises:
        UsageError: no files; no held-out files, and no share of the corpus to hold out; a file that is given twice; or
            as `find_sources`.
        DataError: a file that does not exist, or whose name is not UTF-8.
    """
    if not corpus:
        raise UsageError("the corpus is empty: name files, folders or python-docs")
    if not held_out and not data.held_out_share:
        raise UsageError("a run is evaluated on held-out text: give --held-out files, or a held_out_share above 0")
    reading, known = Reading(data.layout, column), dict[Path, str]()
    for sources, kind in ((corpus, "the corpus"), (held_out, "--held-out")):
        for path in find_sources(sources, reading.column)[0] if sources else ():
            if before := known.get(path.resolve()):
                what = "is given twice" if before == kind else "is training text, which held-out text must not be"
                raise UsageError(f"{path} of {kind} {what}: omit it there")
            known[path.resolve()] = kind


def learn_vocabulary(
    corpus: Sequence[str | Path],
    settings: VocabularySettings,
    path: Path,
    layout: TextLayoutSetting,
    column: str | None,
    log_line: Callable[[str], None],
) -> None:
    """Train a vocabulary on the corpus and write it as a vocab.txt."""
    log_line(f"training a vocabulary of {settings.vocab_size:,} entries on {', '.join(map(str, corpus))}")
    vocabulary = train_vocabulary(
        texts_of(corpus, layout, column), vocab_size=settings.vocab_size, lowercase=settings.lowercase
    )
    vocabulary.save(path)
    if len(vocabulary) < settings.vocab_size:
        log_line(f"the text yields only {len(vocabulary):,} entries")


def texts_of(corpus: Sequence[str | Path], layout: TextLayoutSetting, column: str | None) -> Iterator[str]:
    """The readable sentences; the others are skipped here, and listed and counted when the shard is written."""
    return (sentence.text for sentence in readable_sentences(corpus, Reading(layout, column)))


def write_shards(
    corpus: Sequence[str | Path],
    held_out: Sequence[str | Path],
    run: Path,
    tokenizer: Tokenizer,
    data: DataSettings,
    column: str | None,
    least_documents: int = 1,
) -> tuple[TokenShard, TokenShard]:
    """Write or open the shards of training and held-out tokens in the run folder.

    Args:
        least_documents: in each of the two.

    Raises:
        DataError: a corpus that cannot be read or split, or has changed since the run was started.
    """
    share = 0.0 if held_out else data.held_out_share
    settings = ShardSettings(
        data.layout, column, drop_duplicates=data.drop_duplicates, held_out_share=share, least_held_out=least_documents
    )
    shard = write_shard(corpus, run / "shard", tokenizer, settings)
    if held_out:
        return shard, write_shard(held_out, run / "held-out", tokenizer, ShardSettings(data.layout, column))
    return shard, open_shard(run / "shard" / HELD_OUT, tokenizer)


def text_not_used(shard: TokenShard, folder: Path, tokenizer: Tokenizer) -> str:
    """One line on text of the sources that was skipped, is duplicate, holds markup, or is unknown to the vocabulary; ""
    if there is none."""
    manifest, parts = shard.manifest, []
    if number := manifest["num_set_aside"]:
        parts.append(f"rows and sentences that could not be read: {number:,}, see {folder / 'set_aside.jsonl'}")
    if left_out := manifest["left_out"]:
        parts.append(files_skipped(left_out))
    if number := manifest["num_duplicates"]:
        advice = "kept; the setting drop_duplicates removes them"
        parts.append(
            f"duplicate sentences: {number:,}, {'removed' if manifest['settings']['drop_duplicates'] else advice}"
        )
    if number := manifest["num_forgotten"]:
        parts.append(f"sentences whose duplicates are not detected: {number:,}")
    if (number := manifest["num_marked_up"]) > _MUCH_MARKED_UP * manifest["num_documents"]:
        parts.append(
            f"documents with tags of HTML or marks such as <|endoftext|>: {number:,}, trained on as text; to avoid it, "
            "remove them from the files, and divide documents by empty lines (layout lines) or into rows of jsonl"
        )
    vocabulary = tokenizer.vocabulary
    unk = vocabulary.special.unk
    if unk in vocabulary:
        counts = token_counts(folder, tokenizer)
        if (share := counts[vocabulary.id(unk)] / counts.sum()) > _MUCH_UNKNOWN:
            parts.append(
                f"words with characters that the vocabulary lacks, which became {unk}: {share:.1%} of the tokens; use "
                "a vocabulary that was trained on such text"
            )
    return "; ".join(parts)


def large_held_out(shard: TokenShard, held_out: TokenShard, share: float) -> str:
    """One line if much more of the text is held out than the share of the documents; else ""."""
    num_held_out = len(held_out.tokens)
    of_all = num_held_out / max(1, num_held_out + len(shard.tokens))
    if of_all <= max(0.05, 5 * share):
        return ""
    return (
        f"{num_held_out:,} tokens are held out, {of_all:.0%} of the text, as documents differ in length or are few: "
        "to train on more, name short held-out files with --held-out"
    )


def corpus_facts(shard: TokenShard, *, was_read: bool = True) -> dict[str, Any]:
    """Facts on a shard for the log of a run.

    Args:
        was_read: True if it was read from separate files; False for a held-out share of the corpus.
    """
    manifest, names = shard.manifest, ("num_documents", "num_sentences", "num_tokens", "unigram_entropy")
    facts = {name: manifest[name] for name in names}
    if was_read:
        names = ("num_set_aside", "num_invalid", "num_duplicates", "num_forgotten")
        facts |= {name: manifest[name] for name in names} | {"num_left_out": len(manifest["left_out"])}
    return facts
