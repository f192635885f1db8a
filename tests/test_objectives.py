"""Sentence order and replaced token detection: slow references, transformers' ELECTRA, resumption, ranks, bad input."""

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pretraining_reference as reference
import pytest
import torch
import torch.nn.functional as F
import transformers
from test_pretraining import TINY, digest, events, on_two_ranks, pretraining, write_corpus
from test_pretraining_batches import CONTINUES, SPECIAL, VOCAB_SIZE, everything, random_documents, rows, shard_of

from bertkit import Batch, load
from bertkit.architectures import Network, initialize
from bertkit.architectures.electra import ElectraConfig
from bertkit.cli import run as run_command
from bertkit.cli.killed_runs import verify_resume
from bertkit.errors import DataError, MissingHeadError, UsageError
from bertkit.objectives import Loader, Masking, ReplacedTokens, TokenBlocks
from bertkit.objectives.generator import GeneratorAndDiscriminator, draw_tokens
from bertkit.objectives.replaced_tokens import WithDraws
from bertkit.objectives.sentence_order import OrderedPairs
from bertkit.pretraining import Inputs, Pretraining, read_recipe
from bertkit.pretraining.recipe import recipe_of
from bertkit.reports.recorded_run import read_run
from bertkit.reports.training import training_report
from bertkit.tasks import Task
from bertkit.training import compute_gradients, outputs_of

ELECTRA = ["model.architecture=electra", "model.config.embedding_size=20", "objective.name=replaced-tokens",
           "objective.generator_size=0.5"]  # fmt: skip
ORDER = ["model.architecture=albert", "model.config.classifier_dropout_prob=0.0", "objective.name=sentence-order"]
BOTH = pytest.mark.parametrize("changes", [ELECTRA, ORDER], ids=["replaced tokens", "sentence order"])


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("text") / "corpus.txt")


# ---- sentence order


@pytest.mark.parametrize("max_seqlen", [5, 24, 128])
def test_ordered_pairs_equal_slow_reference(max_seqlen: int) -> None:
    documents = random_documents(41, seed=3)
    source = OrderedPairs(shard_of(documents), SPECIAL, max_seqlen, seed=9)
    for epoch in (0, 1, 7):
        expected = reference.ordered_pairs(documents, max_seqlen, 9, epoch)
        results = everything(source, epoch)
        assert rows(results) == [[2, *a, 3, *b, 3] for a, b, _ in expected]
        assert results.next_sentence_label.tolist() == [label for _, _, label in expected]
        types = [[0] * (len(a) + 2) + [1] * (len(b) + 1) for a, b, _ in expected]
        assert results.token_type_ids.tolist() == [one for row in types for one in row]
        some = np.array([3, len(expected) - 1, 0, 3])
        assert rows(source.take(epoch, some)) == [rows(results)[i] for i in some]


def test_half_of_the_pairs_of_consecutive_texts_are_swapped() -> None:
    counter = iter(range(5, 10**6))
    documents = [[[next(counter) % 60_000 for _ in range(4)] for _ in range(9)] for _ in range(400)]
    results = everything(OrderedPairs(shard_of(documents), SPECIAL, 19, seed=1), 0)
    labels = results.next_sentence_label
    assert abs(labels.mean() - 0.5) < 4 * 0.5 / math.sqrt(len(labels))
    for row, label in zip(rows(results), labels, strict=True):
        middle = row.index(3)
        a, b = row[1:middle], row[middle + 1 : -1]
        first, second = (b, a) if label else (a, b)
        assert second[0] == first[-1] + 1  # nothing was cut


def test_sentence_order_needs_two_sentences_in_a_document() -> None:
    with pytest.raises(DataError, match="sentence order prediction needs documents of two sentences"):
        OrderedPairs(shard_of([[[5, 6, 7]], [[8, 9]]]), SPECIAL, 24, seed=0)
    source = OrderedPairs(shard_of([[[5]], [[6], [7, 8]]]), SPECIAL, 24, seed=0)  # a single token is no pair
    assert source.num_examples(0) == 1 and source.random_share(0) is None


# ---- replaced tokens: what is drawn


def masking(seed: int) -> WithDraws:
    return WithDraws(Masking(SPECIAL, CONTINUES, seed=seed, replacement=(0.85, 1.0)), seed)


def batches(num_ranks: int, size: int) -> list[list[tuple]]:
    source = TokenBlocks(shard_of(random_documents(20, seed=8)), SPECIAL, 24, seed=4)
    results = []
    for rank in range(num_ranks):
        batch = Loader([source], masking(4), 4, rank=rank, num_ranks=num_ranks).batch(3, size, stage=0, mask_rate=0.2)
        parts = batch.split(10_000)
        results.append([
            (part.batch.input_ids.tolist(), part.masked_positions.tolist(), part.labels.tolist(), part.draws.tolist())
            for part in parts
        ])  # fmt: skip
    return results


