"""``bestarm federation …``, ``server`` and ``client``: a federation on real machines."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Annotated

import typer

from bestarm.cli.bundle import federation_bundle
from bestarm.cli.bundled import bundled
from bestarm.cli.exit_codes import INTERRUPTED, NOT_VERIFIED, OK, UNDECIDED
from bestarm.cli.logs import LogOptions, watched
from bestarm.cli.options import DemoFolder, Json, MethodOption, ScenarioPath
from bestarm.cli.render.federation import client_line, server_table, told
from bestarm.cli.render.federation_folder import made_facts, show_made
from bestarm.cli.render.progress import folder_progress
from bestarm.cli.render.record import show
from bestarm.cli.render.trial import show_trial
from bestarm.cli.sources import Rewards, TestOption
from bestarm.cli.terminal import out, print_line, remark, safe, say, unreachable
from bestarm.scenario.load import load
from bestarm.util.text import counted

app = typer.Typer(add_completion=False, help="Make and manage a federation on real machines.")
app.command("bundle")(federation_bundle)

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="the folder that federation init made")]
NatsUrl = Annotated[
    str | None, typer.Option(metavar="URL", help="the address of NATS [default: the one that init wrote]")
]
ClientName = Annotated[
    str, typer.Argument(metavar="CLIENT", help="a client of the scenario, or a site that has only one")
]


@app.command("init")
def init(
    scenario: ScenarioPath,
    folder: Annotated[Path, typer.Option("--out", metavar="DIR", help="the folder to make")],
    method: MethodOption = None,
    host: Annotated[str, typer.Option(help="the server's name or address, as clients see it")] = "localhost",
    port: Annotated[int, typer.Option(help="the broker's port; 0 for a free one")] = 4222,
    spare: Annotated[int, typer.Option(help="slots for keys that are added later")] = 4,
    nats: Annotated[
        str | None,
        typer.Option(metavar="URL", help="an existing NATS to use instead of the embedded one"),
    ] = None,
    ca: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.pem", help="with --nats: the authorities to trust [default: the system's]"
        ),
    ] = None,
    replicas: Annotated[
        int, typer.Option(metavar="N", help="with --nats: how many nodes of a cluster keep each message")
    ] = 1,
    as_json: Json = False,
) -> int:
    """Make keys, accounts, and a folder for each client."""
    from bestarm.deploy.federation import files

    loaded = load(scenario)
    with folder_progress(quiet=as_json) as watch:
        made = files.init(
            loaded, folder, method=method, host=host, port=port, spare=spare, url=nats, ca=ca,
            replicas=replicas, watch=watch,
        )  # fmt: skip
    if as_json:
        print(json.dumps(made_facts(folder, made)))
    else:
        show_made(folder, made)
    return OK


@app.command("add-client")
def add_client(folder: Folder, client: ClientName, as_json: Json = False) -> int:
    """Give a client a new key. Its old one was revoked; other clients are unaffected."""
    from bestarm.deploy.federation import files

    place = files.add_client(folder, client)
    return say({"client": client, "folder": str(place)}, f"{client} has a new key: {place}", as_json)


@app.command("revoke")
def revoke(folder: Folder, client: ClientName, as_json: Json = False) -> int:
    """Revoke a client's key. Broker and server refuse it from now on."""
    from bestarm.deploy.federation import files

    client = files.revoke(folder, client)
    return say({"client": client, "revoked": True}, f"the key of {client} is revoked", as_json)


@app.command("allow")
def allow(folder: Folder, client: ClientName, as_json: Json = False) -> int:
    """Let a client connect again. The server had cut it off because it flooded the broker."""
    from bestarm.deploy.federation import files

    client = files.allow(folder, client)
    return say({"client": client, "allowed": True}, f"{client} may connect again", as_json)


