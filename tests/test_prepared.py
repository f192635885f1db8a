"""The prepared encoder is the encoder: every linear kernel, every activation, any company, after any update."""

import threading

import numpy as np
import pytest
import torch
from random_models import our_model

from bertkit import collate
from bertkit.heads import Bert
from bertkit.transformer import PreparedEncoder
from bertkit.transformer.activations import ACTIVATIONS
from bertkit.transformer.kernels.linear import OneDNNLinear, PlainLinear, has_onednn

TEXTS = ["the cat sat on the mat", "", "walked and talked", "un", "green letters, in blue & red!", "the dog", "a cat"]

needs_onednn = pytest.mark.skipif(
    not has_onednn("mkldnn::_linear_pointwise"), reason="this torch build has no oneDNN linear"
)
KERNELS = [PlainLinear, pytest.param(OneDNNLinear, marks=needs_onednn)]


@pytest.mark.parametrize("linear", KERNELS)
@pytest.mark.parametrize("hidden_act", ACTIVATIONS)
@torch.inference_mode()
def test_hidden_states_of_every_layer(linear, hidden_act: str) -> None:
    model = our_model("encoder", 5, hidden_act=hidden_act, num_hidden_layers=3)
    batch = collate(model.tokenizer.encode_batch(TEXTS))
    expected = model.encoder(batch, with_hidden_states=True)
    found = PreparedEncoder(model.encoder, linear)(batch, with_hidden_states=True)
    assert len(found.hidden_states) == 4
    for ours, reference in zip(found.hidden_states, expected.hidden_states, strict=True):
        assert (ours - reference).abs().max() <= 1e-5 * max(1, reference.abs().max())
    assert (found.pooled - expected.pooled).abs().max() <= 1e-5


@needs_onednn
@torch.inference_mode()
def test_a_sequence_is_the_same_alone_and_in_company() -> None:
    model = our_model("encoder", 6)
    prepared = PreparedEncoder(model.encoder, OneDNNLinear)
    encodings = model.tokenizer.encode_batch(TEXTS)
    together = prepared(collate(encodings)).last_hidden_state.split([len(encoding) for encoding in encodings])
    for encoding, in_company in zip(encodings, together, strict=True):
        alone = prepared(collate([encoding])).last_hidden_state
        assert (alone - in_company).abs().max() <= 2e-6 * max(1, in_company.abs().max())


@pytest.mark.parametrize("linear", KERNELS)
@pytest.mark.parametrize("num_rows", [1, 2, 7])
def test_linear_kernels(linear, num_rows: int) -> None:
    generator = torch.Generator().manual_seed(num_rows)
    x, residual = torch.randn(num_rows, 20, generator=generator), torch.randn(num_rows, 37, generator=generator)
    weight, bias = torch.randn(37, 20, generator=generator), torch.randn(37, generator=generator)
    product = x.double() @ weight.double().T + bias.double()
    kernel = linear(weight, bias)
    torch.testing.assert_close(kernel(x), product.float())
    torch.testing.assert_close(kernel(x, residual=residual), (product + residual).float())
    for name, activation in ACTIVATIONS.items():
        torch.testing.assert_close(kernel(x, activation=name), activation(product).float(), rtol=1e-5, atol=1e-5)


def test_an_update_of_the_weights_is_noticed() -> None:
    model = our_model("encoder", 7)
    before = model.embed(TEXTS)
    with torch.no_grad():
        model.encoder.layers[0].feed_forward.expand.weight.mul_(1.5)
    after = model.embed(TEXTS)
    assert np.abs(after - before).max() > 1e-3
    reference = Bert(model.config)
    reference.load_state_dict(model.network.state_dict())
    model.network.load_state_dict(reference.state_dict())
    np.testing.assert_allclose(model.embed(TEXTS), after, rtol=0, atol=1e-6)


def test_a_model_made_in_inference_mode() -> None:
    with torch.inference_mode():
        model = our_model("encoder", 7)
        before = model.embed(TEXTS)
        model.encoder.layers[0].feed_forward.expand.weight.mul_(1.5)
        after = model.embed(TEXTS)
    assert np.abs(after - before).max() > 1e-3


@pytest.mark.parametrize("num_threads", [1, 2, 3])
def test_any_number_of_threads_gives_the_same_vectors_and_is_left_as_it_was(num_threads: int) -> None:
    model, texts = our_model("encoder", 8), TEXTS * 9
    expected = model.embed(texts, tokens_per_batch=10_000)
    threads_before = torch.get_num_threads()
    torch.set_num_threads(num_threads)
    try:
        np.testing.assert_allclose(model.embed(texts, tokens_per_batch=16), expected, rtol=0, atol=1e-6)
        assert torch.get_num_threads() == num_threads
        in_a_new_thread: list[int] = []
        thread = threading.Thread(target=lambda: in_a_new_thread.append(torch.get_num_threads()))
        thread.start()
        thread.join()
        assert in_a_new_thread == [num_threads]
    finally:
        torch.set_num_threads(threads_before)


def test_an_error_on_a_thread_reaches_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    model = our_model("encoder", 9)

    def fail(*_, **__):
        raise MemoryError("no room")

    monkeypatch.setattr(PreparedEncoder, "__call__", fail)
    with pytest.raises(MemoryError, match="no room"):
        model.embed(TEXTS * 9, tokens_per_batch=16)
