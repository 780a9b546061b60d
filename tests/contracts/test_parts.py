"""What parts promise: names and aliases that find them, and values refused in a sentence, however odd."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from mercer.parts import Component, as_float, component, require, require_integer, require_number


class Colour(Component):
    """A kind of part."""


@component
class Red(Colour):
    short_name = "red"
    aliases = ("crimson",)


@component
class DeepRed(Red):
    """A variant without a name of its own."""


def test_a_part_is_found_by_its_name_and_its_aliases():
    assert Colour.choices() == {"red": Red, "crimson": Red}
    assert type(Colour.resolve("crimson", "colour")) is Red
    given = DeepRed()
    assert Colour.resolve(given, "colour") is given


@pytest.mark.parametrize(
    ("choice", "words"),
    [
        ("blue", r"colour must be one of \['crimson', 'red'\] or a Colour object, got 'blue'"),
        (Red, r"colour must be an object such as Red\(\), got the class itself"),
        (int, "colour must be one of .* got <class 'int'>"),
        (None, "colour must be one of .* got None"),
    ],
    ids=str,
)
def test_what_names_no_part_is_refused_in_a_sentence(choice, words):
    with pytest.raises(ValueError, match=words):
        Colour.resolve(choice, "colour")


@pytest.mark.parametrize("value", [1, 7, np.int64(3), 2**63 - 1])
def test_whole_numbers_pass(value):
    require_integer("n", value)


NOT_WHOLE = {
    "zero": 0, "negative": -1, "float": 1.0, "bool": True, "text": "3", "none": None, "nan": float("nan"),
    "64 bits": 2**63, "400 digits": 10**400, "5000 digits": 10**5000,
}  # fmt: skip
NOT_IN_RANGE = {
    "below": -0.1, "400 digits": 10**400, "infinite": float("inf"), "nan": float("nan"), "text": "1", "none": None,
    "list": [1.0], "complex": 1j,
}  # fmt: skip


@pytest.mark.parametrize("value", NOT_WHOLE.values(), ids=NOT_WHOLE)
def test_what_is_no_whole_number_is_refused_in_a_sentence(value):
    with pytest.raises(ValueError, match="n must be an integer of at least 1, got "):
        require_integer("n", value)


@pytest.mark.parametrize("value", [0.0, 1, 0.5, np.float32(0.25), Fraction(1, 3)], ids=str)
def test_numbers_in_the_range_pass(value):
    require_number("tol", value, "a number of at least 0", 0.0)


@pytest.mark.parametrize("value", NOT_IN_RANGE.values(), ids=NOT_IN_RANGE)
def test_numbers_outside_of_it_are_refused_in_a_sentence(value):
    with pytest.raises(ValueError, match="tol must be a number of at least 0, got "):
        require_number("tol", value, "a number of at least 0", 0.0)


def test_what_no_float_can_hold_is_nan():
    assert np.isnan([as_float(value) for value in (10**400, "1", None)]).all()
    assert as_float(Fraction(1, 2)) == 0.5


def test_a_long_value_is_shown_in_part():
    with pytest.raises(ValueError, match=r"^x must be short, got \[0, 1, .*…$") as caught:
        require(False, "x", "short", list(range(10_000)))
    assert len(str(caught.value)) < 300
