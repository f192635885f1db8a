"""The original Transformer: equal to torch's own, causal attention, packed equals padded."""

import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from random_models import randomize
from torch import Tensor, nn

from bertkit import Batch, BertConfig, Recorder
from bertkit.errors import UsageError
from bertkit.transformer import Decoder, Encoder, PreparedTransformer, TransformerConfig
from bertkit.transformer.attention import CrossAttention, SelfAttention
from bertkit.transformer.embeddings import sinusoids
from bertkit.transformer.kernels import steps, training_kernels
from bertkit.transformer.kernels.attention import packed_cross_attention, packed_self_attention
from bertkit.transformer.kernels.trained_steps import TiledAttention
from bertkit.transformer.window import CAUSAL, REVERSED, Window

pytestmark = pytest.mark.usefixtures("one_thread")

LENGTHS, SOURCE_LENGTHS = [17, 1, 33, 8, 8, 2], [3, 40, 1, 16, 15, 9]


def batch_of(lengths: list[int], vocab_size: int, seed: int = 0) -> Batch:
    ids = torch.zeros(len(lengths), max(lengths), dtype=torch.long)
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    ids[mask] = torch.randint(0, vocab_size, (int(mask.sum()),), generator=torch.Generator().manual_seed(seed))
    return Batch.from_padded(ids, mask)


def random_pair(number: int, **changes: object) -> tuple[Encoder, Decoder]:
    """Encoder and decoder of odd sizes, the decoder with another number of layers and another inner width."""
    draw = random.Random(number)
    heads = draw.choice([3, 4, 5])
    settings = {
        "vocab_size": 61, "hidden_size": heads * draw.choice([5, 6, 9, 16]), "num_attention_heads": heads,
        "num_hidden_layers": 1 + number % 3, "intermediate_size": 43, "max_position_embeddings": 50,
        "layer_norm_eps": 0.01 if number % 2 else 1e-5,
    } | changes  # fmt: skip
    encoder = Encoder(TransformerConfig(**settings), with_pooler=False)
    settings |= {"num_hidden_layers": 1 + number % 2, "intermediate_size": 37, "vocab_size": 53}
    decoder = Decoder(TransformerConfig(**settings, is_decoder=True))
    randomize(encoder, number)
    randomize(decoder, number + 100)
    return encoder.eval(), decoder.eval()


def _attention_weights(ours: SelfAttention | CrossAttention, name: str) -> dict[str, Tensor]:
    parts = (ours.query, ours.key, ours.value)
    return {
        f"{name}.in_proj_weight": torch.cat([part.weight for part in parts]),
        f"{name}.in_proj_bias": torch.cat([part.bias for part in parts]),
        f"{name}.out_proj.weight": ours.output.weight,
        f"{name}.out_proj.bias": ours.output.bias,
    }


def _norm_weights(norm: nn.LayerNorm, name: str) -> dict[str, Tensor]:
    return {f"{name}.weight": norm.weight, f"{name}.bias": norm.bias}


