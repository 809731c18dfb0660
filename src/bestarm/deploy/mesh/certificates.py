"""Certificates of a mesh: self-signed and pinned, without a certificate authority."""

from __future__ import annotations

import base64
import datetime
import hashlib
import re
from pathlib import Path
from typing import Any

from bestarm.deploy.identity import read_secret
from bestarm.errors import InputError

HOST = "bestarm.mesh"  # the name in every certificate; nodes are identified by the whole certificate

DAYS = 3650


def fingerprint(pem: str | bytes) -> bytes:
    """SHA-256 of a certificate, which is what gets pinned."""
    text = pem.decode("ascii", "replace") if isinstance(pem, bytes) else pem
    found = re.search(r"-----BEGIN CERTIFICATE-----([\sA-Za-z0-9+/=]+)-----END CERTIFICATE-----", text)
    if found is None:
        raise ValueError("this is not a certificate")
    return hashlib.sha256(base64.b64decode("".join(found[1].split()))).digest()


def new_tls_key() -> bytes:
    from cryptography.hazmat.primitives import serialization as form
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    return key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption())


def tls_key(path: Path) -> bytes:
    """Read a private key from a file. InputError unless only its owner can read it."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    data = read_secret(path)
    try:
        load_pem_private_key(data, None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise InputError("this is not a private key", where=str(path), expected="PEM, no password") from None
    return data


def certify(key: bytes, name: str, days: int = DAYS) -> bytes:
    """Create a self-signed certificate for this key. It is not an authority and can't sign others."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.x509.oid import NameOID

    private: Any = serialization.load_pem_private_key(key, None)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])
    now = datetime.datetime.now(datetime.UTC)
    end = now + datetime.timedelta(days=days)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(private.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(min(now, end) - datetime.timedelta(days=1))
        .not_valid_after(end)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(HOST)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(private, hashes.SHA256())
    )
    return made.public_bytes(serialization.Encoding.PEM)


def problems_of(pem: str, key: bytes | None = None) -> list[str]:
    """What is wrong with a certificate: invalid, expired, not yet valid, or for another key."""
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization

    try:
        certificate = x509.load_pem_x509_certificate(pem.encode())
    except ValueError:
        return ["this is not a certificate"]
    now, found = datetime.datetime.now(datetime.UTC), []
    if certificate.not_valid_after_utc <= now:
        found.append(f"the certificate expired on {certificate.not_valid_after_utc:%Y-%m-%d}")
    if certificate.not_valid_before_utc > now:
        found.append(f"the certificate is not valid before {certificate.not_valid_before_utc:%Y-%m-%d}")
    if key is not None:
        private = serialization.load_pem_private_key(key, None)
        if private.public_key() != certificate.public_key():
            found.append("the certificate does not belong to the key next to it")
    return found
