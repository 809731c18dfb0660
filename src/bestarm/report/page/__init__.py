"""The report: one HTML file without network access, made from facts (``report.facts``).

``sections`` returns the parts of a page, so that a live page can show an unfinished run with the same parts;
``page`` puts them into a whole file that includes the record. ``read`` finds out what is at a path.
"""

from __future__ import annotations

from bestarm.report.page.fragments import (
    evidence_fragment,
    graph_fragment,
    problem_fragment,
    record_fragment,
    study_fragment,
)
from bestarm.report.page.parts import Section, script, style
from bestarm.report.page.whole import of_arena, of_evidence, of_record, of_trials, page, read, sections, write

__all__ = [
    "Section",
    "evidence_fragment",
    "graph_fragment",
    "of_arena",
    "of_evidence",
    "of_record",
    "of_trials",
    "page",
    "problem_fragment",
    "read",
    "record_fragment",
    "script",
    "sections",
    "study_fragment",
    "style",
    "write",
]