def torchs_transformer(encoder: Encoder, decoder: Decoder) -> nn.Transformer:
    """torch's Transformer with the weights of ours, for inputs that are embedded already; without its final norms."""

    def options(config: TransformerConfig) -> dict[str, object]:
        return {"d_model": config.hidden_size, "nhead": config.num_attention_heads, "dropout": 0.0,
                "layer_norm_eps": config.layer_norm_eps,
                "dim_feedforward": config.intermediate_size, "batch_first": True}  # fmt: skip

    layers = (
        nn.TransformerEncoderLayer(**options(encoder.config)),
        nn.TransformerDecoderLayer(**options(decoder.config)),
    )
    theirs = nn.Transformer(
        d_model=encoder.config.hidden_size, nhead=encoder.config.num_attention_heads, batch_first=True,
        custom_encoder=nn.TransformerEncoder(layers[0], len(encoder.layers), enable_nested_tensor=False),
        custom_decoder=nn.TransformerDecoder(layers[1], len(decoder.layers)),
    )  # fmt: skip
    for stack, copies in ((encoder, theirs.encoder), (decoder, theirs.decoder)):
        for layer, copy in zip(stack.in_order(), copies.layers, strict=True):
            weights = _attention_weights(layer.attention, "self_attn") | _norm_weights(layer.attention_norm, "norm1")
            last = "norm2"
            if stack is decoder:
                weights |= _attention_weights(layer.cross_attention, "multihead_attn")
                weights |= _norm_weights(layer.cross_attention_norm, "norm2")
                last = "norm3"
            weights |= _norm_weights(layer.feed_forward_norm, last)
            for ours, name in ((layer.feed_forward.expand, "linear1"), (layer.feed_forward.project, "linear2")):
                weights |= {f"{name}.weight": ours.weight, f"{name}.bias": ours.bias}
            copy.load_state_dict(weights)
    return theirs.eval()


@pytest.mark.parametrize("width", [6, 7, 1])
def test_sinusoids_are_exact_at_far_positions(width: int) -> None:
    positions = [0, 1, 511, 40_000]
    angles = np.array([[position / 10_000 ** (i / width) for i in range(0, width, 2)] for position in positions])
    expected = np.concatenate([np.sin(angles), np.cos(angles)], axis=1)[:, :width]
    np.testing.assert_array_equal(sinusoids(torch.tensor(positions), width).numpy(), expected.astype(np.float32))


@pytest.mark.parametrize("name", ["hidden_dropout_prob", "attention_probs_dropout_prob"])
def test_each_dropout_acts_in_training_only(name: str) -> None:
    settings = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0} | {name: 0.4}
    encoder, decoder = random_pair(1, **settings)
    source, target = batch_of(SOURCE_LENGTHS, 61), batch_of(LENGTHS, 53)
    with torch.no_grad():
        states = encoder(source).last_hidden_state
        for network, inputs in ((encoder, (source,)), (decoder, (target, states, source.seqlens))):
            plain = network(*inputs)
            assert len({_total(network(*inputs)) for _ in range(3)} | {_total(plain)}) == 1
            network.train()
            assert len({_total(network(*inputs)) for _ in range(3)} | {_total(plain)}) == 4


def test_attention_to_the_source_has_dropout_in_training_only() -> None:
    _, decoder = random_pair(1, attention_probs_dropout_prob=0.4)
    attention, width = decoder.layers[0].cross_attention, decoder.config.hidden_size
    states = [torch.randn(number, width, generator=torch.Generator().manual_seed(1)) for number in (5, 9)]
    with torch.no_grad():
        assert len({_total(attention(states[0], [2, 3], states[1], [4, 5])) for _ in range(3)}) == 1
        attention.train()
        assert len({_total(attention(states[0], [2, 3], states[1], [4, 5])) for _ in range(3)}) == 3


def _total(output: Any) -> float:
    return float(getattr(output, "last_hidden_state", output).double().square().sum())


