"""bertkit inspect contrast"""

from dataclasses import asdict
from itertools import islice

from bertkit.cli.inspect.shown import NO_OUTPUT, Shown, write
from bertkit.cli.models import EMBEDDING_MODEL, EXACT, Compute, open_model
from bertkit.cli.output import emit, note

_NUM_BASELINE_TEXTS = 300


def command(
    first: str,
    second: str,
    /,
    *,
    word: str,
    static: str | None = None,
    baseline: str = "python-docs",
    shown: Shown = NO_OUTPUT,
    model: str = EMBEDDING_MODEL,
    compute: Compute = EXACT,
) -> None:
    """Compare static and contextual vectors of a word in two texts, by layer.

    Every cosine is shown with the mean cosine of random pairs in the same space, and the percentage of these pairs that
    it exceeds, because cosines of different spaces are not comparable.

    Parameters
    ----------
    first
        A text with the word.
    second
        Another text with the word.
    word
        Matched as a whole word, in any case; the first occurrence in each text.
    static
        A file or folder of word vectors; by default the model's input embeddings.
    baseline
        Texts for random pairs, the first 300 sentences of up to 40 words: a file, a folder, or "python-docs", the
        documentation of this Python.
    model
        A folder, a hub name, or the import name of an installed model package.
    """
    from bertkit.corpus.sentences import split_sentences
    from bertkit.corpus.texts import read_texts
    from bertkit.inspection import inspect_contrast
    from bertkit.words import StaticEncoder

    lines = (line for text in read_texts(baseline) for line in text.splitlines())
    sentences = (sentence for line in lines for sentence in split_sentences(line))
    texts = list(islice((one for one in sentences if 3 <= len(one.split()) <= 40), _NUM_BASELINE_TEXTS))
    vectors = None if static is None else StaticEncoder.open(static)
    view = inspect_contrast(
        open_model(model, compute),
        (first, second),
        word,
        texts,
        static=vectors,
        static_name=static or "input embeddings of the model",
    )
    if view.num_unknown:
        note(f"{view.num_unknown} words of the two texts have no static vector and were left out of the averages")
    if shown.out is not None or shown.json:
        write(shown, lambda: view)
        return
    emit(
        {"text": text, "tokens": tokens, "input_ids": ids}
        for text, tokens, ids in zip(view.texts, view.tokens, view.input_ids, strict=True)
    )
    emit(asdict(one) for one in view.contrasts)
