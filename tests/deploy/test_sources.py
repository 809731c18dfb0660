"""Every source returns its rewards, checks each one, retries failures, and reports errors clearly."""

from __future__ import annotations

import asyncio
import functools
import os
import re
import shlex
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from bestarm.deploy.sources import (
    MAX_OUTPUT,
    MEANS,
    SEED,
    Exhausted,
    FromCommand,
    FromCsv,
    FromHttp,
    FromPython,
    Retry,
    SourceFailed,
)
from bestarm.errors import InputError

QUICK = Retry(attempts=3, wait=0.001, timeout=120)
SHORT = Retry(attempts=2, wait=0.001, timeout=0.3)


def pulled(source, *asked):
    """Return the rewards of each pull, or its exception."""

    async def run():
        found = []
        async with source:
            for arm, times in asked:
                try:
                    found.append(await source.pull(arm, times))
                except (InputError, SourceFailed, Exhausted) as error:
                    found.append(error)
        return found

    return asyncio.run(run())


def refusal(source, arm="a", times=1):
    """The text of the InputError that a pull raises."""
    (error,) = pulled(source, (arm, times))
    assert isinstance(error, InputError), error
    return str(error)


def failure(source, arm="a", times=1):
    (error,) = pulled(source, (arm, times))
    assert type(error) is SourceFailed, error
    return str(error)


def python(code: str) -> str:
    return f"{shlex.quote(sys.executable)} -c {shlex.quote(code)}"


def gone(pid: int) -> bool:
    """Whether a process has ended (its parent may not have reaped it yet)."""
    for _ in range(20_000):
        try:
            with open(f"/proc/{pid}/stat") as file:
                if file.read().rpartition(")")[2].split()[0] == "Z":
                    return True
        except FileNotFoundError:
            return True
        time.sleep(0.005)
    return False


needs_proc = pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="looks processes up in /proc")


class Flaky:
    """Fails a given number of times, then returns 0.5; counts its calls."""

    def __init__(self, failures: int, error: Exception | None = None) -> None:
        self.failures, self.calls, self.error = failures, 0, error or OSError("no sensor")

    def pull(self, arm):
        self.calls += 1
        if self.calls <= self.failures:
            raise self.error
        return 0.5


async def sleepy(arm):
    await asyncio.sleep(100)


async def batches(arm, times):
    return np.full(min(times, 4), 0.25)


class Async:
    async def __call__(self, arm):
        return True


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda arm: {"a": 0.25}[arm], [0.25] * 6),
        (lambda arm, verbose=False: 1 if verbose is False else 0, [1.0] * 6),
        (lambda arm, *more: len(more), [0.0] * 6),
        (lambda arm, times: [0.5] * times, [0.5] * 6),
        (lambda arm, times=1: (x / 10 for x in range(times)), [0.0, 0.1, 0.2, 0.3, 0.4, 0.5]),
        (lambda arm, n: np.arange(n) > 2, [0.0, 0.0, 0.0, 1.0, 1.0, 1.0]),
        (functools.partial(lambda sensor, arm: sensor, 0.75), [0.75] * 6),
        (lambda arm: np.float32(0.5), [0.5] * 6),
        (batches, [0.25] * 6),
        (Async(), [1.0] * 6),
        (Async, [1.0] * 6),
        (Flaky(0), [0.5] * 6),
        ({"a": 0.5}.get, [0.5] * 6),
    ],
)
def test_a_python_object_is_called_as_its_signature_says(function, expected):
    assert pulled(FromPython(function), ("a", 6)) == [expected]


