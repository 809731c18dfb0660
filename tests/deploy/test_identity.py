"""Keys stay private, each envelope has one encoding, and no client can sign for another."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import subprocess
import sys
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bestarm.deploy import envelope, identity
from bestarm.deploy.envelope import DOMAIN, MAX_CONTENT, MAX_SEQUENCE, Envelope, Evidence, Slots
from bestarm.deploy.identity import Key, Member, Roster, verified
from bestarm.errors import InputError
from bestarm.protocol.codec import Malformed

RUN, OTHER_RUN = bytes(range(16)), bytes(16)
ANNA, BELA, EVE = (Key.from_seed(bytes([n]) * 32) for n in (1, 2, 3))
ROSTER = Roster().add("anna", "north", ANNA.public).add("bela", "north", BELA.public)

names = st.text(st.characters(exclude_categories=["C", "Z"]), max_size=200)
envelopes = st.builds(
    Envelope,
    run=st.binary(min_size=16, max_size=16),
    source=names.filter(bool),
    topic=names,
    sequence=st.integers(0, MAX_SEQUENCE),
    content=st.binary(max_size=300),
    signature=st.binary(min_size=64, max_size=64),
)


def said(content=b"0.5", *, key=ANNA, source="anna", topic="north", sequence=0, run=RUN) -> Envelope:
    return Envelope.sign(key, run, source, topic, sequence, content)


def test_a_key_file_is_private_and_loads_the_same_key(tmp_path):
    key = Key.create(tmp_path / "new" / "key.pem")
    assert stat.S_IMODE(os.stat(tmp_path / "new" / "key.pem").st_mode) == 0o600
    again = Key.load(tmp_path / "new" / "key.pem")
    assert again.public == key.public
    assert verified(key.public, again.sign(b"data"), b"data")
    assert not verified(key.public, again.sign(b"data"), b"other")
    assert Key.create(tmp_path / "second").public != key.public


@pytest.mark.parametrize("sodium", [True, False])
def test_a_signature_is_valid_or_not_whichever_library_checks_it(sodium, monkeypatch):
    if not sodium:
        monkeypatch.setattr(identity, "_sodium", lambda: None)
    signature, neutral = ANNA.sign(b"data"), bytes([1]) + bytes(31)
    assert verified(ANNA.public, signature, b"data")
    assert verified(neutral, neutral + bytes(32), b"data")  # of small order: libsodium alone would refuse it
    for public, wrong, data in [
        (BELA.public, signature, b"data"),
        (ANNA.public, signature, b"date"),
        (ANNA.public, signature[:-1], signature[-1:] + b"data"),
        (ANNA.public, signature + b"d", b"ata"),
        (ANNA.public, signature[:32] + _plus_order(signature[32:]), b"data"),
        (ANNA.public[:-1], signature, b"data"),
        (b"", b"", b""),
    ]:
        assert not verified(public, wrong, data)


def _plus_order(scalar: bytes) -> bytes:
    """The same scalar modulo the order of the group, written differently."""
    order = 2**252 + 27742317777372353535851937790883648493
    return (int.from_bytes(scalar, "little") + order).to_bytes(32, "little")


def test_a_key_of_hexadecimal_digits_is_read(tmp_path):
    # RFC 8032, section 7.1, test 1
    secret = "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60"
    (tmp_path / "key").write_text(secret.upper() + "\n")
    (tmp_path / "key").chmod(0o600)
    key = Key.load(tmp_path / "key")
    assert key.public.hex() == "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"
    assert key.sign(b"").hex().startswith("e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e0652249")
    assert secret not in repr(key) + str(vars(key))


def test_a_key_is_never_overwritten(tmp_path):
    key = Key.create(tmp_path / "key")
    with pytest.raises(InputError, match="never overwritten"):
        Key.create(tmp_path / "key")
    assert Key.load(tmp_path / "key").public == key.public


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o601])
def test_a_key_that_others_may_read_is_refused_with_the_remedy(tmp_path, mode):
    Key.create(tmp_path / "key")
    (tmp_path / "key").chmod(mode)
    with pytest.raises(InputError, match=f"mode is {mode:o}.*chmod 600 {tmp_path}/key"):
        Key.load(tmp_path / "key")


@pytest.mark.parametrize(
    "data", [b"", b"ab" * 31, b"\xff" * 64, b"-----BEGIN PRIVATE KEY-----\n", "rsa", "locked"]
)
def test_an_invalid_key_is_refused(tmp_path, data):
    from cryptography.hazmat.primitives import serialization as form
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519

    if data in ("rsa", "locked"):
        other = (
            ec.generate_private_key(ec.SECP256R1()) if data == "rsa" else ed25519.Ed25519PrivateKey.generate()
        )
        lock = form.NoEncryption() if data == "rsa" else form.BestAvailableEncryption(b"password")
        data = other.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, lock)
    (tmp_path / "key").write_bytes(data)
    (tmp_path / "key").chmod(0o600)
    with pytest.raises(InputError, match="not an Ed25519 key"):
        Key.load(tmp_path / "key")
    with pytest.raises(InputError, match="can't be read"):
        Key.load(tmp_path / "nowhere")


def test_without_the_package_the_error_says_what_to_install():
    code = """