@app.command("drop")
def drop(folder: Folder, client: ClientName, as_json: Json = False) -> int:
    """Continue a run without a client. The certificate records your decision."""
    from bestarm.deploy.federation import files

    client = files.drop(folder, client)
    return say({"client": client, "dropped": True}, f"the run continues without {client}", as_json)


@app.command("renew-certificate")
def renew_certificate(
    folder: Folder,
    host: Annotated[
        list[str] | None, typer.Option(help="another name or address of the server, as clients see it")
    ] = None,
    authority: Annotated[
        bool, typer.Option("--authority", help="renew the authority too: then each site needs the new ca.pem")
    ] = False,
    as_json: Json = False,
) -> int:
    """Give the embedded broker a new certificate. A running server uses it at once; clients stay."""
    from bestarm.deploy.federation import renewal

    ends = renewal.renew_certificate(folder, host or [], authority=authority)
    facts = {what: end.isoformat() for what, end in ends.items()}
    text = f"the broker has a new certificate, which ends on {ends['certificate']:%Y-%m-%d}"
    if authority:
        facts["next"] = f"copy {folder}/broker/ca.pem to the folder of each client before the old one ends"
        text += f"; the authority ends on {ends['authority']:%Y-%m-%d}: {facts['next']}"
    return say(facts, text, as_json)


@app.command("renew-server-key")
def renew_server_key(folder: Folder, as_json: Json = False) -> int:
    """Give the server a new key and login. The old key tells the clients about it."""
    from bestarm.deploy.federation import renewal

    key, nkey = renewal.renew_server_key(folder)
    text = (
        f"the server signs with its new key {key[:16]} from now on, or from its next start if it is stopped. "
        "Its new login to the broker is used when you start it again"
    )
    if not (folder / "broker" / "broker.key").exists():
        text += f": first let your NATS server reload {folder}/broker/accounts.conf"
    return say({"key": key, "nkey": nkey}, text, as_json)


@app.command("demo")
def demo(
    folder: DemoFolder = None,
    seed: Annotated[int, typer.Option(help="seed of the rewards and of the moment of the kill")] = 7,
    as_json: Json = False,
) -> int:
    """Run eight client processes here. One lies, one is slow, one is killed and comes back."""
    from bestarm.deploy.federation.broker import Unreachable
    from bestarm.deploy.federation.demo import demo as run_demo
    from bestarm.deploy.process import terminable

    LogOptions().start()
    try:
        with terminable():
            shown = run_demo(folder, seed, print_line(quiet=as_json))
    except Unreachable as error:
        return unreachable(error, as_json)
    if as_json:
        print(json.dumps({"ok": shown.ok, "record": shown.record.to_dict(), "notes": shown.notes}))
    else:
        show(shown.record)
    return OK if shown.ok else NOT_VERIFIED


