"""Messages of a worker about its job's members."""

from __future__ import annotations

from dataplane.allreduce.membership_state import describe_members


def test_who_came_and_went_is_said_with_how_many_a_mean_is_over() -> None:
    four = ("h1", "h2", "h3", "h4")
    assert describe_members(four, four) is None
    assert describe_members((), four) == "h1 h2 h3 h4 are members: a mean is over 4 workers"
    assert describe_members(four, ("h1", "h2", "h4")) == "h3 is no longer a member: a mean is over 3 workers"
    assert describe_members(("h1", "h2"), ("h1", "h3")) == (
        "h2 is no longer a member, h3 is a member: a mean is over 2 workers"
    )
    assert describe_members(("h1", "h2", "h3"), ("h1",)) == "h2 h3 are no longer members: a mean is over 1 worker"


def test_a_line_names_no_more_than_eight() -> None:
    hosts = tuple(f"h{number:02}" for number in range(1, 12))
    assert describe_members(hosts, ()) == (
        "h01 h02 h03 h04 h05 h06 h07 h08 and 3 others are no longer members: a mean is over 0 workers"
    )
