"""Every kind of BERT gives transformers' outputs: weights saved there opened here, weights saved here opened there.

Float64 agrees to 1e-10, float32 to 1e-5, relative to the largest absolute reference value where that is above 1. The
reference is transformers in float64.
"""

import copy
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
import transformers
from random_models import PUBLISHED_CLASSES, error, our_model, published_model, random_config, save_published
from torch import Tensor

import bertkit
from bertkit import Batch, Model, Recorder
from bertkit.heads import HEADS, KINDS

pytestmark = pytest.mark.usefixtures("one_thread")

NUM_CONFIGURATIONS = 50
NUM_SEQUENCES = 6
KEPT_ON_REQUEST = ("hidden state", "attention")
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}


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


def padded_batches(number: int, num_choices: int) -> list[Padded]:
    """Pairs padded right and left (positions by column, and restarted), of length 1, and for one in ten of 512."""
    config = random_config(number)
    generator = torch.Generator().manual_seed(number)

    def draw(lengths: list[int], seq_len: int, *, left: bool = False, restart: bool = False) -> Padded:
        shape, seqlens = (len(lengths), seq_len), torch.tensor(lengths)[:, None]
        first_of_b = (torch.rand(shape[0], 1, generator=generator) * seqlens).long()
        columns = torch.arange(seq_len) - (seq_len - seqlens if left else 0)
        types = torch.randint(1, config.type_vocab_size, (shape[0], 1), generator=generator)
        return Padded(
            torch.randint(0, config.vocab_size, shape, generator=generator),
            torch.where(columns < first_of_b, 0, types),
            ((columns >= 0) & (columns < seqlens)).long(),
            restart,
        )

    longest = 11 + number % 7
    lengths = [longest, 1, 5, 5, longest - 3, 2]
    batches = [
        draw(lengths, longest),
        draw(lengths[::-1], longest + 2, left=True),
        draw(lengths, longest, left=True, restart=True),
        draw([1] * NUM_SEQUENCES, 1),
    ]
    if config.max_position_embeddings == 512:
        batches.append(draw([512, 9, 7][: max(2, num_choices)], 512))
    return batches


def num_choices(kind: str, number: int) -> int:
    return (2 + number % 2) if kind == "multiple_choice" else 1


def published_outputs(model: transformers.PreTrainedModel, padded: Padded, num_choices: int) -> dict[str, Tensor]:
    """Everything transformers' model gives, per real token, by our names.

    Its pooler reads column 0, which on the left is padding: here it is handed the first real token instead.
    """
    mask = padded.attention_mask.bool()
    first_real = torch.arange(len(mask)), mask.int().argmax(1)
    inputs = {
        "input_ids": padded.input_ids,
        "attention_mask": padded.attention_mask,
        "token_type_ids": padded.token_type_ids,
        "position_ids": padded.position_ids,
    }
    if isinstance(model, transformers.BertForMultipleChoice):
        inputs = {
            name: None if value is None else value.view(-1, num_choices, value.shape[1])
            for name, value in inputs.items()
        }
    with ExitStack() as hooks:
        if (pooler := model.base_model.pooler) is not None:
            hooks.enter_context(pooler.register_forward_pre_hook(lambda _, states: (states[0][first_real][:, None],)))
        results = model(**inputs, output_hidden_states=True, output_attentions=True)
    outputs = {f"hidden state {layer}": states[mask] for layer, states in enumerate(results.hidden_states)}
    outputs["last hidden state"] = results.hidden_states[-1][mask]
    for layer, probs in enumerate(results.attentions):  # (B, H, L, L), of real tokens to real tokens
        outputs[f"attention {layer}"] = torch.cat(
            [probs[row][:, real][:, :, real].ravel() for row, real in enumerate(mask)]
        )
    match model:
        case transformers.BertModel():
            return outputs | {"pooled": results.pooler_output}
        case transformers.BertForPreTraining():
            return outputs | {
                "masked_lm": results.prediction_logits[mask],
                "next_sentence": results.seq_relationship_logits,
            }
        case transformers.BertForQuestionAnswering():
            return outputs | {
                "question_answering": torch.stack([results.start_logits[mask], results.end_logits[mask]], dim=-1)
            }
    (head,) = (head for head in HEADS if PUBLISHED_CLASSES.get(head) is type(model))
    return outputs | {head: results.logits if HEADS[head] else results.logits[mask]}


