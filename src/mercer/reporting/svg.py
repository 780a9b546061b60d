"""Charts as inline SVG, without a drawing library; colours from the page's style, and a text for screen readers.

A chart is a few marks on a pair of axes. Numbers are rounded to a tenth of a pixel, and a cloud of points is one path:
a page of twenty charts stays small.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

#: Size of a chart in the units of its own coordinates, and what its labels take of it.
WIDTH, HEIGHT = 400.0, 270.0
LEFT, RIGHT, TOP, BOTTOM, LEGEND = 58.0, 14.0, 14.0, 48.0, 14.0
#: Height of one horizontal bar, and what its name and its number take: `short` has ten letters at most.
BAR, NAME, NUMBER = 22.0, 158.0, 84.0
#: Letters of a name beside its bar and above it.
LETTERS, LETTERS_ABOVE = 22, 58
#: The share of the largest bar below which a number is rounding.
NEGLIGIBLE = 1e-12


@dataclass(frozen=True)
class Figure:
    """A picture with a caption that says what it shows."""

    svg: str
    caption: str


@dataclass(frozen=True)
class Points:
    """A cloud of points."""

    x: np.ndarray
    y: np.ndarray


@dataclass(frozen=True)
class Line:
    """A line through points, dashed where it is a reference."""

    x: np.ndarray
    y: np.ndarray
    label: str = ""
    colour: int = 1
    dashed: bool = False
    dots: bool = False


@dataclass(frozen=True)
class Band:
    """The area between two curves."""

    x: np.ndarray
    low: np.ndarray
    high: np.ndarray
    colour: int = 1


Mark = Points | Line | Band


@dataclass(frozen=True)
class Axis:
    """One axis: its label, its range of values and of coordinates."""

    label: str
    low: float
    high: float
    start: float
    end: float
    log: bool = False
    dates: bool = False

    def __call__(self, values: np.ndarray) -> np.ndarray:
        """Coordinates of values; values outside the range are drawn at its edge."""
        values = np.clip(np.asarray(values, dtype=float), self.low, self.high)
        low, high = self.low, self.high
        if self.log:
            values, low, high = np.log10(values), math.log10(low), math.log10(high)
        return self.start + (values - low) / (high - low) * (self.end - self.start)

    def ticks(self) -> list[float]:
        """A handful of round values."""
        if self.log:
            first, last = math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9)
            if last - first >= 1:
                return [10.0**k for k in range(first, last + 1, max(1, (last - first) // 4))]
        return round_values(self.low, self.high, most=3 if self.dates else 6)


def round_values(low: float, high: float, most: int = 6) -> list[float]:
    """Multiples of 1, 2 or 5 times a power of ten between two numbers.

    >>> round_values(0.0, 1.0)
    [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    """
    span = (high - low) / most
    power = 10.0 ** math.floor(math.log10(span))
    step = next(power * k for k in (1, 2, 5, 10) if power * k >= span * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(k * step, 12) + 0.0 for k in range(first, last + 1)]


def value_range(values: Sequence[np.ndarray], log: bool) -> tuple[float, float]:
    """The range of all finite values with a small margin; never empty."""
    every = np.concatenate([np.ravel(np.asarray(part, dtype=float)) for part in values])
    every = every[np.isfinite(every) & ((every > 0) if log else True)]
    if not len(every):
        return (1.0, 10.0) if log else (0.0, 1.0)
    low, high = float(every.min()), float(every.max())
    if log:
        return low / 1.15, high * 1.15
    margin = 0.04 * (high - low) or 0.5 * abs(high) or 0.5
    return low - margin, high + margin


def chart(marks: Sequence[Mark], x: str, y: str, caption: str, *, log: str = "", dates: bool = False) -> Figure:
    """Marks on a pair of axes named `x` and `y`; `caption` says what it shows.

    `log` may name the axes that are logarithmic. With `dates` the values along `x` are days since 1970.
    """
    horizontal = Axis(x, *value_range([mark.x for mark in marks], "x" in log), LEFT, WIDTH - RIGHT, "x" in log, dates)
    values = [v for mark in marks for v in ((mark.low, mark.high) if isinstance(mark, Band) else (mark.y,))]
    legend = _legend([mark for mark in marks if isinstance(mark, Line) and mark.label])
    top = TOP + (LEGEND if legend else 0.0)
    vertical = Axis(y, *value_range(values, "y" in log), HEIGHT - BOTTOM, top, "y" in log)
    order = sorted(marks, key=lambda mark: (Band, Points, Line).index(type(mark)))
    body = [*_frame(horizontal, vertical), *(_drawn(mark, horizontal, vertical) for mark in order), *legend]
    return picture("".join(body), caption, WIDTH, HEIGHT)


def bars(
    names: Sequence[str],
    values: Sequence[float] | np.ndarray,
    x: str,
    caption: str,
    *,
    signed: bool = False,
    highlight: int | None = None,
) -> Figure:
    """Horizontal bars, one for each name, with their numbers.

    Signed bars grow from a line in the middle. The bar `highlight` has another colour than the others. Names stand
    beside their bars, or above them where they would be the same text if cut. Numbers that are rounding beside the
    largest are 0.
    """
    numbers = np.asarray(values, dtype=float)
    most = float(np.abs(numbers).max(initial=0.0)) or 1.0
    numbers = np.where(np.abs(numbers) < NEGLIGIBLE * most, 0.0, numbers)
    above = len({shorten(str(name), LETTERS) for name in names}) < len({str(name) for name in names})
    start, step = (4.0, 2 * BAR - 4) if above else (NAME, BAR)
    room = WIDTH - start - NUMBER
    zero, unit = (start + room / 2, room / 2 / most) if signed else (start, room / most)
    body = []
    for k, (name, value) in enumerate(zip(names, numbers, strict=True)):
        top, length = k * step + (BAR - 4 if above else 4), abs(value) * unit
        left = zero - length if value < 0 else zero
        colour = (1 if value < 0 else 0) if highlight is None else 0 if k == highlight else 2
        label = shorten(str(name), LETTERS) if not above else shorten_middle(str(name), LETTERS_ABOVE)
        at = f'x="{start:.0f}" y="{top - 4:.0f}"' if above else f'x="{start - 8:.0f}" y="{top + 13:.0f}" class="end"'
        body.append(
            f"<text {at}>{escape(label)}</text>"
            f'<rect x="{left:.1f}" y="{top:.0f}" width="{max(length, 0.5):.1f}" height="{BAR - 7:.0f}" '
            f'class="f{colour}"/>'
            f'<text x="{WIDTH - 4:.0f}" y="{top + 13:.0f}" class="end">{short(value)}</text>'
        )
    height = len(numbers) * step + 26
    if signed:
        body.append(f'<path d="M{zero:.1f} 0V{height - 24:.0f}" class="axis"/>')
    body.append(f'<text x="{start + room / 2:.0f}" y="{height - 6:.0f}" class="mid label">{escape(x)}</text>')
    return picture("".join(body), caption, WIDTH, height)


def picture(body: str, caption: str, width: float, height: float) -> Figure:
    """An SVG element that screen readers read out as one picture."""
    svg = (
        f'<svg role="img" aria-label="{escape(caption, quote=True)}" viewBox="0 0 {width:g} {height:g}">'
        f"<title>{escape(caption)}</title>{body}</svg>"
    )
    return Figure(svg, caption)


def short(value: float) -> str:
    """A number in three figures, or a whole one below a million.

    >>> [short(v) for v in (0.0, 1234567.0, 0.000012345, 3.14159, 20.0, -1234.5)]
    ['0', '1.23e6', '1.23e-5', '3.14', '20', '−1234']
    """
    value = float(value)
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    text = f"{value:.3g}" if 1e-3 <= abs(value) < 999.5 else f"{value:.2e}"
    if 999.5 <= abs(value) < 999_999.5:
        text = grouped(value)
    if "e" in text:
        digits, power = text.split("e")
        digits = digits.rstrip("0").rstrip(".") if "." in digits else digits
        text = f"{digits}e{int(power)}"
    return text.replace("-", "−", 1) if text.startswith("-") else text


def grouped(value: float) -> str:
    """An integer, from 10 000 on in groups of three digits."""
    return f"{value:,.0f}".replace(",", "\u202f" if abs(value) >= 9999.5 else "")


def date(days: float) -> str:
    """The day that is so many days after the first of January 1970.

    >>> date(18700.4)
    '2021-03-14'
    """
    return str(np.datetime64(math.floor(days), "D"))


def shorten_middle(text: str, most: int) -> str:
    """Shorten a text to `most` letters by leaving out its middle."""
    return text if len(text) <= most else f"{text[: most // 2]}…{text[most // 2 + 1 - most :]}"


def shorten(text: str, most: int) -> str:
    """Shorten a text to `most` letters by leaving out its end."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _frame(x: Axis, y: Axis) -> list[str]:
    """Grid, numbers and names of both axes."""
    out = []
    name = date if x.dates else short
    for value, at in zip(x.ticks(), x(np.asarray(x.ticks())), strict=True):
        out.append(f'<path d="M{at:.1f} {y.end:.0f}V{HEIGHT - BOTTOM:.0f}" class="grid"/>')
        out.append(f'<text x="{at:.1f}" y="{HEIGHT - BOTTOM + 16:.0f}" class="mid">{name(value)}</text>')
    for value, at in zip(y.ticks(), y(np.asarray(y.ticks())), strict=True):
        out.append(f'<path d="M{LEFT:.0f} {at:.1f}H{WIDTH - RIGHT:.0f}" class="grid"/>')
        out.append(f'<text x="{LEFT - 6:.0f}" y="{at + 4:.1f}" class="end">{short(value)}</text>')
    middle = (y.end + HEIGHT - BOTTOM) / 2
    x_label, y_label = escape(shorten(x.label, 48)), escape(shorten(y.label, 38))
    out.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2:.0f}" y="{HEIGHT - 10:.0f}" class="mid label">{x_label}</text>')
    out.append(f'<text transform="translate(13 {middle:.0f}) rotate(-90)" class="mid label">{y_label}</text>')
    return out


