"""What the operator's commands change while a server runs is in the server's log."""

from __future__ import annotations

import asyncio

from bestarm.deploy.federation import files, renewal
from federations import CASES
from helpers import serving, until


def test_each_command_leaves_a_line_in_the_log_of_a_running_server(tmp_path, caplog):
    folder = tmp_path / "f"

    async def main():
        async with serving(folder, CASES["robust-fed-sel"]) as _:
            steps = {
                "of west-1 was revoked": lambda: files.revoke(folder, "west-1"),
                "west-1 was given the key": lambda: files.add_client(folder, "west-1"),
                "the server's key": lambda: renewal.renew_server_key(folder),
                "the broker's certificate was renewed": lambda: renewal.renew_certificate(folder),
                "the certificate authority was renewed": lambda: renewal.renew_certificate(
                    folder, authority=True
                ),
                "the run continues without east-1": lambda: files.drop(folder, "east-1"),
            }
            for text, command in steps.items():
                assert text not in caplog.text
                command()
                await until(lambda text=text: text in caplog.text)
                assert caplog.text.count(text) == 1

    asyncio.run(main())
