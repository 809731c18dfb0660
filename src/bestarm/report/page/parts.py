"""What all pages share: sections, figures in two widths, the style sheet."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from bestarm.report.facts import RunFacts
from bestarm.report.markup import Html, join, name, table, tag
from bestarm.report.svg import number

WIDE, NARROW = 900, 330  # width in pixels of a picture on a screen and on a phone

MOST_ROWS = 1000  # of a table

Section = tuple[str, str, Html]  # its id, its title and its content


@cache
def style() -> str:
    """The style sheet."""
    room = files("bestarm.report")
    return "".join(room.joinpath(file).read_text(encoding="utf-8") for file in ("style.css", "answer.css"))


def figure(draw: Callable[[int], Html | None], caption: str) -> Html | None:
    """A picture in both widths, with its caption; None if there is no picture."""
    wide, narrow = draw(WIDE), draw(NARROW)
    if wide is None or narrow is None:
        return None
    both = [tag("div", wide, class_="wide"), tag("div", narrow, class_="narrow")]
    return tag("figure", *both, tag("figcaption", caption))


def fold(title: str, *children: Any) -> Html:
    """A collapsible part."""
    return tag("details", tag("summary", title), *children)


def names(found: Sequence[str], most: int, longest: int) -> Html | None:
    """At most `most` names, then how many more there are; None if there are none."""
    if not found:
        return None
    more = f" and {len(found) - most} more" if len(found) > most else ""
    return join(*[[", " if k else None, name(one, longest)] for k, one in enumerate(found[:most])], more)


def keys(shown: Mapping[str, float | None]) -> Html:
    """The numbers at the top of a page; unknown ones are omitted."""
    found = [tag("div", tag("dt", k), tag("dd", number(v))) for k, v in shown.items() if v is not None]
    return tag("dl", *found, class_="keys")


def all_options(facts: RunFacts) -> Html:
    """Every option of the run, in a collapsible part."""
    rows: list[list[Any]] = [["delta", f"{facts.delta:g}"]]
    rows += [[key, "–" if value is None else str(value)] for key, value in facts.options.items()]
    return fold("All options", table(["option", "value"], rows))


def made_by(versions: Mapping[str, str]) -> str:
    """The versions of the software that made a page."""
    return f"This page: {', '.join(f'{key} {value}' for key, value in versions.items())}."


def filled(made: Sequence[tuple[str, str, Html | None]]) -> list[Section]:
    """The sections that have something to show."""
    return [(key, title, body) for key, title, body in made if body]
