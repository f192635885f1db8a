"""Served models: names, roles, kinds, and the choice of a model for a request."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bertkit.checkpoint.sentence import DOCUMENT_PROMPTS, QUERY_PROMPTS
from bertkit.errors import UsageError
from bertkit.model import Model
from bertkit.serving.refusals import CannotGenerate, InvalidRequest, UnknownModel, WrongModelKind
from bertkit.tasks import TextTask
from bertkit.tokenizer import Tokenizer, Vocabulary

if TYPE_CHECKING:
    import torch

    from bertkit.generation import Generator
    from bertkit.search.index import Index

QUERY, DOCUMENT = "query", "document"
_PROMPT_NAMES = {QUERY: QUERY_PROMPTS, DOCUMENT: DOCUMENT_PROMPTS}
_INPUT_TYPES = {
    "query": QUERY, "search_query": QUERY, "document": DOCUMENT, "search_document": DOCUMENT, "passage": DOCUMENT,
}  # fmt: skip
"""The names used by Cohere, Voyage and NVIDIA."""

_SUFFIXES = {"-query": QUERY, "-document": DOCUMENT, "-passage": DOCUMENT}

_CHARACTERS_PER_TOKEN = 250  # as in text-embeddings-inference

FEATURES, RERANKING, FILL_MASK = "feature-extraction", "text-ranking", "fill-mask"
CLASSIFICATION, TAGGING, ANSWERING = "text-classification", "token-classification", "question-answering"
CONTINUING, REWRITING = "text-generation", "text2text-generation"
EXTRACTION = "zero-shot-extraction"  # the hub has no name for it


class Served:
    """A served model with its name.

    Attributes:
        precision: of inference.
        kind: the pipeline tag of the model, as on the Hugging Face hub.
        kinds: all kinds of the model: an encoder that fills masks also has vectors.
        max_length: maximum sequence length in tokens.
        prompts: those of a sentence encoder by name.
        device: that of the weights.
        loaded: when, in seconds since 1970.
    """

    kind: str
    max_length: int
    tokenizer: Tokenizer

    def __init__(self, name: str, precision: str, device: torch.device) -> None:
        self.name, self.precision, self.device, self.loaded = name, precision, device, int(time.time())
        self.kinds = frozenset[str]()
        self.prompts: Mapping[str, str] = {}

    @property
    def most_characters(self) -> int:
        """Maximum number of characters of a text that may not be truncated."""
        return _CHARACTERS_PER_TOKEN * self.max_length

    def prompt_of(self, role: str | None, prompt_name: str | None) -> str | None:
        """The requested prompt name, or that of the role if the model has one.

        Raises:
            InvalidRequest: a prompt that the model lacks.
        """
        if prompt_name is not None:
            if prompt_name not in self.prompts:
                names = ", ".join(self.prompts) or "none"
                raise InvalidRequest(f"prompt_name {prompt_name!r:.60}: the prompts of {self.name} are {names}")
            return prompt_name
        return next((name for name in _PROMPT_NAMES.get(role or "", ()) if name in self.prompts), None)


class ServedModel(Served):
    """An encoder with its heads."""

    def __init__(self, name: str, precision: str, model: Model) -> None:
        super().__init__(name, precision, model.weights_device)
        settings, most = model.sentence_settings, model.config.max_position_embeddings
        self.model, self.tokenizer, self.prompts = model, model.tokenizer, settings.prompts
        self.max_length = min(settings.max_seq_length or model.tokenizer.model_max_length or most, most)
        self.kind, has_masks = _kind_of(model), "masked_lm" in model.checkpoint.parts.heads
        both = (FEATURES, FILL_MASK)
        self.kinds = frozenset(both if has_masks and self.kind in both else [self.kind])

    @property
    def task(self) -> TextTask:
        return self.model.trained.task


def _kind_of(model: Model) -> str:
    if model.is_extractor:
        return EXTRACTION
    task = None if model.checkpoint.trained is None else model.checkpoint.trained.task
    if task is not None and task.head:
        if task.pipeline in (CLASSIFICATION, RERANKING) and len(task.label_names or ()) == 1:
            return RERANKING
        if not task.of_vectors:
            return task.pipeline
    is_plain = model.checkpoint.sentence is None and "masked_lm" in model.checkpoint.parts.heads
    return FILL_MASK if is_plain else FEATURES


class ServedGenerator(Served):
    """A generative model."""

    def __init__(self, name: str, precision: str, generator: Generator) -> None:
        super().__init__(name, precision, next(generator.network.parameters()).device)
        of_source, of_target = generator.max_lengths
        self.generator, self.tokenizer, self.max_length = generator, generator.tokenizer, of_source or of_target
        self.kind = REWRITING if of_source else CONTINUING
        self.kinds = frozenset({self.kind})


def role_of(input_type: str | None) -> str | None:
    """QUERY or DOCUMENT for a client's name of a role; None without one.

    Raises:
        InvalidRequest: an unknown name.
    """
    if input_type is None:
        return None
    if input_type not in _INPUT_TYPES:
        raise InvalidRequest(f"input_type {input_type!r:.60}: expected one of {', '.join(_INPUT_TYPES)}")
    return _INPUT_TYPES[input_type]


class ServedModels:
    """The models of a server, in the given order, and the index that it searches, if any.

    Args:
        models: of different names.
        aliases: further names that requests may use, with the name of the model.

    Raises:
        UsageError: no models.
    """

    def __init__(
        self, models: Sequence[Served], index: Index | None = None, aliases: Mapping[str, str] | None = None
    ) -> None:
        if not models:
            raise UsageError("no model to serve: expected at least one")
        self.all: Mapping[str, Served] = {served.name: served for served in models}
        self._by_name = {alias: self.all[name] for alias, name in (aliases or {}).items()} | self.all
        self.index = index

    @property
    def first(self) -> Served:
        return next(iter(self.all.values()))

    def named(self, name: str) -> tuple[Served, str | None]:
        """A model and the role of the texts, by its name or its name and a role: "M", "M-query", "M-document".

        Raises:
            UnknownModel: there is none.
        """
        if name in self._by_name:
            return self._by_name[name], None
        for suffix, role in _SUFFIXES.items():
            if name.endswith(suffix) and name.removesuffix(suffix) in self._by_name:
                return self._by_name[name.removesuffix(suffix)], role
        raise UnknownModel(f"model {name!r:.80} is not served here: expected one of {', '.join(self.all)}")

    def choose(self, name: str | None, kinds: Sequence[str] | None, what: str) -> tuple[ServedModel, str | None]:
        """The named model, or else the first of a kind, and the role in its name.

        Args:
            kinds: acceptable kinds; None: every encoder's.
            what: such as "a re-ranker", for the error.

        Raises:
            UnknownModel: no model with that name.
            WrongModelKind: the model, or every model, has another kind.
        """
        return self._choose(
            name,
            lambda one: isinstance(one, ServedModel) and (kinds is None or not one.kinds.isdisjoint(kinds)),
            what,
            WrongModelKind,
        )

    def choose_generator(self, name: str | None) -> ServedGenerator:
        """The named model, or else the first generative one.

        Raises:
            UnknownModel: no model with that name.
            CannotGenerate: the model, or every model, is not generative.
        """
        return self._choose(name, lambda one: isinstance(one, ServedGenerator), "a generative", CannotGenerate)[0]

    def _choose(
        self, name: str | None, fits: Callable[[Served], bool], what: str, refusal: type[WrongModelKind]
    ) -> tuple[Any, str | None]:
        named = None if name is None else self.named(name)
        for served, role in [(one, None) for one in self.all.values()] if named is None else [named]:
            if fits(served):
                return served, role
        if named is not None:
            raise refusal(f"model is not {what} model: {named[0].name} is for {named[0].kind}")
        described = ", ".join(f"{served.name} for {served.kind}" for served in self.all.values())
        raise refusal(f"no {what.partition(' ')[2]} model is served here: {described}")


def some_word(vocabulary: Vocabulary) -> str:
    """A word of a vocabulary; of one without words, such as of numbers, any token."""
    return next((token for token in vocabulary.tokens if token.isalpha()), vocabulary.tokens[-1])
