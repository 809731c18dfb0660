"""The certificates of the embedded broker: an authority of this federation's own, and what it signs.

The authority's key stays in the server's folder. Clients have the authority's certificate, so the broker's
certificate can be renewed without them.
"""

from __future__ import annotations

import datetime
import ipaddress
import logging
import shlex
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bestarm.deploy.federation.keys import CA
from bestarm.deploy.logs import fields
from bestarm.errors import InputError
from bestarm.util.files import write

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

DAYS = 3650  # how long certificates are valid
WARN_DAYS = 30  # how long before its end a certificate is warned about
CHECK_SECONDS = 86400.0
CERTIFICATE, CERTIFICATE_KEY, CA_KEY = "broker.pem", "broker.key", "ca.key"
FILES = {"certificate": CERTIFICATE, "authority": CA}
NAMES = {"certificate": "the broker's certificate", "authority": "the certificate authority"}
ALWAYS = ("localhost", "127.0.0.1", "::1")  # from this computer

log = logging.getLogger("bestarm.federation")


def create(folder: Path, host: str, days: int = DAYS) -> None:
    """Create an authority, and the broker's certificate for `host` and this computer.

    Parameters
    ----------
    folder : Path
        The folder ``broker`` of the server's folder.
    host : str
        A name or an address, as clients see it.
    days : int
        How long they are valid.
    """
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    _save_key(folder / CA_KEY, key)
    renew_authority(folder, days)
    _certify(folder, [_alternative(name) for name in dict.fromkeys([host, *ALWAYS])], days)


def renew(folder: Path, hosts: Iterable[str] = (), days: int = DAYS) -> datetime.datetime:
    """Give the broker a new key and a new certificate, signed by the authority that clients know.

    Parameters
    ----------
    folder : Path
        The folder ``broker`` of the server's folder.
    hosts : iterable of str
        More names or addresses of the broker; those of the old certificate stay.
    days : int
        How long the certificate is valid, but not longer than the authority.

    Returns
    -------
    datetime
        When it ends.

    Raises
    ------
    InputError
        If the authority or its key can't be read, or has ended.
    """
    from cryptography import x509

    _load_key(folder / CA_KEY)  # raises if the broker is not embedded
    (old,) = _read(folder / CERTIFICATE)
    named = old.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return _certify(folder, list(dict.fromkeys([*named, *map(_alternative, hosts)])), days)


def renew_authority(folder: Path, days: int = DAYS) -> datetime.datetime:
    """Let the authority's key sign itself again: a new ``ca.pem``, beside which the old one stays valid.

    Parameters
    ----------
    folder : Path
        The folder ``broker`` of the server's folder.
    days : int
        How long it is valid.

    Returns
    -------
    datetime
        When it ends.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes

    key = _load_key(folder / CA_KEY)
    others = ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement")
    usage = dict.fromkeys((*others, "encipher_only", "decipher_only"), False)
    signs = x509.KeyUsage(digital_signature=True, key_cert_sign=True, crl_sign=True, **usage)
    ends = _now() + datetime.timedelta(days=days)
    made = (
        _builder(_issuer(), key.public_key(), ends)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(signs, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    _save(folder / CA, made)
    return ends


def _certify(folder: Path, hosts: list[x509.GeneralName], days: int) -> datetime.datetime:
    """Write a new key of the broker, and its certificate."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID

    ca_key, (authority, *_) = _load_key(folder / CA_KEY), _read(folder / CA)
    if authority.not_valid_after_utc <= _now():
        raise InputError(
            f"the certificate authority ended on {authority.not_valid_after_utc:%Y-%m-%d}",
            where=str(folder / CA),
            fix="bestarm federation renew-certificate DIR --authority, and give each site the new ca.pem",
        )
    ends = min(_now() + datetime.timedelta(days=days), authority.not_valid_after_utc)
    own = x509.SubjectKeyIdentifier.from_public_key(ca_key.public_key())
    issued_by = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(own)
    key = ec.generate_private_key(ec.SECP256R1())
    made = (
        _builder(_name(str(hosts[0].value)), key.public_key(), ends)
        .add_extension(x509.SubjectAlternativeName(hosts), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(issued_by, critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    _save_key(folder / CERTIFICATE_KEY, key)
    _save(folder / CERTIFICATE, made)
    return ends


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def _name(text: str) -> x509.Name:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:64])])


def _issuer() -> x509.Name:
    return _name("bestarm federation CA")


def _builder(name: x509.Name, public: Any, ends: datetime.datetime) -> x509.CertificateBuilder:
    from cryptography import x509

    made = x509.CertificateBuilder().subject_name(name).issuer_name(_issuer()).public_key(public)
    made = made.serial_number(x509.random_serial_number())
    return made.not_valid_before(_now() - datetime.timedelta(days=1)).not_valid_after(ends)