def _drawn(mark: Mark, x: Axis, y: Axis) -> str:
    across = x(mark.x)
    if isinstance(mark, Band):
        low, high = y(mark.low), y(mark.high)
        known = np.isfinite(across + low + high)
        path = _path(np.r_[across[known], across[known][::-1]], np.r_[high[known], low[known][::-1]])
        return f'<path d="{path}Z" class="band f{mark.colour}"/>'
    up = y(mark.y)
    known = np.isfinite(across + up)
    dots = "".join(f"M{a:.1f} {b:.1f}h0" for a, b in zip(across[known], up[known], strict=True))
    if isinstance(mark, Points):
        return f'<path d="{dots}" class="dots s0"/>'
    path = _path(across[known], up[known])
    line = f'<path d="{path}" class="line s{mark.colour}{" dashed" if mark.dashed else ""}"/>'
    return line + (f'<path d="{dots}" class="knots s{mark.colour}"/>' if mark.dots and dots else "")


def _path(x: np.ndarray, y: np.ndarray) -> str:
    return "M" + "L".join(f"{a:.1f} {b:.1f}" for a, b in zip(x, y, strict=True))


def _legend(lines: Sequence[Line]) -> list[str]:
    """Names of lines, above the frame."""
    out, left = [], LEFT
    for line in lines:
        out.append(f'<rect x="{left:.0f}" y="{TOP - 8:.0f}" width="10" height="10" class="f{line.colour}"/>')
        out.append(f'<text x="{left + 14:.0f}" y="{TOP + 1:.0f}">{escape(line.label)}</text>')
        left += 26 + 6.4 * len(line.label)
    return out