def test_a_python_object_is_found_by_its_name(tmp_path, monkeypatch):
    (tmp_path / "my_sensors.py").write_text(
        "class Lab:\n    def pull(self, arm): return 0.5\nlab = Lab()\nx = 7\n"
    )
    (tmp_path / "my_broken.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("my_sensors:Lab", "my_sensors:lab", "my_sensors:lab.pull"):
        assert pulled(FromPython(name), ("a", 2)) == [[0.5, 0.5]]
    for name, message in {
        "my_sensors": "does not name an object.*package.module:object",
        "my_sensors:": "does not name an object",
        "my_sensors:laab": 'there is no "laab".*Did you mean "lab"',
        "my_sensors:nothing_like_it": 'there is no "nothing_like_it".*Known: [a-zA-Z]',
        "my_sensors:x": "7 can't be called",
        "my_nowhere:f": "can't be imported.*my_nowhere",
        "my_broken:f": "can't be imported.*ZeroDivisionError",
    }.items():
        with pytest.raises(InputError, match=message):
            FromPython(name)


@pytest.mark.parametrize("function", [lambda: 1, lambda a, b, c: 1, lambda arm, *, key: 1, 7, Flaky])
def test_an_object_that_cannot_be_called_with_an_arm_is_refused(function):
    with pytest.raises(InputError, match=r"f\(arm\) or f\(arm, times\)|without arguments"):
        FromPython(function)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (1.5, r"reward of 1\.5"), (-0.001, "reward of -0.001"), (float("nan"), "nan"), (float("inf"), "inf"),
        (None, "None"), ("0.5", "'0.5'"), (10**400, "1000"), (1j, "1j"), ([0.5], r"\[0\.5\]"),
    ],
)  # fmt: skip
def test_an_invalid_reward_is_refused_with_source_arm_and_value(value, shown):
    def sensor(arm):
        calls.append(arm)
        return value

    calls = []
    text = refusal(FromPython(sensor, retry=QUICK))
    assert text.startswith('sensor, arm "a": gave')
    assert re.search(shown, text), text
    assert calls == ["a"]  # it was not pulled again for a valid one


def test_rewards_are_on_the_users_scale():
    assert pulled(FromPython(lambda arm: -40, low=-50, high=50), ("a", 2)) == [[-40.0, -40.0]]
    with pytest.raises(InputError, match="low < high"):
        FromPython(lambda arm: 1, low=1, high=1)


def test_rewards_before_an_invalid_one_are_returned_and_then_the_error():
    values = iter([0.1, 0.2, 7, 0.3, 0.4])
    first, error, rest = pulled(FromPython(lambda arm: next(values)), ("a", 5), ("a", 5), ("a", 2))
    assert first == [0.1, 0.2]
    assert "reward of 7.0" in str(error)
    assert rest == [0.3, 0.4]


def test_rewards_before_a_failure_are_returned_and_other_arms_continue():
    values = iter([0.1, 0.2])

    def sensor(arm):
        if arm == "b":
            return 0.9
        found = next(values, None)
        if found is None:
            raise OSError("unplugged")
        return found

    found = pulled(FromPython(sensor, retry=QUICK), ("a", 9), ("b", 1), ("a", 1), ("b", 1))
    assert found[0] == [0.1, 0.2]
    assert found[1] == found[3] == [0.9]
    assert type(found[2]) is SourceFailed


@pytest.mark.parametrize("found", [[], [0.5] * 4, 0.5, "text", {"a": 1}])
def test_a_batch_of_the_wrong_size_or_none_is_refused(found):
    assert "gave" in refusal(FromPython(lambda arm, times: found), times=3)


def test_a_failed_pull_is_retried_and_then_given_up():
    flaky = Flaky(2)
    assert pulled(FromPython(flaky, retry=QUICK), ("a", 3)) == [[0.5] * 3]
    assert flaky.calls == 5
    flaky = Flaky(99)
    text = failure(FromPython(flaky, retry=QUICK))
    assert 'arm "a": OSError: no sensor (gave up after 3 attempts)' in text
    assert flaky.calls == 3


@pytest.mark.parametrize("error", [Exhausted("no more"), StopIteration()])
def test_a_function_may_signal_that_its_rewards_ran_out(error):
    flaky = Flaky(1, error)
    found = pulled(FromPython(flaky, retry=QUICK), ("a", 1), ("a", 1))
    assert type(found[0]) is Exhausted
    assert found[1] == [0.5]


