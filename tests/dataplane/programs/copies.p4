// SPDX-License-Identifier: Apache-2.0
// Clones, multicast, resubmission, recirculation, truncation and drops, asked for by the first byte of the packet. Each
// passage through egress writes what it sees into the packet.
#include <core.p4>
#include <v1model.p4>

header order_t {
    bit<8> ingress;   // what ingress does
    bit<8> egress;    // what egress does
    bit<8> argument;
}

header seen_t {
    bit<8>  instance_type;
    bit<8>  egress_port;
    bit<8>  replica;
    bit<8>  kept;
    bit<8>  lost;
    bit<8>  ingress_port;
    bit<16> packet_length;
    bit<8>  queue_depth;
    bit<8>  waited_us;
    bit<16> passage_us;
}

struct headers_t {
    seen_t  seen;
    order_t order;
}

struct metadata_t {
    @field_list(1) bit<8> kept;
    bit<8> lost;
}

const bit<32> EGRESS_CLONE = 2;
const bit<32> RECIRCULATED = 4;
const bit<32> RESUBMITTED = 6;

parser Parse(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start {
        transition select(standard.instance_type) {
            RECIRCULATED: parse_seen;
            default: parse_order;
        }
    }
    state parse_seen {
        packet.extract(hdr.seen);
        transition parse_order;
    }
    state parse_order {
        packet.extract(hdr.order);
        transition accept;
    }
}

control Verify(inout headers_t hdr, inout metadata_t meta) { apply {} }

control Inbound(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {
        standard.egress_spec = 2;
        if (standard.instance_type == RESUBMITTED && hdr.order.argument != 0xff) {
            standard.egress_spec = 3;
        } else if (standard.instance_type == RECIRCULATED) {
            standard.egress_spec = 4;
        } else {
            meta.kept = hdr.order.argument;
            meta.lost = 0x77;
            switch (hdr.order.ingress) {
                1: {
                    clone_preserving_field_list(CloneType.I2E, (bit<32>) hdr.order.argument, 1);
                    hdr.order.egress = 0;
                }
                2: { resubmit_preserving_field_list(1); }
                3: { standard.mcast_grp = (bit<16>) hdr.order.argument; }
                4: { mark_to_drop(standard); }
                5: { truncate((bit<32>) hdr.order.argument); }
                6: { standard.priority = (bit<3>) hdr.order.argument; }
                7: { clone(CloneType.I2E, 1); mark_to_drop(standard); }
                8: { assert(hdr.order.argument == 0); }
                9: { hdr.order.argument = hdr.order.argument / (hdr.order.argument - hdr.order.argument + 1); }
            }
        }
    }
}

control Outbound(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {
        if (hdr.order.egress == 1 && standard.instance_type != EGRESS_CLONE) {
            clone_preserving_field_list(CloneType.E2E, (bit<32>) hdr.order.argument, 1);
        } else if (hdr.order.egress == 2 && standard.instance_type != RECIRCULATED && !hdr.seen.isValid()) {
            recirculate_preserving_field_list(1);
        } else if (hdr.order.egress == 3) {
            mark_to_drop(standard);
        } else if (hdr.order.egress == 4) {
            truncate(20);
        }
        hdr.seen.setValid();
        hdr.seen.instance_type = (bit<8>) standard.instance_type;
        hdr.seen.egress_port = (bit<8>) standard.egress_port;
        hdr.seen.replica = (bit<8>) standard.egress_rid;
        hdr.seen.kept = meta.kept;
        hdr.seen.lost = meta.lost;
        hdr.seen.ingress_port = (bit<8>) standard.ingress_port;
        hdr.seen.packet_length = (bit<16>) standard.packet_length;
        hdr.seen.queue_depth = (bit<8>) standard.enq_qdepth;
        hdr.seen.waited_us = (bit<8>) standard.deq_timedelta;
        hdr.seen.passage_us = (bit<16>) (standard.egress_global_timestamp - standard.ingress_global_timestamp);
    }
}

control Update(inout headers_t hdr, inout metadata_t meta) { apply {} }

control Deparse(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.seen);
        packet.emit(hdr.order);
    }
}

V1Switch(Parse(), Verify(), Inbound(), Outbound(), Update(), Deparse()) main;
