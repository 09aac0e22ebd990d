// SPDX-License-Identifier: Apache-2.0
// Numbers wider than a machine word, signed ones, varbits that are copied, stacks by run-time index, error codes.
#include <core.p4>
#include <v1model.p4>

error { Unlucky }

header operands_t {
    bit<8>   what;
    bit<8>   shift;
    bit<128> a;
    bit<128> b;
    int<72>  c;
    int<72>  d;
}

header results_t {
    bit<128> sum;
    bit<128> difference;
    bit<128> product;
    bit<128> sat_sum;
    bit<128> sat_difference;
    int<72>  signed_sum;
    int<72>  signed_sat_sum;
    int<72>  signed_sat_difference;
    int<72>  signed_shift;
    bit<128> shifted;
    bit<128> slice;
    int<144> extended;
    int<8>   narrowed;
    bit<8>   comparisons;
    bit<8>   problem;
}

header item_t {
    bit<4>      count;
    bit<4>      last;
    varbit<120> content;
}

struct headers_t {
    operands_t operands;
    results_t  results;
    item_t[3]  items;
    item_t     spare;
}

struct metadata_t {
    bit<3>  index;
    error   problem;
    bit<72> scratch;
}

parser Parse(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.operands);
        verify(hdr.operands.what != 13, error.Unlucky);
        transition select(hdr.operands.what, hdr.operands.shift) {
            (0x40 &&& 0xc0, _): item;
            (0x80 .. 0x8f, 1 .. 6): item;
            (0x90, 0x10): reject;
            default: accept;
        }
    }
    state item {
        bit<8> ahead = packet.lookahead<bit<8>>();
        packet.extract(hdr.items.next, (bit<32>) (ahead >> 4) * 8);
        transition select(hdr.items.last.last) {
            0: item;
            default: accept;
        }
    }
}

control Verify(inout headers_t hdr, inout metadata_t meta) { apply {} }

control Inbound(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    action compute() {
        bit<128> a = hdr.operands.a;
        bit<128> b = hdr.operands.b;
        int<72> c = hdr.operands.c;
        int<72> d = hdr.operands.d;
        hdr.results.setValid();
        hdr.results.sum = a + b;
        hdr.results.difference = a - b;
        hdr.results.product = a * b;
        hdr.results.sat_sum = a |+| b;
        hdr.results.sat_difference = a |-| b;
        hdr.results.signed_sum = c + d;
        hdr.results.signed_sat_sum = c |+| d;
        hdr.results.signed_sat_difference = c |-| d;
        hdr.results.signed_shift = c >> hdr.operands.shift;
        hdr.results.shifted = (a << hdr.operands.shift) ^ (b >> hdr.operands.shift);
        hdr.results.slice = a[99:36] ++ b[70:7];
        hdr.results.extended = (int<144>) c;
        hdr.results.narrowed = (int<8>) d;
        hdr.results.comparisons = 0;
        if (a < b) { hdr.results.comparisons = hdr.results.comparisons | 1; }
        if (c < d) { hdr.results.comparisons = hdr.results.comparisons | 2; }
        if (c >= -1) { hdr.results.comparisons = hdr.results.comparisons | 4; }
        if (a == b || c == d) { hdr.results.comparisons = hdr.results.comparisons | 8; }
    }
    apply {
        standard.egress_spec = 1;
        compute();
        meta.problem = standard.parser_error;
        if (meta.problem == error.Unlucky) {
            hdr.results.problem = 1;
        } else if (meta.problem == error.NoError) {
            hdr.results.problem = 0;
        } else if (meta.problem == error.StackOutOfBounds) {
            hdr.results.problem = 3;
        } else {
            hdr.results.problem = 2;
        }
        meta.index = hdr.operands.shift[2:0];
        if (hdr.operands.what == 0x41 && meta.index < 3) {
            hdr.items[meta.index].last = 0xf;
        } else if (hdr.operands.what == 0x42 && meta.index < 3) {
            hdr.spare = hdr.items[meta.index];
        } else if (hdr.operands.what == 0x43) {
            hdr.items[1] = hdr.items[0];
            hdr.items[2].setInvalid();
        } else if (hdr.operands.what == 0x44) {
            if (hdr.items[0].content == hdr.items[1].content) { hdr.results.problem = 0x44; }
        } else if (hdr.operands.what == 0x45) {
            hdr.spare.setValid();
            hdr.spare.content = hdr.items[0].content;
            hdr.spare.count = hdr.items[0].count;
        } else if (hdr.operands.what == 0x46) {
            hdr.items.push_front(1);
            hdr.results.problem = hdr.results.problem | 0x80;
        } else if (hdr.operands.what == 0x47) {
            hdr.items.pop_front(1);
        }
    }
}

control Outbound(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) { apply {} }

control Update(inout headers_t hdr, inout metadata_t meta) { apply {} }

control Deparse(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.results);
        packet.emit(hdr.operands);
        packet.emit(hdr.items);
        packet.emit(hdr.spare);
    }
}

V1Switch(Parse(), Verify(), Inbound(), Outbound(), Update(), Deparse()) main;