import sys
sys.modules["cryptography"] = None
from bestarm.deploy.envelope import Envelope, Slots
from bestarm.deploy.identity import Key, Roster
slots = Slots(Roster().add("a", "g", bytes(32)), bytes(16))
blank = Envelope(bytes(16), "a", "g", 0, b"", bytes(64))
for use in (Key.generate, lambda: slots.offer(blank.encode())):
    try:
        use()
    except Exception as error:
        print(type(error).__name__, error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.count('InputError keys and signatures need the package "cryptography"') == 2
    assert done.stdout.count('pip install "bestarm[federation]"') == 2


def test_importing_the_room_does_not_load_the_package():
    code = "import sys, bestarm.deploy.identity; print('cryptography' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_a_roster_is_the_same_text_however_it_was_built(tmp_path):
    turned = Roster().add("bela", "north", BELA.public).add("anna", "north", ANNA.public)
    assert turned == ROSTER
    assert turned.encode() == ROSTER.encode()
    plain = json.loads(ROSTER.encode())
    plain["clients"].reverse()
    assert Roster.decode(json.dumps(plain).encode()).digest == ROSTER.digest
    revoked = ROSTER.revoke("anna").add("ünal ☂", "süd", EVE.public)
    revoked.save(tmp_path / "roster.json")
    assert Roster.load(tmp_path / "roster.json") == revoked
    assert Roster.load(tmp_path / "roster.json").encode() == revoked.encode()
    assert revoked.digest != ROSTER.digest


def test_a_roster_keeps_revoked_keys_and_takes_a_new_one():
    revoked = ROSTER.revoke("anna")
    assert list(revoked.current) == ["bela"]
    assert Member("anna", "north", ANNA.public, revoked=True) in revoked.members
    renewed = revoked.add("anna", "north", EVE.public)
    assert renewed.current["anna"].key == EVE.public
    with pytest.raises(InputError, match="appears twice"):
        renewed.revoke("anna").add("anna", "north", ANNA.public)
    with pytest.raises(InputError, match=r'no client "anne" to revoke. Did you mean "anna"'):
        ROSTER.revoke("anne")
    with pytest.raises(InputError, match="no client"):
        revoked.revoke("anna")


@pytest.mark.parametrize(
    ("client", "group", "key", "message"),
    [
        ("anna", "north", EVE.public, "already in the roster.*Revoke"),
        ("carl", "north", ANNA.public, "appears twice"),
        ("carl", "north", b"short", "not a public key"),
        ("a/b", "north", EVE.public, "can't be used"),
        ("", "north", EVE.public, "can't be used"),
        ("carl", "*", EVE.public, "can't be used"),
        ("carl\n", "north", EVE.public, "can't be used"),
    ],
)
def test_a_roster_refuses_duplicates_and_invalid_names(client, group, key, message):
    with pytest.raises(InputError, match=message):
        ROSTER.add(client, group, key)


def test_a_client_stays_in_its_group():
    with pytest.raises(InputError, match='in group "north" and in "south"'):
        ROSTER.revoke("anna").add("anna", "south", EVE.public)


def row(**changes):
    return {"client": "c", "group": "g", "key": "00" * 32, "revoked": False, **changes}


@pytest.mark.parametrize(
    "data",
    [
        b"", b"\xff", b"[]", b"{}", b"[" * 100_000, b'{"schema": 3, "clients": []}',
        b'{"schema": 1, "clients": 7}', b'{"schema": 1, "clients": [7]}',
        b'{"schema": 1, "clients": [], "x": 1}',
        *(json.dumps({"schema": 1, "clients": rows}).encode() for rows in (
            [row(extra=1)], [row(key="00")], [row(key="zz" * 32)], [row(key=7)], [row(revoked=0)],
            [row(client=7)], [row(client="\ud800")], [row(), row()], [row(), row(client="d")],
        )),
    ],
)  # fmt: skip
def test_an_invalid_roster_is_refused(tmp_path, data):
    (tmp_path / "roster.json").write_bytes(data)
    with pytest.raises(InputError, match=r"roster\.json: "):
        Roster.load(tmp_path / "roster.json")


@given(envelopes)
def test_an_envelope_round_trips_and_has_one_encoding(envelope):
    data = envelope.encode()
    assert Envelope.decode(data) == envelope
    assert Envelope.decode(data).encode() == data


@given(envelopes, st.data())
def test_changed_bytes_are_malformed_or_another_envelope_with_that_encoding(envelope, data):
    raw = bytearray(envelope.encode())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(raw)))
        raw[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    decodes_canonically(bytes(raw))


def decodes_canonically(raw: bytes) -> None:
    try:
        found = Envelope.decode(raw)
    except Malformed:
        return
    assert found.encode() == raw


@settings(max_examples=300)
@given(st.binary(max_size=200))
def test_any_bytes_are_malformed_or_canonical(raw):
    decodes_canonically(raw)


@pytest.mark.parametrize(
    "data", [None, 7, "text", [], bytearray(said().encode()), memoryview(said().encode())]
)
def test_a_value_that_is_not_bytes_is_malformed(data):
    with pytest.raises(Malformed):
        Envelope.decode(data)
    with pytest.raises(Malformed):
        Evidence.decode(data)


@pytest.mark.parametrize(
    "changes",
    [
        {"run": b"short"}, {"source": ""}, {"source": "a\n"}, {"source": "x" * 201}, {"topic": "\ud800"},
        {"sequence": -1}, {"sequence": MAX_SEQUENCE + 1}, {"sequence": 1.0},
        {"content": bytes(MAX_CONTENT + 1)}, {"content": "text"},
    ],
)  # fmt: skip
def test_a_field_out_of_bounds_makes_no_envelope(changes):
    with pytest.raises(Malformed):
        said(**changes)


def test_an_envelope_of_the_largest_size_is_valid():
    largest = said(bytes(MAX_CONTENT), source="🦀" * 200, topic="🦀" * 200, sequence=MAX_SEQUENCE)
    assert Envelope.decode(largest.encode()) == largest
    tall = largest.body[: -MAX_CONTENT - 4] + (MAX_CONTENT + 1).to_bytes(4, "big") + bytes(MAX_CONTENT + 1)
    with pytest.raises(Malformed, match="at most"):
        Envelope.decode(tall + largest.signature)


def test_the_signature_covers_the_domain_and_is_valid_for_no_other_statement():
    envelope = said()
    assert envelope.signed_with(ANNA.public)
    assert not envelope.signed_with(BELA.public)
    assert verified(ANNA.public, envelope.signature, DOMAIN + envelope.body)
    assert not verified(ANNA.public, envelope.signature, envelope.body)


def test_every_flipped_bit_is_refused():
    good = said(topic="n", content=b"\x80").encode()
    for bit in range(8 * len(good)):
        flipped = bytearray(good)
        flipped[bit // 8] ^= 1 << bit % 8
        for before in ([], [good]):
            slots = Slots(ROSTER, RUN)
            for data in before:
                assert slots.offer(data).outcome == "accepted"
            assert slots.offer(bytes(flipped)).outcome == "refused", bit
            assert len(slots.accepted) == len(before)
            assert not slots.evidence
            assert slots.refused.total() == 1


def test_the_first_accepted_wins_and_repeats_are_harmless(monkeypatch):
    slots = Slots(ROSTER, RUN)
    first = said()
    assert slots.offer(first.encode()).outcome == "accepted"
    monkeypatch.setattr("bestarm.deploy.identity.verified", None)  # a repeat needs no signature check
    for _ in range(3):
        offer = slots.offer(first.encode())
        assert (offer.outcome, offer.envelope) == ("repeat", first)
    assert slots.accepted == {first.slot: first}
    assert not slots.evidence
    assert not slots.refused


def test_each_part_of_the_slot_makes_another_slot():
    slots = Slots(ROSTER, RUN)
    others = [said(), said(topic="south"), said(topic=""), said(sequence=1), said(key=BELA, source="bela")]
    assert [slots.offer(e.encode()).outcome for e in others] == ["accepted"] * 5
    assert list(slots.accepted.values()) == others


@pytest.mark.parametrize(
    ("envelope", "reason"),
    [
        (said(key=EVE), "signature"),
        (said(key=BELA), "signature"),
        (said(key=EVE, source="eve"), "source"),
        (said(key=BELA, source="bela"), "source"),
        (said(run=OTHER_RUN), "run"),
    ],
)
def test_strangers_forgers_and_other_runs_are_refused_and_counted(envelope, reason):
    slots = Slots(ROSTER.revoke("bela"), RUN)
    for times in (1, 2):
        offer = slots.offer(envelope.encode())
        assert (offer.outcome, offer.reason) == ("refused", reason)
        assert slots.refused == {reason: times}
    assert slots.offer(b"noise").reason == "malformed"
    assert slots.accepted == {}
    assert slots.offer(said().encode()).outcome == "accepted"


def test_two_statements_for_one_slot_are_evidence_that_anyone_can_check():
    slots = Slots(ROSTER, RUN)
    first, second = said(b"0.5"), said(b"0.6")
    slots.offer(first.encode())
    offer = slots.offer(second.encode())
    assert offer.outcome == "equivocation"
    assert slots.accepted[first.slot] == first
    assert slots.evidence == {first.slot: offer.evidence}
    sent = Evidence.decode(offer.evidence.encode())
    assert sent == offer.evidence == Evidence(first, second)
    assert sent.verify(ROSTER)
    assert sent.verify(ROSTER.revoke("anna"))  # the key was hers when she signed
    assert not sent.verify(Roster().add("anna", "north", EVE.public))
    assert not sent.verify(Roster())
    for later in (second, said(b"0.7"), said(b"0.8", key=EVE)):
        assert slots.offer(later.encode()).reason == "closed"
    assert slots.offer(first.encode()).outcome == "repeat"
    assert len(slots.evidence) == 1


def test_a_forged_second_statement_is_not_evidence():
    slots = Slots(ROSTER, RUN)
    slots.offer(said().encode())
    for forged in (said(b"0.6", key=EVE), said(b"0.6", key=BELA)):
        assert slots.offer(forged.encode()).reason == "signature"
    assert not slots.evidence
    assert slots.offer(said(b"0.6").encode()).outcome == "equivocation"  # the slot was not closed by them


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (said(), said()),
        (said(), said(sequence=1)),
        (said(), said(b"0.6", topic="south")),
        (said(), said(b"0.6", run=OTHER_RUN)),
        (said(), said(b"0.6", key=BELA, source="bela")),
        (said(), said(b"0.6", key=BELA)),
        (said(b"0.6", key=BELA), said()),
        (said(key=EVE), said(b"0.6", key=EVE)),
        (said(key=EVE, source="eve"), said(b"0.6", key=EVE, source="eve")),
        (said(), Envelope(*said().slot, b"0.5", bytes(64))),
        (said(), Envelope(*said().slot, b"0.6", said().signature)),
    ],
)
def test_evidence_cannot_be_forged(first, second):
    evidence = Evidence(first, second)
    assert not evidence.verify(ROSTER)
    assert not Evidence.decode(evidence.encode()).verify(ROSTER)
    assert Evidence(said(), said(b"0.6")).verify(ROSTER)


