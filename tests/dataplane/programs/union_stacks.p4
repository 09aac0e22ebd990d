// SPDX-License-Identifier: Apache-2.0
// A stack of header unions, as IP options are parsed: each element is one of two headers.
#include <core.p4>
#include <v1model.p4>

header order_t {
    bit<8> first;   // kind of the first element: 1 small, 2 large, anything else: none
    bit<8> what;
    bit<8> found;
}

header small_t {
    bit<8> next;
    bit<8> value;
}

header large_t {
    bit<8>     next;
    bit<8>     bytes;
    varbit<32> value;
}

header_union either_t {
    small_t small;
    large_t large;
}

struct headers_t {
    order_t     order;
    either_t[3] options;
    either_t[3] others;
    either_t    single;
}

struct metadata_t {}

parser Parse(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.order);
        transition select(hdr.order.first) {
            1: small_option;
            2: large_option;
            default: accept;
        }
    }
    state small_option {
        bit<8> following = packet.lookahead<bit<8>>();
        packet.extract(hdr.options.next.small);
        transition select(following) {
            1: small_option;
            2: large_option;
            default: accept;
        }
    }
    state large_option {
        bit<16> lengths = packet.lookahead<bit<16>>();
        packet.extract(hdr.options.next.large, (bit<32>) lengths[7:0] * 8);
        transition select(lengths[15:8]) {
            1: small_option;
            2: large_option;
            default: accept;
        }
    }
}

control Verify(inout headers_t hdr, inout metadata_t meta) { apply {} }

control Inbound(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {
        standard.egress_spec = 1;
        hdr.order.found = 0;
        if (hdr.order.what == 1) {
            hdr.options.push_front(1);
        } else if (hdr.order.what == 2) {
            hdr.options.pop_front(1);
        } else if (hdr.order.what == 3) {
            hdr.others = hdr.options;
            hdr.options[0].small.setInvalid();
        } else if (hdr.order.what == 4) {
            hdr.single = hdr.options[1];
        } else if (hdr.order.what == 5) {
            if (hdr.options[0] == hdr.options[1]) { hdr.order.found = 0x40; }
        } else if (hdr.order.what == 6) {
            hdr.options[1].small.setValid();
            hdr.options[1].small.value = 0x66;
        } else if (hdr.order.what == 7) {
            hdr.options[0].large = hdr.options[2].large;
        }
        if (hdr.options[0].small.isValid() || hdr.options[0].large.isValid()) { hdr.order.found = hdr.order.found | 0x80; }
        if (hdr.options[0].small.isValid()) { hdr.order.found = hdr.order.found | 1; }
        if (hdr.options[1].large.isValid()) { hdr.order.found = hdr.order.found | 2; }
        if (hdr.single.isValid()) { hdr.order.found = hdr.order.found | 4; }
    }
}

control Outbound(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) { apply {} }

control Update(inout headers_t hdr, inout metadata_t meta) { apply {} }

control Deparse(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.order);
        packet.emit(hdr.options);
        packet.emit(hdr.others);
        packet.emit(hdr.single);
    }
}

V1Switch(Parse(), Verify(), Inbound(), Outbound(), Update(), Deparse()) main;
