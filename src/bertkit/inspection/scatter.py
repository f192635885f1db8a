"""Maps of points with a slider over layers, hover text and search.

Shape letters: S clouds, n points, D width.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bertkit.inspection.view import own_file
from bertkit.pages import Markup, Program, element, paragraph, section


@dataclass(frozen=True, eq=False)
class Cloud:
    """The points of one layer."""

    name: str
    points: np.ndarray  # (n, 2)
    explained: float | None  # share of the variance; None if the projection has none


def projections(vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Two principal components of each cloud, each cloud rotated and reflected to fit the last one (orthogonal
    Procrustes; Schönemann 1966), so that points move as little as possible from layer to layer.

    Args:
        vectors: (S, n, D).

    Returns:
        (S, n, 2) points, and (S, min(n, D)) shares of variance.
    """
    points, shares = [], []
    for cloud in vectors.astype(np.float64):
        centered = cloud - cloud.mean(axis=0)
        left, values, _ = np.linalg.svd(centered, full_matrices=False)
        planar = left[:, :2] * values[:2]
        if planar.shape[1] < 2:
            planar = np.pad(planar, ((0, 0), (0, 2 - planar.shape[1])))
        points.append(planar)
        shares.append(values**2 / max(float((values**2).sum()), 1e-300))
    fitted = [points[-1]]
    for cloud in reversed(points[:-1]):
        left, _, right = np.linalg.svd(cloud.T @ fitted[0])
        fitted.insert(0, cloud @ left @ right)
    return np.array(fitted), np.array(shares)


def scatter_parts(title: str, note: str) -> list[Markup]:
    """The page elements of the map."""
    return [section(title, paragraph(note), element("div", id="map"))]


def scatter_program(clouds: Sequence[Cloud], hints: Sequence[str], groups: Sequence[str] | None = None) -> Program:
    """The script that draws the map.

    Args:
        hints: the text of each point.
        groups: the group of each point, which sets its color and shape.
    """
    content = {
        "clouds": [
            {"name": cloud.name, "points": np.round(_in_unit_square(cloud.points), 4).tolist(),
             "explained": cloud.explained}
            for cloud in clouds
        ],
        "hints": list(hints),
        "groups": None if groups is None else list(groups),
    }  # fmt: skip
    return Program(own_file("scatter.css"), own_file("scatter.js"), content)


def _in_unit_square(points: np.ndarray) -> np.ndarray:
    """Scale both axes equally, the larger to 0 to 1."""
    low, high = points.min(axis=0), points.max(axis=0)
    span = max(float((high - low).max()), 1e-12)
    return (points - (low + high) / 2) / span + 0.5