def test_an_async_function_that_takes_too_long_is_ended():
    assert "no answer within 0.3 s (gave up after 2 attempts)" in failure(FromPython(sleepy, retry=SHORT))


def test_a_cancelled_pull_keeps_its_rewards_for_the_next_one():
    async def run():
        reached, count = asyncio.Event(), 0

        async def sensor(arm):
            nonlocal count
            count += 1
            if count == 4:
                reached.set()
                await asyncio.sleep(100)
            return count / 10

        source = FromPython(sensor)
        task = asyncio.create_task(source.pull("a", 10))
        await reached.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return await source.pull("a", 4)

    assert asyncio.run(run()) == [0.1, 0.2, 0.3, 0.5]


def test_a_cancelled_pull_waits_for_a_function_in_a_thread_and_keeps_its_rewards():
    async def run():
        reached, leave = threading.Event(), threading.Event()

        def sensor(arm, times):
            reached.set()
            leave.wait(60)
            return [0.5] * times

        source = FromPython(sensor)
        task = asyncio.create_task(source.pull("a", 3))
        await asyncio.to_thread(reached.wait, 60)
        task.cancel()
        await asyncio.sleep(0.01)
        assert not task.done()
        leave.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        return source.arrived("a"), source.arrived("a")

    assert asyncio.run(run()) == ([0.5] * 3, [])


@pytest.mark.parametrize(
    "options", [{"attempts": 0}, {"wait": -1}, {"factor": 0.5}, {"longest": -1}, {"timeout": 0}]
)
def test_invalid_retry_settings_are_refused(options):
    with pytest.raises(InputError):
        Retry(**options)


def test_asking_for_no_rewards_is_an_error():
    assert "at least 1" in refusal(FromPython(Flaky(0)), times=0)


def test_a_command_prints_one_reward_per_process(tmp_path):
    log = tmp_path / "log"
    code = f"import sys; open({str(log)!r}, 'a').write(sys.argv[1] + '|'); print(' 0.5 ')"
    assert pulled(FromCommand(python(code) + " --arm={arm}"), ("x y", 2), ("b", 1)) == [[0.5, 0.5], [0.5]]
    assert log.read_text() == "--arm=x y|--arm=x y|--arm=b|"


def test_a_command_may_print_many_rewards():
    command = (
        python("import sys; [print(i / 10) for i in range(min(4, int(sys.argv[2])))]") + " {arm} {times}"
    )
    assert pulled(FromCommand(command), ("a", 6)) == [[0.0, 0.1, 0.2, 0.3, 0.0, 0.1]]
    assert "gave 9 rewards" in refusal(FromCommand(python("print('1\\n' * 9)") + " {arm} {times}"), times=3)


@pytest.mark.parametrize(
    "arm", ["; touch pwned", "$(touch pwned)", "`touch pwned`", "' \" \\", "{times}", "a\tb"]
)
def test_no_shell_sees_an_arms_name(tmp_path, monkeypatch, arm):
    monkeypatch.chdir(tmp_path)
    code = "import sys; assert sys.argv[1:] == [sys.argv[1]]; print(len(sys.argv[1]) / 100)"
    assert pulled(FromCommand(python(code) + " {arm}"), (arm, 1)) == [[len(arm) / 100]]
    assert pulled(FromCommand("sh -c 'test -n \"$1\" && echo 0.5' sh {arm}"), (arm, 1)) == [[0.5]]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "command",
    [
        "sh -c 'read-sensor {arm}'",
        "/bin/bash -ec 'echo {arm}'",
        "env A=1 sh -c {arm}",
        "bash -o pipefail -c -x {arm}",
    ],
)
def test_an_arms_name_inside_a_shells_program_is_refused(command):
    with pytest.raises(InputError, match="to a shell as program text"):
        FromCommand(command)


def test_an_arms_name_is_never_parsed_as_an_option():
    assert "as an option" in refusal(FromCommand("echo {arm}"), arm="-n")


