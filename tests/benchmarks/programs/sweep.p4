// SPDX-License-Identifier: Apache-2.0
// One program for tables of any size and pipelines of any length: the first bytes of a frame say what it goes through,
// so that a table's size and a pipeline's length are the only things that differ from one measurement to the next.
// Build: p4c-bm2-ss --arch v1model -o sweep.json --p4runtime-files sweep.p4info.txtpb sweep.p4
#include <core.p4>
#include <v1model.p4>

header order_t {
    bit<8>  lookup;   // 1: exact, 2: ternary, 3: prefixes
    bit<8>  stages;   // how many stages follow
    bit<16> changes;
    bit<32> key;
    bit<32> other;
}

struct headers_t {
    order_t order;
}

struct metadata_t {}

parser Parse(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.order);
        transition accept;
    }
}

control NoCheck(inout headers_t hdr, inout metadata_t meta) { apply {} }

#define STAGE(n) \
    action change_##n(bit<16> by) { hdr.order.changes = hdr.order.changes + by; } \
    table stage_##n { key = { hdr.order.key: exact; } actions = { change_##n; NoAction; } size = 1024; }
#define APPLY(n) if (hdr.order.stages > n) { stage_##n.apply(); }

control Inbound(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    action forward(bit<9> port) { standard.egress_spec = port; }
    action drop() { mark_to_drop(standard); }

    table exact_table {
        key = { hdr.order.key: exact; }
        actions = { forward; drop; }
        default_action = drop();
        size = 1048576;
    }
    table ternary_table {
        key = { hdr.order.key: ternary; hdr.order.other: ternary; }
        actions = { forward; drop; }
        default_action = drop();
        size = 131072;
    }
    table prefix_table {
        key = { hdr.order.key: lpm; }
        actions = { forward; drop; }
        default_action = drop();
        size = 1048576;
    }
    STAGE(0) STAGE(1) STAGE(2) STAGE(3) STAGE(4) STAGE(5) STAGE(6) STAGE(7)
    STAGE(8) STAGE(9) STAGE(10) STAGE(11) STAGE(12) STAGE(13) STAGE(14) STAGE(15)

    apply {
        standard.egress_spec = 2;
        if (hdr.order.lookup == 1) {
            exact_table.apply();
        } else if (hdr.order.lookup == 2) {
            ternary_table.apply();
        } else if (hdr.order.lookup == 3) {
            prefix_table.apply();
        }
        APPLY(0) APPLY(1) APPLY(2) APPLY(3) APPLY(4) APPLY(5) APPLY(6) APPLY(7)
        APPLY(8) APPLY(9) APPLY(10) APPLY(11) APPLY(12) APPLY(13) APPLY(14) APPLY(15)
    }
}

control Outbound(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) { apply {} }

control Deparse(packet_out packet, in headers_t hdr) {
    apply { packet.emit(hdr.order); }
}

V1Switch(Parse(), NoCheck(), Inbound(), Outbound(), NoCheck(), Deparse()) main;
