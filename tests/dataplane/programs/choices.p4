// SPDX-License-Identifier: Apache-2.0
// Ways to choose: value sets, every match kind, priorities, switch over actions and over values, exit.
#include <core.p4>
#include <v1model.p4>

header order_t {
    bit<8>  first;
    bit<16> second;
    bit<8>  what;
}

header trace_t {
    bit<8> parsed;
    bit<8> sets;
    bit<8> kinds;
    bit<8> listed;
    bit<8> smallest;
    bit<8> largest;
    bit<8> switched;
    bit<8> egress;
}

struct headers_t {
    trace_t trace;
    order_t order;
}

struct metadata_t {
    bit<8> parsed;
}

struct pair_t {
    @match(ternary) bit<8> first;
    @match(range)   bit<16> second;
}

parser Parse(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    value_set<bit<8>>(4) singles;
    value_set<pair_t>(4) pairs;
    state start {
        packet.extract(hdr.order);
        transition select(hdr.order.first) {
            0x11: constant;
            singles: single;
            0x22: late;
            default: second;
        }
    }
    state constant { meta.parsed = 1; transition accept; }
    state single { meta.parsed = 2; transition accept; }
    state late { meta.parsed = 3; transition accept; }
    state second {
        transition select(hdr.order.first, hdr.order.second) {
            (0x33, 0x4444): constant;
            pairs: pair;
            default: accept;
        }
    }
    state pair { meta.parsed = 4; transition accept; }
}

control Verify(inout headers_t hdr, inout metadata_t meta) { apply {} }

control Inbound(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    action set_kind(bit<8> value) { hdr.trace.kinds = value; }
    table kinds {
        key = {
            hdr.order.first: exact;
            hdr.order.second: range;
            hdr.order.what: optional;
            standard.ingress_port: ternary;
        }
        actions = { set_kind; NoAction; }
        default_action = NoAction;
    }

    action set_listed(bit<8> value) { hdr.trace.listed = value; }
    table listed {
        key = { hdr.order.second: lpm; hdr.order.what: exact; }
        actions = { set_listed; NoAction; }
        const default_action = set_listed(0xff);
        const entries = {
            (0x1200 &&& 0xff00, 1): set_listed(1);
            (0x1234, 1): set_listed(2);
            (0x1230 &&& 0xfff0, 1): set_listed(3);
            (0x0000 &&& 0x0000, 2): set_listed(4);
        }
    }

    action set_smallest(bit<8> value) { hdr.trace.smallest = value; }
    table smallest {
        key = { hdr.order.second: range; }
        actions = { set_smallest; NoAction; }
        largest_priority_wins = false;
        entries = {
            const priority = 30: 0x0 .. 0xff: set_smallest(1);
            const priority = 10: 0x10 .. 0x1f: set_smallest(2);
            const priority = 20: 0x18 .. 0x2f: set_smallest(3);
        }
    }

    action set_largest(bit<8> value) { hdr.trace.largest = value; }
    table largest {
        key = { hdr.order.second: ternary; }
        actions = { set_largest; NoAction; }
        largest_priority_wins = true;
        entries = {
            const priority = 30: 0x10 &&& 0xfff0: set_largest(1);
            const priority = 10: _: set_largest(2);
            const priority = 20: 0x11: set_largest(3);
        }
    }

    action one() { hdr.trace.switched = 1; }
    action two() { hdr.trace.switched = 2; }
    table turn {
        key = { hdr.order.what: exact; }
        actions = { one; two; NoAction; }
        const default_action = NoAction;
        const entries = {
            1: one();
            2: two();
            3: two();
        }
    }

    apply {
        standard.egress_spec = 1;
        hdr.trace.setValid();
        hdr.trace.parsed = meta.parsed;
        kinds.apply();
        listed.apply();
        smallest.apply();
        largest.apply();
        switch (turn.apply().action_run) {
            one: { hdr.trace.sets = 0x10; }
            two: { hdr.trace.sets = 0x20; if (hdr.order.what == 3) { exit; } }
            default: { hdr.trace.sets = 0x30; }
        }
        switch (hdr.order.first) {
            0x11:
            0x12: { hdr.trace.switched = hdr.trace.switched | 0x10; }
            0x13: { hdr.trace.switched = hdr.trace.switched | 0x20; }
            default: { hdr.trace.switched = hdr.trace.switched | 0x40; }
        }
    }
}

control Outbound(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    action leave() { hdr.trace.egress = 2; exit; }
    apply {
        hdr.trace.egress = 1;
        if (hdr.order.what == 4) { leave(); }
        hdr.trace.egress = hdr.trace.egress | 0x80;
    }
}

control Update(inout headers_t hdr, inout metadata_t meta) { apply {} }

control Deparse(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.trace);
        packet.emit(hdr.order);
    }
}

V1Switch(Parse(), Verify(), Inbound(), Outbound(), Update(), Deparse()) main;
