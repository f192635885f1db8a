"""The prepared encoder equals the encoder: every linear kernel, every activation, any batch, after any update."""

import threading
from dataclasses import replace

import numpy as np
import pytest
import torch
from random_models import our_model, randomize, vocabulary_tokens

from bertkit import Batch, BertConfig, Model, ModernBertConfig, Tokenizer, collate, device, load
from bertkit.architectures import Network, prepare
from bertkit.errors import UsageError
from bertkit.inference import auto_precision
from bertkit.transformer import (
    AlbertConfig,
    DebertaConfig,
    Gpt2Config,
    GteConfig,
    NomicBertConfig,
    PreparedTransformer,
)
from bertkit.transformer.activations import ACTIVATIONS
from bertkit.transformer.kernels import inference_kernels
from bertkit.transformer.kernels.dispatch import (
    kernels_for,
    plain_kernels,
)
from bertkit.transformer.kernels.linear import PlainLinear
from bertkit.transformer.prepared import encoder as prepared_encoder

TEXTS = ["the cat sat on the mat", "", "walked and talked", "un", "green letters, in blue & red!", "the dog", "a cat"]

CPU = torch.device("cpu")
PRECISIONS = ["float32", "bfloat16", "int8"]
CHOICES = {  # every path that some CPU or build of torch takes
    "plain": plain_kernels,
    "fastest": lambda precision: kernels_for(precision, CPU),
    "without oneDNN": lambda precision: kernels_for(precision, CPU)._replace(linear=plain_kernels(precision).linear),
}
CLOSE = {"float32": 1e-5, "bfloat16": 0.06, "int8": 0.25}  # of the largest hidden state, tiny random models


@pytest.mark.full(sample=4)
@pytest.mark.every_processor
@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("hidden_act", ["gelu", "gelu_new", "relu"])
@torch.inference_mode()
def test_hidden_states_of_every_layer(choice: str, precision: str, hidden_act: str) -> None:
    model = our_model("encoder", 5, hidden_act=hidden_act, num_hidden_layers=3)
    batch = collate(model.tokenizer.encode_batch(TEXTS))
    expected = model.encoder(batch, with_hidden_states=True)
    results = PreparedTransformer(model.encoder, precision, CHOICES[choice](precision))(batch, with_hidden_states=True)
    assert len(results.hidden_states) == 4
    for ours, reference in zip(results.hidden_states, expected.hidden_states, strict=True):
        assert ours.dtype == torch.float32
        assert (ours - reference).abs().max() <= CLOSE[precision] * max(1, reference.abs().max())
    assert torch.equal(results.hidden_states[-1], results.last_hidden_state)
    assert (results.pooled - expected.pooled).abs().max() <= CLOSE[precision]


@pytest.mark.parametrize("precision", PRECISIONS)
@torch.inference_mode()
def test_no_layers(precision: str) -> None:
    model = our_model("encoder", 5, num_hidden_layers=0)
    for batch in (collate(model.tokenizer.encode_batch(TEXTS)), collate(model.tokenizer.encode_batch(TEXTS[:1]))):
        expected = model.encoder(batch, with_hidden_states=True)
        for options in ({"with_hidden_states": True}, {"first_only": True}):
            results = PreparedTransformer(model.encoder, precision)(batch, **options)
            difference = results.last_hidden_state - expected.last_hidden_state
            assert difference.abs().max() <= CLOSE[precision] * max(1, expected.last_hidden_state.abs().max())
            assert results.hidden_states is None or len(results.hidden_states) == len(expected.hidden_states) == 1


@pytest.mark.parametrize("hidden_act", ACTIVATIONS)
@torch.inference_mode()
def test_every_activation(hidden_act: str) -> None:
    model = our_model("encoder", 5, hidden_act=hidden_act)
    batch = collate(model.tokenizer.encode_batch(TEXTS))
    expected = model.encoder(batch).last_hidden_state
    for precision in PRECISIONS:
        results = PreparedTransformer(model.encoder, precision)(batch).last_hidden_state
        assert (results - expected).abs().max() <= CLOSE[precision] * max(1, expected.abs().max())


def of_size(hidden_size: int, num_attention_heads: int, intermediate_size: int, seed: int) -> Model:
    return our_model(
        "encoder", seed, hidden_size=hidden_size, num_attention_heads=num_attention_heads,
        intermediate_size=intermediate_size, num_hidden_layers=2, max_position_embeddings=99,
    )  # fmt: skip


def published_size(seed: int) -> Model:
    return of_size(128, 4, 512, seed)