def signed_otherwise(seed: bytes, data: bytes) -> bytes:
    """A valid signature with a nonce other than RFC 8032's: only the key's owner can make one."""
    p, order = 2**255 - 19, 2**252 + 27742317777372353535851937790883648493
    d = -121665 * pow(121666, -1, p) % p

    def add(a, b):
        (x1, y1), (x2, y2) = a, b
        t = d * x1 * x2 * y1 * y2
        return (x1 * y2 + x2 * y1) * pow(1 + t, -1, p) % p, (y1 * y2 + x1 * x2) * pow(1 - t, -1, p) % p

    def times(n):
        total, power = (0, 1), (BASE_X, 4 * pow(5, -1, p) % p)
        while n:
            total, power, n = (add(total, power) if n & 1 else total), add(power, power), n >> 1
        return (total[1] | (total[0] & 1) << 255).to_bytes(32, "little")

    digest = hashlib.sha512(seed).digest()
    secret = int.from_bytes(digest[:32], "little") & (1 << 254) - 8 | 1 << 254
    nonce = 12345
    point = times(nonce)
    challenge = hashlib.sha512(point + times(secret) + data).digest()
    answer = (nonce + int.from_bytes(challenge, "little") * secret) % order
    return point + answer.to_bytes(32, "little")


BASE_X = 0x216936D3CD6E53FEC0A4E231FDD6DC5C692CC7609525A7B2C9562D608F25D51A


