"""Texts per second of extraction with labels, compared with the published packages on the same random weights.

    pip install --no-deps gliner==0.2.29 gliner2==2.1.0 peft
    python benchmarks/extraction.py [--num-texts 64] [--rounds 3] [--threads 2] [--out benchmarks/results]

The models have the size of DeBERTa-v3-small (6 layers, 768 wide) with the vocabulary of MiniLM; thresholds are so high
that nothing is found, so that decoding costs nothing. Every system runs in a separate process, in turns.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import report
import texts
from turns import start, take_turns
from worker import Worker

_ENCODER = {
    "model_type": "deberta-v2", "hidden_size": 768, "intermediate_size": 3_072, "num_hidden_layers": 6,
    "num_attention_heads": 12, "max_position_embeddings": 512, "vocab_size": 30_522, "type_vocab_size": 0,
    "relative_attention": True, "position_buckets": 256, "norm_rel_ebd": "layer_norm", "share_att_key": True,
    "pos_att_type": ["p2c", "c2p"], "position_biased_input": False,
}  # fmt: skip
_LABELS_ENCODER = {
    "model_type": "bert", "hidden_size": 384, "intermediate_size": 1_536, "num_hidden_layers": 6,
    "num_attention_heads": 12, "vocab_size": 30_522,
}  # fmt: skip
_THRESHOLD = 0.999_999
_MARKERS = "[SEP_STRUCT] [SEP_TEXT] [P] [C] [E] [R] [L] [EXAMPLE] [OUTPUT] [DESCRIPTION]".split()
_COLUMNS = ("model", "labels", "system", "texts/s", "bertkit/it")


@dataclass(frozen=True)
class Extractor:
    """A package and the kind of model that it runs."""

    package: str
    kind: str

    @property
    def name(self) -> str:
        return self.package


CASES = (  # kind of model, numbers of labels, peer
    ("span", (10,), "gliner"),
    ("token", (10,), "gliner"),
    ("bi-encoder", (10, 1_000), "gliner"),
    ("schema", (10,), "gliner2"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--num-texts", type=int, default=64)
    results, options = report.begin("extraction", parser)
    chosen = [each for each in texts.shuffled(texts.documentation()) if each.endswith(".")][: options.num_texts]
    results |= {"num_rounds": options.rounds, "num_texts": len(chosen), "rows": [], "skipped": {}}
    results["num_words"] = sum(len(each.split()) for each in chosen)
    for kind, numbers, peer in CASES:
        folder = Worker("extraction", "_maker", kind)
        path = folder.turn().result
        folder.close()
        skipped: dict[str, str] = {}
        systems = [Extractor(package, kind) for package in ("bertkit", peer)]
        workers = start(systems, lambda one, at=path: Worker("extraction", "load", one.package, one.kind, at), skipped)
        for number in numbers:
            able = {one: each for one, each in workers.items() if number < 100 or one.package == "bertkit"}
            turns = take_turns(able, options.rounds, chosen, [f"label {index}" for index in range(number)])
            seconds = {one.package: median(turn.seconds for turn in taken[1:]) for one, taken in turns.items()}
            for package, each in seconds.items():
                results["rows"].append({
                    "model": kind, "labels": number, "system": package, "texts_per_second": len(chosen) / each,
                    "bertkit_ratio": each / seconds["bertkit"],
                })  # fmt: skip
        for worker in workers.values():
            worker.close()
        results["skipped"] |= {f"{kind}: {name}": reason for name, reason in skipped.items()}
    report.finish(results, describe(results), options.out)


def load(package: str, kind: str, folder: Path) -> Callable[[list[str], list[str]], int]:
    """A function of texts and labels that extracts; it returns the number of entities."""
    return {"bertkit": _load_bertkit, "gliner": _load_gliner, "gliner2": _load_gliner2}[package](folder, kind)


def _load_bertkit(folder: Path, kind: str) -> Callable[[list[str], list[str]], int]:
    from bertkit.extraction import Schema, open_extractor

    extractor: Any = open_extractor(folder)
    if kind != "schema":
        return lambda given, labels: sum(map(len, extractor.extract(given, labels, threshold=_THRESHOLD)))

    def read(given: list[str], labels: list[str]) -> int:
        schema = Schema(entities=labels[:5], classes={"kind": labels[5:]})
        return sum(len(each.entities) for each in extractor.read(given, schema, threshold=_THRESHOLD))

    return read


def _load_gliner(folder: Path, kind: str) -> Callable[[list[str], list[str]], int]:
    from gliner import GLiNER

    model = GLiNER.from_pretrained(str(folder)).eval()
    known: dict[tuple[str, ...], Any] = {}

    def extract(given: list[str], labels: list[str]) -> int:
        if kind != "bi-encoder":
            return sum(map(len, model.inference(given, labels, threshold=_THRESHOLD, batch_size=8)))
        if tuple(labels) not in known:
            known[tuple(labels)] = model.encode_labels(labels, batch_size=32)
        found = model.batch_predict_with_embeds(given, known[tuple(labels)], labels, threshold=_THRESHOLD, batch_size=8)
        return sum(map(len, found))

    return extract


def _load_gliner2(folder: Path, kind: str) -> Callable[[list[str], list[str]], int]:
    from gliner2 import GLiNER2

    model = GLiNER2.from_pretrained(str(folder)).eval()

    def read(given: list[str], labels: list[str]) -> int:
        schema = model.create_schema().entities(labels[:5]).classification("kind", labels[5:])
        return len(model.batch_extract(given, schema, batch_size=8, threshold=_THRESHOLD))

    return read


def _maker(kind: str) -> Callable[[], Path]:
    return lambda: _made(kind)


def _made(kind: str) -> Path:
    """The folder of a model with random weights, made by its package."""
    folder = report.CACHE / f"extraction-{kind}"
    if (folder / "model.safetensors").exists():
        return folder
    import torch
    from transformers import AutoConfig, AutoTokenizer

    from bertkit.locate import locate

    torch.manual_seed(0)
    minilm = locate("all-MiniLM-L6-v2")
    tokenizer, labels_tokenizer = (AutoTokenizer.from_pretrained(minilm) for _ in range(2))
    if kind == "schema":
        from gliner2 import GLiNER2
        from gliner2.configuration import ExtractorConfig

        tokenizer.add_special_tokens({"additional_special_tokens": _MARKERS})
        config = ExtractorConfig(model_name="none", max_width=8, counting_layer="count_lstm_v2")
        model = GLiNER2(config, encoder_config=AutoConfig.for_model(**_ENCODER), tokenizer=tokenizer)
        model.save_pretrained(str(folder))
        return folder
    from gliner import config as configs
    from gliner import model as models

    side = "BiEncoder" if kind == "bi-encoder" else "UniEncoder"
    name, more = side + ("Token" if kind == "token" else "Span"), {}
    if side == "BiEncoder":
        more = {"labels_encoder": "labels", "labels_encoder_config": _LABELS_ENCODER}
    config = getattr(configs, f"{name}Config")(
        encoder_config=_ENCODER, hidden_size=512, max_width=12, max_len=384, **more
    )
    options = {"labels_tokenizer": labels_tokenizer} if side == "BiEncoder" else {}
    model = getattr(models, f"{name}GLiNER")(config, tokenizer=tokenizer, **options)
    if side == "UniEncoder":
        tokenizer.add_tokens(["[FLERT]", config.ent_token, config.sep_token], special_tokens=True)
        model.resize_embeddings()
    model.save_pretrained(str(folder), safe_serialization=True)
    return folder


def describe(results: dict) -> str:
    rows = [
        [
            row["model"],
            f"{row['labels']:,}",
            row["system"],
            f"{row['texts_per_second']:.2f}",
            f"{row['bertkit_ratio']:.2f}",
        ]
        for row in results["rows"]
    ]
    lines = [
        f"# Extraction, {results['date']}",
        "",
        f"{results['num_texts']} passages of documentation, {results['num_words']:,} words, {results['num_rounds']} "
        "rounds.",
        "",
        report.machine(results),
        "",
        report.markdown_table(list(_COLUMNS), *rows),
        "",
        "bertkit/it: texts per second of bertkit over those of the system. Labels of a bi-encoder are cached in both; "
        "1,000 of them are not given to gliner, whose batch of scores of all spans did not end within minutes.",
        "",
        *report.skipped_lines(results),
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