@pytest.mark.parametrize("command", ["", "  ", "read 'sensor"])
def test_a_command_that_cannot_be_parsed_is_refused(command):
    with pytest.raises(InputError):
        FromCommand(command)


def test_a_missing_program_is_refused_immediately():
    assert "can't be started" in refusal(FromCommand("/nowhere/read-sensor {arm}", retry=QUICK))
    assert "can't be started" in refusal(FromCommand("/nowhere/read-sensor", retry=QUICK))


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("print('warm')", "gave 'warm'. Expected a finite number"),
        ("print('1_0')", "gave '1_0'"),
        ("print('nan')", "gave 'nan'"),
        ("print('1.5')", "gave a reward of 1.5. Expected a reward in [0, 1]"),
        ("print('0.5\\n0.5')", "printed 2 lines. Expected one reward"),
        ("", "gave 0 rewards"),
        ("import os; os.write(1, b'\\xff\\xfe\\n')", "Expected a finite number"),
        (f"print('1' * {MAX_OUTPUT + 1})", "printed more than"),
    ],
)
def test_garbage_from_a_command_is_refused(code, message):
    assert message in refusal(FromCommand(python(code) + " {arm}", retry=QUICK))


def test_a_failed_command_is_retried(tmp_path):
    code = f"""
import sys
with open({str(tmp_path / "count")!r}, "a+") as file:
    file.write("x"); file.seek(0)
    if len(file.read()) < 3:
        print("noise", file=sys.stderr); sys.exit("no sensor")
print(0.5)
"""
    assert pulled(FromCommand(python(code) + " {arm}", retry=QUICK), ("a", 1)) == [[0.5]]
    assert (tmp_path / "count").read_text() == "xxx"
    text = failure(FromCommand(python("import sys; sys.exit('no sensor')") + " {arm}", retry=QUICK))
    assert "exit code 1: no sensor (gave up after 3 attempts)" in text
    text = failure(FromCommand("sh -c 'kill -9 $$' sh {arm}", retry=QUICK))
    assert "killed by signal 9" in text


@needs_proc
def test_a_command_that_takes_too_long_is_killed_with_its_children(tmp_path):
    command = f"sh -c 'echo $$ >>{tmp_path}/pids; sleep 1000 & echo $! >>{tmp_path}/pids; wait' sh {{arm}}"
    retry = Retry(attempts=4, wait=0.001, timeout=0.5)  # the first may be slow to start
    assert "no answer within 0.5 s" in failure(FromCommand(command, retry=retry))
    pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    assert pids
    assert all(gone(pid) for pid in pids)


ECHO = """
import sys
for number, line in enumerate(sys.stdin):
    print(len(line) / 64 + number / 8, flush=True)
"""


def test_a_kept_process_answers_line_by_line():
    source = FromCommand(python(ECHO))
    assert source.kept_running
    assert pulled(source, ("a", 2), ("bcd", 2)) == [[2 / 64, 10 / 64], [20 / 64, 28 / 64]]


def test_a_kept_process_that_dies_is_restarted(tmp_path):
    code = f"""
import os, sys
open({str(tmp_path / "starts")!r}, "a").write("x")
print(0.5, flush=True) if sys.stdin.readline() else None
sys.stdin.readline()
"""
    assert pulled(FromCommand(python(code), retry=QUICK), ("a", 4)) == [[0.5] * 4]
    assert (tmp_path / "starts").read_text() == "xxxx"
    brief = python("import sys; sys.stdin.readline(); print(0.25)")  # ends after each answer
    assert pulled(FromCommand(brief, retry=QUICK), ("a", 3)) == [[0.25] * 3]


def test_a_kept_process_that_always_dies_is_given_up():
    text = failure(FromCommand(python("import sys; sys.stdin.readline(); sys.exit(7)"), retry=QUICK))
    assert "it ended (exit code 7) without an answer (gave up after 3 attempts)" in text
    text = failure(FromCommand(python("import os; os.write(1, b'0.5')"), retry=QUICK))
    assert "without an answer" in text  # an incomplete line is not a reward