@pytest.mark.parametrize("number", range(6))
def test_equals_the_transformer_of_torch(number: int) -> None:
    encoder, decoder = random_pair(number)
    source, target = batch_of(SOURCE_LENGTHS, 61, number), batch_of(LENGTHS, 53, number + 1)
    theirs = torchs_transformer(encoder, decoder)
    with torch.inference_mode():
        states = encoder(source).last_hidden_state
        ours = decoder(target, states, source.seqlens)
        hidden = [batch.pad(stack.embeddings(batch)) for stack, batch in ((encoder, source), (decoder, target))]
        hides = [~batch.attention_mask() for batch in (source, target)]
        expected = theirs(
            *hidden, tgt_mask=nn.Transformer.generate_square_subsequent_mask(max(LENGTHS)), tgt_is_causal=True,
            src_key_padding_mask=hides[0], tgt_key_padding_mask=hides[1].float().masked_fill(hides[1], -torch.inf),
            memory_key_padding_mask=hides[0],
        )  # fmt: skip
        of_source = theirs.encoder(hidden[0], src_key_padding_mask=hides[0])
    torch.testing.assert_close(states, of_source[~hides[0]], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(ours, expected[~hides[1]], rtol=1e-5, atol=1e-5)
    recorder = Recorder()
    with torch.inference_mode():
        torch.testing.assert_close(decoder(target, states, source.seqlens, recorder), ours, rtol=1e-5, atol=1e-5)
    probs = recorder.layers[-1].cross_attention_probs
    shapes = [(decoder.config.num_attention_heads, *pair) for pair in zip(LENGTHS, SOURCE_LENGTHS, strict=True)]
    assert [tuple(one.shape) for one in probs] == shapes
    assert all(torch.allclose(one.sum(-1), torch.ones(())) for one in probs)


def test_no_position_depends_on_a_later_one_or_on_another_sequence() -> None:
    encoder, decoder = random_pair(2)
    source, target = batch_of([5, 7], 61), batch_of([6, 4], 53)
    embedded: list[Tensor] = []
    decoder.embeddings.register_forward_hook(lambda module, inputs, output: embedded.append(output))
    states = encoder(source).last_hidden_state.detach().requires_grad_()
    out = decoder(target, states, source.seqlens)
    for position in range(10):
        of_tokens, of_source = torch.autograd.grad(
            out[position].square().sum(), [embedded[0], states], retain_graph=True
        )
        first, end, own = (0, 6, slice(0, 5)) if position < 6 else (6, 10, slice(5, 12))
        depends = of_tokens.abs().sum(1) > 0
        assert depends.tolist() == [first <= other <= position < end for other in range(10)]
        seen = torch.zeros(12, dtype=torch.bool)
        seen[own] = True
        assert torch.equal(of_source.abs().sum(1) > 0, seen)


def test_right_to_left_window_mirrors_the_causal_one() -> None:
    together = torch.randn(sum(LENGTHS), 3 * 24, dtype=torch.float64)
    turned, results = together.clone(), packed_self_attention(together, LENGTHS, 3, window=REVERSED)
    bounds = np.cumsum([0, *LENGTHS])
    for start, end in pairwise(bounds):
        turned[start:end] = together[start:end].flip(0)
    expected = packed_self_attention(turned, LENGTHS, 3, window=CAUSAL)
    for start, end in pairwise(bounds):
        torch.testing.assert_close(results[start:end], expected[start:end].flip(0))


def test_no_token_depends_on_those_that_are_not_attended_to() -> None:
    batch, encoder = batch_of([7, 7, 5], 53), Encoder(BertConfig(53, 20, 2, 4, 31)).eval()
    randomize(encoder, 3)
    attended = torch.ones(19, dtype=torch.bool)
    attended[[3, 7, 8, 18]] = False
    changed = batch.input_ids.clone()
    changed[~attended] = (changed[~attended] + 1) % 53
    with torch.inference_mode():
        before = encoder(batch, attended=attended).last_hidden_state
        after = encoder(replace(batch, input_ids=changed), attended=attended).last_hidden_state
        last = encoder(batch_of([7, 7, 4], 53), attended=attended[:18]).last_hidden_state
    torch.testing.assert_close(before[attended], after[attended], rtol=0, atol=1e-6)
    assert ((before - after)[~attended].abs().amax(dim=1) > 0.1).all()
    torch.testing.assert_close(before[:18], last, rtol=0, atol=1e-6)
    with pytest.raises(UsageError, match=r"attended with a recorder: .* leave one out"):
        encoder(batch, attended=attended, recorder=Recorder())


def _windows() -> Iterator[tuple[Window | None, float]]:
    for window in (CAUSAL, REVERSED, Window(3, 0), Window(2, 9)):
        yield window, 0.0
    yield CAUSAL, 0.3


@pytest.mark.full(sample=1)
@pytest.mark.parametrize(("window", "dropout_prob"), list(_windows()))
def test_fast_attention_with_windows_before_and_after(window: Window, dropout_prob: float) -> None:
    generator = torch.Generator().manual_seed(1)
    together = torch.randn(sum(LENGTHS), 3 * 3 * 20, generator=generator, requires_grad=True)
    slope = torch.randn(sum(LENGTHS), 3 * 20, generator=generator)
    with training_kernels(torch.float32, seed=3):
        fast = steps.self_attention(together, batch_of(LENGTHS, 53), 3, dropout_prob, window=window)
    (gradient,) = torch.autograd.grad(fast, together, slope)
    if dropout_prob:
        kept = (fast != 0).any(1)
        assert kept.float().mean() > 0.5 and not torch.equal(
            fast, packed_self_attention(together, LENGTHS, 3, window=window)
        )
        return
    plain = packed_self_attention(together.double(), LENGTHS, 3, window=window)
    (expected,) = torch.autograd.grad(plain, together, slope.double())
    torch.testing.assert_close(fast.double(), plain, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(gradient, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("num_heads", "head_dim"), [(3, 20), (2, 64), (5, 7)])
def test_fast_cross_attention(num_heads: int, head_dim: int) -> None:
    generator, width = torch.Generator().manual_seed(1), num_heads * head_dim
    query = torch.randn(sum(LENGTHS), width, generator=generator, requires_grad=True)
    key_value = torch.randn(sum(SOURCE_LENGTHS), 2 * width, generator=generator, requires_grad=True)
    slope = torch.randn(sum(LENGTHS), width, generator=generator)
    with training_kernels(torch.float32, seed=3):
        fast = steps.cross_attention(query, key_value, LENGTHS, SOURCE_LENGTHS, num_heads, 0.0)
    assert fast.grad_fn is not None and TiledAttention.__name__ in fast.grad_fn.name()
    plain = packed_cross_attention(query.double(), key_value.double(), LENGTHS, SOURCE_LENGTHS, num_heads)
    torch.testing.assert_close(fast.double(), plain, rtol=1e-5, atol=1e-5)
    expected = torch.autograd.grad(plain, [query, key_value], slope.double())
    for ours, theirs in zip(torch.autograd.grad(fast, [query, key_value], slope), expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.full
@pytest.mark.parametrize("precision", ["float32", "bfloat16", "int8"])
def test_causal_bert_is_prepared_for_inference(precision: str) -> None:
    config = BertConfig(61, 3 * 20, 2, 3, 43, max_position_embeddings=50, is_decoder=True)
    encoder = Encoder(config).eval()
    randomize(encoder, 1)
    batch = batch_of(LENGTHS, 61)
    with torch.inference_mode():
        expected = encoder(batch).last_hidden_state
    cosine = torch.nn.functional.cosine_similarity(PreparedTransformer(encoder, precision)(batch).last_hidden_state,
                                                   expected)  # fmt: skip
    assert cosine.min() > {"float32": 0.999999, "bfloat16": 0.999, "int8": 0.99}[precision]


def test_refuses_other_numbers_of_sources_and_families_without_causal_mask() -> None:
    from bertkit.transformer import DebertaConfig

    encoder, decoder = random_pair(1)
    source = batch_of([5, 7], 61)
    states = encoder(source).last_hidden_state
    with pytest.raises(UsageError, match="1 targets and 2 sources"):
        decoder(batch_of([3], 53), states, source.seqlens)
    with pytest.raises(UsageError, match="DebertaConfig has no left-to-right attention"):
        DebertaConfig(is_decoder=True)
    with pytest.raises(UsageError, match="51 positions, the model has 50"):
        decoder(batch_of([51, 2], 53), states, source.seqlens)
