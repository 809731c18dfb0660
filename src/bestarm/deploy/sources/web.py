"""Rewards from a web address."""

from __future__ import annotations

import asyncio
import json
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Sequence
from http.client import HTTPException
from typing import Any

from bestarm.deploy.sources.base import MAX_OUTPUT, Failed, Source
from bestarm.errors import InputError
from bestarm.util.text import counted, shorten


class FromHttp(Source):
    """Rewards from a web address, by GET.

    ``{arm}`` in the address is replaced by the arm's name, quoted, and ``{times}`` by the number of rewards
    wanted. The answer is JSON: a number, or a list of 1 to `times` numbers (exactly one without ``{times}``).
    Requests that get no answer, or status 5xx, 408 or 429, are retried; other errors are not.
    """

    def __init__(self, url: str, **options: Any) -> None:
        super().__init__(url, **options)
        if urllib.parse.urlsplit(url).scheme not in ("http", "https") or "{arm}" not in url:
            raise InputError(
                f"{shorten(url)} can't be used", expected="http:// or https://, with {arm} in it"
            )
        self.batch = "{times}" in url

    async def _fetch(self, arm: str, times: int) -> Sequence[object]:
        values = {"{arm}": urllib.parse.quote(arm, safe=""), "{times}": str(times)}
        url = re.sub(r"\{arm\}|\{times\}", lambda found: values[found[0]], self.name)
        answer = await asyncio.to_thread(self._get, url)
        try:
            if len(answer) > MAX_OUTPUT:
                raise ValueError(f"more than {MAX_OUTPUT} bytes")
            found = json.loads(answer)
        except (ValueError, RecursionError):
            raise InputError(
                f"answered {shorten(answer)}", where=self._where(arm), expected="a number or a list, as JSON"
            ) from None
        found = found if isinstance(found, list) else [found]
        if len(found) > 1 and not self.batch:
            raise InputError(f"gave {counted(len(found), 'reward')}", where=self._where(arm), expected="one")
        return found

    def _get(self, url: str) -> bytes:
        fresh = urllib.request.Request(url, headers={"Cache-Control": "no-cache", "Pragma": "no-cache"})
        try:  # a cache would return the same reward every time
            with urllib.request.urlopen(fresh, timeout=self.retry.timeout) as response:
                answer = bytes(response.read(MAX_OUTPUT + 1))
                if response.length and len(answer) <= MAX_OUTPUT:  # a truncated number is still a number
                    raise Failed("the answer was cut off")
                return answer
        except urllib.error.HTTPError as error:
            error.close()
            again = error.code >= 500 or error.code in (408, 429)
            raise Failed(f"HTTP {error.code} {error.reason}", final=not again) from None
        except urllib.error.URLError as error:
            raise Failed(f"no answer: {error.reason}") from None
        except (OSError, HTTPException) as error:
            raise Failed(f"no answer: {type(error).__name__} {error}") from None
