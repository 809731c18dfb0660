"""A file is written whole or not at all, and a failure leaves the old one and nothing else."""

from __future__ import annotations

import os
import stat

import pytest

from bestarm import InputError
from bestarm.util.files import replacing, write, write_new


def test_a_file_is_created_with_its_folders_and_replaced(tmp_path):
    path = tmp_path / "a" / "b" / "c.json"
    write(path, b"one")
    write(path, b"two", sync=False)
    assert path.read_bytes() == b"two"
    assert [entry.name for entry in path.parent.iterdir()] == ["c.json"]


def test_a_failure_half_way_leaves_the_old_file_and_no_temporary_file(tmp_path):
    path = tmp_path / "c.csv"
    write(path, b"old")

    def fail():
        with replacing(path) as scratch:
            scratch.write_bytes(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["c.csv"]


@pytest.mark.parametrize("links", [True, False])
def test_a_new_file_is_whole_and_never_replaces_another(tmp_path, monkeypatch, links):
    def no_links(*_):
        raise PermissionError

    if not links:
        monkeypatch.setattr(os, "link", no_links)
    path = tmp_path / "key"
    write_new(path, b"one")
    with pytest.raises(InputError, match=r"never overwritten\. Choose"):
        write_new(path, b"two", fix="Choose another name")
    assert path.read_bytes() == b"one"
    assert [entry.name for entry in tmp_path.iterdir()] == ["key"]
    with pytest.raises(InputError, match="can't be written"):
        write_new(tmp_path / "missing" / "key", b"one")


def test_a_new_file_that_appears_meanwhile_is_not_replaced(tmp_path, monkeypatch):
    path, sync = tmp_path / "key", os.fsync

    def another(number):
        path.write_bytes(b"another")
        sync(number)

    monkeypatch.setattr(os, "fsync", another)
    with pytest.raises(InputError, match="never overwritten"):
        write_new(path, b"one")
    assert path.read_bytes() == b"another"
    assert [entry.name for entry in tmp_path.iterdir()] == ["key"]


@pytest.mark.skipif(os.name != "posix", reason="modes are POSIX's")
def test_a_secret_is_readable_only_by_its_owner_even_after_a_crash(tmp_path):
    path = tmp_path / "key"
    remains = tmp_path / f".key.{os.getpid()}"
    remains.write_bytes(b"half")
    remains.chmod(0o666)
    write(path, b"secret", 0o600)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [entry.name for entry in tmp_path.iterdir()] == ["key"]


def test_a_path_that_can_t_be_written_is_named(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(InputError, match=r"file/x\.json: can't be written: "):
        write(tmp_path / "file" / "x.json", b"")
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputError, match=r"folder: can't be written: "):
        write(tmp_path / "folder", b"")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["file", "folder"]