@pytest.mark.full(sample=1)
@pytest.mark.every_processor
@pytest.mark.parametrize("sizes", [(128, 4, 512), (312, 12, 1200), (100, 5, 300), (33, 3, 99), (20, 4, 44)], ids=str)
@pytest.mark.parametrize("precision", PRECISIONS)
@torch.inference_mode()
def test_sequence_is_bit_identical_regardless_of_batch(precision: str, sizes: tuple[int, int, int]) -> None:
    model = of_size(*sizes, seed=6)
    prepared = PreparedTransformer(model.encoder, precision)
    encodings = model.tokenizer.encode_batch([*TEXTS, "the cat walked " * 20, *TEXTS[::-1]])
    together = prepared(collate(encodings)).last_hidden_state.split([len(encoding) for encoding in encodings])
    for encoding, batched in zip(encodings, together, strict=True):
        assert torch.equal(prepared(collate([encoding])).last_hidden_state, batched)
    backwards = prepared(collate(encodings[::-1])).last_hidden_state
    assert torch.equal(backwards, torch.cat(together[::-1]))


@pytest.mark.full(sample=1)
@pytest.mark.every_processor
@pytest.mark.parametrize("precision", PRECISIONS)
def test_vectors_are_bit_identical_regardless_of_batch(precision: str) -> None:
    model = Model(published_size(7).checkpoint, precision)
    texts = [*TEXTS, "the cat walked " * 20] * 3
    expected = model.embed(texts, tokens_per_batch=10_000)
    np.testing.assert_array_equal(model.embed(texts, tokens_per_batch=30), expected)
    np.testing.assert_array_equal(model.embed(texts[::-1], tokens_per_batch=77)[::-1], expected)
    np.testing.assert_array_equal(np.stack([model.embed(text) for text in texts]), expected)


def test_int8_on_a_gpu_raises() -> None:
    with pytest.raises(UsageError, match="bfloat16"):
        kernels_for("int8", torch.device("cuda"))


@torch.inference_mode()
@pytest.mark.parametrize("hidden_act", ["gelu", "gelu_new", "tanh"])
def test_float16_with_plain_kernels(hidden_act: str) -> None:
    model = our_model("encoder", 5, hidden_act=hidden_act, num_hidden_layers=3)
    batch = collate(model.tokenizer.encode_batch(TEXTS))
    expected = model.encoder(batch)
    prepared = PreparedTransformer(model.encoder, "float16", plain_kernels("float16"))
    assert prepared.layers[0].attention_norm.weight.dtype == torch.float16
    result = prepared(batch)
    difference = (result.last_hidden_state - expected.last_hidden_state).abs().max()
    assert result.last_hidden_state.dtype == torch.float32
    assert 1e-5 < difference <= 6e-3 * max(1, expected.last_hidden_state.abs().max())
    assert (result.pooled - expected.pooled).abs().max() <= 6e-3


@torch.inference_mode()
def test_float16_of_gated_encoders_with_plain_kernels(monkeypatch) -> None:
    config = NomicBertConfig(
        vocab_size=99, hidden_size=24, num_hidden_layers=3, num_attention_heads=3, intermediate_size=37,
        max_position_embeddings=41,
    )  # fmt: skip
    encoder = Network(config).eval().encoder
    randomize(encoder, 5)
    batch = Batch.from_padded(torch.arange(45).view(3, 15), torch.arange(15) < torch.tensor([[15], [1], [9]]))
    expected = encoder(batch).last_hidden_state
    monkeypatch.setattr(prepared_encoder, "kernels_for", lambda precision, device: plain_kernels(precision))
    difference = (prepare(encoder, "float16")(batch).last_hidden_state - expected).abs().max()
    assert 1e-5 < difference <= 6e-3 * max(1, expected.abs().max())


def test_float16_on_the_cpu_raises() -> None:
    model = Model(our_model("encoder", 5).checkpoint, "float16")
    with pytest.raises(UsageError, match="'float16' runs on a GPU, not on the CPU: choose bfloat16 or int8 there"):
        model.embed("the cat")
    with pytest.raises(UsageError, match="'float16' runs on a GPU"):
        kernels_for("float16", CPU)
    assert kernels_for("float16", torch.device("cuda")).linear is PlainLinear


def test_dtype_of_products() -> None:
    short = {"bfloat16": torch.bfloat16, "float16": torch.float16}
    for precision in device.PRECISIONS:
        assert device.product_dtype(precision, torch.float32) == short.get(precision, torch.float32)
        assert device.product_dtype(precision, torch.float64) == torch.float64


@pytest.mark.parametrize(
    ("name", "capability", "expected"),
    [
        ("cpu", (0, 0), ("bfloat16", "int8")),
        ("cuda", (9, 0), ("bfloat16",)),
        ("cuda", (8, 0), ("bfloat16",)),
        ("cuda", (7, 5), ("float16",)),  # without bfloat16
        ("mps", (0, 0), ("bfloat16",)),
    ],
)
def test_precisions_that_auto_tries(name: str, capability: tuple[int, int], expected: tuple, monkeypatch) -> None:
    monkeypatch.setattr(auto_precision, "capability_of", lambda device: capability)
    assert auto_precision._faster_precisions(torch.device(name)) == expected


