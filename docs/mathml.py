"""Formulas as MathML, which browsers draw themselves: a site read without a network needs no script for them."""

from __future__ import annotations

import re
from typing import Any


def formula(tex: str, *, block: bool) -> str:
    """A formula in LaTeX as a MathML element."""
    from docutils.utils.math import latex2mathml, pick_math_environment

    tex = re.sub(r"\\[Bb]igg?[lrm]?(?![A-Za-z])", "", tex)  # brackets stretch by themselves
    tex = re.sub(r"\\dots(?![a-z])", r"\\ldots", tex)
    if block:
        tex = tex.replace(r"\tfrac", r"\frac")  # lines of their own have room
    if block and pick_math_environment(tex) == "align*":
        tex = rf"\begin{{align*}}{tex}\end{{align*}}"
    markup = latex2mathml.tex2mathml(tex, as_block=block)
    # Bars of norms are no brackets, so they keep their size.
    return re.sub("<mo>([|‖])</mo>", r'<mo stretchy="false">\1</mo>', markup)


def inline(translator: Any, node: Any) -> None:
    from docutils import nodes

    translator.body.append(formula(node.astext(), block=False))
    raise nodes.SkipNode


def block(translator: Any, node: Any) -> None:
    from docutils import nodes

    translator.body.append(f'<div class="math" tabindex="0">{formula(node.astext(), block=True)}</div>')
    raise nodes.SkipNode


def setup(app: Any) -> dict[str, bool]:
    app.add_html_math_renderer("mathml", inline_renderers=(inline, None), block_renderers=(block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
