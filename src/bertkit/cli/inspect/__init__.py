"""bertkit inspect attention | ...: one file per command, imported when it runs."""

import re
from html import unescape
from pathlib import Path

from cyclopts import App

from bertkit.cli.output import emit
from bertkit.errors import UsageError

VIEWS = {  # name -> summary; the file is named after the command
    "all": "Trace a text through the whole model, step by step, as a folder of pages.",
    "input": "Token, segment and position embeddings of a text.",
    "attention": "Attention of a text: all heads, lines between tokens, query times key.",
    "fill": "Predictions for each [MASK] of a text, or the surprisal of each token.",
    "lens": "Predictions of each layer at each position.",
    "contexts": "A word in its contexts: nearest occurrences, and a map for each layer.",
    "contrast": "Static and contextual vectors of a word in two texts, by layer.",
    "heads": "Which tokens each head attends to, and which syntactic relations it follows.",
    "probe": "Accuracy of a linear classifier on each layer.",
    "structure": "Structural probe: syntax trees in distances between vectors.",
    "why": "Which tokens support a prediction, or make two texts similar.",
    "map": "A map of texts by their embeddings.",
    "next-sentence": "Probabilities that one sentence follows another.",
    "difference": "Differences of two models: hidden states, attention, weights.",
}

command = App(name="inspect")
for order, (name, summary) in enumerate(VIEWS.items()):
    command.command(f"bertkit.cli.inspect.{name.replace('-', '_')}:command", name=name, help=summary, sort_key=order)


@command.default
def index(folder: Path | None = None, /) -> None:
    """Show what happens to a text inside a model, with one of the views; or write an index page for a folder of pages.

    Parameters
    ----------
    folder
        A folder of pages that other commands wrote.
    """
    from bertkit.inspection import write_index

    if folder is None or not folder.is_dir():
        problem = "nothing is given" if folder is None else f"no view or folder is named {folder}"
        raise UsageError(f"{problem}: expected a view ({', '.join(VIEWS)}), or a folder of pages")
    files = sorted(path for path in folder.glob("*.html") if path.name != "index.html")
    path = write_index(folder, [(file, _title_of(file)) for file in files])
    emit([{"page": str(path), "pages": len(files)}])


def _title_of(path: Path) -> str:
    match = re.search(r"<title>(.*?)</title>", path.read_text(encoding="utf-8", errors="replace"), re.DOTALL)
    return unescape(match[1]) if match else path.name
