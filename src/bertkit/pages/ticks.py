"""Ticks of axes and formatting of numbers."""

import itertools
import math
from collections.abc import Sequence

_MINUTE, _HOUR, _DAY = 60, 3_600, 86_400
_TIME_STEPS = (
    1, 2, 5, 10, 15, 30,
    *(_MINUTE * step for step in (1, 2, 5, 10, 15, 30)),
    *(_HOUR * step for step in (1, 2, 3, 6, 12)),
)  # fmt: skip
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_LARGE = ((1e12, "T"), (1e9, "B"), (1e6, "M"))  # trillion, billion, million


def linear_ticks(low: float, high: float, most: int) -> list[float]:
    """Multiples of 1, 2 or 5 times a power of ten, within the range, at most ``most`` of them.

    >>> linear_ticks(0.0, 10.2, 6)
    [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]
    """
    exponent = math.floor(math.log10(max(high - low, 1e-300) / most))
    for power in range(exponent, exponent + 3):
        for factor in (1, 2, 5):
            # 10**-power is exact for small powers where 10**power is not: 3 / 10 is 0.3, 3 * 0.1 is not
            ticks = _multiples(low, high, factor, power)
            if len(ticks) <= most:
                return ticks
    return []


def integer_ticks(low: float, high: float, most: int) -> list[float]:
    """Ticks that are integers, for counts.

    >>> integer_ticks(10.0, 12.0, 6)
    [10.0, 11.0, 12.0]
    """
    return [tick for tick in linear_ticks(low, high, most) if tick.is_integer()]


def log_ticks(low: float, high: float, most: int) -> list[float]:
    """Powers of ten within the range; if these are few, 1, 2 and 5 times them, or round numbers.

    >>> log_ticks(0.5, 2000.0, 6), log_ticks(3.0, 40.0, 6)
    ([1.0, 10.0, 100.0, 1000.0], [5.0, 10.0, 20.0])
    """
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    for factors, every in (((1, 2, 5), 1), ((1, 3), 1), *(((1,), stride) for stride in range(1, last - first + 2))):
        powers = range(first - first % every, last + 1, every)
        ticks = [_product(factor, power) for power in powers for factor in factors]
        ticks = [tick for tick in ticks if low <= tick <= high]
        if len(ticks) <= most:
            return ticks if len(ticks) > 2 else linear_ticks(low, high, most)
    return []


def time_ticks(low: float, high: float, most: int) -> list[float]:
    """Round numbers of seconds, minutes, hours or days.

    >>> time_ticks(0.0, 3000.0, 6)
    [0.0, 600.0, 1200.0, 1800.0, 2400.0, 3000.0]
    """
    for step in _TIME_STEPS:
        if (high - low) / step <= most - 1:
            if high - low < 2 * step:
                break
            return [float(step * n) for n in range(math.ceil(low / step), math.floor(high / step) + 1)]
    if high - low < 2:
        return linear_ticks(low, high, most)
    unit = _DAY if high - low > 2 * _DAY else 1
    return [unit * tick for tick in linear_ticks(low / unit, high / unit, most)]


def tick_labels(ticks: Sequence[float]) -> list[str]:
    """Labels of one axis: the same number of decimals on all, as few as distinguish them.

    >>> tick_labels([0.0, 0.5, 1.0]), tick_labels([0.0, 5e6, 1e7]), tick_labels([0.0, 0.0001])
    (['0', '0.5', '1.0'], ['0', '5 M', '10 M'], ['0', '10⁻⁴'])
    """
    sizes = [abs(tick) for tick in ticks if tick]
    largest, smallest = max(sizes, default=0.0), min(sizes, default=1.0)
    if largest >= 1e15 or (sizes and (largest < 1e-3 or smallest < 1e-4)):
        return next(labels for labels in (_scientific_labels(ticks, digits) for digits in range(2, 18)) if labels)
    off = 1e-6 * min((b - a for a, b in itertools.pairwise(ticks)), default=largest)
    for unit, name in (*((size, letter) for size, letter in _LARGE if size <= largest), (1.0, "")):
        for decimals in range(4 if name else 12):
            if all(abs(round(tick / unit, decimals) * unit - tick) <= off for tick in ticks):
                numbers = [_minus(tick / unit, f",.{decimals}f") for tick in ticks]
                return [
                    f"{number} {name}".rstrip() if tick else "0" for number, tick in zip(numbers, ticks, strict=True)
                ]
    return [repr(tick) for tick in ticks]


