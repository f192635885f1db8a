"""bertkit inspect contrast"""

from itertools import islice
from typing import TYPE_CHECKING

from bertkit.cli.inspect.shown import INSIDE, InspectedInside, show
from bertkit.cli.output import note

if TYPE_CHECKING:
    from bertkit.inspection import View
    from bertkit.model import Model

_NUM_BASELINE_TEXTS = 300


def command(
    first: str,
    second: str,
    /,
    *,
    word: str,
    static: str | None = None,
    baseline: str = "python-docs",
    inspected: InspectedInside = INSIDE,
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
    """
    from bertkit.corpus.sentences import split_sentences
    from bertkit.corpus.texts import read_texts
    from bertkit.inspection import inspect_contrast
    from bertkit.words import StaticEncoder

    lines = (line for text in read_texts(baseline) for line in text.splitlines())
    sentences = (sentence for line in lines for sentence in split_sentences(line))
    texts = list(islice((one for one in sentences if 3 <= len(one.split()) <= 40), _NUM_BASELINE_TEXTS))
    vectors = None if static is None else StaticEncoder.open(static)
    name = static or "input embeddings of the model"

    def view(model: "Model") -> "View":
        result = inspect_contrast(model, (first, second), word, texts, static=vectors, static_name=name)
        if result.num_unknown:
            note(f"{result.num_unknown} words of the two texts have no static vector and were left out of the averages")
        return result

    show(inspected, view)
