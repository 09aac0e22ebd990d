// SPDX-License-Identifier: Apache-2.0
// A header union: at most one of its headers is valid, whichever way it became so. The egress port is 1.
#include <core.p4>
#include <v1model.p4>

header kind_t {
    bit<8> kind;
    bit<8> order;
    bit<8> found;   // 0x80: the union is valid, 1: short, 2: long
}

header short_t {
    bit<8> value;
}

header long_t {
    bit<32> value;
}

header_union either_t {
    short_t small;
    long_t  large;
}

struct headers_t {
    kind_t   kind;
    either_t either;
    short_t  copy;
}

struct metadata_t {}

parser Parse(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.kind);
        transition select(hdr.kind.kind) {
            1: parse_small;
            2: parse_large;
            3: parse_both;
            default: accept;
        }
    }
    state parse_small {
        packet.extract(hdr.either.small);
        transition accept;
    }
    state parse_large {
        packet.extract(hdr.either.large);
        transition accept;
    }
    state parse_both {
        packet.extract(hdr.either.small);
        packet.extract(hdr.either.large);
        transition accept;
    }
}

control Verify(inout headers_t hdr, inout metadata_t meta) { apply {} }

control Inbound(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {
        standard.egress_spec = 1;
        if (hdr.kind.order == 1) {
            hdr.either.small.setValid();
            hdr.either.small.value = 0x55;
        } else if (hdr.kind.order == 2) {
            hdr.either.large.setValid();
            hdr.either.large.value = 0x66666666;
        } else if (hdr.kind.order == 3) {
            hdr.either.small.setInvalid();
        } else if (hdr.kind.order == 4) {
            hdr.copy.setValid();
            hdr.copy.value = 0x77;
            hdr.either.small = hdr.copy;
        }
        hdr.kind.found = 0;
        if (hdr.either.isValid()) { hdr.kind.found = hdr.kind.found | 0x80; }
        if (hdr.either.small.isValid()) { hdr.kind.found = hdr.kind.found | 1; }
        if (hdr.either.large.isValid()) { hdr.kind.found = hdr.kind.found | 2; }
    }
}

control Outbound(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) { apply {} }

control Update(inout headers_t hdr, inout metadata_t meta) { apply {} }

control Deparse(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.kind);
        packet.emit(hdr.either);
    }
}

V1Switch(Parse(), Verify(), Inbound(), Outbound(), Update(), Deparse()) main;
