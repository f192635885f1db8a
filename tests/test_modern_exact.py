"""Equality with ModernBERT's published code, including its roundings to float32."""

import tempfile
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from exactness import error, our_outputs, padded_batches, published_outputs
from families.modernbert import MODERNBERT
from random_models import save_published
from random_modern import published_model

import bertkit

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize("number", [0, 4, 13, 26])
@torch.inference_mode()
def test_equals_published_code(number: int) -> None:
    published = published_model("masked_lm", number)
    with tempfile.TemporaryDirectory() as folder:
        save_published(published, Path(folder))
        ours = bertkit.load(folder, device="cpu")
    as_it_stands = replace(MODERNBERT, exact_code=nullcontext)
    for padded in padded_batches(MODERNBERT, "masked_lm", number):
        reference = published_outputs(as_it_stands, published, "masked_lm", padded, 1)
        for name, value in our_outputs(ours, padded, 1, keep_all=True).items():
            assert error(value, reference[name]) <= 2e-5, name
