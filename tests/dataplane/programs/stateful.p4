// SPDX-License-Identifier: Apache-2.0
// What lives longer than a packet: meters, digests, wide registers, idle entries, a direct counter beside a profile.
#include <core.p4>
#include <v1model.p4>

header order_t {
    bit<8>  what;
    bit<8>  index;
    bit<8>  colour;   // of the indirect meter, 0xff where it was not asked
    bit<8>  direct;   // of the direct meter, 0xff where there was no hit
    bit<96> wide;     // goes into a register cell, and comes back as it was before
}

struct headers_t {
    order_t order;
}

struct metadata_t {
    bit<8> direct;
}

struct seen_t {
    bit<8>  index;
    bit<9>  port;
    bit<96> wide;
}

struct moved_t {
    bit<8> what;
    bit<8> index;
}

parser Parse(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.order);
        transition accept;
    }
}

control Verify(inout headers_t hdr, inout metadata_t meta) { apply {} }

control Inbound(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    meter(4, MeterType.packets) by_packets;
    meter(4, MeterType.bytes) by_bytes;
    direct_meter<bit<8>>(MeterType.bytes) policer;
    direct_counter(CounterType.packets_and_bytes) hits;
    action_profile(16) shared;
    register<bit<96>>(4) cells;
    register<int<16>>(4) sums;

    action police() { policer.read(meta.direct); }
    table policed {
        key = { hdr.order.index: exact; }
        actions = { police; NoAction; }
        meters = policer;
        support_timeout = true;
        default_action = NoAction;
    }

    action mark(bit<8> value) { hdr.order.what = value; }
    table marked {
        key = { hdr.order.index: ternary; }
        actions = { mark; NoAction; }
        implementation = shared;
        counters = hits;
    }

    apply {
        standard.egress_spec = 1;
        meta.direct = 0xff;
        hdr.order.colour = 0xff;
        policed.apply();
        hdr.order.direct = meta.direct;
        if (hdr.order.what == 1) {
            by_packets.execute_meter<bit<8>>((bit<32>) hdr.order.index, hdr.order.colour);
        } else if (hdr.order.what == 2) {
            by_bytes.execute_meter<bit<8>>((bit<32>) hdr.order.index, hdr.order.colour);
        } else if (hdr.order.what == 3) {
            digest<seen_t>(1, { hdr.order.index, standard.ingress_port, hdr.order.wide });
        } else if (hdr.order.what == 4) {
            digest<moved_t>(1, { hdr.order.what, hdr.order.index });
            digest<seen_t>(1, { hdr.order.index, standard.ingress_port, hdr.order.wide });
            mark_to_drop(standard);
        } else if (hdr.order.what == 5) {
            @atomic {
                bit<96> before;
                cells.read(before, (bit<32>) hdr.order.index);
                cells.write((bit<32>) hdr.order.index, hdr.order.wide);
                hdr.order.wide = before;
            }
        } else if (hdr.order.what == 6) {
            int<16> sum;
            @atomic {
                sums.read(sum, (bit<32>) hdr.order.index);
                if (sum < -20000) { sum = sum |-| 30000; } else { sum = sum - 30000; }
                sums.write((bit<32>) hdr.order.index, sum);
            }
            hdr.order.wide = (bit<96>) (bit<16>) sum;
        }
        marked.apply();
    }
}

control Outbound(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) { apply {} }

control Update(inout headers_t hdr, inout metadata_t meta) { apply {} }

control Deparse(packet_out packet, in headers_t hdr) {
    apply { packet.emit(hdr.order); }
}

V1Switch(Parse(), Verify(), Inbound(), Outbound(), Update(), Deparse()) main;
