"""Pieces of a page: tables, pictures with their reading, definitions, sections; and the page they make.

Whatever comes from the data is escaped here and nowhere else. A page needs nothing but itself: no script, no font, no
picture from elsewhere, and its policy forbids the browser to look for any.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any, ClassVar

from onesided.report.formatting import printable
from onesided.report.style import CSS

POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def text(content: object) -> str:
    """A text as HTML.

    >>> text("R&B <live>")
    'R&amp;B &lt;live&gt;'
    """
    return escape(printable(str(content)))


def sentence(*parts: str) -> str:
    """A paragraph of what has been made HTML."""
    return f"<p>{' '.join(part for part in parts if part)}</p>"


def bullets(sentences: Iterable[str]) -> str:
    """A list of sentences."""
    return f'<ul class="said">{"".join(f"<li>{line}</li>" for line in sentences)}</ul>'


def table(
    title: str,
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    numbers: Sequence[int] = (),
    chosen: int | None = None,
) -> str:
    """A table in a frame that scrolls where it is too wide; the first cell of a row names it.

    ``numbers`` are the columns set flush right, ``chosen`` a row that stands out. Cells are HTML.

    >>> print(table("Sizes", ["what", "n"], [["rows", "3"]], numbers=[1]))  # doctest: +ELLIPSIS
    <div><p class="caption" id="sizes">Sizes</p><div class="wide" tabindex="0" role="region" aria-labelledby="sizes">...
    """
    kinds = ['class="n"' if k in numbers else "" for k in range(len(head))]
    titles = "".join(f'<th scope="col" {kind}>{cell}</th>' for cell, kind in zip(head, kinds, strict=True))
    lines = []
    for k, (first, *others) in enumerate(rows):
        cells = "".join(f"<td {kind}>{cell}</td>" for cell, kind in zip(others, kinds[1:], strict=True))
        lines.append(f'<tr{" class=chosen" if k == chosen else ""}><th scope="row" {kinds[0]}>{first}</th>{cells}</tr>')
    cells = f"<thead><tr>{titles}</tr></thead><tbody>{''.join(lines)}</tbody>".replace(" >", ">")
    return _in_frame(title, f'<table class="list">{cells}</table>')


def facts(title: str, rows: Iterable[tuple[str, str]]) -> str:
    """A table of names and what they are."""
    lines = "".join(f'<tr><th scope="row">{name}</th><td>{fact}</td></tr>' for name, fact in rows)
    return _in_frame(title, f"<table><tbody>{lines}</tbody></table>")


def _in_frame(title: str, content: str) -> str:
    # The title stands outside of what scrolls: on a narrow screen it would be cut with the rest.
    name = re.sub(r"[^a-z]+", "-", title.lower()).strip("-")
    return (
        f'<div><p class="caption" id="{name}">{text(title)}</p>'
        f'<div class="wide" tabindex="0" role="region" aria-labelledby="{name}">{content}</div></div>'
    )


def figure(svg: str, shows: str, reading: str) -> str:
    """A picture: what it shows, for those who cannot see it, and below it how it reads."""
    named = svg.replace("<svg ", f'<svg role="img" aria-label="{text(shows)}" ', 1)
    return f"<figure>{named}<figcaption>{reading}</figcaption></figure>"


def side_by_side(figures: Iterable[str]) -> str:
    """Pictures, and tables that belong to them, side by side where there is room."""
    return f'<div class="pictures">{"".join(figures)}</div>'


def definitions(terms: dict[str, str], title: str = "What these numbers are") -> str:
    """Definitions, which can be folded away."""
    lines = "".join(f"<div><dt>{term}</dt><dd>{meaning}</dd></div>" for term, meaning in terms.items())
    return f'<details open><summary>{title}</summary><dl class="defined">{lines}</dl></details>'


class Section:
    """A part of a report; a notebook shows it by itself.

    >>> class Greeting(Section):
    ...     title, anchor = "A word", "word"
    ...     def body(self):
    ...         return sentence("Hello.")
    >>> Greeting().html()
    '<section id="word" aria-labelledby="word-title"><h2 id="word-title">A word</h2><p>Hello.</p></section>'
    """

    title: ClassVar[str]
    anchor: ClassVar[str]

    @property
    def in_short(self) -> str:
        """The section in a sentence, for the head of the page; nothing where it has none."""
        return ""

    def body(self) -> str:
        """What is below the title, as HTML."""
        raise NotImplementedError

    def to_dict(self) -> dict[str, Any]:
        """The numbers, as JSON takes them."""
        raise NotImplementedError

    def html(self) -> str:
        """The section as HTML."""
        title = f'<h2 id="{self.anchor}-title">{text(self.title)}</h2>'
        return f'<section id="{self.anchor}" aria-labelledby="{self.anchor}-title">{title}{self.body()}</section>'

    def _repr_html_(self) -> str:
        return framed(self.html())


def framed(content: str) -> str:
    """HTML with its style, to be shown inside another page."""
    return f'<div class="onesided"><style>{CSS}</style>{content}</div>'


def whole(title: str, content: str) -> str:
    """A page of its own."""
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta name="color-scheme" content="light dark"><title>{text(title)}</title>'
        f'<style>html,body{{margin:0}}{CSS}</style></head>\n<body class="onesided">{content}</body></html>\n'
    )
