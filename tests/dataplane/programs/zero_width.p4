// SPDX-License-Identifier: Apache-2.0
// Fields, metadata, parameters and parts of keys that have no bits, as programs with configurable widths have them.
#include <core.p4>
#include <v1model.p4>

header numbers_t {
    bit<8> first;
    bit<0> none;
    bit<8> second;
    bit<0> last;
}

struct headers_t {
    numbers_t numbers;
}

struct metadata_t {
    bit<0> nothing;
    bit<8> something;
}

struct seen_t {
    bit<8> first;
    bit<0> none;
}

parser Parse(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.numbers);
        transition accept;
    }
}

control Verify(inout headers_t hdr, inout metadata_t meta) { apply {} }

control Inbound(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    action send(bit<9> port, bit<0> none) {
        standard.egress_spec = port;
        hdr.numbers.none = none;
        meta.nothing = none;
    }
    table routed {
        key = { hdr.numbers.first: exact; hdr.numbers.none: exact; }
        actions = { send; NoAction; }
        default_action = NoAction;
    }
    table filtered {
        key = { meta.nothing: ternary; hdr.numbers.second: ternary; hdr.numbers.last: optional; }
        actions = { send; NoAction; }
        default_action = NoAction;
    }
    apply {
        standard.egress_spec = 1;
        routed.apply();
        filtered.apply();
        if (hdr.numbers.none == hdr.numbers.last) {
            hdr.numbers.second = hdr.numbers.second + 1;
        }
        if (hdr.numbers.first == 7) {
            digest<seen_t>(1, { hdr.numbers.first, hdr.numbers.none });
        }
    }
}

control Outbound(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) { apply {} }

control Update(inout headers_t hdr, inout metadata_t meta) { apply {} }

control Deparse(packet_out packet, in headers_t hdr) {
    apply { packet.emit(hdr.numbers); }
}

V1Switch(Parse(), Verify(), Inbound(), Outbound(), Update(), Deparse()) main;