def _alternative(name: str) -> x509.GeneralName:
    """A host as a certificate names it."""
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        pass
    try:
        return x509.DNSName(name)
    except ValueError:
        raise InputError(f'"{name}" is not a host name', expected="a name or an IP address") from None


def _save_key(path: Path, key: EllipticCurvePrivateKey) -> None:
    from cryptography.hazmat.primitives import serialization as form

    write(path, key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption()), 0o600)


def _save(path: Path, certificate: x509.Certificate) -> None:
    from cryptography.hazmat.primitives import serialization as form

    write(path, certificate.public_bytes(form.Encoding.PEM))


def _load_key(path: Path) -> EllipticCurvePrivateKey:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    if not path.exists():
        raise InputError(
            "there is no key of a certificate authority",
            where=str(path),
            expected="a federation with an embedded broker",
            fix="Renew the certificate of your own NATS server there",
        )
    try:
        key = load_pem_private_key(path.read_bytes(), None)
    except (OSError, ValueError, TypeError) as error:
        raise InputError(f"can't be read: {error}", where=str(path)) from None
    if not isinstance(key, EllipticCurvePrivateKey):
        raise InputError("this is not the key of a federation's authority", where=str(path))
    return key


def _read(path: Path) -> list[x509.Certificate]:
    from cryptography import x509

    try:
        return x509.load_pem_x509_certificates(path.read_bytes())
    except (OSError, ValueError) as error:
        raise InputError(f"can't be read: {error}", where=str(path)) from None


def fits(folder: Path) -> bool:
    """Whether the broker's key is that of its certificate: a renewal that was interrupted leaves others.

    Parameters
    ----------
    folder : Path
        The folder ``broker`` of the server's folder.

    Returns
    -------
    bool
    """
    (certificate, *_) = _read(folder / CERTIFICATE)
    return certificate.public_key() == _load_key(folder / CERTIFICATE_KEY).public_key()


def ends(folder: Path) -> dict[str, datetime.datetime]:
    """When the certificates in the folder ``broker`` end: "certificate" (the broker's) and "authority".

    Parameters
    ----------
    folder : Path
        The folder ``broker`` of the server's folder; certificates that are not there are left out.

    Returns
    -------
    dict of str to datetime
    """
    found = {}
    for what, name in FILES.items():
        if (folder / name).exists():
            found[what] = min(one.not_valid_after_utc for one in _read(folder / name))
    return found


class CertificateWatch:
    """Warns at the start and once a day about certificates that end soon.

    Parameters
    ----------
    folder : Path
        The server's folder.
    clock : callable
        A clock in seconds.
    """

    def __init__(self, folder: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self.folder, self.clock = folder, clock
        self.due = clock()
        self._known = self._files()

    def check(self) -> None:
        """Log the warnings if a day has passed since the last time."""
        if self.clock() < self.due:
            return
        self.due = self.clock() + CHECK_SECONDS
        for text in self.warnings():
            log.warning("%s", text)

    def log_renewed(self) -> None:
        """Log which certificates were renewed since the last call."""
        before, self._known = self._known, self._files()
        for what, end in self._ends().items():
            if before.get(what) != self._known.get(what):
                more = ": give each site the new ca.pem" if what == "authority" else ""
                log.warning(
                    "%s was renewed and ends on %s%s",
                    NAMES[what], f"{end:%Y-%m-%d}", more, extra=fields(event="certificate"),
                )  # fmt: skip

    def _files(self) -> dict[str, bytes]:
        """The certificates as they are in the folder."""
        paths = {what: self.folder / "broker" / name for what, name in FILES.items()}
        return {what: path.read_bytes() for what, path in paths.items() if path.exists()}

    def warnings(self) -> list[str]:
        """What ends soon or has ended, and the command that renews it."""
        found = []
        for what, end in self._ends().items():
            left = end - _now()
            if left > datetime.timedelta(days=WARN_DAYS):
                continue
            when = f"ended on {end:%Y-%m-%d}" if left.total_seconds() < 0 else f"ends on {end:%Y-%m-%d}"
            found.append(f"{NAMES[what]} {when}: {self._fix(what)}")
        return found

    def _fix(self, what: str) -> str:
        if not (self.folder / "broker" / CA_KEY).exists():
            return "clients check your NATS server's certificate with it; give each site a new ca.pem"
        command = f"bestarm federation renew-certificate {shlex.quote(str(self.folder))}"
        if what == "certificate":
            return command
        return f"{command} --authority, and give each site the new ca.pem before that day"

    def metrics(self) -> dict[str, int]:
        """The ends as Unix times, for the metrics page."""
        return {f"{what}_end_timestamp_seconds": int(end.timestamp()) for what, end in self._ends().items()}

    def _ends(self) -> dict[str, datetime.datetime]:
        try:
            return ends(self.folder / "broker")
        except InputError as error:
            log.warning("%s", error)
            return {}
