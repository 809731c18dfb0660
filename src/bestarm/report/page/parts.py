"""What all pages share: sections, figures in two widths, the style sheet."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from bestarm.report.facts import RunFacts
from bestarm.report.markup import Html, join, name, table, tag
from bestarm.report.svg import number

WIDE, NARROW = 900, 330  # width in pixels of a picture on a screen and on a phone

MOST_ROWS = 1000  # of a table
ALL, FIRST = 30, 20  # options that a table shows at once, and how many of more

Section = tuple[str, str, Html]  # its id, its title and its content


@cache
def style() -> str:
    """The style sheet."""
    room = files("bestarm.report")
    return "".join(room.joinpath(file).read_text(encoding="utf-8") for file in ("style.css", "answer.css"))


# How notebooks say which theme they have: JupyterLab, VS Code, Colab, and pages made of notebooks.
LIGHT = '[data-jp-theme-light="true"], .vscode-light, [theme="light"], [data-theme="light"]'
DARK = (
    '[data-jp-theme-light="false"], .vscode-dark, .vscode-high-contrast, [theme="dark"], [data-theme="dark"]'
)


@cache
def notebook_style() -> str:
    """The style sheet for a part of a notebook: it follows the notebook's theme, or else the system's.

    It applies to nothing outside ``.bestarm``, and paints its own ground: text is readable in any theme.
    """
    sheet = style()
    parts = [part.partition("}")[0] for part in sheet.split(":root {")]
    light, dark = parts[1].replace("color-scheme: light dark;", ""), parts[2]
    own = sheet.replace(":root", "&").replace("body {", "& {", 1)
    outer = "margin: 0 auto; max-width: 78rem; padding: 1rem;"
    own = own.replace(outer, "padding: .6rem; border-radius: .3rem;")
    own += f" :is({LIGHT}) & {{ color-scheme: light; {light} }}"
    own += f" :is({DARK}) & {{ color-scheme: dark; {dark} }}"
    return f".bestarm {{ {own} }}"


@cache
def script() -> str:
    """The script of a page: values under the pointer, sorting, filtering, highlighting, copying."""
    return files("bestarm.report").joinpath("page.js").read_text(encoding="utf-8")


def code(text: str) -> Html:
    """A command in a text. A line never breaks inside a word, such as after the dashes of an option."""
    return tag("code", [[" " if k else None, tag("span", word)] for k, word in enumerate(text.split(" "))])


def command(text: str) -> Html:
    """A command to copy."""
    return tag("pre", code(text), class_="command")


def prose(text: str) -> Html:
    """A text whose options, such as --time, are not broken after their dashes."""
    parts = re.split(r"(--[a-z][a-z-]*)", text)
    return join(*[tag("span", part, class_="flagged") if k % 2 else part for k, part in enumerate(parts)])


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


def in_two(count: int, made: Callable[[slice, str], Html], now: str = "") -> Html:
    """A table of options: up to ALL of them at once; of more, the FIRST ones, and a fold with the rest.

    `made` makes the table of some of them, with a caption.
    """
    first, last = count if count <= ALL else FIRST, min(count, MOST_ROWS)
    if first == count:
        return made(slice(first), f"All {count:,} options{now}")
    shown = made(slice(first), f"The first {first} of {count:,} options{now}; the rest is in the fold below")
    title = f"The other {count - first:,} options"
    if last < count:
        title += f" (the first {last - first:,} of them; all are in the record)"
    return join(shown, fold(title, made(slice(first, last), f"{title}, ranked")))


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
    return fold("All options", table(["option", "value"], rows, caption="Every option of the run"))


def made_by(versions: Mapping[str, str]) -> str:
    """The versions of the software that made a page."""
    return f"This page: {', '.join(f'{key} {value}' for key, value in versions.items())}."


def filled(made: Sequence[tuple[str, str, Html | None]]) -> list[Section]:
    """The sections that have something to show."""
    return [(key, title, body) for key, title, body in made if body]
