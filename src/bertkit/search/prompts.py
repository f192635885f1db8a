"""Prompts of queries and documents: from the model, or from known families that store none."""

import re
from typing import NamedTuple

from bertkit.checkpoint import SentenceSettings
from bertkit.errors import UsageError


class Prompts(NamedTuple):
    """Texts prepended to queries and to documents."""

    query: str
    document: str


_RETRIEVAL = "Represent this sentence for searching relevant passages: "
# From the publishers' model cards.
_FAMILIES = {
    r"(^|[-_/])(multilingual-)?e5[-_]": ("e5", Prompts("query: ", "passage: ")),
    r"(^|[-_/])bge[-_].*en": ("bge", Prompts(_RETRIEVAL, "")),
    r"(^|[-_/])gte[-_]": ("gte", Prompts("", "")),
    r"arctic[-_]embed": ("arctic-embed", Prompts(_RETRIEVAL, "")),
    r"nomic[-_]embed": ("nomic-embed", Prompts("search_query: ", "search_document: ")),
}


def prompts_of(
    name: str,
    settings: SentenceSettings,
    query_prompt: str | None = None,
    document_prompt: str | None = None,
    *,
    no_prompt: bool = False,
) -> Prompts:
    """Prompts of a model: as requested, else as stored, else none.

    Args:
        name: name of the model, which identifies its family.
        no_prompt: use none, even if the model stores some.

    Raises:
        UsageError: both a prompt and ``no_prompt``, or no prompt is given or stored though the publisher uses prompts.
    """
    for prompt in (query_prompt, document_prompt):
        if not isinstance(prompt, str | None):
            raise UsageError(f"a prompt is {type(prompt).__name__} ({prompt!r:.40}): expected a str or None")
    asked = query_prompt is not None or document_prompt is not None
    if asked and no_prompt:
        raise UsageError("--query-prompt and --document-prompt cannot be combined with --no-prompt")
    if no_prompt:
        return Prompts("", "")
    chosen = Prompts(*settings.retrieval_prompts)
    if asked:
        return Prompts(
            chosen.query if query_prompt is None else query_prompt,
            chosen.document if document_prompt is None else document_prompt,
        )
    if not any(settings.prompts.values()):
        for pattern, (family, prompts) in _FAMILIES.items():
            if re.search(pattern, name, re.IGNORECASE):
                raise UsageError(_question(name, family, prompts))
    return chosen


def _question(name: str, family: str, prompts: Prompts) -> str:
    if prompts == Prompts("", ""):
        return f"{name} stores no prompts, and the publisher of {family} uses none: confirm with --no-prompt"
    document = f" and --document-prompt {prompts.document!r}" if prompts.document else ""
    return (
        f"{name} stores no prompts, but the publisher of {family} puts {prompts.query!r} before queries"
        f"{f' and {prompts.document!r} before documents' if prompts.document else ''}: pass --query-prompt "
        f"{prompts.query!r}{document}, or --no-prompt to search without"
    )