def _scientific_labels(ticks: Sequence[float], digits: int) -> list[str] | None:
    """None if the labels are not distinct with that many digits."""
    labels = [_scientific(tick, digits) for tick in ticks]
    return labels if len(set(labels)) == len(set(ticks)) or digits == 17 else None


def log_labels(ticks: Sequence[float]) -> list[str]:
    """Labels of a logarithmic axis: each as short as possible.

    >>> log_labels([0.5, 1.0, 100.0]), log_labels([1e5, 1e6])
    (['0.5', '1', '100'], ['100,000', '1 M'])
    """
    if all(float(f"{tick:.0e}") == tick for tick in ticks):
        return [f"{tick:g}" if 1e-3 <= tick < 1 else format_short(tick) for tick in ticks]
    return tick_labels(ticks)


def time_labels(ticks: Sequence[float]) -> list[str]:
    """Labels of an axis of seconds, all in the largest unit that has no remainder.

    >>> time_labels([0.0, 600.0, 1200.0]), time_labels([0.0, 5400.0])
    (['0', '10 min', '20 min'], ['0', '90 min'])
    """
    for unit, name in ((_DAY, "d"), (_HOUR, "h"), (_MINUTE, "min")):
        if any(ticks) and all(tick % unit == 0 for tick in ticks):
            return [f"{tick / unit:,.0f} {name}" if tick else "0" for tick in ticks]
    return [f"{label} s" if tick else "0" for tick, label in zip(ticks, tick_labels(ticks), strict=True)]


def format_number(value: float, digits: int = 4) -> str:
    """A number as text: integers in full, others with ``digits`` significant digits, very small and very large ones
    with a power of ten.

    >>> [format_number(value) for value in (4393342, 3.14159, 0.0001, float("nan"))]
    ['4,393,342', '3.142', '10⁻⁴', 'not a number']
    """
    if not math.isfinite(value):
        return "not a number" if math.isnan(value) else "infinite" if value > 0 else "−infinite"
    size = abs(value)
    if size >= 1e15 or 0 < size < 1e-3:
        return _scientific(value, digits)
    if value == int(value):
        return _minus(value, ",.0f")
    return _minus(value, f",.{max(0, digits - 1 - math.floor(math.log10(size)))}f")


def format_short(value: float) -> str:
    """As `format_number`, with M, B and T for millions, billions and trillions.

    >>> [format_short(value) for value in (30522, 4393342, 2.5e9)]
    ['30,522', '4.393 M', '2.5 B']
    """
    for unit, name in _LARGE:
        if unit <= abs(value) < 1e15:
            return f"{_minus(float(f'{value / unit:.4g}'), ',.10g')} {name}"
    return format_number(value)


def format_seconds(seconds: float) -> str:
    """
    >>> [format_seconds(value) for value in (4.25, 65, 7325, 200_000)]
    ['4.25 s', '1 min 5 s', '2 h 2 min', '2 d 8 h']
    """
    if not math.isfinite(seconds) or seconds < _MINUTE:
        return f"{format_number(seconds, 3)} s"
    units = ((_DAY, "d"), (_HOUR, "h"), (_MINUTE, "min"), (1, "s"))
    for (unit, name), (next_unit, next_name) in itertools.pairwise(units):
        whole, rest = divmod(round(seconds / next_unit) * next_unit, unit)
        if whole:
            return f"{whole:,} {name} {rest // next_unit} {next_name}" if rest else f"{whole:,} {name}"
    raise AssertionError("at least a minute, so there are minutes")


def _multiples(low: float, high: float, factor: int, power: int) -> list[float]:
    """The multiples of ``factor * 10**power`` in a range."""
    step = _product(factor, power)
    slack = 1e-9  # tolerance in steps, for range ends that are multiples up to rounding
    first, last = math.ceil(low / step - slack), math.floor(high / step + slack)
    if last - first > 1_000:
        return [math.nan] * 1_001  # too many for any axis
    return [_product(factor * n, power) for n in range(first, last + 1)]


def _product(factor: int, power: int) -> float:
    """``factor * 10**power``, correctly rounded: 3 / 10 is 0.3, 3 * 0.1 is not."""
    return float(f"{factor}e{power}")


def _scientific(value: float, digits: int = 4) -> str:
    if value == 0:
        return "0"
    mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
    mantissa = mantissa.rstrip("0").rstrip(".").replace("-", "−")
    power = "10" + str(int(exponent)).translate(_SUPERSCRIPTS)
    return {"1": power, "−1": f"−{power}"}.get(mantissa, f"{mantissa}×{power}")


def _minus(value: float, form: str) -> str:
    return format(value, form).replace("-", "−")