def test_a_late_answer_is_never_attributed_to_another_arm(tmp_path):
    """The first process answers too late; its answer must not be used for the next request."""
    code = f"""
import os, sys, time
first = not os.path.exists({str(tmp_path / "seen")!r})
open({str(tmp_path / "seen")!r}, "w").close()
for line in sys.stdin:
    if first:
        time.sleep(3)
    print(0.1 if first else 0.9, flush=True)
"""
    retry = Retry(attempts=30, wait=0.001, timeout=1.0)
    assert pulled(FromCommand(python(code), retry=retry), ("a", 1), ("b", 2)) == [[0.9], [0.9, 0.9]]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ("'warm'", "gave 'warm'"),
        ("2", "gave a reward of 2.0"),
        ("''", "gave ''"),
        ("'9' * 3_000_000", "a line of more"),
    ],
)
def test_garbage_from_a_kept_process_is_refused(answer, message):
    code = f"import sys\nfor line in sys.stdin: print({answer}, flush=True)"
    assert message in refusal(FromCommand(python(code), retry=QUICK))


def test_extra_output_of_a_kept_process_is_detected():
    code = "import os, sys\nfor line in sys.stdin: os.write(1, b'0.1\\n0.2\\n')"
    first, error = pulled(FromCommand(python(code), retry=QUICK), ("a", 5), ("a", 5))
    assert first == [0.1]
    assert "printed too many lines" in str(error)


def test_an_arm_name_with_a_line_break_is_refused():
    assert "not a single line of text" in refusal(FromCommand(python(ECHO)), arm="a\nb")


@needs_proc
def test_closing_ends_the_kept_process():
    code = (
        "import os, sys\nfor line in sys.stdin: print(os.getpid(), flush=True)\nimport time; time.sleep(1000)"
    )
    ((pid,),) = pulled(FromCommand(python(code), high=2**40), ("a", 1))
    assert gone(int(pid))


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.paths.append(self.path)
        status, body, *how = self.server.answers[min(len(self.server.paths), len(self.server.answers)) - 1]
        if how == ["hang"]:
            self.server.let_go.wait(120)
        if how == ["cut"]:
            self.wfile.write(b"HTTP/1.0 200 OK\r\nContent-Length: 100\r\n\r\n0.5")
            return
        self.send_response(status)
        if status == 302:
            self.send_header("Location", "file:///etc/hostname")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def web(monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.paths, server.answers, server.let_go = [], [(200, b"0.5")], threading.Event()
    server.daemon_threads = False
    server.handle_error = lambda *_: None  # a client that disconnects is not logged
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    server.url = f"http://127.0.0.1:{server.server_port}"
    yield server
    server.let_go.set()
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_web_address_gives_one_reward_or_a_list(web):
    assert pulled(FromHttp(web.url + "/pull?arm={arm}"), ("a b/ü&x", 2)) == [[0.5, 0.5]]
    assert web.paths == ["/pull?arm=a%20b%2F%C3%BC%26x"] * 2
    web.paths.clear()
    web.answers = [(200, b"[0, 0.5, 1]"), (200, b" 0.25\n")]
    assert pulled(FromHttp(web.url + "/{arm}/{times}"), ("{times}", 4)) == [[0.0, 0.5, 1.0, 0.25]]
    assert web.paths == ["/%7Btimes%7D/4", "/%7Btimes%7D/1"]


@pytest.mark.parametrize(
    ("answers", "tries"),
    [
        ([(500, b""), (503, b"1"), (200, b"0.5")], 3),
        ([(429, b""), (200, b"0.5")], 2),
        ([(0, b"", "cut"), (200, b"0.5")], 2),
    ],
)
def test_a_failed_web_request_is_retried(web, answers, tries):
    web.answers = answers
    assert pulled(FromHttp(web.url + "/{arm}", retry=QUICK), ("a", 1)) == [[0.5]]
    assert len(web.paths) == tries


@pytest.mark.parametrize(("status", "tries"), [(500, 3), (404, 1), (403, 1), (302, 1)])
def test_a_web_address_is_given_up_after_all_retries(web, status, tries):
    web.answers = [(status, b"0.5")]
    text = failure(FromHttp(web.url + "/{arm}", retry=QUICK))
    assert f'/{{arm}}, arm "a": HTTP {status}' in text
    assert ("3 attempts" if tries == 3 else "1 attempt") in text
    assert len(web.paths) == tries


def test_a_web_address_that_does_not_answer_is_given_up(web):
    web.answers = [(200, b"0.5", "hang")]
    text = failure(FromHttp(web.url + "/{arm}", retry=SHORT))
    assert "no answer" in text
    assert "2 attempts" in text
    web.let_go.set()


def test_a_web_address_without_a_listener_is_given_up(web):
    web.socket.close()
    assert "no answer: " in failure(FromHttp(web.url + "/{arm}", retry=QUICK))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "answered b''"), (b"<html>", "as JSON"), (b"NaN", "gave nan"), (b"-Infinity", "gave -inf"),
        (b'"0.5"', "gave '0.5'"), (b"null", "gave None"), (b"true", None), (b"1.5", "gave a reward of 1.5"),
        (b"[0.1, 0.2]", "gave 2 rewards"), (b"[]", "gave 0 rewards"), (b"[[0.5]]", "gave [0.5]"),
        (b"9" * 5000, "as JSON"), (b"[" * 100_000, "as JSON"), (b" " * (MAX_OUTPUT + 1) + b"1", "as JSON"),
        (b"\xff", "as JSON"), (b"1e999", "gave inf"),
    ],
)  # fmt: skip
def test_garbage_from_a_web_address_is_refused(web, body, message):
    web.answers = [(200, body)]
    source = FromHttp(web.url + "/{arm}", retry=QUICK)
    if message is None:
        assert pulled(source, ("a", 1)) == [[1.0]]  # JSON's true is a success
    else:
        assert message in refusal(source)
    assert len(web.paths) == 1