def test_draws_equal_slow_reference_and_depend_on_the_position_alone() -> None:
    source = TokenBlocks(shard_of(random_documents(20, seed=8)), SPECIAL, 24, seed=4)
    indices = np.array([7, 0, 12], np.int64)
    sequences = source.take(2, indices)
    masked = masking(4)(sequences, 0.3, 2, indices)
    expected: list[float] = []
    for i, index in enumerate(indices.tolist()):
        first, end = sequences.cu_seqlens[i : i + 2]
        inside = masked.positions[(masked.positions >= first) & (masked.positions < end)] - first
        expected += reference.draws(inside.tolist(), 4, 2, index)
    assert masked.draws.tolist() == expected and min(expected) >= 0 and max(expected) < 1
    (whole,) = batches(1, 12)
    for num_ranks in (2, 3):
        shares = batches(num_ranks, 12)
        assert [shares[i % num_ranks][i // num_ranks] for i in range(12)] == whole


def test_masks_of_electra() -> None:
    """85 % become [MASK], the others stay, as in google-research/electra."""
    source = TokenBlocks(shard_of(random_documents(4_000, seed=2)), SPECIAL, 64, seed=0)
    indices = np.arange(source.num_examples(0))
    sequences = source.take(0, indices)
    masked = masking(1)(sequences, 0.15, 0, indices)
    is_mask = masked.input_ids[masked.positions] == SPECIAL.mask
    assert abs(is_mask.mean() - 0.85) < 4 * math.sqrt(0.85 * 0.15 / len(is_mask))
    assert (masked.input_ids[masked.positions][~is_mask] == masked.labels[~is_mask]).all()


def test_tokens_are_drawn_by_their_probabilities() -> None:
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(7, 13, generator=generator) * 3
    numbers = torch.rand(50, 7, generator=generator, dtype=torch.float64)
    probabilities = logits.double().softmax(-1).tolist()
    for row in numbers:
        expected = [reference.drawn_token(*pair) for pair in zip(probabilities, row.tolist(), strict=True)]
        assert draw_tokens(logits, row).tolist() == expected
    ends = torch.tensor([0.0, 1 - 2**-53], dtype=torch.float64)
    assert draw_tokens(torch.tensor([[-1e9, 0.0, -1e9]]).expand(2, 3), ends).tolist() == [1, 1]
    number = 40_000
    counts = torch.bincount(draw_tokens(logits[:1].expand(number, -1), torch.arange(number) / number), minlength=13)
    assert (counts / number - logits[0].softmax(-1)).abs().max() < 1e-4


# ---- replaced tokens: loss and gradients


CONFIG = ElectraConfig(
    vocab_size=VOCAB_SIZE, hidden_size=24, num_hidden_layers=2, num_attention_heads=4, intermediate_size=36,
    embedding_size=20, max_position_embeddings=32, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
)  # fmt: skip


def tied_networks(seed: int = 1) -> GeneratorAndDiscriminator:
    objective = ReplacedTokens(generator_size=0.5)
    networks = {name: Network(*one) for name, one in objective.companions(CONFIG).items()}
    discriminator = Network(CONFIG, objective.heads)
    for number, network in enumerate([discriminator, *networks.values()]):
        initialize(network, network.config, seed + number)
        for parameter in network.parameters():  # of a size at which all matter
            with torch.no_grad():
                parameter.add_(0.2 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(number)))
    return objective.network(discriminator, networks)


def theirs(network: Network, kind: type[transformers.PreTrainedModel]) -> Any:
    """The same weights in a model of transformers."""
    config = transformers.ElectraConfig(
        vocab_size=VOCAB_SIZE, embedding_size=20, hidden_size=network.config.hidden_size,
        num_hidden_layers=2, num_attention_heads=network.config.num_attention_heads,
        intermediate_size=network.config.intermediate_size, max_position_embeddings=32,
    )  # fmt: skip
    model = kind(config).eval()
    published = dict(network.published_parameters())
    missing, unexpected = model.load_state_dict(published, strict=False)
    assert not unexpected and all("generator_lm_head" in name or "position_ids" in name for name in missing)
    model.tie_weights()
    return model


def test_loss_and_gradients_equal_those_of_transformers() -> None:
    networks = tied_networks()
    source = TokenBlocks(shard_of(random_documents(20, seed=8)), SPECIAL, 24, seed=4)
    batch = Loader([source], masking(4), 4).batch(0, 5, stage=0, mask_rate=0.3)
    generator = theirs(networks.generator, transformers.ElectraForMaskedLM)
    discriminator = theirs(networks.discriminator, transformers.ElectraForPreTraining)
    shared = discriminator.electra.embeddings
    generator.electra.embeddings = shared
    generator.generator_lm_head.weight = shared.word_embeddings.weight

    # Written out with padded batches.
    pad = batch.batch.pad
    mask = pad(torch.ones_like(batch.batch.input_ids), 0)
    logits = generator(pad(batch.batch.input_ids), mask).logits[mask.bool()][batch.masked_positions]
    drawn = torch.tensor([
        reference.drawn_token(row, number)
        for row, number in zip(logits.double().softmax(-1).tolist(), batch.draws.tolist(), strict=True)
    ])  # fmt: skip
    tokens = batch.batch.input_ids.clone()
    tokens[batch.masked_positions] = drawn
    detected = discriminator(pad(tokens), mask).logits[mask.bool()]
    is_replaced = torch.zeros(len(tokens))
    is_replaced[batch.masked_positions] = (drawn != batch.labels).float()
    lm_loss = F.cross_entropy(logits, batch.labels)
    detection = F.binary_cross_entropy_with_logits(detected, is_replaced)
    (lm_loss + 50 * detection).backward()
    assert 0 < is_replaced.sum() <= len(drawn)

    task: Task = ReplacedTokens().task
    parameters, totals = list(networks.parameters()), task.totals(batch)
    losses = compute_gradients(
        parameters, batch.split(3), lambda part: task.loss(outputs_of(networks, part), part, totals)
    )
    metrics = task.metrics(sum(loss.sums for loss in losses))
    right = ((detected > 0) == is_replaced.bool()).float().mean()
    assert metrics["masked_lm_loss"] == pytest.approx(float(lm_loss), rel=1e-5)
    assert metrics["replaced_tokens_loss"] == pytest.approx(float(detection), rel=1e-5)
    assert metrics["loss"] == pytest.approx(float(lm_loss + 50 * detection), rel=1e-5)
    assert metrics["replaced_tokens_accuracy"] == pytest.approx(float(right), rel=1e-6)
    flagged, found = (detected > 0).sum(), ((detected > 0) & is_replaced.bool()).sum()
    assert metrics["replaced_tokens_precision"] == pytest.approx(float(found / flagged.clamp(min=1)))
    assert metrics["replaced_tokens_recall"] == pytest.approx(float(found / is_replaced.sum()))

    compared = 0
    for network, model in ((networks.generator, generator), (networks.discriminator, discriminator)):
        expected = dict(model.named_parameters())
        for name, parameter in network.published_parameters():
            torch.testing.assert_close(parameter.grad, expected[name].grad, rtol=1e-3, atol=1e-5, msg=name)
            compared += 1
    assert compared > 70


def test_networks_share_all_embeddings_but_the_projection() -> None:
    networks = tied_networks()
    ours, its = networks.discriminator.encoder.embeddings, networks.generator.encoder.embeddings
    assert ours.word is its.word and ours.position is its.position and ours.token_type is its.token_type
    assert ours.norm is its.norm and ours.project is not its.project
    assert (its.project.in_features, its.project.out_features) == (20, 12)
    assert networks.generator.config.num_attention_heads == 2 and networks.generator.config.intermediate_size == 18


# ---- runs


@pytest.mark.full
@BOTH
def test_run_learns(corpus: Path, tmp_path: Path, changes: list[str]) -> None:
    made = pretraining(corpus, tmp_path / "run", *changes, "training.num_steps=120", "training.learning_rate=3e-3",
                       "training.evaluate_every=40")  # fmt: skip
    assert made.start(resume=False).reason == "finished"
    first, *_, last = events(tmp_path / "run", "evaluation")
    assert last["loss"] < first["loss"] and last["masked_lm_loss"] < first["masked_lm_loss"] - 0.3
    page = training_report(read_run(tmp_path / "run"))
    assert "Masked LM loss" in page and changes[-1 if changes is ORDER else -2].partition("=")[2] in page
    assert ("Replaced tokens accuracy" if changes is ELECTRA else "Next sentence accuracy") in page


@BOTH
def test_stopped_run_resumes_with_the_same_bits(corpus: Path, tmp_path: Path, changes: list[str]) -> None:
    changes = [*changes, "model.config.hidden_dropout_prob=0.1", "training.precision=bfloat16"]
    assert pretraining(corpus, tmp_path / "whole", *changes).start(resume=False).reason == "finished"
    made = pretraining(corpus, tmp_path / "parts", *changes)
    assert made.start(resume=False, should_stop=lambda: made.state.step >= 5).reason == "stopped"
    assert pretraining(corpus, tmp_path / "parts", *changes).start(resume=True).reason == "finished"
    assert digest(tmp_path / "parts") == digest(tmp_path / "whole")
    if changes[: len(ELECTRA)] == ELECTRA:
        generators = [(tmp_path / run / "model/generator/model.safetensors").read_bytes() for run in ("parts", "whole")]
        assert generators[0] == generators[1]


@pytest.mark.slow
@BOTH
def test_killed_run_ends_with_the_same_bits(corpus: Path, tmp_path: Path, changes: list[str]) -> None:
    arguments = ["pretrain", "--corpus", str(corpus), "--set", *TINY, *changes, "training.num_steps=80",
                 "training.save_every=10", "training.evaluate_every=80"]  # fmt: skip
    assert verify_resume(arguments, tmp_path / "runs", num_kills=1, seed=1, log=lambda line: None).verdict == "exact"


@pytest.mark.slow
@pytest.mark.parametrize("options", [[], ["--shard"]], ids=["whole", "sharded"])
@BOTH
def test_two_ranks_equal_one(corpus: Path, tmp_path: Path, changes: list[str], options: list[str]) -> None:
    changes = [*changes, "training.log_every=1", "model.config.hidden_dropout_prob=0",
               "model.config.attention_probs_dropout_prob=0"]  # fmt: skip
    assert pretraining(corpus, tmp_path / "one", *changes).start(resume=False).reason == "finished"
    on_two_ranks(["--corpus", str(corpus), "--out", str(tmp_path / "two"), *options, "--set", *TINY, *changes])
    one, two = (events(tmp_path / run, "step") for run in ("one", "two"))
    assert len(one) == 12 and [event["tokens"] for event in one] == [event["tokens"] for event in two]
    assert max(abs(a["masked_lm_loss"] - b["masked_lm_loss"]) for a, b in zip(one, two, strict=True)) < 1e-4
    assert max(abs(a["loss"] - b["loss"]) for a, b in zip(one, two, strict=True)) < 1e-3


@pytest.fixture(scope="module")
def electra(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("electra") / "run"
    made = pretraining(corpus, run, *ELECTRA)
    made.recipe = replace(made.recipe, samples=("the cat sat [MASK] the mat.",))
    assert made.start(resume=False).reason == "finished"
    return run


def test_saved_models_open_in_transformers_with_the_same_logits(electra: Path) -> None:
    for folder, kind, head in (
        (electra / "model", transformers.ElectraForPreTraining, "replaced_tokens"),
        (electra / "model/generator", transformers.ElectraForMaskedLM, "masked_lm"),
    ):
        ours, other = load(folder), kind.from_pretrained(folder).eval()
        for text in ("the big cat sat on the mat.", "a dog ran."):
            ids = torch.tensor([list(ours.tokenizer.encode(text).input_ids)])
            with torch.no_grad():
                expected = other(ids).logits[0]
            logits = ours.network(Batch.from_padded(ids)).logits[head].detach()
            torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-5)
        record = json.loads((folder / "bertkit.json").read_text())
        assert {tensor["origin"] for tensor in record["provenance"].values()} == {"trained"}
    assert list(load(electra / "model").network.heads) == ["replaced_tokens"]


def test_generator_fills_the_samples(electra: Path) -> None:
    (sample,) = events(electra, "samples")[-1]["samples"]
    (mask,) = load(electra / "model/generator").fill_mask(sample["text"], top_k=5)
    assert [one["token"] for one in sample["candidates"]] == [one.token for one in mask.candidates]


def test_continues_from_a_discriminator_and_its_generator(corpus: Path, electra: Path, tmp_path: Path) -> None:
    def continued(run: str, model: Path, **inputs: Any) -> Any:
        changes = ["objective.name=replaced-tokens", "objective.generator_size=0.5", "data.max_seqlen=24",
                   "data.held_out_share=0.1", "training.num_steps=1", "training.batch_size=16"]  # fmt: skip
        recipe = read_recipe("domain-adapt", [*changes, "vocabulary.add_words=1"])
        made = Pretraining(
            tmp_path / run, recipe, Inputs((corpus,), model=str(model), **inputs), log_line=lambda _: None
        )
        made.start(resume=False)
        return events(tmp_path / run, "evaluation")[0]

    alone = tmp_path / "alone"
    shutil.copytree(electra / "model", alone)
    shutil.rmtree(alone / "generator")
    with pytest.raises(MissingHeadError, match="no folder generator, the model that objective replaced-tokens trains"):
        continued("without", alone)
    assert not (tmp_path / "without").exists()
    first, new = continued("with", electra / "model"), continued("new", alone, new_head=True)
    last = events(electra, "evaluation")[-1]
    with_it, without, before = (one["masked_lm_loss"] for one in (first, new, last))
    assert abs(with_it - before) < 0.05 < without - with_it
    assert (tmp_path / "with/model/generator/config.json").is_file()


# ---- bad input, and commands


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            ["objective.name=electra"],
            "objective 'electra': expected one of masked-lm, next-sentence, sentence-order, re",
        ),
        (["objective.name=3"], "objective 3: expected one of masked-lm"),
        (["objective.name=replaced-tokens", "objective.generator_size=0.0"], "above 0 and at most 1"),
        (["objective.name=replaced-tokens", "objective.generator_size=1.5"], "generator_size=1.5: expected a share"),
        (["objective.name=replaced-tokens", "objective.detection_weight=0"], "detection_weight=0: expected"),
        (
            ["objective.name=masked-lm", "objective.generator_size=0.5"],
            "unknown setting 'generator_size'; expected one",
        ),
        (
            ["objective.generator_size=0.5", "objective.name=masked-lm"],
            "unknown setting 'generator_size'; expected one",
        ),
        (["objective.final_mask_rate=0.0"], "final_mask_rate=0.0: expected a share above 0"),
        (["objective.name=sentence-order", "data.max_seqlen=4"], "max_seqlen=4: expected at least 5"),
        (["objective=3"], "section.name=value"),
    ],
)
def test_invalid_objectives(changes: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read_recipe("cpu-minutes", changes)


def test_another_objective_keeps_the_settings_that_both_have() -> None:
    recipe = read_recipe("bert-2018", ["objective.mask_unit=word", "objective.name=replaced-tokens"])
    assert recipe.objective == ReplacedTokens(mask_unit="word", mask_rate=0.15)
    assert recipe.facts()["objective"]["name"] == "replaced-tokens"
    assert recipe_of(json.loads(json.dumps(recipe.facts())), "the run").objective == recipe.objective


def test_architectures_and_texts_that_lack_what_an_objective_needs(corpus: Path, tmp_path: Path) -> None:
    def fails(kind: type[Exception], *changes: str, source: Path = corpus, **options: Any) -> str:
        made = replace(pretraining(source, tmp_path / "run", *changes), **options)
        with pytest.raises(kind) as error:
            made.start(resume=False)
        return str(error.value)

    said = fails(UsageError, "objective.name=replaced-tokens")
    assert "bert has no replaced_tokens head" in said and "an architecture of electra, or" in said
    assert not (tmp_path / "run").exists()
    singles = tmp_path / "singles.txt"
    singles.write_text("".join(f"the {animal} sat on the mat here.\n\n" for animal in "cat dog bird fish".split() * 9))
    said = fails(DataError, *ORDER, "data.layout=lines", source=singles)
    assert "the corpus without its held-out share" in said and "every document has one" in said


def test_commands_take_the_objective(corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    tiny = [change for change in TINY if "architecture" not in change]
    arguments = ["--corpus", str(corpus), "--recipe", "electra-minutes", "--set", *tiny, *ELECTRA[3:]]
    assert run_command(["pretrain", *arguments, "--out", str(tmp_path / "run")]) == 0
    row = json.loads(capsys.readouterr().out)
    last = events(tmp_path / "run", "evaluation")[-1]
    assert row["reason"] == "finished" and row["loss"] == last["loss"] and row["best_loss"] <= row["loss"]
    assert run_command(["report", str(tmp_path / "run"), "--out", str(tmp_path / "report.html")]) == 0
    assert "objective.generator_size" in (tmp_path / "report.html").read_text()
    capsys.readouterr()
    changed = ["--objective", "sentence-order", "--out", str(tmp_path / "order")]
    assert run_command(["pretrain", *arguments, *changed]) == 2
    assert "unknown setting 'generator_size'" in capsys.readouterr().err
    changed = ["--corpus", str(corpus), "--recipe", "bert-minutes", "--objective", "sentence-order", "--set", *tiny]
    assert run_command(["pretrain", *changed, "--out", str(tmp_path / "order")]) == 0
    assert json.loads((tmp_path / "order/recipe.json").read_text())["recipe"]["objective"] == {
        "name": "sentence-order", "mask_unit": "token", "mask_rate": 0.15, "final_mask_rate": None,
    }  # fmt: skip
