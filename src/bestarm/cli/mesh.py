"""``bestarm mesh …`` and ``peer``: a mesh of peers on real machines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from bestarm.cli.bundle import mesh_bundle
from bestarm.cli.bundled import bundled
from bestarm.cli.exit_codes import INTERRUPTED, NOT_VERIFIED, OK, UNDECIDED, UNREACHABLE
from bestarm.cli.logs import LogOptions, watched
from bestarm.cli.network import GroupsOption, read_network
from bestarm.cli.options import DemoFolder, Json
from bestarm.cli.render.federation_folder import NAMES_ONLY, show_folders
from bestarm.cli.render.mesh import mesh_table, missing, peer_line
from bestarm.cli.render.trial import show_trial
from bestarm.cli.sources import Rewards, TestOption
from bestarm.cli.terminal import complain, out, print_line, remark, safe, say, unreachable
from bestarm.errors import InputError
from bestarm.scenario.load import load
from bestarm.util.text import counted

app = typer.Typer(add_completion=False, help="Make and check a mesh of peers on real machines.")
app.command("bundle")(mesh_bundle)


@app.command("init")
def init(
    graph: Annotated[
        Path,
        typer.Argument(
            metavar="GRAPH", help="SCENARIO.toml with a [network], GraphML, edge list, adjacency CSV"
        ),
    ],
    folder: Annotated[Path, typer.Option("--out", metavar="DIR", help="the folder to make or update")],
    groups: GroupsOption = None,
    arms: Annotated[
        str | None,
        typer.Option(metavar="A=x,y;B=z", help="the arms of each group [default: the scenario's]"),
    ] = None,
    byzantine: Annotated[
        int | None,
        typer.Option(min=0, help="liars around each node; exit code 4 if the network cannot tolerate them"),
    ] = None,
    exchange: Annotated[
        str | None, typer.Option(help="means or intervals [default: the scenario's, or means]")
    ] = None,
    delta: Annotated[float | None, typer.Option(help="the error probability")] = None,
    address: Annotated[
        list[str] | None,
        typer.Option(metavar="NODE=HOST:PORT", help="where a node listens; may be given for each"),
    ] = None,
    port: Annotated[
        int, typer.Option(help="port of the first node without an address; 0 for free ones")
    ] = 7443,
    new_run: Annotated[
        bool, typer.Option("--new-run", help="begin another run with the existing keys")
    ] = False,
    as_json: Json = False,
) -> int:
    """Make keys and certificates, and a folder for each node. Existing keys are never overwritten."""
    from bestarm.deploy.mesh import files

    chosen = {"byzantine": byzantine, "exchange": exchange, "delta": delta}
    keys = {key: value for key, value in chosen.items() if value is not None}
    if graph.suffix == ".toml" and groups is None and arms is None:
        terms, made = files.terms_of(load(graph), keys)
    else:
        read, by_group, _ = read_network(graph, groups)
        if arms is None:
            raise InputError("a graph does not say which arms there are", expected='--arms "A=x,y;B=z"')
        pairs = [part.partition("=") for part in arms.split(";")]
        by_arm = {name.strip(): [a.strip() for a in rest.split(",")] for name, _, rest in pairs}
        terms, made = files.terms_for(read, by_group, by_arm, keys)
    addresses = {node: where for node, _, where in (text.partition("=") for text in address or ())}
    try:
        terms = files.init(terms, made, folder, addresses, port=port, new_run=new_run)
    except files.TooWeak as error:
        complain(str(error), as_json)
        return NOT_VERIFIED
    clients = len(terms.layout.clients)
    places = dict(zip(terms.layout.clients, files.places(folder), strict=True))
    facts = {"folder": str(folder), "nodes": clients, "run": terms.run.hex()}
    if as_json:
        print(json.dumps({**facts, "folders": {name: str(place) for name, place in places.items()}}))
        return OK
    out.print(safe(f"{folder}: a mesh of {counted(clients, 'node')}. {NAMES_ONLY}"), soft_wrap=True)
    show_folders(places, terms.layout, "run it again with --json to see all")
    old = " This is a new run: on each machine, move the old run's journal.db* away." if new_run else ""
    text = "Copy each folder to its machine; there: bestarm peer NODE --exec 'read-sensor {arm}'."
    out.print(safe(f"{text}{old}"), soft_wrap=True)
    return OK


@app.command("check")
def check(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="a node's folder, or that of mesh init")],
    offline: Annotated[bool, typer.Option("--offline", help="check the files only")] = False,
    as_json: Json = False,
) -> int:
    """Find what is wrong with certificates, neighbours and clocks."""
    from bestarm.deploy.mesh.check import check as check_mesh

    found, looked = check_mesh(folder, connect=not offline)
    if as_json:
        rows = [{"node": t.node, "about": t.about, "what": t.what} for t in found]
        print(json.dumps({"ok": not found, "nodes": looked, "troubles": rows}))
    else:
        for trouble in found:
            out.print(safe(f"{trouble.node} → {trouble.about}: {trouble.what}"), soft_wrap=True)
        if not found:
            out.print(f"{counted(looked, 'node')} checked, no problems found.")
    return UNREACHABLE if found else OK


@app.command("demo")
def demo(
    folder: DemoFolder = None,
    seed: Annotated[int, typer.Option(help="seed of the order in which peers start")] = 7,
    as_json: Json = False,
) -> int:
    """Run twelve peers here. One lies, one is killed and comes back, one starts late."""
    from bestarm.deploy.mesh.demo import demo as run_demo
    from bestarm.deploy.process import terminable

    with terminable(), mesh_table(quiet=as_json) as watch:
        shown = run_demo(folder, seed, print_line(quiet=as_json), watch)
    if as_json:
        facts = {"ok": shown.ok, "verdicts": shown.verdicts, "accused": shown.accused, "notes": shown.notes}
        print(json.dumps(facts))
    else:
        for name, arm in shown.verdicts.items():
            text = f"{name}: {arm or 'no verdict'}; accused: {', '.join(shown.accused[name]) or 'nobody'}"
            out.print(safe(text))
    return OK if shown.ok else NOT_VERIFIED


@bundled(rewards=Rewards, logs=LogOptions)
def peer(
    folder: Annotated[Path, typer.Argument(metavar="NODE", help="the folder of this node")],
    rewards: Rewards,
    logs: LogOptions,
    listen: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="listen here [default: the address that others know]"),
    ] = None,
    linger: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="serve at most this long after the verdict [default: forever]"),
    ] = None,
    patience: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="end undecided after this long with no news [default: never]"),
    ] = None,
    test: TestOption = False,
    as_json: Json = False,
) -> int:
    """Run one peer of a mesh. If it is stopped or killed, run it again to resume.

    After its verdict it keeps serving until all its neighbours have theirs, or until it is stopped.
    """
    from bestarm.deploy.logs import log_verdict, peer_events
    from bestarm.deploy.mesh.run import Run
    from bestarm.deploy.mesh.trial import trial
    from bestarm.deploy.process import Interrupted as Stopped
    from bestarm.deploy.process import terminable, until_stopped
    from bestarm.deploy.sources import SourceFailed
    from bestarm.records.build import on_user_scale

    log = logs.start()
    source = rewards.source()
    if test:
        rewards.demand_testable()
        with terminable():
            return show_trial(trial(folder, source), as_json)
    try:
        with peer_line(quiet=as_json or log.takes_stderr) as watch:
            watch = watched(watch, peer_events() if log.events else None)
            run = Run(folder, source, listen=listen, linger=linger, patience=patience, watch=watch)
            log.known.update(run=run.place.setup.run.hex(), node=run.place.name)
            until_stopped(run.run())
    except Stopped:
        if run.node.verdict is None:
            if as_json:
                print(json.dumps({"interrupted": True, **run.status()}))
            remark("stopped; run it again to resume")
            return INTERRUPTED
    except SourceFailed as error:
        return unreachable(error, as_json)
    if run.node.verdict is None:
        facts = {**run.status(), "status": "undecided", "reason": run.gave_up}
        text = f"undecided ({run.gave_up}): nothing new for {patience:g} s; {missing(facts) or 'no news'}"
        say(facts, f"{text}. Run it again to resume", as_json)
        return UNDECIDED
    verdict = on_user_scale(run.node.verdict, run.place.setup.scale)
    facts = {**run.status(), "status": verdict.status, "reason": verdict.reason, "mean": verdict.mean}
    log_verdict(verdict.status, verdict.arm)
    end = f"{verdict.arm} is the best arm" if verdict.arm else f"undecided ({verdict.reason})"
    for client, why in run.node.suspects().items():
        remark(f"proven faulty: {client}, {why}", style="red")
    say(facts, f"{end}; {counted(run.node.pulls, 'pull')} made here", as_json)
    return OK if verdict.arm else UNDECIDED