@bundled(logs=LogOptions)
def server(
    folder: Folder,
    logs: LogOptions,
    port: Annotated[
        int | None,
        typer.Option(
            metavar="PORT",
            help="listen on this port instead of the one that init wrote; clients then need "
            "--nats tls://HOST:PORT",
        ),
    ] = None,
    nats: NatsUrl = None,
    monitor: Annotated[
        str | None,
        typer.Option(metavar="URL", help="that NATS's monitoring page, to check that it syncs each message"),
    ] = None,
    patience: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="wait this long for missing messages [default: 60 where clients may lie, else forever]",
        ),
    ] = None,
    metrics: Annotated[
        int | None,
        typer.Option(metavar="PORT", help="serve /metrics and /healthz on this port of this computer"),
    ] = None,
    replicas: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="how many nodes of a NATS cluster keep each message [default: as given to init]"
        ),
    ] = None,
    linger: Annotated[
        float,
        typer.Option(
            metavar="SECONDS", help="after the verdict, wait this long for clients that have not heard it"
        ),
    ] = 10.0,
    as_json: Json = False,
) -> int:
    """Run a federation's server to its verdict. If it is stopped or killed, run it again to resume."""
    from bestarm.deploy.federation.broker import Unreachable
    from bestarm.deploy.federation.server import Server
    from bestarm.deploy.logs import log_verdict, server_events
    from bestarm.deploy.process import Interrupted as Stopped
    from bestarm.deploy.process import until_stopped
    from bestarm.deploy.pulling import REDRAWN

    log = logs.start()
    try:
        with server_table(quiet=as_json or log.takes_stderr) as watch:
            run = Server(
                folder,
                port=port,
                url=nats,
                monitor=monitor,
                patience=patience,
                metrics=metrics,
                replicas=replicas,
                linger=linger,
                watch=watched(watch, server_events() if log.events else None),
            )
            log.known.update(run=run.desk.setup.run.hex())
            record = until_stopped(run.run())
    except Stopped:
        remark(f"stopped; to resume: bestarm server {shlex.quote(str(folder))}")
        if as_json:
            print(json.dumps({"interrupted": True, "folder": str(folder)}))
        return INTERRUPTED
    except Unreachable as error:
        return unreachable(error, as_json)
    log_verdict(record.verdict.status, record.verdict.summary)
    if as_json:
        print(json.dumps(record.to_dict()))
    else:
        show(record)
        undecided = record.verdict.status == "undecided"
        for note in run.desk.notes:  # what the verdict is about, or why a client did not come, in its words
            if note.text == REDRAWN or (undecided and not (note.later or note.routine)):
                out.print(safe(told(note)), soft_wrap=True)
        where = shlex.quote(str(folder))
        text = f"record: {folder / 'record.json'}. Next: bestarm verify {where}, bestarm report {where}"
        out.print(safe(text), soft_wrap=True)
    return OK if record.verdict.status == "identified" else UNDECIDED


@bundled(rewards=Rewards, logs=LogOptions)
def client(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="the folder of this client")],
    rewards: Rewards,
    logs: LogOptions,
    nats: NatsUrl = None,
    test: TestOption = False,
    as_json: Json = False,
) -> int:
    """Run one client of a federation. If it is stopped or killed, run it again to resume."""
    from bestarm.deploy.federation import alarms
    from bestarm.deploy.federation.broker import Unreachable
    from bestarm.deploy.federation.client import Client
    from bestarm.deploy.federation.trial import trial
    from bestarm.deploy.logs import client_events, log_verdict
    from bestarm.deploy.process import Interrupted as Stopped
    from bestarm.deploy.process import terminable, until_stopped
    from bestarm.deploy.sources import SourceFailed

    log = logs.start()
    source = rewards.source()
    if test:
        rewards.demand_testable()
        with terminable():
            return show_trial(trial(folder, source, url=nats), as_json)
    try:
        with client_line(quiet=as_json or log.takes_stderr) as watch:
            try:
                watch = watched(watch, client_events() if log.events else None)
                run = Client(folder, source, url=nats, watch=watch)
            except Exception as error:
                alarms.tell(folder, error, url=nats)
                raise
            log.known.update(run=run.place.setup.run.hex(), client=run.place.client)
            verdict = until_stopped(run.run())
    except Stopped:
        remark("stopped; run it again to resume")
        if as_json:
            print(json.dumps({"interrupted": True, "folder": str(folder)}))
        return INTERRUPTED
    except (Unreachable, SourceFailed) as error:
        return unreachable(error, as_json)
    arm = verdict.summary if verdict else None
    log_verdict(verdict.status if verdict else "no verdict", arm)
    facts = {"client": run.place.client, "arm": arm, "pulls": run.site.pulls}
    text = f"{arm} is the best arm" if arm else "the run ended without a verdict"
    if verdict and verdict.answers:
        text = f"the answer is: {arm}" if arm else f"the run ended undecided: {verdict.parts}"
    say(facts, f"{text}; {counted(run.site.pulls, 'pull')} made here", as_json)
    return OK if arm or verdict is None else UNDECIDED
