"""Names of folders keep their letters, and no two are one folder on any file system."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bestarm.deploy.folder_names import MOST_BYTES, folder_name, same_folder, unused


@pytest.mark.parametrize(
    ("client", "folder"),
    [
        ("north-1", "north-1"),
        ("Süd-1", "Süd-1"),
        ("Su\N{COMBINING DIAERESIS}d-1", "Süd-1"),
        ("東京", "東京"),
        ("हिन्दी", "हिन्दी"),
        ("St. Mary's, Ward 3", "St.-Mary-s-Ward-3"),
        ("..", ""),
        ("../../etc", "etc"),
        (".hidden", "hidden"),
        ("nul", "nul_"),
        ("COM1.txt", "COM1.txt_"),
        ("ends with a dot.", "ends-with-a-dot"),
    ],
)
def test_a_folder_keeps_the_letters_of_its_client(client, folder):
    assert folder_name(client) == folder


@given(st.text(max_size=200))
def test_a_folder_name_is_one_harmless_part_of_a_path(client):
    name = folder_name(client)
    assert len(name.encode()) <= MOST_BYTES + 1
    assert not set(name) & set('/\\:*?"<>| \t\n\0')
    assert name == name.strip(".-")
    assert name.isprintable()


@given(st.lists(st.text(alphabet="aAäÄßsSﬁfi. /", max_size=4), max_size=30))
def test_no_two_folders_are_one_on_a_disk_that_ignores_case(clients):
    taken = set()
    for k, client in enumerate(clients):
        name = unused(client, f"s{k}", taken)
        assert same_folder(name) not in taken
        taken.add(same_folder(name))
    assert len(taken) == len(clients)
