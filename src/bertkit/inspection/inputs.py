"""Input view: the embeddings of a text, each summand separately, and similarities of positions.

Shape letters: L tokens, D hidden_size, P positions.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch

from bertkit.errors import UsageError
from bertkit.inference.trace import array
from bertkit.inspection.contextual import cosines
from bertkit.inspection.view import View
from bertkit.model import Model, check_model
from bertkit.pages import Line, Markup, findings, heat_map, line_chart, paragraph, section, table

_POSITIONS = 32  # maximum number in the maps


@dataclass(frozen=True, eq=False)
class InputView(View):
    """The embeddings whose sum is the input of the first layer."""

    title: ClassVar[str] = "Input"
    text: str
    tokens: list[str]
    input_ids: np.ndarray  # (L,)
    token_type_ids: np.ndarray  # (L,)
    parts_of_sum: dict[
        str, np.ndarray
    ]  # (L, D) each: "token", and where the architecture has them "segment", "position"
    normalized: np.ndarray  # (L, D), the input of the first layer, projected where the architecture does so
    position_cosines: np.ndarray | None  # (P, P) of the learned positions
    sinusoidal_cosines: np.ndarray  # (P, P) of the fixed ones (Vaswani et al. 2017)

    @property
    def shares(self) -> dict[str, np.ndarray]:
        """(L,) share of each part in the squared length of the sum: its dot product with the sum, over that length."""
        total = np.sum(list(self.parts_of_sum.values()), axis=0)
        squares = np.maximum((total**2).sum(axis=-1), 1e-300)
        return {name: (part * total).sum(axis=-1) / squares for name, part in self.parts_of_sum.items()}

    def numbers(self) -> dict[str, Any]:
        return vars(self) | {"shares": self.shares}

    def parts(self) -> list[Markup]:
        shares, names = self.shares, list(self.parts_of_sum)
        rows = []
        for index, token in enumerate(self.tokens):
            lengths = [float(np.linalg.norm(self.parts_of_sum[name][index])) for name in names]
            ids = [str(self.input_ids[index]), index, int(self.token_type_ids[index])]
            rows.append([token, *ids, *lengths, *(float(shares[name][index]) for name in names)])
        columns = ["token", "id", "position", "segment", *(f"length of {name}" for name in names),
                   *(f"share of {name}" for name in names)]  # fmt: skip
        missing = sorted({"segment", "position"} - set(names))
        is_note = [findings([("note", f"This architecture adds no {' and no '.join(missing)} embedding to the input"
                              + (": its positions come in through attention, in every layer."
                                 if "position" in missing else "."))])] if missing else []  # fmt: skip
        maps = []
        for title, values in (("Learned", self.position_cosines), ("Sinusoidal", self.sinusoidal_cosines)):
            if values is not None:
                labels = [str(number) for number in range(len(values))]
                maps.append(heat_map(title, values, labels, labels, row_name="position", column_name="position",
                                     written=[[""] * len(labels)] * len(labels), full=1.0,
                                     note="Cosine of two positions; below zero is not shaded."))  # fmt: skip
        curves = [
            Line(name, np.arange(len(values), dtype=np.float64), values[0], color=color)
            for name, values, color in (
                ("learned", self.position_cosines, 1),
                ("sinusoidal", self.sinusoidal_cosines, 2),
            )
            if values is not None
        ]
        return [
            paragraph(
                f"{len(self.tokens)} tokens. For each token {' + '.join(names)} are added and normalized: "
                "that is all the first layer sees. The share of an embedding is its part of the sum; the shares "
                "add up to 1."
            ),
            *is_note,
            section("Tokens", table(columns, rows)),
            section(
                "Positions",
                line_chart("Cosine with position 0", curves, x_name="position", x_kind="integer", y_name="cosine"),
                *maps,
            ),
        ]


def inspect_input(model: Model, text: str, pair: str | None = None) -> InputView:
    """Input view of a text.

    Raises:
        OverLengthError: more tokens than the model accepts.
        UsageError: an empty text.
    """
    check_model(model)
    traced = model.trace(text, pair, layers=[])
    embeddings = model.encoder.embeddings
    ids = torch.from_numpy(traced.input_ids.astype(np.int64))
    first, kinds = getattr(embeddings, "first_position", 0), getattr(embeddings, "token_type", None)
    types = torch.from_numpy(traced.token_type_ids.astype(np.int64))
    if kinds is not None and kinds.num_embeddings == 1:
        types = torch.zeros_like(types)  # every token has the same type
    tables = {
        "token": (embeddings.word, ids),
        "segment": (kinds, types),
        "position": (getattr(embeddings, "position", None), first + torch.arange(len(ids))),
    }
    parts = {
        name: array(rows.weight[chosen.to(rows.weight.device)])
        for name, (rows, chosen) in tables.items()
        if rows is not None
    }
    positions = tables["position"][0]
    width = model.config.hidden_size
    learned = None if positions is None else array(positions.weight[first : first + _POSITIONS])
    return InputView(
        text=text if pair is None else f"{text} / {pair}",
        tokens=list(traced.tokens),
        input_ids=traced.input_ids,
        token_type_ids=traced.token_type_ids,
        parts_of_sum=parts,
        normalized=traced.hidden_states[0],
        position_cosines=None if learned is None else cosines(learned, learned),
        sinusoidal_cosines=cosines(*[sinusoidal(_POSITIONS, width)] * 2),
    )


def sinusoidal(num_positions: int, width: int) -> np.ndarray:
    """(num_positions, width) the fixed position embeddings of Vaswani et al. 2017, section 3.5.

    Raises:
        UsageError: a width below 2.
    """
    if width < 2:
        raise UsageError(f"width={width}: expected at least 2")
    angles = np.arange(num_positions)[:, None] / 10_000 ** (2 * np.arange(-(-width // 2)) / width)
    return np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(num_positions, -1)[:, :width]
