"""Each attack changes a message of each method or is refused, so no liar is honest by accident."""

from __future__ import annotations

import dataclasses

import pytest

import bestarm as ba
from bestarm import Adversary, Attack, InputError, Network, Problem
from bestarm.graphs.generators import complete
from bestarm.protocol.codec import Malformed
from bestarm.protocol.events import ALL, Send
from bestarm.protocol.registry import METHODS, method_for, register_method
from bestarm.simulate.identify import check_network, prepare, run_of
from bestarm.simulate.lying_client import ATTACKS
from bestarm.simulate.network_run import NetworkRun

MEANS = [[0.95, 0.05], [0.8, 0.05]]
CASES = {
    "fed-sel": (1, {"method": "fed-sel", "period": 4000}),
    "fed-sel without quantiser": (1, {"method": "fed-sel", "period": 4000, "quantiser": False}),
    "robust-fed-sel": (3, {"method": "robust-fed-sel", "period": 4000, "byzantine": 1}),
    "fisher": (1, {"method": "fisher"}),
    "fisher, pooled": (3, {"method": "fisher", "byzantine": 1}),
    "bet": (3, {"method": "bet", "byzantine": 1}),
    "p2p, means": (4, {"method": "p2p", "byzantine": 1, "exchange": "means"}),
    "p2p, intervals": (4, {"method": "p2p", "byzantine": 1, "exchange": "intervals"}),
}
BYTES_ONLY = {"silent", "silent-later", "crash", "negative-count", "not-a-number", "random-bytes", "replay"}
REFUSED = {
    "fisher": set(ATTACKS) - BYTES_ONLY - {"equivocate"},
    "p2p, means": {"tiny-count"},  # messages hold no counts
}
LATE = {"withhold"}  # changes when messages are sent, and perhaps nothing else
HONEST = {  # these copy honest clients of their group, and there are none
    "fed-sel": {"inflate", "deflate", "rush", "steer"},
    "fed-sel without quantiser": {"inflate", "deflate", "rush", "steer"},
}


def liars_of(run) -> list[Attack]:
    machines = run.peers if isinstance(run, NetworkRun) else run.clients
    return [machine for machine in machines if isinstance(machine, Attack)]


def sends(handle, log):
    """A machine's `handle` that also records what it sends."""

    def noted(event):
        actions = handle(event)
        log.extend((action.to, action.payload) for action in actions if isinstance(action, Send))
        return actions

    return noted


def lies(case: str, attack: str, groups=("g1", "g2")) -> bool:
    """Whether some liar of a run sent a different message than its honest client would have sent."""
    clients, keys = CASES[case]
    rest = {key: value for key, value in keys.items() if key != "method"}
    problem, method, options = prepare(
        Problem.bernoulli(MEANS, clients=clients), keys["method"], {"delta": 0.1, **rest}
    )
    size = len(problem.layout.clients)
    network = Network(complete(size)) if METHODS[method].peers else None
    network = check_network(problem, method, options, network)
    adversaries = [Adversary(group, attack) for group in groups]
    run = run_of(problem, method, options, 3, network, adversaries=adversaries)
    told: list[tuple[Attack, list, list]] = []
    for liar in liars_of(run):
        honest: list[tuple[str, bytes]] = []
        said: list[tuple[str, bytes]] = []
        told.append((liar, honest, said))
        liar.machine.handle = sends(liar.machine.handle, honest)
        liar.handle = sends(liar.handle, said)
    run.go()
    assert ba.verify(run.record()).failures == ()
    for liar, honest, said in told:
        hearers = liar.world.heard_by(liar.name) if network else ["server"]
        payloads = [payload for _, payload in honest]
        if any([p for to, p in said if to in (hearer, ALL)] != payloads for hearer in hearers):
            return True
    return False


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("attack", list(ATTACKS))
def test_each_attack_changes_a_message_or_is_refused(case, attack):
    if attack in REFUSED.get(case, ()):
        with pytest.raises(InputError, match="cannot be simulated"):
            lies(case, attack)
    else:
        found = lies(case, attack)
        assert found is (attack not in HONEST.get(case, ())) or attack in LATE