@pytest.mark.parametrize(
    "url", ["file:///etc/{arm}", "ftp://x/{arm}", "example.com/{arm}", "http://x/arm", ""]
)
def test_only_web_addresses_with_a_placeholder_for_the_arm_are_accepted(url):
    with pytest.raises(InputError, match="can't be used"):
        FromHttp(url)


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "rewards.csv"
    path.write_text("\ufeffday, arm ,reward\n1,a,0.1\n1,b,1\n2,a,0.2\n\n3,a, 0.3 \n", encoding="utf-8")
    return path


def test_a_recording_is_played_in_its_order_and_runs_out(table):
    found = pulled(FromCsv(table, rows="once"), ("a", 2), ("b", 5), ("a", 5), ("a", 1), ("b", 1), ("a", 1))
    assert found[:3] == [[0.1, 0.2], [1.0], [0.3]]
    assert all(type(error) is Exhausted for error in found[3:])
    assert f'{table}, arm "a": all 3 rewards were played' in str(found[3])


def test_a_recording_continues_where_it_stopped(table):
    played = FromCsv(table, rows="once", start={"a": 2, "b": 1})
    found = pulled(played, ("a", 5), ("b", 1))
    assert found[0] == [0.3]
    assert type(found[1]) is Exhausted


def test_draws_are_seeded_resumable_and_independent_of_batch_sizes(table):
    (whole, ones) = pulled(FromCsv(table, rows="resample", seed=7), ("a", 300), ("b", 5))
    assert set(whole) == {0.1, 0.2, 0.3}
    assert min(whole.count(value) for value in set(whole)) > 60  # P < 1e-5 for a fair draw
    assert ones == [1.0] * 5
    pieces = pulled(FromCsv(table, rows="resample", seed=7), ("b", 3), *[("a", 30)] * 10)
    assert [reward for piece in pieces[1:] for reward in piece] == whole
    assert pulled(FromCsv(table, rows="resample", seed=7, start={"a": 100}), ("a", 200)) == [whole[100:]]
    assert pulled(FromCsv(table, rows="resample", seed=8), ("a", 300)) != [whole]


