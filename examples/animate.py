"""Draws an animation of a run: intervals shrink block by block, and arms leave. One small SVG, no script.

    python examples/animate.py examples/target-detection.toml docs/images/race.svg

It accepts any scenario with one client per group. The picture in the README is made this way.
"""

from __future__ import annotations

import sys
from pathlib import Path

import bestarm as ba
from bestarm.report.colours import COLOURS, colour
from bestarm.report.facts import of_record
from bestarm.report.markup import Html, clean, tag
from bestarm.report.svg import Axis, path, spread, words

WIDTH, ROW, LEFT, TOP = 760, 30, 120, 58
BEAT, REST = 0.9, 3.0  # seconds per block, and at the end
STYLE = (
    "text{font:14px system-ui,sans-serif;fill:#1a1c1f;stroke:none}.t{font-size:12px;fill:#565b63}"
    ".g{stroke:#d4d8de}.w{font-weight:bold}.b{stroke-width:8;stroke-linecap:round;opacity:.45}"
)


def main(scenario: str, picture: str) -> None:
    record = ba.identify(ba.load(scenario), "bet", seed=7)
    facts = of_record(record)
    traces = sorted(facts.traces, key=lambda t: -t.mean[-1])
    # An arm that is in plays every block; the champion makes more pulls in it than the others.
    blocks = range(max(len(trace.pulls) for trace in traces))
    pulls = [min(trace.pulls[k] for trace in traces if k < len(trace.pulls)) for k in blocks]
    total = BEAT * blocks[-1] + REST
    times = ";".join(f"{BEAT * k / total:.4f}" for k in blocks) + ";1"
    ends = [end for trace in traces for end in (*trace.lower, *trace.upper)]
    x = Axis(*spread(ends, facts.scale), LEFT, WIDTH - 30)
    height = TOP + ROW * len(traces) + 40

    def moving(name: str, values: list[float], **more: str) -> Html:
        shown = ";".join(f"{v:g}" for v in [*values, values[-1]])
        return tag(
            "animate", attributeName=Html(name), values=shown, keyTimes=times, dur=f"{total:g}s",
            repeatCount="indefinite", **more,
        )  # fmt: skip

    parts = [tag("style", Html(STYLE)), tag("rect", width=WIDTH, height=height, rx=8, fill="#ffffff")]
    for value in x.ticks(6):
        parts.append(path([(x(value), TOP - 8), (x(value), height - 34)], class_="g"))
        parts.append(words(x(value), height - 16, f"{value:g}", "middle", class_="t"))
    for k, n in enumerate(pulls):
        seen = [float(i == k) for i in blocks]
        label = f"block {k}: {n:,} pulls of each rival" if k else f"{n:,} pulls of each arm"
        at = words(LEFT, 28, label, opacity=f"{seen[-1]:g}")
        parts.append(Html(at.replace("</text>", moving("opacity", seen, calcMode="discrete") + "</text>")))
    end = [0.0] * blocks[-1] + [1.0]
    note = words(WIDTH - 30, 28, f"{clean(record.verdict.arm)} is the best arm", "end", class_="w")
    parts.append(Html(note.replace("</text>", moving("opacity", end, calcMode="discrete") + "</text>")))
    for row, trace in enumerate(traces):
        y = TOP + ROW * row + 10
        last = len(trace.pulls) - 1
        place = [min(k, last) for k in blocks]  # an arm that has left keeps its last interval
        low, mean, high = ([x(values[i]) for i in place] for values in (trace.lower, trace.mean, trace.upper))
        fade = [0.2 if k > last or (trace.out and k == last) else 1.0 for k in blocks]
        name = f"{facts.groups[trace.group].name}/{trace.arm}"
        fade[-1] = 1.0 if name == record.verdict.arm else 0.2
        bar = tag(
            "line", moving("x1", low), moving("x2", high), x1=low[-1], x2=high[-1], y1=y, y2=y, class_="b"
        )
        dot = tag("circle", moving("cx", mean), cx=mean[-1], cy=y, r=5, fill="currentColor", stroke="none")
        label = words(LEFT - 16, y + 5, clean(name, 14), "end")
        tint = COLOURS[colour(facts.roster.index(name))]  # as in its report
        inner = [moving("opacity", fade, calcMode="discrete"), label, bar, dot]
        parts.append(tag("g", *inner, color=tint, stroke="currentColor", opacity=f"{fade[-1]:g}"))
    text = f"Intervals of {len(traces)} arms shrink until {clean(record.verdict.arm)} is left"
    drawn = tag(
        "svg", tag("title", text), *parts, xmlns="http://www.w3.org/2000/svg", width=WIDTH, height=height,
        viewBox=f"0 0 {WIDTH} {height}", role="img",
    )  # fmt: skip
    Path(picture).write_text(drawn + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