def test_two_signatures_of_one_statement_are_not_equivocation():
    first = said()
    other = replace(first, signature=signed_otherwise(bytes([1]) * 32, DOMAIN + first.body))
    assert other.signature != first.signature
    assert other.signed_with(ANNA.public)
    slots = Slots(ROSTER, RUN)
    assert slots.offer(first.encode()).outcome == "accepted"
    assert slots.offer(other.encode()).reason == "signature"
    assert not slots.evidence
    assert not Evidence(first, other).verify(ROSTER)


def test_old_and_new_key_of_a_client_may_sign_different_statements():
    """Statements signed by the old and the new key may differ: the old key may have been stolen."""
    slots = Slots(ROSTER, RUN)
    slots.offer(said().encode())
    slots.roster = ROSTER.revoke("anna").add("anna", "north", EVE.public)
    assert slots.offer(said(b"0.6", key=EVE).encode()).reason == "signature"
    assert not Evidence(said(), said(b"0.6", key=EVE)).verify(slots.roster)
    assert slots.offer(said(b"0.6", key=EVE, sequence=1).encode()).outcome == "accepted"
    assert slots.offer(said(b"0.7", sequence=2).encode()).reason == "signature"


@given(st.binary(max_size=400))
def test_any_bytes_are_evidence_in_one_encoding_or_malformed(raw):
    for data in (raw, Evidence(said(), said(raw)).encode() + raw[:1]):
        try:
            found = Evidence.decode(data)
        except Malformed:
            continue
        assert found.encode() == data


