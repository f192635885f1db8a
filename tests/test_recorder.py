"""The recorder: intermediate results that add up to the output, for every architecture; forward hooks of PyTorch."""

from itertools import pairwise

import pytest
import torch
from torch import nn

from bertkit import Batch, Recorder
from bertkit.architectures import ARCHITECTURES, Network, initialize

ids = torch.tensor([[2, 7, 9, 11, 3, 0], [2, 5, 3, 0, 0, 0], [2, 8, 13, 7, 21, 3]])


def network_of(model_type: str, *heads: str) -> Network:
    """A small network with weights large enough that every layer matters."""
    record = ARCHITECTURES[model_type]
    config = record.config.of_size(
        "tiny", vocab_size=31, hidden_size=24, num_attention_heads=4, intermediate_size=28, num_hidden_layers=3,
        initializer_range=0.3, max_position_embeddings=24,
    )  # fmt: skip
    network = Network(config, heads).eval()
    initialize(network, config, seed=3)
    return network.double()


def check_scores(model_type: str, scores: torch.Tensor, content: torch.Tensor) -> None:
    """Scores are products of query and key; MPNet adds a bias for each distance, DeBERTa two terms of positions, and
    GPT-2 and Qwen3 hide later tokens."""
    if ARCHITECTURES[model_type].config().is_decoder:
        content = content.masked_fill(torch.ones_like(content).triu(1).bool(), -torch.inf)
    if model_type == "mpnet":
        biases = scores - content
        for distance in range(1 - scores.shape[-1], scores.shape[-1]):
            same = biases.diagonal(distance, 1, 2)
            torch.testing.assert_close(same, same[:, :1].expand_as(same))
    elif model_type != "deberta-v2":
        torch.testing.assert_close(scores, content)


@pytest.mark.full(sample=1)
@pytest.mark.parametrize("model_type", ARCHITECTURES)
@torch.no_grad()
def test_records_add_up_to_the_output(model_type: str) -> None:
    network, batch, recorder = network_of(model_type), Batch.from_padded(ids, ids > 0), Recorder()
    plain = network.encoder(batch, with_hidden_states=True)
    for _ in range(2):  # a recorder keeps the last call
        recorded = network.encoder(batch, with_hidden_states=True, recorder=recorder)
    torch.testing.assert_close(recorded.last_hidden_state, plain.last_hidden_state)
    assert len(recorder.layers) == 3
    num_tokens = len(batch.input_ids)
    for number, (layer, record) in enumerate(zip(network.encoder.in_order(), recorder.layers, strict=True)):
        width = layer.config.head_dim
        assert record.query.shape == record.key.shape == record.value.shape == (num_tokens, 4, width)
        heads = []
        per_sequence = zip(record.attention_scores, record.attention_probs, strict=True)
        for (first, last), (scores, probs) in zip(pairwise(batch.cu_seqlens.tolist()), per_sequence, strict=True):
            query, key, value = (x[first:last].transpose(0, 1) for x in (record.query, record.key, record.value))
            check_scores(model_type, scores, query @ key.transpose(1, 2) / width**0.5)
            torch.testing.assert_close(probs, scores.softmax(-1))
            heads.append((probs @ value).transpose(0, 1).flatten(1))
        output = layer.attention.output(torch.cat(heads))
        torch.testing.assert_close(record.attention_output, output)
        before, after = plain.hidden_states[number : number + 2]
        if network.encoder.final_norm is not None:  # a residual stream of contributions
            total = before + record.attention_output + record.feed_forward_output
            after = total if number < 2 else after
            total = total if number < 2 else network.encoder.final_norm(total)
        else:
            attended = layer.attention_norm(before + record.attention_output)
            total = layer.feed_forward_norm(attended + record.feed_forward_output)
        torch.testing.assert_close(total, after)


@pytest.mark.parametrize("model_type", ARCHITECTURES)
@torch.no_grad()
def test_forward_hooks_of_linear_layers_run(model_type: str) -> None:
    head = "masked_lm" if "masked_lm" in ARCHITECTURES[model_type].heads else "token_classification"
    network, seen = network_of(model_type, head), {}
    linears = {name: module for name, module in network.named_modules() if isinstance(module, nn.Linear)}
    for name, module in linears.items():
        module.register_forward_hook(lambda module, args, output, name=name: seen.update({name: (args[0], output)}))
    batch = Batch.from_padded(ids, ids > 0)
    output = network(batch)
    read_elsewhere = {"encoder.pooler.dense"} if network.encoder.pooler is None else set()
    assert seen.keys() == linears.keys() - read_elsewhere
    for name, (given, result) in seen.items():
        assert result.shape == (*given.shape[:-1], linears[name].out_features), name
    hook = network.encoder.in_order()[1].feed_forward.project.register_forward_hook(
        lambda module, args, output: torch.zeros_like(output)
    )
    changed = network(batch)
    hook.remove()
    assert not torch.equal(changed.logits[head], output.logits[head])  # what a hook returns counts
