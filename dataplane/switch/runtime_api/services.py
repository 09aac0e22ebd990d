"""The services of the runtime API, method by method: arguments in numerical order, result, refusal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from dataplane.switch.runtime_api.records import (
    ActionEntry,
    AddOptions,
    CounterRefusal,
    CounterValue,
    Entry,
    Group,
    HashConfig,
    HashRefusal,
    LearnRefusal,
    LookupRefusal,
    MatchParam,
    Member,
    MeterRate,
    MeterRefusal,
    MirroringConfig,
    MirroringRefusal,
    MulticastRefusal,
    PortInfo,
    PortRefusal,
    RegisterRefusal,
    SwapRefusal,
    SwitchInfo,
    TableRefusal,
    ValueSetRefusal,
)
from dataplane.switch.runtime_api.wire import (
    BINARY,
    BOOL,
    I16,
    I32,
    I64,
    STRING,
    VOID,
    Kind,
    Method,
    Refusal,
    list_of,
    struct,
)

KEY: Final = list_of(struct(MatchParam))
DATA: Final = list_of(BINARY)
OPTIONS: Final = struct(AddOptions)
COUNT: Final = struct(CounterValue)
RATES: Final = list_of(struct(MeterRate))
MIRROR: Final = struct(MirroringConfig)


def _of(error: type[Refusal] | None, result: Kind, *arguments: Kind) -> Method:
    return Method(result, error, arguments)


def _named(error: type[Refusal], result: Kind, *arguments: Kind) -> Method:
    """Return a method whose first arguments are the context, which is 0, and an object's name."""
    return Method(result, error, (I32, STRING, *arguments))


_T, _C, _M, _R, _V, _L = TableRefusal, CounterRefusal, MeterRefusal, RegisterRefusal, ValueSetRefusal, LearnRefusal

STANDARD: Final[Mapping[str, Method]] = {
    "bm_mt_get_num_entries": _named(_T, I64),
    "bm_mt_clear_entries": _named(_T, VOID, BOOL),
    "bm_mt_add_entry": _named(_T, I32, KEY, STRING, DATA, OPTIONS),
    "bm_mt_set_default_action": _named(_T, VOID, STRING, DATA),
    "bm_mt_reset_default_entry": _named(_T, VOID),
    "bm_mt_delete_entry": _named(_T, VOID, I32),
    "bm_mt_modify_entry": _named(_T, VOID, I32, STRING, DATA),
    "bm_mt_set_entry_ttl": _named(_T, VOID, I32, I32),
    "bm_mt_act_prof_add_member": _named(_T, I32, STRING, DATA),
    "bm_mt_act_prof_delete_member": _named(_T, VOID, I32),
    "bm_mt_act_prof_modify_member": _named(_T, VOID, I32, STRING, DATA),
    "bm_mt_act_prof_create_group": _named(_T, I32),
    "bm_mt_act_prof_delete_group": _named(_T, VOID, I32),
    "bm_mt_act_prof_add_member_to_group": _named(_T, VOID, I32, I32),
    "bm_mt_act_prof_remove_member_from_group": _named(_T, VOID, I32, I32),
    "bm_mt_act_prof_get_members": _named(_T, list_of(struct(Member))),
    "bm_mt_act_prof_get_member": _named(_T, struct(Member), I32),
    "bm_mt_act_prof_get_groups": _named(_T, list_of(struct(Group))),
    "bm_mt_act_prof_get_group": _named(_T, struct(Group), I32),
    "bm_mt_indirect_add_entry": _named(_T, I32, KEY, I32, OPTIONS),
    "bm_mt_indirect_modify_entry": _named(_T, VOID, I32, I32),
    "bm_mt_indirect_delete_entry": _named(_T, VOID, I32),
    "bm_mt_indirect_set_entry_ttl": _named(_T, VOID, I32, I32),
    "bm_mt_indirect_set_default_member": _named(_T, VOID, I32),
    "bm_mt_indirect_reset_default_entry": _named(_T, VOID),
    "bm_mt_indirect_ws_add_entry": _named(_T, I32, KEY, I32, OPTIONS),
    "bm_mt_indirect_ws_modify_entry": _named(_T, VOID, I32, I32),
    "bm_mt_indirect_ws_set_default_group": _named(_T, VOID, I32),
    "bm_mt_read_counter": _named(_T, COUNT, I32),
    "bm_mt_reset_counters": _named(_T, VOID),
    "bm_mt_write_counter": _named(_T, VOID, I32, COUNT),
    "bm_mt_set_meter_rates": _named(_T, VOID, I32, RATES),
    "bm_mt_get_meter_rates": _named(_T, RATES, I32),
    "bm_mt_get_entries": _named(_T, list_of(struct(Entry))),
    "bm_mt_get_entry": _named(_T, struct(Entry), I32),
    "bm_mt_get_default_entry": _named(_T, struct(ActionEntry)),
    "bm_mt_get_entry_from_key": _named(_T, struct(Entry), KEY, OPTIONS),
    "bm_counter_read": _named(_C, COUNT, I32),
    "bm_counter_reset_all": _named(_C, VOID),
    "bm_counter_write": _named(_C, VOID, I32, COUNT),
    "bm_learning_ack": _of(_L, VOID, I32, I32, I64, list_of(I32)),
    "bm_learning_ack_buffer": _of(_L, VOID, I32, I32, I64),
    "bm_learning_set_timeout": _of(_L, VOID, I32, I32, I32),
    "bm_learning_set_buffer_size": _of(_L, VOID, I32, I32, I32),
    "bm_load_new_config": _of(SwapRefusal, VOID, STRING),
    "bm_swap_configs": _of(SwapRefusal, VOID),
    "bm_meter_array_set_rates": _named(_M, VOID, RATES),
    "bm_meter_set_rates": _named(_M, VOID, I32, RATES),
    "bm_meter_get_rates": _named(_M, RATES, I32),
    "bm_register_read": _named(_R, I64, I32),
    "bm_register_read_all": _named(_R, list_of(I64)),
    "bm_register_write": _named(_R, VOID, I32, I64),
    "bm_register_write_range": _named(_R, VOID, I32, I32, I64),
    "bm_register_reset": _named(_R, VOID),
    "bm_parse_vset_add": _named(_V, VOID, BINARY),
    "bm_parse_vset_remove": _named(_V, VOID, BINARY),
    "bm_parse_vset_get": _named(_V, list_of(BINARY)),
    "bm_parse_vset_clear": _named(_V, VOID),
    "bm_dev_mgr_add_port": _of(PortRefusal, VOID, STRING, I32, STRING),
    "bm_dev_mgr_remove_port": _of(PortRefusal, VOID, I32),
    "bm_dev_mgr_show_ports": _of(PortRefusal, list_of(struct(PortInfo))),
    "bm_mgmt_get_info": _of(None, struct(SwitchInfo)),
    "bm_set_crc16_custom_parameters": _named(HashRefusal, VOID, struct(HashConfig)),
    "bm_set_crc32_custom_parameters": _named(HashRefusal, VOID, struct(HashConfig)),
    "bm_set_toeplitz_hash_key": _named(HashRefusal, VOID, BINARY),
    "bm_reset_state": _of(None, VOID),
    "bm_get_config": _of(None, STRING),
    "bm_get_config_md5": _of(None, BINARY),
    "bm_get_id_from_name": _of(LookupRefusal, I32, I32, I32, STRING),
}

