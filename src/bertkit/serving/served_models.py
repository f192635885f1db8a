"""The models that a server offers: their names, roles, kinds, and which of them answers a request."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from bertkit.errors import UsageError
from bertkit.search.index import Index
from bertkit.serving.refusals import InvalidRequest, UnknownModel, WrongModelKind
from bertkit.serving.shared_batches import SharedModel
from bertkit.tasks import TextTask

QUERY, DOCUMENT = "query", "document"
_PROMPT_NAMES = {QUERY: ("query", "search_query", "s2p_query"), DOCUMENT: ("document", "passage", "search_document")}
_INPUT_TYPES = {
    "query": QUERY, "search_query": QUERY, "document": DOCUMENT, "search_document": DOCUMENT, "passage": DOCUMENT,
}  # fmt: skip
"""As Cohere, Voyage and NVIDIA spell them."""

_SUFFIXES = {"-query": QUERY, "-document": DOCUMENT, "-passage": DOCUMENT}

FEATURES, RERANKING, FILL_MASK = "feature-extraction", "text-ranking", "fill-mask"
CLASSIFICATION, TAGGING, ANSWERING = "text-classification", "token-classification", "question-answering"


@dataclass(frozen=True)
class ServedModel:
    """A model under a name."""

    name: str
    model: SharedModel
    loaded: int = field(default_factory=lambda: int(time.time()))  # seconds since 1970

    @cached_property
    def kind(self) -> str:
        """What the model is for, as the Hugging Face hub names it."""
        trained = self.model.checkpoint.trained
        if trained is not None and (self._is_reranker(trained.task) or not trained.task.of_vectors):
            return RERANKING if self._is_reranker(trained.task) else trained.task.pipeline
        if self.model.checkpoint.sentence is None and "masked_lm" in self.model.network.heads:
            return FILL_MASK
        return FEATURES

    @cached_property
    def kinds(self) -> frozenset[str]:
        """All that the model can do: an encoder that fills masks has vectors, too."""
        has_masks = "masked_lm" in self.model.network.heads and self.kind in (FEATURES, FILL_MASK)
        return frozenset({self.kind, *([FEATURES, FILL_MASK] if has_masks else [])})

    @property
    def task(self) -> TextTask:
        return self.model.trained.task

    @cached_property
    def max_length(self) -> int:
        """Tokens of its longest sequence."""
        settings, tokenizer = self.model.sentence_settings, self.model.tokenizer
        most = self.model.config.max_position_embeddings
        return min(settings.max_seq_length or tokenizer.model_max_length or most, most)

    def prompt_of(self, role: str | None, prompt_name: str | None) -> str | None:
        """The name of a prompt, as asked for, or that of a role if the model has one.

        Raises:
            InvalidRequest: a prompt that the model lacks.
        """
        prompts = self.model.sentence_settings.prompts
        if prompt_name is not None:
            if prompt_name not in prompts:
                raise InvalidRequest(
                    f"prompt_name {prompt_name!r:.60}: the prompts of {self.name} are {', '.join(prompts) or 'none'}"
                )
            return prompt_name
        return next((name for name in _PROMPT_NAMES.get(role or "", ()) if name in prompts), None)

    @staticmethod
    def _is_reranker(task: TextTask) -> bool:
        return task.pipeline in (CLASSIFICATION, RERANKING) and len(task.label_names or ()) == 1


def role_of(input_type: str | None) -> str | None:
    """QUERY or DOCUMENT by the name that a client gives the role of its texts; None: it gives none.

    Raises:
        InvalidRequest: an unknown name.
    """
    if input_type is None:
        return None
    if input_type not in _INPUT_TYPES:
        raise InvalidRequest(f"input_type {input_type!r:.60}: expected one of {', '.join(_INPUT_TYPES)}")
    return _INPUT_TYPES[input_type]


class ServedModels:
    """The models of a server, in the order in which they were named, and the index that it searches, if any.

    Raises:
        UsageError: none, or two of one name.
    """

    def __init__(self, models: Sequence[ServedModel], index: Index | None = None) -> None:
        if not models:
            raise UsageError("there is no model to serve: name one")
        names = [served.name for served in models]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise UsageError(f"two models are named {twice!r}: rename one of their folders")
        self.all: Mapping[str, ServedModel] = {served.name: served for served in models}
        self.index = index

    @property
    def first(self) -> ServedModel:
        return next(iter(self.all.values()))

    def named(self, name: str) -> tuple[ServedModel, str | None]:
        """A model and the role of the texts, by its name or its name and a role: "M", "M-query", "M-document".

        Raises:
            UnknownModel: there is none.
        """
        if name in self.all:
            return self.all[name], None
        for suffix, role in _SUFFIXES.items():
            if name.endswith(suffix) and name.removesuffix(suffix) in self.all:
                return self.all[name.removesuffix(suffix)], role
        raise UnknownModel(f"model {name!r:.80} is not served here: expected one of {', '.join(self.all)}")

    def choose(self, name: str | None, kinds: Sequence[str], what: str) -> tuple[ServedModel, str | None]:
        """The named model, or else the first of a kind, and the role in its name.

        Args:
            kinds: any of them will do.
            what: such as "a re-ranker", for the error.

        Raises:
            UnknownModel: no model of that name.
            WrongModelKind: it is of another kind, or none is of these.
        """
        if name is not None:
            served, role = self.named(name)
            if not served.kinds.intersection(kinds):
                raise WrongModelKind(f"model is not {what} model: {served.name} is for {served.kind}")
            return served, role
        for served in self.all.values():
            if served.kinds.intersection(kinds):
                return served, None
        raise WrongModelKind(f"model is not {what} model: served here: {self._described()}")

    def _described(self) -> str:
        return ", ".join(f"{served.name} for {served.kind}" for served in self.all.values())
