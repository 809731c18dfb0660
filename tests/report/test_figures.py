"""The paper's figures: all are made, with correct numbers, no clipped text, and no partial files."""

from __future__ import annotations

import csv
import itertools
import json
import math
import signal
import subprocess
import sys
import time
from xml.etree import ElementTree

import numpy as np
import pytest
from scipy import stats

import bestarm as ba
from bestarm.errors import InputError
from bestarm.graphs import generators, robustness
from bestarm.methods import fed_sel
from bestarm.protocol.events import Received, Stop
from bestarm.report import figures, machines
from command_line import bestarm

TRIALS, SEED = 3, 5


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """All figures, made once by one command."""
    folder = tmp_path_factory.mktemp("figures")
    done = bestarm("figures", folder / "out", "--trials", TRIALS, "--seed", SEED, "--json")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    (folder / "list.json").write_text(done.stdout)
    return folder / "out"


def rows(path):
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.slow
def test_the_list_names_every_file(folder):
    listed = json.loads((folder.parent / "list.json").read_text())
    assert [row["name"] for row in listed["figures"]] == list(figures.FIGURES)
    files = {path for row in listed["figures"] for path in row["files"]}
    assert files == {str(path) for path in folder.iterdir()}
    assert (listed["trials"], listed["seed"]) == (TRIALS, SEED)


@pytest.mark.slow
@pytest.mark.parametrize("name", figures.FIGURES)
def test_every_figure_is_a_picture_numbers_and_a_caption(folder, name):
    import matplotlib.image

    root = ElementTree.parse(folder / f"figure-{name}.svg").getroot()
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    picture = matplotlib.image.imread(folder / f"figure-{name}.png")
    assert picture.shape[1] >= 1200
    assert 0.005 < (picture[..., :3].mean(axis=2) < 0.9).mean() < 0.9  # neither empty nor black
    assert len(rows(folder / f"figure-{name}.csv")) >= 3
    caption = (folder / f"figure-{name}.txt").read_text(encoding="utf-8")
    number = name if name.isdigit() else f"{name[0]}({name[1]})"
    assert caption.startswith(f"Figure {number}. ")
    assert "differs" in caption
    assert "{" not in caption


@pytest.mark.slow
def test_the_caption_of_rounds_says_what_is_wrong_in_the_paper(folder):
    caption = (folder / "figure-4a.txt").read_text(encoding="utf-8")
    for words in ("inverted", "erratum 22", "erratum 4", "quantiser off", f"means of {TRIALS} trials"):
        assert words in caption


CELLS = [
    ("fed-sel", {"sigma": 3, "period": 100}, {"quantiser": False}),
    ("fed-sel", {"sigma": 7, "period": 1600}, {"quantiser": False}),
    ("fed-sel", {"sigma": 15, "period": 100}, {"quantiser": True}),
    ("fisher", {"sigma": 4, "prefer": "pulls"}, {}),
    ("fisher", {"sigma": 15, "prefer": "rounds"}, {}),
]


@pytest.mark.slow
@pytest.mark.parametrize(("method", "keys", "options"), CELLS)
def test_the_numbers_of_figure_4_are_means_of_runs_with_student_s_interval(folder, method, keys, options):
    """Recompute the columns from a study of this cell alone, with SciPy's interval."""
    wanted = {"method": method, **{k: str(v) for k, v in (keys | options).items()}}
    (row,) = [row for row in rows(folder / "figure-4a.csv") if wanted.items() <= row.items()]
    done = ba.study(
        ba.Problem.paper_instance, method, trials=TRIALS, seed=SEED, workers=1, delta=0.1,
        vary={key: [value] for key, value in keys.items()}, **options,
    )  # fmt: skip
    for name in figures.COLUMNS:
        values = done[name].astype(float)
        assert float(row[f"{name}_mean"]) == pytest.approx(values.mean())
        if values.std() > 0:
            ends = stats.t.interval(0.95, TRIALS - 1, values.mean(), stats.sem(values))
            assert (float(row[f"{name}_low"]), float(row[f"{name}_high"])) == pytest.approx(ends)


@pytest.mark.slow
def test_figure_4_shows_what_the_captions_say(folder):
    sweep = [row for row in rows(folder / "figure-4a.csv") if row["method"] == "fed-sel"]
    plain = {
        (int(row["sigma"]), int(row["period"])): float(row["rounds_mean"])
        for row in sweep
        if row["quantiser"] == "False"
    }
    assert set(plain) == set(itertools.product(range(1, 16), figures.PERIODS))
    assert {plain[1, period] for period in figures.PERIODS} == {1.0}
    # Rounds grow with σ and halve as H doubles, by far more than the noise of three trials.
    assert plain[1, 100] < plain[4, 100] < plain[7, 100] < plain[15, 100]
    for period in figures.PERIODS[:-1]:
        assert plain[15, 2 * period] == pytest.approx(plain[15, period] / 2, rel=0.2)
    fisher = [float(row["rounds_mean"]) for row in rows(folder / "figure-4a.csv") if row["prefer"] == "pulls"]
    assert len(fisher) == 15
    assert max(fisher) < 15


