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
    vectors, solution = vectors.double(), torch.zeros(num_labels, vectors.shape[1] + 1, dtype=torch.float64)
    solution.requires_grad = True
    optimizer = torch.optim.LBFGS(
        [solution], max_iter=max_iter, tolerance_grad=1e-5, tolerance_change=0.0, line_search_fn="strong_wolfe"
    )

    def objective() -> Tensor:
        weight, bias = solution[:, :-1], solution[:, -1]
        loss = F.cross_entropy(F.linear(vectors, weight, bias), labels, reduction="sum")
        value = INVERSE_PENALTY * loss + weight.square().sum() / 2
        solution.grad = torch.autograd.grad(value, solution)[0]
        return value

    optimizer.step(objective)
    return solution.detach()[:, :-1], solution.detach()[:, -1]