class FalseClaims(Attack):
    """Lies about every field."""

    def arm(self, arm):
        return 1 - arm

    def mean(self, arm, mean):
        return 0.3

    def count(self, count):
        return count + 100

    def interval(self, lower, upper):
        return lower - 0.1, upper + 0.1

    def verdict(self, group, arm):
        return 1 - group, arm


def claims_of(case: str) -> frozenset[str]:
    clients, keys = CASES[case]
    rest = {key: value for key, value in keys.items() if key != "method"}
    problem, method, options = prepare(Problem.bernoulli(MEANS, clients=clients), keys["method"], rest)
    found = method_for(method, problem.layout, options).lies
    return found.claims(options) if found else frozenset()


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("claim", ["arm", "mean", "count", "interval", "verdict"])
def test_a_lie_about_a_claim_is_sent_if_the_method_declares_that_field(case, claim):
    false = {claim: getattr(FalseClaims, claim)}
    if claim != "verdict":
        false["verdict"] = lambda self, group, arm: (group, arm)  # which otherwise follows from the mean
    type("Liar", (Attack,), false, name="one-lie")
    held = claims_of(case)
    if held.isdisjoint(false):
        with pytest.raises(InputError, match='attack "one-lie" cannot be simulated'):
            lies(case, "one-lie", groups=("g1",))
    else:
        assert lies(case, "one-lie", groups=("g1",)) is (claim in held)


def altered(**functions):
    """Register a method with the lies of Robust Fed-SEL, except for some functions."""
    robust = METHODS["robust-fed-sel"]
    lies = dataclasses.replace(robust.lies, **functions) if functions else None
    return register_method(dataclasses.replace(robust, name="altered", lies=lies))


def attacked(attack):
    problem = Problem.bernoulli(MEANS, clients=3)
    adversaries = [Adversary("g1", attack)]
    return ba.identify(problem, "altered", byzantine=1, period=4000, seed=3, adversaries=adversaries)


def test_a_method_without_lie_functions_can_be_attacked_only_with_bytes():
    altered()
    assert attacked("random-bytes").proven_faulty
    for attack in ("bury", "early", "forge", "adaptive"):
        with pytest.raises(InputError) as refused:
            attacked(attack)
        assert f'attack "{attack}" cannot be simulated with method "altered"' in str(refused.value)
        assert "one of: silent, silent-later, crash, negative-count," in str(refused.value)


def test_an_attack_that_needs_a_missing_function_is_refused():
    altered(early=None)
    with pytest.raises(InputError, match="the lie 'early'"):
        attacked("forge")
    assert attacked("bury").verdict.arm == "g1/a1"


def unreadable(liar, payload):
    raise Malformed("another language")


@pytest.mark.parametrize(
    ("alter", "message"),
    [(unreadable, "cannot read its own messages"), (lambda liar, payload: payload, "never use the claims")],
)
def test_lies_that_do_not_alter_a_message_are_a_bug_and_not_the_truth(alter, message):
    altered(alter=alter)
    with pytest.raises(RuntimeError, match=message):
        attacked("bury")


def test_an_attack_is_refused_before_a_study_starts():
    problem = Problem.bernoulli(MEANS)
    liars = [Adversary("g1", "silent")]
    with pytest.raises(InputError, match='attack "bury" cannot be simulated with method "fisher"'):
        ba.study(problem, "fisher", trials=2, adversaries=liars, vary={"attack": ["silent", "bury"]})


def test_two_attacks_with_one_name_are_refused():
    with pytest.raises(InputError, match='there is already an attack "bury"'):

        class Another(Attack, name="bury"):
            """Another attack."""

    assert ATTACKS["bury"].__name__ == "Bury"


def test_a_class_that_is_defined_again_replaces_itself():
    """For example, when a notebook cell is run twice."""
    for _ in range(2):

        class Again(Attack, name="again"):
            """The same attack."""

        assert ATTACKS["again"] is Again


def test_two_methods_with_one_name_are_refused():
    other = dataclasses.replace(METHODS["fisher"], title="Another")
    with pytest.raises(InputError, match='there is already a method "fisher"'):
        register_method(other)
    assert register_method(METHODS["fisher"]) is METHODS["fisher"]
