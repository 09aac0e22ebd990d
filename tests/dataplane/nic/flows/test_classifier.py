from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Address
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataplane.errors import ClassifierError
from dataplane.nic.flows.classifier import FlowClassifier, RuleCount
from dataplane.nic.flows.rules import Drop, FlowRule, Range, ToConsumers
from dataplane.nic.structures import ActionKind
from dataplane.wire.packet import udp_frame
from tests.dataplane.nic.flows.frames import frames
from tests.dataplane.nic.flows.matches import Seen, rules, seen_in
from tests.examples import examples
from tests.reference.classifying import find_rule, matches

GROUPS = {"reports": 3, "others": 4}
NAMES = [f"rule-{number}" for number in range(12)]
REPORTS = FlowRule("reports", {"udp.dst": 32766}, ToConsumers("reports"), priority=10, count=True, mark=7)


def make(*rules: FlowRule) -> FlowClassifier:
    classifier = FlowClassifier(GROUPS.get)
    with classifier.batch():
        for rule in rules:
            classifier.insert(rule)
    return classifier


def frame_to(port: int) -> bytes:
    ends: dict[str, Any] = {"src_mac": 1, "dst_mac": 2, "src": IPv4Address("10.0.0.1"), "dst": IPv4Address("10.0.0.2")}
    return udp_frame(**ends, src_port=1000, dst_port=port, payload=b"report")


FRAME, OTHER = frame_to(32766), frame_to(53)


class Model:
    """A classifier and the plain list of rules that it should behave like."""

    def __init__(self) -> None:
        self.classifier = make()
        self.rules: list[FlowRule] = []
        self.counts: dict[str, RuleCount] = {}

    def insert(self, rule: FlowRule) -> None:
        self.classifier.insert(rule)
        self.rules.append(rule)

    def replace(self, rule: FlowRule) -> None:
        self.classifier.replace(rule)
        if not rule.count:
            self.counts.pop(rule.name, None)
        self.rules = [rule if existing.name == rule.name else existing for existing in self.rules]

    def remove(self, rule: FlowRule) -> None:
        self.classifier.remove(rule.name)
        self.counts.pop(rule.name, None)
        self.rules = [existing for existing in self.rules if existing.name != rule.name]

    def put(self, rule: FlowRule, seen: Seen) -> None:
        """Insert, replace or remove; refused rules match none of the frames."""
        names = [existing.name for existing in self.rules]
        try:
            if rule.name not in names:
                self.insert(rule)
            elif rule.mark == 0:
                self.remove(rule)
            else:
                self.replace(rule)
        except ClassifierError:
            assert not any(matches(rule, fields) for fields in seen.fields)

    def check(self, frame: bytes) -> None:
        """Compare the verdicts of a frame, and count it."""
        verdict = self.classifier.classify(frame)
        wanted = find_rule(self.rules, frame)
        assert self.classifier.name_of(verdict.rule) == (wanted.name if wanted else None)
        if wanted is None:
            assert (verdict.action, verdict.mark) == (ActionKind.DROP, 0)
            return
        group = GROUPS[wanted.action.group] if isinstance(wanted.action, ToConsumers) else 0
        action = ActionKind.HAND_OUT if group else ActionKind.DROP
        assert (verdict.action, verdict.group, verdict.mark) == (action, group, wanted.mark)
        if wanted.count:
            count = self.counts.get(wanted.name, RuleCount(0, 0))
            self.counts[wanted.name] = RuleCount(count.packets + 1, count.bytes + len(frame))


@settings(max_examples=examples(30))
@given(st.data())
def test_a_linear_search_finds_the_same_rules(data: st.DataObject) -> None:
    seen = seen_in(data.draw(st.lists(frames(), min_size=1, max_size=5)))
    model = Model()
    for _ in range(data.draw(st.integers(1, 15))):
        with model.classifier.batch():
            for name in data.draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=4)):
                model.put(data.draw(rules(name, seen)), seen)
        for frame in seen.frames:
            model.check(frame)
    assert model.classifier.rules == tuple(model.rules)
    counted = {rule.name: model.counts.get(rule.name, RuleCount(0, 0)) for rule in model.rules if rule.count}
    assert model.classifier.read_counters() == counted


def test_older_rule_wins_and_replacing_keeps_its_age() -> None:
    younger = replace(REPORTS, name="younger", match={"udp.dst": Range(32000, 32766)})
    classifier = make(REPORTS, younger)
    assert classifier.name_of(classifier.classify(FRAME).rule) == "reports"
    classifier.replace(replace(REPORTS, mark=8, match={"ip.dst": "10.0.0.0/8"}))
    assert classifier.classify(FRAME).mark == 8
    classifier.replace(replace(younger, priority=11))
    assert classifier.name_of(classifier.classify(FRAME).rule) == "younger"


