"""The broker's certificate and the server's keys are renewed while a federation exists."""

from __future__ import annotations

import asyncio
import datetime
import ssl
from urllib.parse import urlsplit

import pytest
from cryptography import x509
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError

import bestarm as ba
from bestarm.deploy.federation import certificates, files, renewal
from bestarm.deploy.federation.certificates import CertificateWatch
from bestarm.deploy.federation.desk import KIND, Desk
from bestarm.deploy.federation.keys import Nkey
from bestarm.deploy.federation.server import Server
from bestarm.deploy.federation.verification import verify
from bestarm.deploy.identity import Key
from bestarm.deploy.process import free_port
from bestarm.util.journal import Journal
from federations import CASES, scenario
from helpers import client, get, serving, until

CASE = CASES["fisher"]
TINY = scenario("fisher", delta=0.2)


async def presented(url):
    """The certificate that the broker presents to a new connection."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    parts = urlsplit(url)
    _, writer = await asyncio.open_connection(parts.hostname, parts.port, ssl=context)
    found = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    return x509.load_der_x509_certificate(found)


def trusts(ca, broker, host="localhost"):
    """Whether a client with this authority accepts the broker's certificate for this host."""
    store = Store(x509.load_pem_x509_certificates(ca))
    (leaf,) = x509.load_pem_x509_certificates((broker / "broker.pem").read_bytes())
    try:
        PolicyBuilder().store(store).build_server_verifier(x509.DNSName(host)).verify(leaf, [])
    except VerificationError:
        return False
    return True


def made(folder, **options):
    files.init(TINY, folder, **{"port": 0, **options})
    return folder, folder / "broker"


def test_a_running_broker_takes_a_new_certificate_and_clients_stay(tmp_path):
    async def steps():
        folder = tmp_path / "f"
        files.init(CASE, folder, port=0)
        async with serving(folder, CASE) as (server, tasks):
            first = client(folder, CASE, "west-1")
            tasks["west-1"] = asyncio.create_task(first.run())
            await until(lambda: first.nc is not None and first.nc.is_connected and server.desk.next["west-1"])
            before, own = await presented(server.url), first.nc
            renewal.renew_certificate(folder, ["server.example.org"])
            while (await presented(server.url)).serial_number == before.serial_number:
                await asyncio.sleep(0.05)
            assert first.nc is own
            assert own.is_connected
            assert own.stats["reconnects"] == 0
            for name in ("east-1", "mid-1"):
                tasks[name] = asyncio.create_task(client(folder, CASE, name).run())
            record = await tasks["server"]
            await asyncio.gather(*tasks.values())
        assert record.verdict.arm == "west/a"
        assert verify(folder).ok
        ca = (folder / "clients" / "west-1" / "ca.pem").read_bytes()
        assert trusts(ca, folder / "broker", "server.example.org")

    asyncio.run(steps())


def test_a_new_certificate_names_the_old_hosts_and_the_new_ones(tmp_path):
    folder, broker = made(tmp_path / "f", host="first.example.org")
    ca, old = (broker / "ca.pem").read_bytes(), (broker / "broker.key").read_bytes()
    renewal.renew_certificate(folder, ["second.example.org", "192.0.2.7"])
    assert (broker / "broker.key").read_bytes() != old
    for host in ("first.example.org", "second.example.org", "localhost"):
        assert trusts(ca, broker, host)
    assert not trusts(ca, broker, "other.example.org")
    with pytest.raises(ba.InputError, match="is not a host"):
        renewal.renew_certificate(folder, ["not a host"])


def test_a_renewed_authority_is_valid_beside_the_old_one(tmp_path):
    folder, broker = made(tmp_path / "f")
    old = (broker / "ca.pem").read_bytes()
    ends = renewal.renew_certificate(folder, authority=True)
    new = (broker / "ca.pem").read_bytes()
    assert new != old
    assert trusts(old, broker)
    assert trusts(new, broker)
    assert (folder / "clients" / "west-1" / "ca.pem").read_bytes() == new
    assert ends["certificate"] <= ends["authority"]


def test_an_authority_that_has_ended_signs_nothing(tmp_path):
    folder, broker = made(tmp_path / "f")
    certificates.renew_authority(broker, days=0)
    with pytest.raises(ba.InputError, match=r"authority ended on .* --authority"):
        renewal.renew_certificate(folder)
    renewal.renew_certificate(folder, authority=True)


