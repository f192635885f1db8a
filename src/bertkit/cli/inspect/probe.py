"""bertkit inspect probe"""

import re
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from bertkit.cli.inspect.shown import INSIDE, InspectedInside, SentenceLimit, show
from bertkit.errors import UsageError, checked_count
from bertkit.files.lines import extension

if TYPE_CHECKING:
    from bertkit.inspection import LabeledWords

Label = Literal["tags", "relations"]


def command(
    train: Path,
    test: Path,
    /,
    *,
    label: Label = "tags",
    limit: SentenceLimit = 1_000,
    inspected: InspectedInside = INSIDE,
) -> None:
    """Accuracy of a linear classifier on each layer, compared with a control task, layer 0 and a random encoder.

    Parameters
    ----------
    train
        A file for training: CoNLL-U, or words with tags (entities, senses, ...) in any form that `bertkit finetune
        token-classification` reads.
    test
        A file for testing.
    label
        tags: parts of speech of CoNLL-U; other tags without B- and I-; words tagged _ are left out. relations: of a
        word to its head, in CoNLL-U.
    """
    from bertkit.inspection import inspect_probes

    checked_count("limit", limit)
    parts = [_read(path, label, limit) for path in (train, test)]
    of_treebank = {"tags": "parts of speech", "relations": "dependency relations"}
    name = of_treebank[label] if extension(train) == ".conllu" else "tags"
    show(inspected, lambda model: inspect_probes(model, *parts, label=name), train, test)


def _read(path: Path, label: Label, limit: int) -> "list[LabeledWords]":
    from bertkit.inspection import LabeledWords, read_trees
    from bertkit.tasks.reading.tagged import read_tagged

    if extension(path) == ".conllu":
        return [tree.labeled(label) for tree in read_trees(path, limit)]
    if label == "relations":
        raise UsageError(f"{path}: relations of words need a CoNLL-U file, named .conllu")
    read = []
    for example in islice(read_tagged(path, scheme="plain"), limit):
        tagged = [(span, tag) for span, tag in zip(example.words or (), example.tags or (), strict=True) if tag != "_"]
        labels = [re.sub("^[BIESLU]-", "", tag) for _, tag in tagged]
        read.append(LabeledWords(example.text, [span for span, _ in tagged], labels))
    return read
