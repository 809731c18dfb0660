"""HTML that is safe by construction: anything that isn't ``Html`` is escaped when it is inserted.

Names are untrusted input. They are shown as text: markup is escaped, and invisible characters (control
characters, marks that change the text direction) are shown as escape codes.
"""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from typing import Any

from bestarm.util.text import visible

LONGEST = 240  # most characters of one name or sentence in a page

LONG = 40  # rows; a longer table scrolls by itself

# Elements without an end tag.
VOID = frozenset({"meta", "br", "hr", "link", "input"})


class Html(str):
    """Text that already is HTML."""

    __slots__ = ()

    def __html__(self) -> str:
        return str(self)


def clean(text: object, most: int = LONGEST) -> str:
    """Make a text safe to show: no invisible characters, and no longer than `most`.

    >>> clean("a\\u202eb"), clean("x" * 9, most=5)
    ('a\\\\u202eb', 'xxxx…')
    """
    plain = str(text)
    plain = plain if len(plain) <= most else plain[: most - 1] + "…"
    return visible(plain)


def text(value: object, most: int = LONGEST) -> Html:
    """Anything as escaped text."""
    return value if isinstance(value, Html) else Html(html.escape(clean(value, most)))


def join(*children: Any) -> Html:
    """Join children: lists are flattened, None is omitted, everything else is escaped."""
    parts: list[str] = []
    for child in children:
        if child is None:
            continue
        if isinstance(child, list | tuple):
            parts.append(join(*child))
        else:
            parts.append(text(child, most=100_000))
    return Html("".join(parts))


def tag(element: str, /, *children: Any, **attributes: Any) -> Html:
    """An element. ``class_`` stands for class, ``_`` for a hyphen; None leaves an attribute out.

    >>> tag("a", "<b>", href="#x", class_=None)
    '<a href="#x">&lt;b&gt;</a>'
    """
    parts = [element]
    for key, value in attributes.items():
        if value is not None and value is not False:
            key = key.rstrip("_").replace("_", "-")
            shown = value if isinstance(value, Html) else html.escape(visible(str(value)))
            parts.append(key if value is True else f'{key}="{shown}"')
    opened = f"<{' '.join(parts)}>"
    return Html(opened if element in VOID else f"{opened}{join(*children)}</{element}>")


def unbroken(value: str) -> Html:
    """Text whose numbers stay on one line with their per cent sign, or with what is added or taken away.

    >>> unbroken("5 % < 9 ± 1")
    '5&nbsp;% &lt; 9&nbsp;±&nbsp;1'
    """
    shown = html.escape(clean(value, 100_000))
    return Html(shown.replace(" %", "&nbsp;%").replace(" ± ", "&nbsp;±&nbsp;"))


def name(value: object, most: int = LONGEST) -> Html:
    """A name, isolated so that its text direction can't affect the text around it."""
    return tag("bdi", text(value, most), title=clean(value) if len(str(value)) > most else None)


def table(
    head: list[Any],
    rows: list[list[Any]],
    *,
    caption: Any,
    numbers: set[int] | frozenset[int] = frozenset(),
    marks: Sequence[dict[str, Any]] = (),
) -> Html:
    """A table with its caption; the columns in `numbers` are aligned to the right.

    `marks` are attributes of the rows.
    """
    kind = [("n" if k in numbers else None) for k in range(len(head))]
    top = tag("tr", [tag("th", cell, scope="col", class_=kind[k]) for k, cell in enumerate(head)])
    body = [
        tag("tr", [tag("td", cell, class_=kind[k]) for k, cell in enumerate(row)], **mark)
        for row, mark in zip(rows, [*marks, *[{} for _ in rows[len(marks) :]]], strict=True)
    ]
    inner = tag(
        "table",
        tag("caption", tag("span", caption)),
        tag("thead", top),
        tag("tbody", body),
        class_="most" if len(head) > 8 else "many" if len(head) > 4 else None,
    )
    kind_of = "scroll long" if len(rows) > LONG else "scroll"
    return tag("div", inner, class_=kind_of, tabindex="0", role="region", aria_label=_plain(caption))


def _plain(caption: Any) -> str:
    """The text of a caption."""
    return html.unescape(re.sub(r"<[^>]*>", "", str(join(caption))))
