"""Scoring policies in the API server: rights, validation, and the audit log."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from controller.apiserver.client.calls import Call
from controller.apiserver.resources import Metadata, ScoringPolicy
from controller.apiserver.resources.scoring_policy import Interval, Scale, ScoringPolicySpec
from controller.common.errors import ForbiddenError, InvalidError
from dataplane.rpc.access import Right, Role
from tests.controller.apiserver.api_server import Play, Served

ONE = Scale(intervals=(Interval(points=1.0),))
GAP = {"intervals": [{"points": 1, "below": 1}, {"points": 0, "from": 2}]}


def policy(scale: Scale = ONE, name: str = "default") -> ScoringPolicy:
    return ScoringPolicy(metadata=Metadata(name=name), spec=ScoringPolicySpec(run_time_s=scale))


def test_writing_scoring_policies_takes_a_right(play: Play) -> None:
    async def run(served: Served) -> None:
        async with await served.client_of(Role.USER) as client:
            with pytest.raises(ForbiddenError, match="may not create"):
                await client.of(ScoringPolicy).create(policy())
        async with await served.client_of(Role.CENTRE, "c1") as client:
            with pytest.raises(ForbiddenError):
                await client.of(ScoringPolicy).list()
        async with await served.client_of(Role.USER, name="expert", rights=(Right.SCORING,)) as client:
            made = await client.of(ScoringPolicy).create(policy())
            await client.of(ScoringPolicy).replace(replace(made, spec=policy(replace(ONE, weight=2.0)).spec))
        async with await served.client_of(Role.USER, name="reader") as client:
            stored = await client.of(ScoringPolicy).get("default")
            assert stored.spec.run_time_s == replace(ONE, weight=2.0)
        lines = [json.loads(line) for line in (served.folder / "audit").read_text().splitlines()]
        changes = [line for line in lines if '"ScoringPolicy"' in json.dumps(line.get("changed"))]
        assert [line["who"] for line in changes] == ["expert", "expert"]

    play(run)


def test_an_invalid_scoring_policy_is_refused_by_its_key(play: Play) -> None:
    async def run(served: Served) -> None:
        made = await served.client.of(ScoringPolicy).create(policy())
        body = {"metadata": {"name": "default"}, "spec": {"run_time_s": GAP}}
        with pytest.raises(InvalidError, match=r"^spec\.run_time_s: intervals\[1\]\.from: begins at 2.* a gap"):
            await served.client.answer(Call("PUT", "/v1/scoringpolicies/default", body=json.dumps(body).encode()))
        assert await served.client.of(ScoringPolicy).get("default") == made

    play(run)
