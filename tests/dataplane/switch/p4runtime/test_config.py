"""SetForwardingPipelineConfig and GetForwardingPipelineConfig: nothing is half applied."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from finsy.proto import p4r

from dataplane.switch.p4runtime import Code, P4RuntimeCore, P4RuntimeError
from dataplane.switch.pipeline import PreparedProgram

if TYPE_CHECKING:
    from tests.dataplane.switch.p4runtime.conftest import FakeSwitch, Shell

Request = p4r.SetForwardingPipelineConfigRequest
Get = p4r.GetForwardingPipelineConfigRequest
DEVICE = 7
PREFIX = [
    p4r.FieldMatch(field_id=1, exact=p4r.FieldMatch.Exact(value=b"\x01")),
    p4r.FieldMatch(field_id=2, lpm=p4r.FieldMatch.LPM(value=b"\x0a\x00\x00\x00\x00\x00", prefix_len=8)),
]


def push(
    core: P4RuntimeCore, action: Request.Action.ValueType, config: p4r.ForwardingPipelineConfig | None = None
) -> Code:
    request = Request(device_id=DEVICE, election_id=p4r.Uint128(low=1), action=action, config=config)
    try:
        core.set_pipeline(request)
    except P4RuntimeError as error:
        return Code.INTERNAL if "\n" in error.message else error.code  # a refusal is one line
    return Code.OK


def get(core: P4RuntimeCore, what: Get.ResponseType.ValueType = Get.ALL) -> p4r.ForwardingPipelineConfig:
    response = core.get_pipeline(Get(device_id=DEVICE, response_type=what))
    assert response.HasField("config")
    return response.config


def entry(shell: Shell, port: int = 1) -> p4r.Entity:
    return shell.entry("lpm_table", PREFIX, action=shell.action("forward", bytes([port])))


@pytest.fixture
def cookie(config: p4r.ForwardingPipelineConfig) -> p4r.ForwardingPipelineConfig:
    """The same pipeline under a cookie."""
    other = p4r.ForwardingPipelineConfig()
    other.CopyFrom(config)
    other.cookie.cookie = 99
    return other


@pytest.fixture
def changed(config: p4r.ForwardingPipelineConfig) -> p4r.ForwardingPipelineConfig:
    """The same pipeline but for a smaller table: another program that keeps every entry."""
    other = p4r.ForwardingPipelineConfig()
    other.CopyFrom(config)
    other.p4_device_config = other.p4_device_config.replace(b'"max_size" : 64', b'"max_size" : 32')
    for table in other.p4info.tables:
        table.size = 32 if table.size == 64 else table.size
    assert other.p4_device_config != config.p4_device_config
    return other


@pytest.fixture
def bare(core: P4RuntimeCore) -> P4RuntimeCore:
    """A core with a primary (election id 1) and no pipeline."""
    update = p4r.MasterArbitrationUpdate(device_id=DEVICE, election_id=p4r.Uint128(low=1))
    core.open_stream(lambda _: None).handle(p4r.StreamMessageRequest(arbitration=update))
    return core


def test_without_a_pipeline(bare: P4RuntimeCore) -> None:
    assert not bare.get_pipeline(Get(device_id=DEVICE)).HasField("config")
    with pytest.raises(P4RuntimeError, match="No forwarding pipeline config set for this device") as caught:
        bare.read(p4r.ReadRequest(device_id=DEVICE))
    assert caught.value.code is Code.FAILED_PRECONDITION


def test_commit_and_read_back(bare: P4RuntimeCore, switch: FakeSwitch, cookie: p4r.ForwardingPipelineConfig) -> None:
    assert push(bare, Request.VERIFY_AND_COMMIT, cookie) is Code.OK
    assert switch.program is not None
    assert get(bare) == cookie
    assert get(bare, Get.COOKIE_ONLY) == p4r.ForwardingPipelineConfig(cookie=cookie.cookie)
    assert get(bare, Get.P4INFO_AND_COOKIE) == p4r.ForwardingPipelineConfig(cookie=cookie.cookie, p4info=cookie.p4info)
    device = p4r.ForwardingPipelineConfig(cookie=cookie.cookie, p4_device_config=cookie.p4_device_config)
    assert get(bare, Get.DEVICE_CONFIG_AND_COOKIE) == device


def test_command_line_program_is_read_back_without_cookie(shell: Shell) -> None:
    config = get(shell.core)
    assert config.p4info.tables
    assert not config.HasField("cookie")
    assert not config.p4_device_config


def test_verify_changes_nothing(bare: P4RuntimeCore, switch: FakeSwitch, config: p4r.ForwardingPipelineConfig) -> None:
    assert push(bare, Request.VERIFY, config) is Code.OK
    assert switch.program is None
    assert not bare.get_pipeline(Get(device_id=DEVICE)).HasField("config")


def test_commit_clears_the_state(shell: Shell, config: p4r.ForwardingPipelineConfig) -> None:
    shell.insert(entry(shell))
    assert push(shell.core, Request.VERIFY_AND_COMMIT, config) is Code.OK
    assert not shell.read(shell.entry("lpm_table"))


@pytest.mark.parametrize(
    "action", [Request.VERIFY, Request.VERIFY_AND_SAVE, Request.VERIFY_AND_COMMIT, Request.RECONCILE_AND_COMMIT]
)
def test_a_bad_pipeline_leaves_the_running_one(
    shell: Shell, switch: FakeSwitch, config: p4r.ForwardingPipelineConfig, action: Request.Action.ValueType
) -> None:
    shell.insert(entry(shell))
    state = switch.state
    wrong = p4r.ForwardingPipelineConfig()
    wrong.CopyFrom(config)
    wrong.p4info.tables[0].preamble.name = "EntitiesIngress.renamed"
    for bad in (
        None,
        p4r.ForwardingPipelineConfig(),
        p4r.ForwardingPipelineConfig(p4_device_config=b"{}"),
        p4r.ForwardingPipelineConfig(p4_device_config=b"\xff\x00garbage"),
        p4r.ForwardingPipelineConfig(p4_device_config=config.p4_device_config[:-9], p4info=config.p4info),
        wrong,
    ):
        assert push(shell.core, action, bad) is Code.INVALID_ARGUMENT
    assert switch.state is state
    assert shell.read(shell.entry("lpm_table")) == [entry(shell)]


def test_a_refusal_names_the_place(bare: P4RuntimeCore) -> None:
    config = p4r.ForwardingPipelineConfig(p4_device_config=b'{"header_types": 3}')
    request = Request(device_id=DEVICE, election_id=p4r.Uint128(low=1), action=Request.VERIFY, config=config)
    with pytest.raises(P4RuntimeError, match="header_types"):
        bare.set_pipeline(request)


def test_only_the_primary_pushes(core: P4RuntimeCore, config: p4r.ForwardingPipelineConfig) -> None:
    assert push(core, Request.VERIFY_AND_COMMIT, config) is Code.PERMISSION_DENIED


def test_actions_that_are_none(bare: P4RuntimeCore, config: p4r.ForwardingPipelineConfig) -> None:
    assert push(bare, Request.UNSPECIFIED, config) is Code.INVALID_ARGUMENT
    request = Request(device_id=DEVICE, election_id=p4r.Uint128(low=1), config=config)
    request.MergeFromString(b"\x20\x63")  # action 99
    with pytest.raises(P4RuntimeError) as caught:
        bare.set_pipeline(request)
    assert caught.value.code is Code.UNIMPLEMENTED


def test_save_then_write_then_commit(shell: Shell, switch: FakeSwitch, cookie: p4r.ForwardingPipelineConfig) -> None:
    shell.insert(entry(shell, 1))
    running = switch.state
    assert running is not None
    assert push(shell.core, Request.VERIFY_AND_SAVE, cookie) is Code.OK
    assert switch.state is running
    assert get(shell.core).cookie.cookie == 99
    assert not shell.read(shell.entry("lpm_table"))  # reads and writes refer to the saved program
    shell.insert(entry(shell, 2))
    assert len(running.tables["EntitiesIngress.lpm_table"]) == 1
    assert push(shell.core, Request.COMMIT) is Code.OK
    assert switch.state is not running
    assert switch.state is not None
    hit = switch.state.tables["EntitiesIngress.lpm_table"].lookup((1, 0x0A0000000009))
    assert hit is not None
    assert hit.call is not None
    assert hit.call.arguments == (2,)
    assert shell.read(shell.entry("lpm_table")) == [entry(shell, 2)]
    assert push(shell.core, Request.COMMIT) is Code.NOT_FOUND


def test_commit_takes_no_config(bare: P4RuntimeCore, config: p4r.ForwardingPipelineConfig) -> None:
    assert push(bare, Request.COMMIT) is Code.NOT_FOUND
    assert push(bare, Request.COMMIT, config) is Code.INVALID_ARGUMENT


def test_reconcile_with_the_same_program_does_not_touch_it(
    shell: Shell, switch: FakeSwitch, cookie: p4r.ForwardingPipelineConfig
) -> None:
    shell.insert(entry(shell))
    state, installs = switch.state, switch.installs
    assert push(shell.core, Request.RECONCILE_AND_COMMIT, cookie) is Code.OK
    assert switch.state is state
    assert switch.installs == installs
    assert get(shell.core) == cookie
    assert shell.read(shell.entry("lpm_table")) == [entry(shell)]


def test_reconcile_with_another_program_keeps_the_entries(
    shell: Shell, switch: FakeSwitch, changed: p4r.ForwardingPipelineConfig
) -> None:
    shell.insert(entry(shell))
    state = switch.state
    assert push(shell.core, Request.RECONCILE_AND_COMMIT, changed) is Code.OK
    assert switch.state is not state
    assert shell.read(shell.entry("lpm_table")) == [entry(shell)]


@pytest.mark.parametrize("saved", [True, False])
def test_the_switch_never_runs_a_state_without_its_entries(
    shell: Shell,
    switch: FakeSwitch,
    changed: p4r.ForwardingPipelineConfig,
    monkeypatch: pytest.MonkeyPatch,
    saved: bool,
) -> None:
    if saved:
        assert push(shell.core, Request.VERIFY_AND_SAVE, changed) is Code.OK
    shell.insert(entry(shell))
    entries_at_exchange: list[int] = []
    install = switch.install

    def observe(prepared: PreparedProgram) -> None:
        install(prepared)
        entries_at_exchange.append(len(prepared.state.tables["EntitiesIngress.lpm_table"]))

    monkeypatch.setattr(switch, "install", observe)
    request = (Request.COMMIT, None) if saved else (Request.RECONCILE_AND_COMMIT, changed)
    assert push(shell.core, *request) is Code.OK
    assert entries_at_exchange == [1]


def test_reconcile_refuses_a_program_that_cannot_keep_entries(
    shell: Shell, switch: FakeSwitch, changed: p4r.ForwardingPipelineConfig
) -> None:
    match = [p4r.FieldMatch(field_id=5, exact=p4r.FieldMatch.Exact(value=b"\x01"))]
    for priority in range(1, 34):
        shell.insert(shell.entry("mixed_table", match, priority=priority, action=shell.action("drop")))
    state = switch.state
    assert push(shell.core, Request.RECONCILE_AND_COMMIT, changed) is Code.INVALID_ARGUMENT
    assert switch.state is state
    assert len(shell.read(shell.entry("mixed_table"))) == 33


def test_reconcile_without_a_running_pipeline_commits(
    bare: P4RuntimeCore, switch: FakeSwitch, config: p4r.ForwardingPipelineConfig
) -> None:
    assert push(bare, Request.RECONCILE_AND_COMMIT, config) is Code.OK
    assert switch.program is not None


def test_withdrawn_wrapper_of_simple_switch_grpc_is_accepted(
    bare: P4RuntimeCore, config: p4r.ForwardingPipelineConfig
) -> None:
    data = config.p4_device_config
    length = bytes([len(data) & 0x7F | 0x80, len(data) >> 7 & 0x7F | 0x80, len(data) >> 14])
    wrapped = p4r.ForwardingPipelineConfig(p4info=config.p4info, p4_device_config=b"\x08\x01\x1a" + length + data)
    assert push(bare, Request.VERIFY_AND_COMMIT, wrapped) is Code.OK
    assert get(bare) == wrapped


def test_a_program_that_the_switch_took_by_itself_is_noticed(shell: Shell, switch: FakeSwitch) -> None:
    shell.insert(entry(shell))
    assert switch.program is not None
    switch.commit(switch.program)
    assert not shell.read(shell.entry("lpm_table"))


def aging_entry(shell: Shell) -> p4r.Entity:
    match = [p4r.FieldMatch(field_id=1, exact=p4r.FieldMatch.Exact(value=b"\x01"))]
    rates = p4r.MeterConfig(cir=1, cburst=2, pir=3, pburst=4)
    action = shell.action("forward_metered", b"\x01")
    return shell.entry("aging_table", match, action=action, meter_config=rates, idle_timeout_ns=10_000_000)


def other_entities(shell: Shell) -> list[p4r.Entity]:
    """Return one of each kind of entity that is no table entry."""
    rates = p4r.MeterConfig(cir=5, cburst=6, pir=7, pburst=8)
    meter = p4r.MeterEntry(meter_id=shell.id("meters", "port_meter"), index=p4r.Index(index=1), config=rates)
    values = p4r.ValueSetEntry(value_set_id=shell.id("value_sets", "control_types"))
    values.members.add(match=[p4r.FieldMatch(field_id=1, exact=p4r.FieldMatch.Exact(value=b"\x05"))])
    counts = p4r.CounterData(packet_count=3, byte_count=4)
    counter = p4r.CounterEntry(counter_id=shell.id("counters", "port_counter"), index=p4r.Index(index=2), data=counts)
    register = p4r.RegisterEntry(register_id=shell.id("registers", "wide_cells"), index=p4r.Index(index=1))
    register.data.bitstring = bytes(range(1, 26))
    return [
        p4r.Entity(meter_entry=meter),
        p4r.Entity(value_set_entry=values),
        p4r.Entity(counter_entry=counter),
        p4r.Entity(register_entry=register),
    ]


def fill(shell: Shell) -> list[p4r.Entity]:
    """Write an entity of every kind; return them."""
    digest = p4r.DigestEntry(digest_id=shell.id("digests", "learned_t"))
    digest.config.max_timeout_ns = 9
    replica = p4r.Replica(port=b"\x01")
    replica.backup_replicas.add(port=b"\x02")
    group = p4r.MulticastGroupEntry(multicast_group_id=1, replicas=[replica], metadata=b"m")
    inserted = [
        aging_entry(shell),
        shell.member("ecmp", 1, shell.action("forward", b"\x03")),
        p4r.Entity(digest_entry=digest),
        p4r.Entity(packet_replication_engine_entry=p4r.PacketReplicationEngineEntry(multicast_group_entry=group)),
    ]
    shell.insert(*inserted)
    shell.modify(*other_entities(shell))
    return [*inserted, *other_entities(shell)]


def read_back(shell: Shell) -> list[p4r.Entity]:
    answers = shell.read(
        shell.entry("aging_table", meter_config=p4r.MeterConfig()),
        shell.member("ecmp", 1),
        p4r.Entity(digest_entry=p4r.DigestEntry()),
        p4r.Entity(
            packet_replication_engine_entry=p4r.PacketReplicationEngineEntry(
                multicast_group_entry=p4r.MulticastGroupEntry()
            )
        ),
        *other_entities(shell),
    )
    return list(answers)


def test_reconcile_keeps_every_kind_of_entity(
    shell: Shell, switch: FakeSwitch, changed: p4r.ForwardingPipelineConfig
) -> None:
    written = fill(shell)
    switch.set_port_status(1, False)
    assert read_back(shell) == written
    assert push(shell.core, Request.RECONCILE_AND_COMMIT, changed) is Code.OK
    assert switch.installs == 2
    assert read_back(shell) == written
    assert switch.state is not None
    assert [replica.port for replica in switch.state.multicast_groups[1]] == [2]
    assert shell.core.tick(0) == 10_000_000  # the entry's time to live goes on


def test_reconcile_refuses_a_program_without_a_configured_digest(
    shell: Shell, switch: FakeSwitch, changed: p4r.ForwardingPipelineConfig
) -> None:
    fill(shell)
    state = switch.state
    changed.p4_device_config = changed.p4_device_config.replace(b"learned_t", b"spotted_t")
    digest = changed.p4info.digests[0]
    digest.preamble.name = digest.preamble.alias = "spotted_t"
    assert push(shell.core, Request.RECONCILE_AND_COMMIT, changed) is Code.INVALID_ARGUMENT
    assert switch.state is state


def test_times_to_live_begin_with_the_commit(
    shell: Shell, switch: FakeSwitch, cookie: p4r.ForwardingPipelineConfig
) -> None:
    assert push(shell.core, Request.VERIFY_AND_SAVE, cookie) is Code.OK
    fill(shell)
    assert shell.core.tick(50_000_000) is None
    switch.time_ns = 50_000_000
    assert push(shell.core, Request.COMMIT) is Code.OK
    assert shell.core.tick(50_000_000) == 60_000_000