@pytest.mark.slow
def test_phase_2_pulls_are_those_of_rounds_after_the_first(folder):
    """Two or three clients remain to the end: between 2H(R−1) and 3H(R−1) pulls."""
    table = rows(folder / "figure-4b.csv")
    assert len(table) == 75
    for row in table:
        period = int(row["period"])
        later = float(row["rounds_mean"]) - 1.0
        assert 2 * period * later - 1e-6 <= float(row["pulls_phase2_mean"]) <= 3 * period * later + 1e-6


@pytest.mark.slow
def test_figure_5_shows_lambert_s_function_between_its_bounds(folder):
    for row in rows(folder / "figure-5-branches.csv"):
        x, w = float(row["x"]), float(row["w"])
        assert w * math.exp(w) == pytest.approx(x, rel=1e-9, abs=1e-12)
        assert (w >= -1) if row["branch"] == "0" else (w <= -1)
    table = rows(folder / "figure-5.csv")
    assert float(table[0]["x"]) == -math.exp(-2)
    for row in table:
        x, low, w, high = (float(row[key]) for key in ("x", "lower", "exact", "upper"))
        assert w * math.exp(w) == pytest.approx(x, rel=1e-9)
        log, loglog = math.log(-x), math.log(-math.log(-x))
        assert (low, high) == pytest.approx((log - 4 * loglog, log - loglog / 4))
        assert low <= w <= high


@pytest.mark.slow
def test_figure_1_has_every_state_event_and_arrow_of_the_tables(folder):
    svg = (folder / "figure-1.svg").read_text(encoding="utf-8")
    drawn = {
        (row["machine"], row["state"], event, row["next"])
        for row in rows(folder / "figure-1.csv")
        for event in row["events"].split()
    }
    tables = {"client": fed_sel.Client.transitions, "server": fed_sel.Server.transitions}
    assert drawn == {
        (name, state, event.__name__, target)
        for name, table in tables.items()
        for (state, event), targets in table.items()
        for target in targets
    }
    for _, state, event, target in drawn:
        for word in (state, event, target):
            assert f"<!-- {word} -->" in svg or f"{word}\n" in svg


def test_a_state_that_is_added_to_the_table_is_drawn():
    import matplotlib.pyplot as plt

    more = {
        **fed_sel.Client.transitions,
        ("reported", Stop): frozenset({"reported", "paused"}),
        ("paused", Received): frozenset({"paused", "done"}),
        ("lost", Received): frozenset({"done"}),  # no transition leads to it, but it is still drawn
    }
    drawing = figures.protocol(more, fed_sel.Server.transitions)
    words = [text.get_text() for text in drawing.picture.axes[0].texts]
    plt.close(drawing.picture)
    assert words.count("paused") == words.count("lost") == 1
    arrows = {(row["machine"], row["state"], row["next"]): row["events"] for row in drawing.tables[""]}
    assert arrows["client", "reported", "paused"] == "Stop"
    places = machines.places(more)
    assert len(set(places.values())) == len(places) == 7  # no two at the same position


@pytest.mark.slow
def test_figure_2_s_indices_follow_from_its_sensors(folder):
    sensors = rows(folder / "figure-2.csv")
    indices = rows(folder / "figure-2-sigma.csv")
    largest = {}
    for division in figures.divisions():
        best = {}
        for client in range(1, 10):
            means = [float(s["mean"]) for s in sensors if s[division] == str(client)]
            best[client] = sorted(means)[::-1]
            assert len(means) == 3
        found = {(int(r["i"]), int(r["j"])): float(r["sigma"]) for r in indices if r["division"] == division}
        assert len(found) == 72
        for (i, j), sigma in found.items():
            assert sigma == pytest.approx((best[i][0] - best[i][1]) / abs(best[i][0] - best[j][0]))
        top = max(best, key=lambda client: best[client])
        largest[division] = max(sigma for pair, sigma in found.items() if top in pair)
    assert largest["by sub-region"] < 1 < largest["dealt in turns"]


@pytest.mark.slow
def test_the_witness_of_figure_3_is_valid(folder):
    """No node of the witness set hears more than r nodes outside it; the edges are the paper's."""
    heard = {}
    for row in rows(folder / "figure-3-edges.csv"):
        heard.setdefault(row["to"], set()).add(row["from"])
    assert sum(map(len, heard.values())) == 32
    for row in rows(folder / "figure-3.csv"):
        witness, group = set(row["witness"].split()), set(row["clients"].split())
        assert witness
        assert not witness & group
        assert max(len(heard[node] - witness) for node in witness) == int(row["strong_robustness"]) == 1
    assert "client 5" in (folder / "figure-3.txt").read_text(encoding="utf-8")
    assert robustness.worst_cut(*generators.figure3(), 1) == {"5"}


