"""Search for strings that occur once, and everyday questions, in documentation of this machine.

    python benchmarks/search_exact.py [--store DIR] [--out benchmarks/results]

The release notes of Git, which Debian installs with it (package git), are indexed with all-MiniLM-L6-v2 and the default
options. Options, configuration keys, environment variables and versions that occur in one or two passages, up to 40 of
each, are searched as they stand there; the passages that contain them are right, and those of the file that is named by
a version. Twenty-two questions in other words than the notes are searched, too; passages that match a regular
expression are right. Printed are the number of queries whose first passage is right, and the mean reciprocal rank of
the first right one of ten.
"""

import argparse
import random
import re
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import numpy as np
import report
from search_quality import MODEL, MODES
from turns import say

from bertkit import Index
from bertkit.search import Record

NOTES = Path("/usr/share/doc/git/RelNotes")
DEPTH = 10
_MOST = 40
_SECTIONS = (
    "core branch remote push pull fetch merge mergetool diff difftool color commit format gc pack receive transfer "
    "http credential rebase status submodule tag log gpg grep blame sendemail uploadpack index init interactive notes "
    "protocol repack stash trace2 user versionsort alias am apply clone column help imap maintenance pager rerere"
).replace(" ", "|")
KINDS = {
    "options": r"(?<![\w-])--[a-z][a-z-]+[a-z]",
    "configuration keys": rf"(?<![\w.])(?:{_SECTIONS})\.[a-zA-Z]{{2,}}(?![\w.-])",
    "environment variables": r"\bGIT_[A-Z_]+[A-Z]\b",
    "versions": r"\bv\d+\.\d+\.\d+(?:\.\d+)*\b",
}
QUESTIONS = {
    "sign a commit with an SSH key": (
        r"gpg\.format|gpg\.ssh|(?i:ssh\W+(?:\w+\W+){0,6}sign|sign\w*\W+(?:\w+\W+){0,6}ssh)"
    ),
    "find the commit that introduced a bug by binary search": r"\bbisect",
    "download only the most recent history of a repository": r"shallow|--depth",
    "have two branches checked out in separate directories at the same time": (
        r"\bworktree (?:add|list|remove)|[\"']git worktree|multiple working trees"
    ),
    "check out only some directories of a huge repository": r"sparse[- ]checkout|sparse[- ]index",
    "who last changed each line of a file": r"\bblame\b|\bannotate\b",
    "put away my unfinished changes for a while": r"\bstash\b",
    "combine several commits into one": r"squash|fixup",
    "skip commits that only reformat the code when looking for who changed a line": r"ignore-revs?",
    "get back a commit that I lost after a reset": r"reflog",
    "remove local copies of branches that were deleted on the server": (
        r"--prune\b|fetch\.prune|remote prune|\"prune\""
    ),
    "rewrite the author names in the whole history": r"filter-branch|filter-repo|mailmap",
    "copy one commit from another branch onto mine": r"cherry-pick",
    "run my own script before a commit is made": r"pre-commit|prepare-commit-msg|commit-msg",
    "mail a series of patches to a list": r"send-email|format-patch",
    "show lines that were moved in another color": r"color-moved|colorMoved",
    "make status faster in large working directories by watching for changes": r"fsmonitor|untracked[- ]cache",
    "what the first branch of a new repository is called": r"init\.defaultBranch|initial-branch|defaultBranch",
    "correct mistyped subcommands automatically": r"autocorrect",
    "push over rewritten history without destroying the work of others": r"force-with-lease|force-if-includes",
    "include other settings only for certain directories": r"includeIf|include\.path|conditional include",
    "use another address in place of the start of a url": r"insteadOf",
}


class Query(NamedTuple):
    """A query and the ids of its right passages."""

    text: str
    right: set[str]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--store", type=Path, help="keep the index here, to measure again without embedding")
    results, options = report.begin("search-exact", parser)
    results |= {"model": MODEL, "kinds": {}, "skipped": {}}
    if not NOTES.is_dir():
        results["skipped"]["release notes of Git"] = f"no {NOTES}: install the package git of Debian with its documents"
        report.finish(results, describe(results), options.out)
        return
    with ExitStack() as stack:
        folder = options.store or Path(stack.enter_context(tempfile.TemporaryDirectory())) / "store"
        index = stack.enter_context(Index.open(folder, MODEL))
        say(f"indexing {NOTES}")
        index.add(NOTES)
        records = list(index.store.records())
        results["num_passages"] = len(records)
        questions = [Query(text, _matching(records, re.compile(right))) for text, right in QUESTIONS.items()]
        for kind, queries in {"everyday questions": questions, **rare_strings(records)}.items():
            say(f"{kind}: {len(queries)}")
            ranks = {mode: np.array([reciprocal_rank(index, query, mode) for query in queries]) for mode in MODES}
            results["kinds"][kind] = {"num_queries": len(queries)} | {
                mode: {"first_right": int((values == 1).sum()), "mrr": float(values.mean())}
                for mode, values in ranks.items()
            }
    report.finish(results, describe(results), options.out)


def rare_strings(records: list[Record]) -> dict[str, list[Query]]:
    """Strings of each kind that occur in one or two passages, whatever their capitals, drawn with a fixed seed."""
    kinds = {}
    for kind, pattern in KINDS.items():
        queries = {}
        for string in sorted({match for record in records for match in re.findall(pattern, record.text)}):
            name = string.removeprefix("v") if kind == "versions" else string
            optional = "v?" if kind == "versions" else ""
            whole = re.compile(rf"(?<![\w.-]){optional}{re.escape(name)}(?![\w-]|\.\w)", re.IGNORECASE)
            right = _matching(records, whole)
            if 1 <= len(right) <= 2:
                of_name = {record.id for record in records if record.document_id.endswith(f"/{name}.txt")}
                queries[name.lower()] = Query(string, right | of_name)
        drawn = random.Random(0).sample(list(queries), min(_MOST, len(queries)))
        kinds[kind] = [queries[name] for name in drawn]
    return kinds


def _matching(records: list[Record], pattern: re.Pattern[str]) -> set[str]:
    return {record.id for record in records if pattern.search(record.text)}


def reciprocal_rank(index: Index, query: Query, mode: str) -> float:
    """1 / the rank of the first right passage, 0 if none of the first ten is right."""
    ranks = [one.rank for one in index.search(query.text, DEPTH, mode=mode) if one.id in query.right]
    return 1 / ranks[0] if ranks else 0.0


def describe(results: dict) -> str:
    """The results as Markdown."""
    lines = [*report.heading("Exact strings and everyday questions", results)]
    if results["kinds"]:
        lines += [
            f"{results['num_passages']:,} passages of the release notes of Git; {results['model']}. First passage "
            "right, and mean reciprocal rank of the first right one of ten.",
            "",
        ]
        rows = [
            [kind, str(row["num_queries"]), *(f"{row[mode]['first_right']}; {row[mode]['mrr']:.3f}" for mode in MODES)]
            for kind, row in results["kinds"].items()
        ]
        lines.append(report.markdown_table(["queries", "number", *MODES], *rows))
    return "\n".join([*lines, "", *report.skipped_lines(results)])


if __name__ == "__main__":
    main()