def test_counts_survive_other_changes_and_a_replacement() -> None:
    classifier = make(REPORTS)
    classifier.classify(FRAME, queue=3)
    classifier.insert(FlowRule("other", {"udp.dst": 53}, Drop(), count=True))
    classifier.classify(FRAME, queue=100)
    classifier.replace(replace(REPORTS, action=Drop()))
    classifier.classify(FRAME)
    counts = {"reports": RuleCount(3, 3 * len(FRAME)), "other": RuleCount(0, 0)}
    assert classifier.read_counters() == counts
    classifier.remove("reports")
    assert classifier.read_counters() == {"other": RuleCount(0, 0)}


def test_the_count_of_a_removed_rule_is_not_the_next_ones() -> None:
    classifier = make(REPORTS)
    classifier.classify(FRAME)
    classifier.remove("reports")
    for number in range(3):
        classifier.insert(FlowRule(f"next-{number}", {}, Drop(), count=True))
    assert set(classifier.read_counters().values()) == {RuleCount(0, 0)}


def test_what_matches_nothing_gets_the_default() -> None:
    classifier = make(REPORTS)
    assert classifier.classify(OTHER).action is ActionKind.DROP
    classifier.set_default(ToConsumers("others"), count=True, mark=5)
    verdict = classifier.classify(OTHER)
    assert (verdict.action, verdict.group, verdict.mark, verdict.rule) == (ActionKind.HAND_OUT, 4, 5, 0)
    classifier.set_default(Drop(), count=True)
    assert classifier.classify(OTHER).action is ActionKind.DROP
    assert classifier.default_count == RuleCount(2, 2 * len(OTHER))
    classifier.set_default(Drop())
    assert classifier.default_count == RuleCount(0, 0)


@pytest.mark.parametrize("length", [0, 1, 13])
def test_a_runt_frame_is_classified_too(length: int) -> None:
    classifier = make(FlowRule("short", {"frame.length": Range(0, 13)}, ToConsumers("others")), REPORTS)
    assert classifier.classify(FRAME[:length]).group == 4


def test_a_batch_that_fails_changes_nothing() -> None:
    classifier = make(REPORTS)
    classifier.classify(FRAME)

    def change() -> None:
        with classifier.batch():
            classifier.set_default(ToConsumers("others"))
            classifier.remove("reports")
            classifier.insert(FlowRule("all", {}, Drop(), priority=99, count=True))
            classifier.insert(FlowRule("bad", {"udp.dst": 1 << 16}, Drop()))

    with pytest.raises(ClassifierError, match=r"rule bad: udp\.dst: 65536 does not fit"):
        change()
    assert classifier.rules == (REPORTS,)
    assert classifier.classify(FRAME).group == 3
    assert classifier.classify(OTHER).action is ActionKind.DROP
    assert classifier.read_counters() == {"reports": RuleCount(2, 2 * len(FRAME))}


def test_a_batch_holds_when_it_ends() -> None:
    classifier = make(REPORTS)
    with classifier.batch():
        classifier.remove("reports")
        with classifier.batch():
            classifier.insert(FlowRule("all", {}, ToConsumers("others")))
        assert classifier.classify(FRAME).group == 3
    assert classifier.classify(FRAME).group == 4


def test_rules_that_cannot_be_are_refused_and_named() -> None:
    classifier = make(REPORTS)
    with pytest.raises(ClassifierError, match=r"^rule reports: a rule of this name exists$"):
        classifier.insert(REPORTS)
    with pytest.raises(ClassifierError, match=r"^rule web: there is no group nobody of consumers$"):
        classifier.insert(FlowRule("web", {}, ToConsumers("nobody")))
    with pytest.raises(ClassifierError, match=r"^rule web: there is no rule of this name$"):
        classifier.remove("web")
    with pytest.raises(ClassifierError, match=r"^rule web: there is no rule of this name$"):
        classifier.replace(FlowRule("web", {}, Drop()))
    with pytest.raises(ClassifierError, match=r"^rule default: there is no group nobody of consumers$"):
        classifier.set_default(ToConsumers("nobody"))
    unknown: Any = "drop"
    with pytest.raises(ClassifierError, match=r"^rule web: 'drop' is not an action$"):
        classifier.insert(FlowRule("web", {}, unknown))
    assert classifier.rules == (REPORTS,)


def test_ten_thousand_rules_of_a_batch_are_all_found() -> None:
    rules = [
        FlowRule(f"r{port}", {"udp.dst": port} if port % 2 else {"udp.dst": Range(port, port + 1)}, Drop(), mark=port)
        for port in range(10_000)
    ]
    classifier = make(*rules)
    for port in (0, 1, 2, 4_999, 5_000, 9_998, 9_999):
        assert classifier.classify(frame_to(port)).mark == port - port % 2  # the range is older
    assert classifier.classify(frame_to(10_000)).rule == 0
    with classifier.batch():
        for rule in rules[1:]:
            classifier.remove(rule.name)
    assert classifier.rules == (rules[0],)
    assert classifier.classify(frame_to(4_999)).rule == 0
