"""Equality of every architecture with transformers, for the same weights, in each kind of model.

A `Family` has random configurations and their equivalents in transformers; the checks are the same for all.
Float64 agrees to 1e-10, float32 to 1e-5, relative to the largest absolute reference value where that is above 1. The
reference is transformers in float64. Some random configurations are so badly conditioned that transformers in float32
differs from it by more than 1e-5: there our float32 may differ by at most twice as much.
"""

import copy
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from random_models import error, randomize, vocabulary_tokens, write_vocabulary
from torch import Tensor

import bertkit
from bertkit import Batch, Model, Recorder, Tokenizer
from bertkit.architectures import ARCHITECTURES, Architecture
from bertkit.checkpoint.checkpoint import Provenance
from bertkit.heads import HEADS, KINDS

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}
KEPT_ON_REQUEST = ("hidden state", "attention")


def _lengths(config: Any, number: int) -> list[list[int]]:
    longest = 11 + number % 7
    return [[longest, 1, 5, 5, longest - 3, 2], [1] * 6]


@dataclass(frozen=True)
class Family:
    """An architecture to check."""

    model_type: str
    random_config: Callable[..., Any]  # number, changes -> our config of odd, distinct sizes
    published_config: Callable[..., transformers.PreTrainedConfig]  # our config, options -> transformers' of the same
    lengths: Callable[[Any, int], list[list[int]]] = _lengths  # config, number -> sequence lengths of batches; six
    # sequences in a batch, or any number in one that no question with choices is made of
    left_padding: tuple[str, ...] = ()  # ways that positions count behind padding: "column", "restart"
    positions_skip_padding: bool = False  # positions are counted by the ids that are not padding
    has_padding_id: bool = False  # a head skips the id that is padding, which must not occur in a text
    module: Any = transformers  # has the published classes, or a reference by the same names
    exact_code: Callable[[], AbstractContextManager[None]] = nullcontext  # runs transformers' code without roundings
    num_configurations: int = 30  # of each kind, both ways
    num_quick: int = 2  # those of them that every run of the tests takes; the others are slow tests

    @property
    def record(self) -> Architecture:
        return ARCHITECTURES[self.model_type]

    @property
    def kinds(self) -> dict[str, type[transformers.PreTrainedModel]]:
        """Model kinds with their published classes."""
        names, module = self.record.published_classes(), self.module
        return {kind: getattr(module, name) for name, kind in names.items() if hasattr(module, name)}

    def pad_id(self, config: Any) -> int | None:
        """The id that must not occur in a text, as positions count others; None: any may."""
        skips_padding = self.positions_skip_padding or self.has_padding_id
        return getattr(config, "pad_token_id", 1) if skips_padding else None

    def published_model(self, kind: str, number: int, num_labels: int = 2, **changes: Any) -> Any:
        """Transformers' model of a kind, configuration ``number``, every parameter random."""
        config = self.published_config(self.random_config(number, **changes), attn_implementation="eager")
        config.num_labels = num_labels
        if num_labels == 1:
            config.problem_type = "regression"
        model = self.kinds[kind](config).eval()
        randomize(model, number)
        return model

    def our_model(self, kind: str, number: int, num_labels: int = 2, **changes: Any) -> Model:
        """Our model of a kind, configuration ``number``, every parameter random and marked as trained."""
        config = self.random_config(number, **changes)
        labels = [f"label {index}" for index in range(num_labels)] if kind.endswith("_classification") else None
        tokenizer = Tokenizer.from_vocab(self.vocabulary(config))
        model = Model.create(config, tokenizer, KINDS[kind], label_names=labels)
        randomize(model.network, number)
        model.checkpoint.provenance = {name: Provenance("trained") for name in model.checkpoint.provenance}
        return model

    def vocabulary(self, config: Any) -> list[str]:
        """Entries of a small tokenizer, padding where the config says."""
        tokens, pad_id = vocabulary_tokens(config.vocab_size), self.pad_id(config) or 0
        tokens[0], tokens[pad_id] = tokens[pad_id], tokens[0]
        return tokens

    def save_published(self, model: transformers.PreTrainedModel, folder: Path, **options: Any) -> Path:
        """Save a transformers model with a tokenizer of as many entries as it has word embeddings."""
        model.save_pretrained(folder, **options)
        write_vocabulary(folder, self.vocabulary(model.config))
        return folder