def our_outputs(model: Model, padded: Padded, num_choices: int, *, keep_all: bool) -> dict[str, Tensor]:
    """The same of ours; hidden states below the last and probabilities only when ``keep_all``."""
    recorder = Recorder() if keep_all else None
    results = model.network(padded.packed(), num_choices=num_choices, with_hidden_states=keep_all, recorder=recorder)
    outputs = {"last hidden state": results.encoded.last_hidden_state, **results.logits}
    if not model.network.heads:
        outputs["pooled"] = results.encoded.pooled
    if recorder is None:
        assert results.encoded.hidden_states is None
        return outputs
    outputs |= {f"hidden state {layer}": states for layer, states in enumerate(results.encoded.hidden_states)}
    for layer, record in enumerate(recorder.layers):
        outputs[f"attention {layer}"] = torch.cat([probs.ravel() for probs in record.attention_probs])
    return outputs


def assert_same(ours: list[Model], published: transformers.PreTrainedModel, kind: str, number: int) -> None:
    """Compare ours, in single and double precision, with what transformers computes in double precision.

    One of the two, in turn, is asked for all hidden states and attention probabilities, and the other one not: the
    outputs must not depend on it.
    """
    published.double()
    choices = num_choices(kind, number)
    for index, padded in enumerate(padded_batches(number, choices)):
        reference = published_outputs(published, padded, choices)
        for turn, (model, dtype) in enumerate(zip(ours, TOLERANCE, strict=True)):
            keep_all = (number // 4 + turn) % 2 == 0
            results = our_outputs(model, padded, choices, keep_all=keep_all)
            assert results.keys() == {name for name in reference if keep_all or not name.startswith(KEPT_ON_REQUEST)}
            for name, value in results.items():
                where = f"{kind} {number}, batch {index}, {dtype}: {name}"
                assert value.dtype == dtype, where
                assert error(value, reference[name]) <= TOLERANCE[dtype], where
        for name, value in reference.items():
            if index == 0 and not name.startswith("attention"):
                assert value.std() > 0.5, f"{kind} {number}: {name} varies too little to show an error"


def num_labels(kind: str, number: int) -> int:
    """Of a sequence classifier every third time one: regression."""
    choices = {"sequence_classification": [1, 3, 5], "token_classification": [3, 4, 7]}.get(kind, [2])
    return choices[number % len(choices)]


@pytest.mark.parametrize("number", range(NUM_CONFIGURATIONS))
@pytest.mark.parametrize("kind", PUBLISHED_CLASSES)
@torch.inference_mode()
def test_weights_saved_by_transformers_give_its_outputs(kind: str, number: int) -> None:
    published = published_model(kind, number, num_labels(kind, number))
    with tempfile.TemporaryDirectory() as folder:
        save_published(published, Path(folder))
        ours = [bertkit.load(folder, device="cpu", precision=precision) for precision in ("float32", "float64")]
    assert tuple(ours[0].network.heads) == KINDS[kind]
    assert not any(part.training for part in ours[0].network.modules())
    assert_same(ours, published, kind, number)


@pytest.mark.parametrize("number", range(NUM_CONFIGURATIONS, 2 * NUM_CONFIGURATIONS))
@pytest.mark.parametrize("kind", PUBLISHED_CLASSES)
@torch.inference_mode()
def test_weights_saved_here_give_transformers_the_same_outputs(kind: str, number: int) -> None:
    ours = our_model(kind, number, num_labels(kind, number))
    with tempfile.TemporaryDirectory() as folder:
        ours.save(folder)
        published, report = PUBLISHED_CLASSES[kind].from_pretrained(
            folder, attn_implementation="eager", output_loading_info=True
        )
    assert not any(report.values()), report
    assert published.config.architectures == [type(published).__name__]
    double = copy.deepcopy(ours)
    double.network.double()
    assert_same([ours, double], published.eval(), kind, number)