def test_the_certificate_of_another_nats_is_renewed_there(tmp_path):
    folder, _ = made(tmp_path / "f", url="tls://nats.example.org:4222")
    with pytest.raises(ba.InputError, match="Renew the certificate of your own NATS server there"):
        renewal.renew_certificate(folder)
    with pytest.raises(ba.InputError, match="Renew the certificate of your own NATS server there"):
        renewal.renew_certificate(folder, authority=True)


def test_certificates_that_end_soon_are_warned_about_once_a_day(tmp_path, caplog):
    folder, broker = made(tmp_path / "f")
    now = [0.0]
    watch = CertificateWatch(folder, clock=lambda: now[0])
    assert watch.warnings() == []
    certificates.renew(broker, days=29)
    (text,) = watch.warnings()
    assert text.startswith("the broker's certificate ends on")
    assert f"bestarm federation renew-certificate {folder}" in text
    certificates.renew_authority(broker, days=20)
    assert any("the certificate authority ends" in t and "--authority" in t for t in watch.warnings())
    renewal.renew_certificate(folder, authority=True)
    assert watch.warnings() == []
    certificates.renew(broker, days=3)
    for seconds, lines in ((0.0, 1), (3600.0, 1), (90_000.0, 2)):
        now[0] = seconds
        watch.check()
        assert caplog.text.count("the broker's certificate ends on") == lines


def test_the_start_warns_and_the_metrics_tell_when_certificates_end(tmp_path, caplog):
    async def steps():
        folder, broker = made(tmp_path / "f")
        certificates.renew(broker, days=7)
        port = free_port()
        async with serving(folder, TINY, metrics=port):
            page = (await asyncio.to_thread(get, port, "/metrics"))[1]
        assert "the broker's certificate ends on" in caplog.text
        week = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=7)
        (line,) = [line for line in page.splitlines() if line.startswith("bestarm_certificate_end_timestamp")]
        assert abs(float(line.split()[1]) - week.timestamp()) < 3600
        assert "bestarm_authority_end_timestamp_seconds" in page

    asyncio.run(steps())


def test_a_running_server_changes_its_key_and_everyone_follows(tmp_path):
    async def steps():
        folder = tmp_path / "f"
        files.init(CASE, folder, port=0)
        old = Key.load(folder / "server.key").public
        async with serving(folder, CASE, ["west-1"]) as (server, tasks):
            await until(lambda: server.desk.next["west-1"])
            new, nkey = renewal.renew_server_key(folder)
            await until(lambda: server.desk.server.hex() == new)
            assert server.online, "the old login is valid until the next start"
            for name in ("east-1", "mid-1"):  # they learn of the new key in the order of the broadcasts
                tasks[name] = asyncio.create_task(client(folder, CASE, name).run())
            record = await tasks["server"]
            verdicts = await asyncio.gather(*(tasks[name] for name in ("west-1", "east-1", "mid-1")))
        assert record.verdict.arm == "west/a"
        assert {verdict.arm for verdict in verdicts} == {"west/a"}
        assert Key.load(folder / "server.key").public.hex() == new != old.hex()
        assert not (folder / renewal.NEXT_KEY).exists()
        found = verify(folder)
        assert found.ok
        assert any("the server's key" in change and new[:16] in change for change in found.changes)
        assert files.Federation.load(folder).nkey == nkey

    asyncio.run(steps())


def test_a_stopped_server_starts_with_its_new_keys(tmp_path):
    async def steps():
        folder = tmp_path / "f"
        async with serving(folder, CASE, ["west-1"]) as (server, tasks):
            await until(lambda: server.desk.next["west-1"])
        new, nkey = renewal.renew_server_key(folder)
        assert renewal.renew_server_key(folder) == (new, nkey), "until they are in use"
        assert files.Federation.load(folder).retired
        async with serving(folder, CASE, ["west-1", "east-1", "mid-1"]) as (server, tasks):
            assert server.nkey.public == nkey == Nkey.load(folder / "server.nk").public
            assert not files.Federation.load(folder).retired
            assert server.desk.server.hex() == new
            await tasks["server"]
            assert (await tasks["east-1"]).arm == "west/a"
        assert verify(folder).ok

    asyncio.run(steps())


