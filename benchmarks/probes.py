"""Data that the features of an encoder are measured on."""

import csv

from frozen_features import Probes, read_senses
from texts import DATA

from bertkit.inspection import read_trees


def probes() -> Probes:
    """Labeled words of a treebank and of CoarseWSD-20, and the test pairs of STS-B."""
    treebank = DATA / "ud_english_ewt"
    tags = [
        [tree.labeled("tags") for tree in read_trees(treebank / f"en_ewt-ud-{part}.conllu", 400)]
        for part in ("train", "test")
    ]
    senses = [(train[:200], test[:200]) for train, test in read_senses(DATA / "coarsewsd20")]
    with (DATA / "sts_benchmark" / "sts-test.csv").open(encoding="utf-8", newline="") as file:
        lines = list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    return Probes((tags[0], tags[1]), senses, [(line[5], line[6], float(line[4])) for line in lines])