_X = MulticastRefusal

SIMPLE_PRE_LAG: Final[Mapping[str, Method]] = {
    "bm_mc_mgrp_create": _of(_X, I32, I32, I32),
    "bm_mc_mgrp_destroy": _of(_X, VOID, I32, I32),
    "bm_mc_node_create": _of(_X, I32, I32, I32, STRING, STRING),
    "bm_mc_node_associate": _of(_X, VOID, I32, I32, I32),
    "bm_mc_node_dissociate": _of(_X, VOID, I32, I32, I32),
    "bm_mc_node_destroy": _of(_X, VOID, I32, I32),
    "bm_mc_node_update": _of(_X, VOID, I32, I32, STRING, STRING),
    "bm_mc_set_lag_membership": _of(_X, VOID, I32, I16, STRING),
    "bm_mc_get_entries": _of(_X, STRING, I32),
}

SIMPLE_PRE: Final[Mapping[str, Method]] = {
    name: method for name, method in SIMPLE_PRE_LAG.items() if name not in {"bm_mc_set_lag_membership"}
} | {
    "bm_mc_node_create": _of(_X, I32, I32, I32, STRING),
    "bm_mc_node_update": _of(_X, VOID, I32, I32, STRING),
}

SIMPLE_SWITCH: Final[Mapping[str, Method]] = {
    "mirroring_mapping_add": _of(None, I32, I32, I32),
    "mirroring_mapping_delete": _of(None, I32, I32),
    "mirroring_mapping_get_egress_port": _of(None, I32, I32),
    "mirroring_session_add": _of(MirroringRefusal, VOID, I32, MIRROR),
    "mirroring_session_delete": _of(MirroringRefusal, VOID, I32),
    "mirroring_session_get": _of(MirroringRefusal, MIRROR, I32),
    "set_egress_priority_queue_depth": _of(None, I32, I32, I32, I32),
    "set_egress_queue_depth": _of(None, I32, I32, I32),
    "set_all_egress_queue_depths": _of(None, I32, I32),
    "set_egress_priority_queue_rate": _of(None, I32, I32, I32, I64),
    "set_egress_queue_rate": _of(None, I32, I32, I64),
    "set_all_egress_queue_rates": _of(None, I32, I64),
    "get_time_elapsed_us": _of(None, I64),
    "get_time_since_epoch_us": _of(None, I64),
}

SERVICES: Final[Mapping[str, Mapping[str, Method]]] = {
    "standard": STANDARD,
    "simple_pre": SIMPLE_PRE,
    "simple_pre_lag": SIMPLE_PRE_LAG,
    "simple_switch": SIMPLE_SWITCH,
}
"""By the names that clients put in front of their methods (TMultiplexedProtocol)."""