def test_auto_precision_selects_the_fastest_close_one_and_caches_it(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    model = published_size(8)
    seconds = {"float32": 3.0, "bfloat16": 2.0, "int8": 1.0}
    away = {"float32": 0.0, "bfloat16": 1e-3, "int8": 0.5}
    tried = []

    def measure(encoder, precision, batch):
        tried.append(precision)
        return torch.tensor([[1.0, away[precision]]]), seconds[precision]

    monkeypatch.setattr(auto_precision, "_measure", measure)
    choice = auto_precision.choose_precision(model.encoder, model.tokenizer)
    assert choice.precision == "bfloat16" and "int8 3.0x at cosine 0.894" in choice.reason
    assert auto_precision.choose_precision(model.encoder, model.tokenizer) == choice
    assert tried == ["float32", "bfloat16", "int8"]  # once
    (kept,) = tmp_path.rglob("*.json")
    kept.write_text("{}")
    seconds["bfloat16"] = 4.0
    assert auto_precision.choose_precision(model.encoder, model.tokenizer).precision == "float32"
    with torch.no_grad():
        model.encoder.layers[0].feed_forward.expand.weight.mul_(2)
    away["int8"] = 0.0
    assert auto_precision.choose_precision(model.encoder, model.tokenizer).precision == "int8"


def test_auto_precision_without_a_home_folder(tmp_path, monkeypatch) -> None:
    """As a user without an entry in /etc/passwd in a container."""
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr("os.path.expanduser", lambda path: path)
    monkeypatch.setattr(auto_precision, "_measure", lambda *arguments: (torch.ones(1, 2), 1.0))
    monkeypatch.chdir(tmp_path)
    model = published_size(8)
    assert auto_precision.choose_precision(model.encoder, model.tokenizer).precision == "float32"
    assert not list(tmp_path.iterdir()) and auto_precision.precision_cache() is None


@pytest.mark.full
def test_auto_precision_on_this_machine(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "nowhere"))
    (tmp_path / "nowhere").write_text("a file where the cache's folder should be")
    published_size(9).save(tmp_path / "model")
    model = load(tmp_path / "model", precision="auto")
    assert model.precision in PRECISIONS
    assert model.precision in model.precision_reason
    assert model.embed("the cat").shape == (128,)


def test_weight_update_is_detected() -> None:
    model = our_model("encoder", 7)
    before = model.embed(TEXTS)
    with torch.no_grad():
        model.encoder.layers[0].feed_forward.expand.weight.mul_(1.5)
    after = model.embed(TEXTS)
    assert np.abs(after - before).max() > 1e-3
    reference = Network(model.config)
    reference.load_state_dict(model.network.state_dict())
    model.network.load_state_dict(reference.state_dict())
    np.testing.assert_allclose(model.embed(TEXTS), after, rtol=0, atol=1e-6)


@pytest.mark.parametrize("kind", ["fused", "foreach"])
def test_step_of_any_torch_optimizer_is_detected(kind: str) -> None:
    model = our_model("encoder", 7)
    before = model.embed(TEXTS)
    batch = collate(model.tokenizer.encode_batch(TEXTS))
    model.encoder(batch).last_hidden_state.pow(3).sum().backward()
    frozen = model.encoder.embeddings.position.weight
    frozen.grad, version = None, frozen._version
    torch.optim.AdamW(model.encoder.parameters(), lr=0.01, **{kind: True}).step()
    after = model.embed(TEXTS)
    assert np.abs(after - before).max() > 1e-3
    np.testing.assert_array_equal(Model(model.checkpoint).embed(TEXTS), after)
    assert frozen._version == version  # without a gradient it was not updated


def model_of(config: type, **changes: int | float) -> Model:
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    model = Model.create(config(vocab_size=99, **sizes, **changes), Tokenizer.from_vocab(vocabulary_tokens(99)))
    randomize(model.network, 5)
    return model


@pytest.mark.full(sample=4)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("config", [BertConfig, DebertaConfig, Gpt2Config, ModernBertConfig, GteConfig, AlbertConfig])
def test_dropout_has_no_part_in_inference(config: type, dtype: torch.dtype) -> None:
    model = model_of(config, **({"embedding_dropout": 0.3} if config is ModernBertConfig else {}))
    model.network.to(dtype)
    kinds = ("last", "second-to-last")
    expected = [model.embed(TEXTS, layers=layers) for layers in kinds]
    again = Model(model.checkpoint)
    model.network.train()
    for one in (model, again):  # prepared in evaluation mode, and in training mode
        np.testing.assert_array_equal([one.embed(TEXTS, layers=layers) for layers in kinds], expected)


