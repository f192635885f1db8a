"""Every architecture equals transformers in every kind of model, with weights saved by either and opened by the
other."""

import pytest
import torch
from exactness import check_opened, check_saved
from families import FAMILIES

from bertkit.architectures import ARCHITECTURES

pytestmark = pytest.mark.usefixtures("one_thread")


def cases(first: int) -> list:
    """Model type, kind and configuration, numbered from ``first`` times the number of configurations on."""
    every = [
        (name, kind, first * family.num_configurations + index, index >= family.num_quick)
        for name, family in FAMILIES.items()
        for kind in family.kinds
        for index in range(family.num_configurations)
    ]
    return [
        pytest.param(name, kind, number, id=f"{name}-{kind}-{number}", marks=[pytest.mark.slow] * is_slow)
        for name, kind, number, is_slow in every
    ]


@pytest.mark.full(sample=4)
@pytest.mark.parametrize(("name", "kind", "number"), cases(0))
@torch.inference_mode()
def test_weights_saved_by_transformers_give_its_outputs(name: str, kind: str, number: int) -> None:
    check_opened(FAMILIES[name], kind, number)


@pytest.mark.full(sample=2)
@pytest.mark.parametrize(("name", "kind", "number"), cases(1))
@torch.inference_mode()
def test_weights_saved_here_give_transformers_the_same_outputs(name: str, kind: str, number: int) -> None:
    check_saved(FAMILIES[name], kind, number)


def test_every_architecture_is_compared() -> None:
    decoders = {"gpt2"}  # compared by what they generate, in test_causal_models.py
    assert FAMILIES.keys() == ARCHITECTURES.keys() - decoders
