"""ModernBERT gives transformers' outputs: weights saved by transformers opened here, and the other way round.

Float64 agrees to 1e-10, float32 to 1e-5, relative to the largest absolute reference value where that is above 1. The
reference is transformers in float64, without the roundings to float32 that its code holds.
"""

import copy
import tempfile
from pathlib import Path

import pytest
import torch
import transformers
from random_models import error, save_published
from random_modern import PUBLISHED_CLASSES, our_model, published_code_in_double, published_model, random_config
from torch import Tensor

import bertkit
from bertkit import Batch, Model, Recorder
from bertkit.heads import HEADS, KINDS

pytestmark = pytest.mark.usefixtures("one_thread")

NUM_CONFIGURATIONS = 16
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}


def padded_batches(kind: str, number: int) -> list[tuple[Tensor, Tensor]]:
    """Ids and masks: of several lengths, beyond every window, padded right and left, of length 1, one in ten long."""
    config = random_config(number)
    generator = torch.Generator().manual_seed(number)

    def draw(lengths: list[int], seq_len: int, *, left: bool = False) -> tuple[Tensor, Tensor]:
        seqlens = torch.tensor(lengths)[:, None]
        columns = torch.arange(seq_len) - (seq_len - seqlens if left else 0)
        ids = torch.randint(0, config.vocab_size, (len(lengths), seq_len), generator=generator)
        return ids, ((columns >= 0) & (columns < seqlens)).long()

    longest = 37 + number % 6
    batches = [draw([longest, 1, 5, 5, longest - 9, 17], longest), draw([1, 1], 1)]
    if kind != "sequence_classification" or config.classifier_pooling == "mean":
        batches.append(draw([4, longest, 1, 22], longest, left=True))  # its "cls" would be padding there
    if config.max_position_embeddings == 400:
        batches.append(draw([399, 12], 399))
    return batches


def published_outputs(model: transformers.PreTrainedModel, ids: Tensor, mask: Tensor) -> dict[str, Tensor]:
    """Everything transformers' model gives, per real token, by our names."""
    results = model(input_ids=ids, attention_mask=mask, output_hidden_states=True, output_attentions=True)
    real = mask.bool()
    outputs = {f"hidden state {layer}": states[real] for layer, states in enumerate(results.hidden_states)}
    outputs["last hidden state"] = results.hidden_states[-1][real]
    for layer, probs in enumerate(results.attentions):  # (B, H, L, L), of real tokens to real tokens
        outputs[f"attention {layer}"] = torch.cat([probs[row][:, r][:, :, r].ravel() for row, r in enumerate(real)])
    for head in HEADS:
        if PUBLISHED_CLASSES.get(head) is type(model):
            outputs[head] = results.logits if HEADS[head] else results.logits[real]
    return outputs


def our_outputs(model: Model, ids: Tensor, mask: Tensor, *, keep_all: bool) -> dict[str, Tensor]:
    """The same of ours; hidden states below the last and probabilities only when ``keep_all``."""
    batch = Batch.from_padded(ids, mask)
    recorder = Recorder() if keep_all else None
    results = model.network(batch, with_hidden_states=keep_all, recorder=recorder)
    assert results.encoded.pooled is None
    outputs = {"last hidden state": results.encoded.last_hidden_state, **results.logits}
    if recorder is None:
        assert results.encoded.hidden_states is None
        return outputs
    outputs |= {f"hidden state {layer}": states for layer, states in enumerate(results.encoded.hidden_states)}
    for layer, record in enumerate(recorder.layers):
        outputs[f"attention {layer}"] = torch.cat([probs.ravel() for probs in record.attention_probs])
    return outputs


def assert_same(ours: list[Model], published: transformers.PreTrainedModel, kind: str, number: int) -> None:
    """Compare ours, in single and double precision, one of them in turn asked for everything."""
    published.double()
    for index, (ids, mask) in enumerate(padded_batches(kind, number)):
        with published_code_in_double():
            reference = published_outputs(published, ids, mask)
        for turn, (model, dtype) in enumerate(zip(ours, TOLERANCE, strict=True)):
            keep_all = (number // 4 + turn) % 2 == 0
            results = our_outputs(model, ids, mask, keep_all=keep_all)
            on_request = ("hidden state", "attention")
            assert results.keys() == {name for name in reference if keep_all or not name.startswith(on_request)}
            for name, value in results.items():
                where = f"{kind} {number}, batch {index}, {dtype}: {name}"
                assert value.dtype == dtype, where
                assert error(value, reference[name]) <= TOLERANCE[dtype], where
        for name, value in reference.items():
            if index == 0 and not name.startswith("attention"):
                assert value.std() > 0.5, f"{kind} {number}: {name} varies too little to show an error"


def num_labels(kind: str, number: int) -> int:
    return [1, 3, 5][number % 3] if kind.endswith("_classification") else 2


@pytest.mark.parametrize("number", range(NUM_CONFIGURATIONS))
@pytest.mark.parametrize("kind", PUBLISHED_CLASSES)
@torch.inference_mode()
def test_weights_saved_by_transformers_give_its_outputs(kind: str, number: int) -> None:
    published = published_model(kind, number, num_labels(kind, number))
    with tempfile.TemporaryDirectory() as folder:
        save_published(published, Path(folder))
        ours = [bertkit.load(folder, device="cpu", precision=precision) for precision in ("float32", "float64")]
    assert ours[0].config == random_config(number, global_attn_every_n_layers=ours[0].config.global_attn_every_n_layers)
    assert tuple(ours[0].network.heads) == KINDS[kind]
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


@pytest.mark.parametrize("number", [0, 4, 13, 26])
@torch.inference_mode()
def test_published_code_as_it_stands(number: int) -> None:
    published = published_model("masked_lm", number)
    with tempfile.TemporaryDirectory() as folder:
        save_published(published, Path(folder))
        ours = bertkit.load(folder, device="cpu")
    for ids, mask in padded_batches("masked_lm", number):
        reference = published_outputs(published, ids, mask)
        for name, value in our_outputs(ours, ids, mask, keep_all=True).items():
            assert error(value, reference[name]) <= 2e-5, name
