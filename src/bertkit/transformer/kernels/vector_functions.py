"""exp2, the logistic function and activations of sixteen numbers at once, and codes of what follows a product."""

import numpy as np

from bertkit.compiled import part
from bertkit.transformer.kernels.vectors import (
    add_to_exponent,
    broadcast,
    fma,
    inverse,
    larger,
    smaller,
    where_positive,
)

WHOLE = np.float32(3 << 22)
"""Added to a number below 2**22, it rounds it: the lowest bits are the nearest integer."""

PLAIN, ADD, ADD_ROUNDED, GELU, SHORT_GELU, GELU_TANH, SILU, RELU = range(8)
"""What a product does after adding the bias: nothing; add the residual, or that after rounding to the dtype of the
inputs; or an activation: SHORT_GELU is for results that are then rounded to bfloat16 or 8 bits. Callers pass
``np.intp(GELU)``: for plain constants numba would compile the product again for each value."""

CODES = {"gelu": GELU, "gelu_new": GELU_TANH, "silu": SILU, "relu": RELU}
"""Codes of activations by their names in ACTIVATIONS."""


@part
def exp2(x):
    """2**x for x <= 0, to a relative error of 2e-7; 2**-126 for x below -126.

    2**x = 2**whole * 2**rest with rest in [-1/2, 1/2], where the polynomial of degree 5 with the smallest relative
    error, 9.2e-8, approximates 2**rest.
    """
    x = larger(x, broadcast(np.float32(-126.0)))
    bits = x + broadcast(WHOLE)
    rest = x - (bits - broadcast(WHOLE))
    power = fma(broadcast(np.float32(0.001326472389601232)), rest, broadcast(np.float32(0.009671512869929552)))
    power = fma(power, rest, broadcast(np.float32(0.055507337542366225)))
    power = fma(power, rest, broadcast(np.float32(0.2402224208035509)))
    power = fma(power, rest, broadcast(np.float32(0.6931469775915038)))
    power = fma(power, rest, broadcast(np.float32(1.0)))
    return add_to_exponent(power, bits)


@part
def logistic(x):
    """1 / (1 + exp(-x)), to a relative error of 2e-7 (1 + |x|)."""
    away = larger(x, broadcast(np.float32(0)) - x)
    power = exp2(away * broadcast(np.float32(-1 / np.log(2))))
    share = inverse(broadcast(np.float32(1)) + power)
    return where_positive(x, share, power * share)


@part
def silu(x):
    """x * logistic(x)."""
    return x * logistic(x)


@part
def gelu_tanh(x):
    """``x / 2 * (1 + tanh(inner))``, which is ``x * logistic(2 * inner)``."""
    share = fma(x * x, broadcast(np.float32(0.044715)), broadcast(np.float32(1)))
    return x * logistic(x * share * broadcast(np.float32(2 * np.sqrt(2 / np.pi))))


@part
def gelu(x):
    """x * Phi(x), to 1e-5 where |x| < 3 and 1.3e-4 elsewhere: for values that are then rounded to bfloat16 or 8 bits.

    Phi(x) - 1/2 is odd: x times a polynomial in x**2, of degree 8, fitted to x * Phi(x) on [-4, 4]. At 16 it is 1/8, so
    that the result is exactly 0 below -4 and x above 4.
    """
    inside = larger(smaller(x, broadcast(np.float32(4))), broadcast(np.float32(-4)))
    square = inside * inside
    cdf = broadcast(np.float32(8.800958e-11))
    cdf = fma(cdf, square, broadcast(np.float32(-7.448667e-09)))
    cdf = fma(cdf, square, broadcast(np.float32(2.8244654e-07)))
    cdf = fma(cdf, square, broadcast(np.float32(-6.430378e-06)))
    cdf = fma(cdf, square, broadcast(np.float32(9.982112e-05)))
    cdf = fma(cdf, square, broadcast(np.float32(-0.0011370576)))
    cdf = fma(cdf, square, broadcast(np.float32(0.009881662)))
    cdf = fma(cdf, square, broadcast(np.float32(-0.066409476)))
    cdf = fma(cdf, square, broadcast(np.float32(0.39891875)))
    return x * fma(cdf, inside, broadcast(np.float32(0.5)))


@part
def normal(x):
    """The standard normal distribution's cumulative probability, to 1e-7, and density at x.

    With t = 1 / (1 + p |x| / sqrt(2)), the tail beyond |x| is a polynomial in t times exp(-x**2 / 2) (Abramowitz and
    Stegun 1964, formula 7.1.26).
    """
    away = larger(x, broadcast(np.float32(0)) - x)
    t = inverse(fma(away, broadcast(np.float32(0.3275911 / np.sqrt(2))), broadcast(np.float32(1))))
    tail = fma(broadcast(np.float32(1.061405429 / 2)), t, broadcast(np.float32(-1.453152027 / 2)))
    tail = fma(tail, t, broadcast(np.float32(1.421413741 / 2)))
    tail = fma(tail, t, broadcast(np.float32(-0.284496736 / 2)))
    tail = fma(tail, t, broadcast(np.float32(0.254829592 / 2)))
    power = exp2(x * x * broadcast(np.float32(-0.5 / np.log(2))))
    tail = tail * t * power
    cdf = where_positive(x, broadcast(np.float32(1)) - tail, tail)
    return cdf, power * broadcast(np.float32(1 / np.sqrt(2 * np.pi)))


@part
def activated(vector, code):
    """The activation with a code, GELU to RELU."""
    if code == GELU:
        cdf, _ = normal(vector)
        return vector * cdf
    if code == SHORT_GELU:
        return gelu(vector)
    if code == GELU_TANH:
        return gelu_tanh(vector)
    if code == SILU:
        return silu(vector)
    return larger(vector, broadcast(np.float32(0)))