@pytest.mark.parametrize("name", ["1", "2", "3", "5"])
def test_no_words_are_cut_off_and_no_titles_overlap(name):
    from matplotlib.text import Text

    plt = pytest.importorskip("matplotlib.pyplot")
    with plt.rc_context(figures.STYLE):
        picture = figures.FIGURES[name][1](figures.Sweep(1, 1)).picture
        picture.canvas.draw()
        renderer = picture.canvas.get_renderer()
        page = picture.bbox.padded(1.0)
        hidden = set()  # labels of ticks outside of the view are not drawn
        for ax in picture.axes:
            for axis in (ax.xaxis, ax.yaxis):
                low, high = sorted(axis.get_view_interval())
                hidden |= {
                    label
                    for tick in axis.get_major_ticks()
                    for label in (tick.label1, tick.label2)
                    if not low <= tick.get_loc() <= high or not ax.axison
                }
        seen = 0
        for text in set(picture.findobj(Text)) - hidden:
            if text.get_visible() and text.get_text().strip():
                box = text.get_window_extent(renderer)
                seen += 1
                assert page.x0 <= box.x0 <= box.x1 <= page.x1, text
                assert page.y0 <= box.y0 <= box.y1 <= page.y1, text
        titles = [ax.title.get_window_extent(renderer) for ax in picture.axes if ax.get_title()]
        assert not any(a.overlaps(b) for a, b in itertools.combinations(titles, 2))
        plt.close(picture)
    assert seen >= 9


@pytest.mark.slow
def test_the_same_seed_gives_the_same_files(tmp_path):
    for name in ("a", "b"):
        assert len(list(figures.make(tmp_path / name, only=["3", "5"]))) == 2
    files = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert len(files) == 10
    for name in files:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


@pytest.mark.slow
def test_one_trial_has_no_band_and_empty_cells(monkeypatch, tmp_path):
    for module in (figures.sweep, figures.costs):
        monkeypatch.setattr(module, "SIGMAS", (1, 15))
        monkeypatch.setattr(module, "PERIODS", (800, 1600))
    (made,) = figures.make(tmp_path, only=["4a"], trials=1, workers=1)
    table = rows(tmp_path / "figure-4a.csv")
    assert len(made.files) == 4
    assert {row["rounds_low"] for row in table} == {""}
    assert all(float(row["rounds_mean"]) >= 1 for row in table)


@pytest.mark.parametrize(
    "args",
    [
        ["figures"],
        ["figures", "out", "--only", "9"],
        ["figures", "out", "--only", ","],
        ["figures", "out", "--trials", "0"],
        ["figures", "out", "--seed", "-1"],
        ["figures", "out", "--workers", "0"],
        ["figures", "/proc/nowhere/x"],
        ["figures", "taken"],
        ["figures", "taken/out", "--json"],
    ],
)
def test_bad_input_is_exit_code_2_and_leaves_nothing_behind(args, tmp_path):
    (tmp_path / "taken").write_text("a file")
    done = bestarm(*args, cwd=tmp_path)
    assert done.returncode == 2
    assert "error:" in done.stderr
    assert "Traceback" not in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


def test_a_folder_that_can_t_be_written_is_refused_before_the_work(tmp_path, monkeypatch):
    monkeypatch.setattr(figures.sweep, "study", lambda *a, **k: pytest.fail("work was begun"))
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(InputError, match=r"taken: can't be written"):
        figures.make(tmp_path / "taken", only=["4a"])


def test_a_figure_that_fails_half_way_leaves_the_old_files(tmp_path, monkeypatch):
    (tmp_path / "figure-3.svg").write_text("old")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(csv.DictWriter, "writerows", full)
    with pytest.raises(InputError, match="the disk is full"):
        list(figures.make(tmp_path, only=["3"]))
    assert [path.name for path in tmp_path.iterdir()] == ["figure-3.svg"]
    assert (tmp_path / "figure-3.svg").read_text() == "old"


TOLD = """
from bestarm import cli
from bestarm.report import figures

title, draw = figures.FIGURES["4a"]

def begin(sweep):
    print("it goes", flush=True)
    return draw(sweep)

figures.FIGURES["4a"] = title, begin
cli.main()
"""


@pytest.mark.slow
def test_ctrl_c_keeps_finished_figures_whole_and_exits_with_130(tmp_path):
    command = [sys.executable, "-c", TOLD, "figures", "out", "--only", "3,4", "--trials", "2000000"]
    process = subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert "it goes" in process.stdout.readline()
    time.sleep(0.5)  # somewhere in the middle
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "interrupted; finished: 3" in err
    assert "Traceback" not in err
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "figure-3.svg", "figure-3.png", "figure-3.csv", "figure-3-edges.csv", "figure-3.txt",
    }  # fmt: skip


def test_figure_4_selects_4a_and_4b(monkeypatch, tmp_path):
    monkeypatch.setattr(figures, "_make", lambda folder, names, sweep: iter(names))
    assert list(figures.make(tmp_path, only=["4", "4b", "1"])) == ["4a", "4b", "1"]
    assert np.array(figures.SIGMAS).tolist() == list(range(1, 16))