def test_a_sender_cannot_fill_the_memory():
    slots = Slots(ROSTER, RUN, most=3)
    outcomes = [slots.offer(said(sequence=r).encode()) for r in range(5)]
    assert [o.outcome for o in outcomes] == ["accepted"] * 3 + ["refused"] * 2
    assert outcomes[-1].reason == "full"
    assert slots.offer(said(sequence=0).encode()).outcome == "repeat"
    assert slots.offer(said(b"0.6", sequence=0).encode()).outcome == "equivocation"
    assert slots.offer(said(key=BELA, source="bela").encode()).outcome == "accepted"


OFFERS = [
    *(said(b"%d" % c, sequence=r).encode() for c in range(2) for r in range(2)),
    *(said(b"%d" % c, key=BELA, source="bela").encode() for c in range(2)),
    said(key=EVE).encode(),
    said(run=OTHER_RUN).encode(),
    b"noise",
]


@given(st.lists(st.sampled_from(OFFERS[:-1]), max_size=12))
def test_a_batch_whose_signatures_are_checked_together_is_taken_like_single_envelopes(offers):
    alone, together, batch = Slots(ROSTER, RUN), Slots(ROSTER, RUN), list(map(Envelope.decode, offers))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(envelope, "MANY", 1)
        patch.setattr(identity, "SHARE", 1)  # several threads even for a small batch
        valid = together.signed(batch)
    taken = [together.offer(each, signed=each.slot in valid) for each in batch]
    assert taken == [alone.offer(each) for each in batch]
    assert together.refused == alone.refused


def test_a_batch_of_signatures_is_checked_in_its_order(monkeypatch):
    monkeypatch.setattr(identity, "SHARE", 2)
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    rows = [(ANNA.public, ANNA.sign(b"%d" % n), b"%d" % (n if n % 3 else 99)) for n in range(20)]
    assert identity.verified_all(rows) == [n % 3 > 0 for n in range(20)]


@given(st.lists(st.sampled_from(OFFERS), max_size=12))
def test_slots_are_a_fold_and_refused_envelopes_need_no_replay(offers):
    once, again, kept = Slots(ROSTER, RUN), Slots(ROSTER, RUN), Slots(ROSTER, RUN)
    outcomes = [once.offer(data) for data in offers]
    assert [again.offer(data) for data in offers] == outcomes
    for data, offer in zip(offers, outcomes, strict=True):
        if offer.outcome != "refused":
            kept.offer(data)
    state = [(s.accepted, s.evidence) for s in (once, again, kept)]
    assert state[0] == state[1] == state[2]
    assert list(once.accepted) == list(kept.accepted)
    assert all(evidence.verify(ROSTER) for evidence in once.evidence.values())
    assert once.refused.total() == sum(offer.outcome == "refused" for offer in outcomes)