def test_an_arm_that_was_not_recorded_is_refused(table):
    assert 'there are no rewards for arm "c"' in refusal(FromCsv(table), arm="c")
    FromCsv(table, arms=["a", "b"])
    with pytest.raises(InputError, match=r'there are no rewards for arm "c". Known: a, b'):
        FromCsv(table, arms=["a", "c"])


def test_columns_may_have_other_names(tmp_path):
    (tmp_path / "r.csv").write_text("courier,minutes late\nAnna,0.5\nBob,0.25\n")
    named = {"arm_column": "courier", "reward_column": "minutes late"}
    assert pulled(FromCsv(tmp_path / "r.csv", **named, rows="once"), ("Bob", 1)) == [[0.25]]
    for columns in ({}, {"arm_column": "courier"}):
        with pytest.raises(InputError, match=r"The columns are: courier, minutes late. .*--reward-column"):
            FromCsv(tmp_path / "r.csv", **columns)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file is empty"),
        ("arm,value\na,1\n", 'no column "reward"'),
        ("farm,reward\na,1\n", 'no column "arm". The columns are: farm, reward. Name yours'),
        ("arm,reward,arm\na,1,b\n", 'column "arm" appears more than once'),
        ("arm,reward\n", "no rewards in this file"),
        ("arm,reward\na,1\n,1\n", "line 3: the arm is missing"),
        ("arm,reward\na,1\na,warm\n", "line 3: holds 'warm'. Expected a finite number"),
        ("arm,reward\na,1\na\n", "line 3: 1 cell. Expected 2"),
        ("arm,reward\na,1\na,\n", "line 3: holds ''"),
        ("arm,reward\na,nan\n", "line 2: holds 'nan'"),
        ("arm,reward\na,7\n", r"line 2: holds a reward of 7.0. Expected a reward in \[0, 1\]"),
    ],
)
def test_a_file_with_a_mistake_is_refused_with_its_line(tmp_path, text, message):
    (tmp_path / "r.csv").write_text(text)
    with pytest.raises(InputError, match=message):
        FromCsv(tmp_path / "r.csv")


def test_a_file_that_cannot_be_read_is_refused(tmp_path):
    (tmp_path / "r.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="not a text file"):
        FromCsv(tmp_path / "r.csv")
    with pytest.raises(InputError, match="can't be read"):
        FromCsv(tmp_path / "nowhere.csv")


# --- the coins of the demos ---


def drawn(seed, monkeypatch, made=None, times=(200,)):
    monkeypatch.setenv(MEANS, '{"a": 0.5, "b": 0.5}')
    monkeypatch.delenv(SEED, raising=False)
    if seed is not None:
        monkeypatch.setenv(SEED, seed)
    source = FromPython("bestarm.deploy.sources:Coins", made=made)
    return [[coin for n in times for coin in pulled(source, (arm, n))[0]] for arm in ("a", "b")]


def test_the_same_seed_gives_the_same_coins_for_each_client_and_arm(monkeypatch):
    first = drawn("1/north-1", monkeypatch)
    assert drawn("1/north-1", monkeypatch) == first
    assert drawn("1/north-1", monkeypatch, times=(7, 100, 93)) == first, "however they are asked for"
    assert first[0] != first[1]
    assert drawn("2/north-1", monkeypatch) != first
    assert drawn("1/north-2", monkeypatch) != first
    assert drawn(None, monkeypatch) != drawn(None, monkeypatch)


def test_seeded_coins_continue_after_a_restart(monkeypatch):
    whole = drawn("1/north-1", monkeypatch, times=(100,))
    rest = drawn("1/north-1", monkeypatch, made={"a": 60}, times=(40,))
    assert rest[0] == whole[0][60:]
    assert rest[1] == whole[1][:40]