def test_dropout_has_no_part_in_heads() -> None:
    model = our_model("sequence_classification", 3, hidden_dropout_prob=0.5)
    batch = collate([model.tokenizer.encode(text) for text in TEXTS])
    with torch.inference_mode(), inference_kernels():
        (expected,) = model.network(batch).logits.values()
        (logits,) = model.network.train()(batch).logits.values()
        assert logits.equal(expected)
    (logits,) = model.network(batch).logits.values()
    assert not logits.equal(expected)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_weights_of_any_layout(precision: str) -> None:
    model = our_model("encoder", 7)
    expected = Model(model.checkpoint, precision).embed(TEXTS)
    for parameter in model.encoder.parameters():
        parameter.data = torch.stack([parameter.data, torch.zeros_like(parameter)], dim=-1)[..., 0]
        assert not parameter.is_contiguous()
    np.testing.assert_array_equal(Model(model.checkpoint, precision).embed(TEXTS), expected)


@pytest.mark.parametrize("shift", [-1, 600])
@pytest.mark.parametrize("config", [BertConfig, Gpt2Config, ModernBertConfig, GteConfig])
def test_positions_outside_the_table_raise(config: type, shift: int) -> None:
    model = model_of(config, max_position_embeddings=600)
    batch = collate(model.tokenizer.encode_batch(TEXTS))
    wrong = replace(batch, position_ids=batch.position_ids + shift)
    for encoder in (model.encoder, prepare(model.encoder)):
        with pytest.raises(UsageError, match=r"position_ids from -?\d+ to \d+, the model has 600 of them"):
            encoder(wrong)


@pytest.mark.parametrize("config", [BertConfig, Gpt2Config, ModernBertConfig, GteConfig])
def test_ids_outside_their_tables_raise(config: type) -> None:
    model = model_of(config)
    batch = collate(model.tokenizer.encode_batch(TEXTS))
    number, types = model.config.vocab_size, getattr(model.encoder.embeddings, "token_type", None)
    cases = [("input_ids", -1, number), ("input_ids", number, number)]
    if types is not None and types.num_embeddings > 1:  # a table of one row is read regardless of the batch
        cases += [("token_type_ids", wrong, types.num_embeddings) for wrong in (-1, types.num_embeddings)]
    for name, wrong, rows in cases:
        ids = getattr(batch, name).clone()
        ids[3] = wrong
        bounds = r"from -1 to \d+" if wrong < 0 else rf"from \d+ to {wrong}"
        for encoder in (model.encoder, prepare(model.encoder)):
            with pytest.raises(UsageError, match=f"the batch holds {name} {bounds}, the model has {rows} of them"):
                encoder(replace(batch, **{name: ids}))


def test_model_made_in_inference_mode() -> None:
    with torch.inference_mode():
        model = our_model("encoder", 7)
        before = model.embed(TEXTS)
        model.encoder.layers[0].feed_forward.expand.weight.mul_(1.5)
        after = model.embed(TEXTS)
    assert np.abs(after - before).max() > 1e-3


@pytest.mark.every_processor
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


def test_error_on_a_thread_reaches_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    model = our_model("encoder", 9)

    def fail(*_, **__):
        raise MemoryError("no room")

    monkeypatch.setattr(PreparedTransformer, "__call__", fail)
    with pytest.raises(MemoryError, match="no room"):
        model.embed(TEXTS * 9, tokens_per_batch=16)


@pytest.mark.full(sample=1)
@pytest.mark.every_processor
@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize("precision", PRECISIONS)
@torch.inference_mode()
def test_some_tokens_alone_have_the_same_bits(choice: str, precision: str) -> None:
    model = of_size(104, 4, 208, 3)
    prepared = PreparedTransformer(model.encoder, precision, CHOICES[choice](precision))
    for texts in (TEXTS, TEXTS[:1], TEXTS * 11):
        batch = collate(model.tokenizer.encode_batch(texts))
        whole, firsts = prepared(batch), prepared(batch, first_only=True)
        assert torch.equal(firsts.last_hidden_state[batch.first_tokens], whole.last_hidden_state[batch.first_tokens])
        assert firsts.last_hidden_state.shape == whole.last_hidden_state.shape
        assert firsts.last_hidden_state.count_nonzero(dim=1).count_nonzero() == len(texts)
        assert torch.equal(firsts.pooled, whole.pooled)
        some = torch.arange(len(batch.input_ids) - 1, 0, -3)
        read = prepared(batch, rows=some).last_hidden_state
        assert torch.equal(read[some], whole.last_hidden_state[some])
        assert read.shape == whole.last_hidden_state.shape