@dataclass(frozen=True)
class Padded:
    """Padded sequences (B, L) of several lengths, and how their positions count."""

    input_ids: Tensor
    token_type_ids: Tensor
    attention_mask: Tensor
    restart_positions: bool = False

    @property
    def position_ids(self) -> Tensor | None:
        return (self.attention_mask.cumsum(1) - 1).clamp(min=0) if self.restart_positions else None

    def packed(self) -> Batch:
        options = {"restart_positions": True} if self.restart_positions else {}  # by column is the default
        return Batch.from_padded(self.input_ids, self.attention_mask, self.token_type_ids, **options)


def padded_batches(family: Family, kind: str, number: int) -> list[Padded]:
    """Pairs padded right and, where the family can, left."""
    config = family.random_config(number)
    generator = torch.Generator().manual_seed(number)
    num_types, pad_id = getattr(config, "type_vocab_size", 0), family.pad_id(config)

    def draw(lengths: list[int], seq_len: int, *, left: bool = False, restart: bool = False) -> Padded:
        shape, seqlens = (len(lengths), seq_len), torch.tensor(lengths)[:, None]
        first_of_b = (torch.rand(shape[0], 1, generator=generator) * seqlens).long()
        columns = torch.arange(seq_len) - (seq_len - seqlens if left else 0)
        types = torch.randint(1, max(2, num_types), (shape[0], 1), generator=generator)
        mask = ((columns >= 0) & (columns < seqlens)).long()
        ids = torch.randint(0, config.vocab_size, shape, generator=generator)
        if pad_id is not None:
            ids = torch.where(ids == pad_id, (pad_id + 5) % config.vocab_size, ids).where(mask.bool(), pad_id)
        return Padded(ids, torch.where(columns < first_of_b, 0, types), mask, restart)

    choices, batches = num_choices(kind, number), []
    for index, lengths in enumerate(family.lengths(config, number)):
        lengths = lengths[: max(1, len(lengths) // choices) * choices]
        batches.append(draw(lengths, max(lengths)))
        reads_column_0 = any(family.record.heads[head].input(config) == "cls" for head in KINDS[kind])
        if index == 0 and not reads_column_0:
            batches += [draw(lengths[::-1], max(lengths) + 2, left=True, restart=way == "restart")
                        for way in family.left_padding]  # fmt: skip
    return [batch for batch in batches if len(batch.input_ids) % choices == 0]


def num_choices(kind: str, number: int) -> int:
    return (2 + number % 2) if kind == "multiple_choice" else 1


def num_labels(kind: str, number: int) -> int:
    """One for every third sequence classifier, as in regression."""
    choices = {"sequence_classification": [1, 3, 5], "token_classification": [3, 4, 7]}.get(kind, [2])
    return choices[number % len(choices)]


def published_outputs(family: Family, model: Any, kind: str, padded: Padded, num_choices: int) -> dict[str, Tensor]:
    """All outputs of transformers' model, per real token, by our names.

    Its pooler reads column 0, which is padding on the left: here it gets the first real token instead.
    """
    mask = padded.attention_mask.bool()
    first_real = torch.arange(len(mask)), mask.int().argmax(1)
    inputs = {"input_ids": padded.input_ids, "attention_mask": padded.attention_mask}
    if getattr(model.config, "type_vocab_size", 0) > 1:
        inputs["token_type_ids"] = padded.token_type_ids
    if padded.restart_positions and not family.positions_skip_padding:
        inputs["position_ids"] = padded.position_ids
    if kind == "multiple_choice":
        inputs = {name: value.view(-1, num_choices, value.shape[1]) for name, value in inputs.items()}
    with ExitStack() as entered:
        entered.enter_context(family.exact_code())
        pooler = getattr(model.base_model, "pooler", None)
        if pooler is not None and family.left_padding:
            entered.enter_context(pooler.register_forward_pre_hook(lambda _, states: (states[0][first_real][:, None],)))
        results = model(**inputs, output_hidden_states=True, output_attentions=True)
    outputs = {f"hidden state {layer}": states[mask] for layer, states in enumerate(results.hidden_states)}
    outputs["last hidden state"] = results.hidden_states[-1][mask]
    for layer, probs in enumerate(results.attentions):  # (B, H, L, L), of real tokens to real tokens
        outputs[f"attention {layer}"] = torch.cat(
            [probs[row][:, real][:, :, real].ravel() for row, real in enumerate(mask)]
        )
    if kind == "encoder":
        pooled = getattr(results, "pooler_output", None)
        return outputs if pooled is None else outputs | {"pooled": pooled}
    if kind == "pretraining":
        second = results.seq_relationship_logits if "seq_relationship_logits" in results else results.sop_logits
        return outputs | {"masked_lm": results.prediction_logits[mask], "next_sentence": second}
    if kind == "question_answering":
        return outputs | {kind: torch.stack([results.start_logits[mask], results.end_logits[mask]], dim=-1)}
    return outputs | {kind: results.logits if HEADS[kind] else results.logits[mask]}


def our_outputs(model: Model, padded: Padded, num_choices: int, *, keep_all: bool) -> dict[str, Tensor]:
    """The same for our model; inner hidden states and probabilities only with ``keep_all``."""
    recorder = Recorder() if keep_all else None
    results = model.network(padded.packed(), num_choices=num_choices, with_hidden_states=keep_all, recorder=recorder)
    outputs = {"last hidden state": results.encoded.last_hidden_state, **results.logits}
    if not model.network.heads and results.encoded.pooled is not None:
        outputs["pooled"] = results.encoded.pooled
    if recorder is None:
        assert results.encoded.hidden_states is None
        return outputs
    outputs |= {f"hidden state {layer}": states for layer, states in enumerate(results.encoded.hidden_states)}
    for layer, record in enumerate(recorder.layers):
        outputs[f"attention {layer}"] = torch.cat([probs.ravel() for probs in record.attention_probs])
    return outputs


def assert_same(family: Family, ours: list[Model], published: Any, kind: str, number: int) -> None:
    """Compare ours, in single and double precision, with what transformers computes in double precision.

    Alternately one of the two returns all hidden states and attention probabilities: outputs must not depend on it.
    """
    single = copy.deepcopy(published)
    published.double()
    choices = num_choices(kind, number)
    for index, padded in enumerate(padded_batches(family, kind, number)):
        reference = published_outputs(family, published, kind, padded, choices)
        for turn, (model, dtype) in enumerate(zip(ours, TOLERANCE, strict=True)):
            keep_all = (number // 4 + turn) % 2 == 0
            results = our_outputs(model, padded, choices, keep_all=keep_all)
            assert results.keys() == {name for name in reference if keep_all or not name.startswith(KEPT_ON_REQUEST)}
            for name, value in results.items():
                where = f"{kind} {number}, batch {index}, {dtype}: {name}"
                assert value.dtype == dtype, where
                difference, allowed = error(value, reference[name]), TOLERANCE[dtype]
                if difference > allowed and dtype == torch.float32:
                    rounded = published_outputs(family, single, kind, padded, choices)
                    allowed = 2 * max(error(rounded[output], reference[output]) for output in results)
                assert difference <= allowed, f"{where}: {difference:.2e} > {allowed:.2e}"
        for name, value in reference.items():
            if index == 0 and not name.startswith("attention"):
                assert value.std() > 0.5, f"{kind} {number}: {name} varies too little to show an error"


def check_opened(family: Family, kind: str, number: int) -> None:
    """Weights saved by transformers and opened here give its outputs."""
    published = family.published_model(kind, number, num_labels(kind, number))
    with tempfile.TemporaryDirectory() as folder:
        family.save_published(published, Path(folder))
        ours = [bertkit.load(folder, device="cpu", precision=precision) for precision in ("float32", "float64")]
    assert ours[0].config == family.random_config(number)
    assert tuple(ours[0].network.heads) == KINDS[kind]
    assert not any(part.training for part in ours[0].network.modules())
    assert_same(family, ours, published, kind, number)


def check_saved(family: Family, kind: str, number: int) -> None:
    """Weights saved here and opened by transformers give the same outputs."""
    ours = family.our_model(kind, number, num_labels(kind, number))
    with tempfile.TemporaryDirectory() as folder:
        ours.save(folder)
        published, report = family.kinds[kind].from_pretrained(
            folder, attn_implementation="eager", output_loading_info=True
        )
        assert bertkit.load(folder).config == ours.config
    assert not any(report.values()), report
    assert published.config.architectures == [type(published).__name__]
    double = copy.deepcopy(ours)
    double.network.double()
    assert_same(family, [ours, double], published.eval(), kind, number)