def test_a_crash_between_the_statement_and_the_file_is_made_up_for_at_the_next_start(tmp_path, monkeypatch):
    folder, _ = made(tmp_path / "f")
    Server(folder).desk.journal.close()
    new, _ = renewal.renew_server_key(folder)
    desk = Desk(Journal.open(folder / files.JOURNAL, KIND), *renewal.server_keys(folder))
    with monkeypatch.context() as patch:
        patch.setattr("pathlib.Path.replace", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            renewal.succeed(folder, desk)
    desk.journal.close()
    assert (folder / renewal.NEXT_KEY).exists()
    again = Server(folder)
    assert again.desk.server.hex() == new == Key.load(folder / "server.key").public.hex()
    assert not (folder / renewal.NEXT_KEY).exists()
    assert sum("the server's key" in change for change in again.desk.changes) == 1
    again.desk.journal.close()


@pytest.mark.parametrize("left", [b"", b"-----BEGIN PRIV", bytes(100)])
def test_a_damaged_new_key_is_removed_with_a_warning_and_the_server_starts(tmp_path, caplog, left):
    folder, _ = made(tmp_path / "f")
    old = Key.load(folder / "server.key").public
    pending = [folder / renewal.NEXT_KEY, folder / renewal.NEXT_NKEY]
    for path in pending:
        path.touch(0o600)
        path.write_bytes(left)
    server = Server(folder)
    server.desk.journal.close()
    assert server.desk.server == old
    assert not any(path.exists() for path in pending)
    assert all(f"{path}: this is not an" in caplog.text for path in pending)


def test_a_renewal_replaces_a_damaged_new_key(tmp_path):
    folder, _ = made(tmp_path / "f")
    for name in (renewal.NEXT_KEY, renewal.NEXT_NKEY):
        (folder / name).touch(0o600)
    new, nkey = renewal.renew_server_key(folder)
    server = Server(folder)
    server.desk.journal.close()
    assert (server.desk.server.hex(), server.nkey.public) == (new, nkey)


def test_a_damaged_new_key_that_the_journal_names_stays_and_stops_the_server(tmp_path):
    folder, _ = made(tmp_path / "f")
    Server(folder).desk.journal.close()
    renewal.renew_server_key(folder)
    pending = folder / renewal.NEXT_KEY
    desk = Desk(Journal.open(folder / files.JOURNAL, KIND), *renewal.server_keys(folder))
    desk.succeed(Key.load(pending))  # and a crash
    desk.journal.close()
    pending.write_bytes(b"")
    with pytest.raises(ba.InputError, match="which the journal names"):
        Server(folder)
    assert pending.exists()


def test_a_damaged_new_nkey_that_the_federation_names_stays_and_stops_the_server(tmp_path):
    folder, _ = made(tmp_path / "f")
    renewal.renew_server_key(folder)
    pending = folder / renewal.NEXT_NKEY
    pending.write_bytes(b"")
    with pytest.raises(ba.InputError, match="this is not an nkey"):
        renewal.prepare(folder)  # at the start of the server
    assert pending.exists()
    _, nkey = renewal.renew_server_key(folder)
    assert files.Federation.load(folder).retired == Nkey.load(folder / "server.nk").public, "still in use"
    renewal.prepare(folder)
    assert Nkey.load(folder / "server.nk").public == nkey


def test_a_renewal_that_was_interrupted_is_repeated_at_the_next_start(tmp_path):
    folder, broker = made(tmp_path / "f")
    old = (broker / "broker.pem").read_bytes()
    renewal.renew_certificate(folder, ["server.example.org"])
    (broker / "broker.pem").write_bytes(old)  # the key is new, the certificate is not yet
    assert not certificates.fits(broker)
    Server(folder).desk.journal.close()
    assert certificates.fits(broker)
    assert trusts((broker / "ca.pem").read_bytes(), broker)


def test_a_second_server_of_a_folder_changes_nothing(tmp_path):
    folder, _ = made(tmp_path / "f")
    running = Server(folder)
    renewal.renew_server_key(folder)
    before = {path: path.read_bytes() for path in folder.glob("*.*") if path.is_file()}
    with pytest.raises(ba.InputError):
        Server(folder)
    assert {path: path.read_bytes() for path in before} == before
    running.desk.journal.close()
