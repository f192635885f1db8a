"""Logistic regression over vectors. Shape letters: N vectors, D width, C labels."""

import torch
import torch.nn.functional as F
from torch import Tensor

INVERSE_PENALTY = 10.0
"""What scikit-learn calls C. With 1, its default, vectors of length 1 are fitted too loosely: of 2,000 texts of
Banking77's training file, after eight others of each class, 81.4 % are right instead of 83.5 %."""


def logistic_regression(
    vectors: Tensor, labels: Tensor, num_labels: int, max_iter: int = 1_000
) -> tuple[Tensor, Tensor]:
    """The (C, D) weights and (C,) biases that minimize INVERSE_PENALTY times the cross-entropy summed over (N, D)
    vectors plus half the squared weights: scikit-learn's LogisticRegression, for two labels with a row for each."""
    vectors, results = vectors.double(), torch.zeros(num_labels, vectors.shape[1] + 1, dtype=torch.float64)
    results.requires_grad = True
    optimizer = torch.optim.LBFGS(
        [results], max_iter=max_iter, tolerance_grad=1e-5, tolerance_change=0.0, line_search_fn="strong_wolfe"
    )

    def objective() -> Tensor:
        weight, bias = results[:, :-1], results[:, -1]
        loss = F.cross_entropy(F.linear(vectors, weight, bias), labels, reduction="sum")
        value = INVERSE_PENALTY * loss + weight.square().sum() / 2
        results.grad = torch.autograd.grad(value, results)[0]
        return value

    optimizer.step(objective)
    return results.detach()[:, :-1], results.detach()[:, -1]
