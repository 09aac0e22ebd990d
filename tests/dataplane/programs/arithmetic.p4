// SPDX-License-Identifier: Apache-2.0
// Every operator on operands from the packet; the results go back into it.
#include <core.p4>
#include <v1model.p4>

header operands_t {
    bit<8>  a;
    bit<8>  b;
    int<8>  c;
    int<8>  d;
    bit<48> wide;
}

header results_t {
    bit<8>  add;
    bit<8>  sub;
    bit<16> mul;
    bit<8>  sat_add;
    bit<8>  sat_sub;
    int<8>  signed_add;
    int<8>  signed_sat_add;
    int<8>  signed_sat_sub;
    bit<8>  left;
    bit<8>  right;
    int<8>  signed_right;
    bit<8>  bits;
    bit<8>  complement;
    bit<8>  comparisons;
    bit<8>  chosen;
    bit<24> slices;
    int<16> extended;
}

header hashes_t {
    bit<16> crc16;
    bit<32> crc32;
    bit<16> csum16;
    bit<64> identity;
    bit<16> xor16;
    bit<8>  bounded;
    bit<8>  random;
    bit<8>  loop;
}

struct headers_t {
    operands_t operands;
    results_t  results;
    hashes_t   hashes;
}

struct metadata_t {}

parser Parse(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.operands);
        transition accept;
    }
}

control Verify(inout headers_t hdr, inout metadata_t meta) { apply {} }

control Inbound(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    action compute() {
        bit<8> a = hdr.operands.a;
        bit<8> b = hdr.operands.b;
        int<8> c = hdr.operands.c;
        int<8> d = hdr.operands.d;
        hdr.results.setValid();
        hdr.results.add = a + b;
        hdr.results.sub = a - b;
        hdr.results.mul = (bit<16>) a * (bit<16>) b;
        hdr.results.sat_add = a |+| b;
        hdr.results.sat_sub = a |-| b;
        hdr.results.signed_add = c + d;
        hdr.results.signed_sat_add = c |+| d;
        hdr.results.signed_sat_sub = c |-| d;
        hdr.results.left = a << b;
        hdr.results.right = a >> b;
        hdr.results.signed_right = c >> b;
        hdr.results.bits = (a & b) ^ (a | 8w0x0f);
        hdr.results.complement = ~a;
        hdr.results.chosen = c < d ? a : b;
        hdr.results.slices = hdr.operands.wide[39:32] ++ a[3:0] ++ b[7:4] ++ hdr.operands.wide[7:0];
        hdr.results.extended = (int<16>) c;
        hdr.results.comparisons = 0;
        if (a == b) { hdr.results.comparisons = hdr.results.comparisons | 1; }
        if (a != b) { hdr.results.comparisons = hdr.results.comparisons | 2; }
        if (a < b) { hdr.results.comparisons = hdr.results.comparisons | 4; }
        if (a <= b) { hdr.results.comparisons = hdr.results.comparisons | 8; }
        if (c > d) { hdr.results.comparisons = hdr.results.comparisons | 16; }
        if (c >= d && !(a == 0)) { hdr.results.comparisons = hdr.results.comparisons | 32; }
        if (c < 0 || d < 0) { hdr.results.comparisons = hdr.results.comparisons | 64; }
    }
    action hash_all() {
        hdr.hashes.setValid();
        hash(hdr.hashes.crc16, HashAlgorithm.crc16, 16w0, { hdr.operands.wide, hdr.operands.a }, 32w0x10000);
        hash(hdr.hashes.crc32, HashAlgorithm.crc32, 32w0, { hdr.operands.wide, hdr.operands.a }, 64w0x100000000);
        hash(hdr.hashes.csum16, HashAlgorithm.csum16, 16w0, { hdr.operands.wide, hdr.operands.a }, 32w0x10000);
        hash(hdr.hashes.identity, HashAlgorithm.identity, 64w0, { hdr.operands.wide, hdr.operands.a }, 64w0xffffffffffffffff);
        hash(hdr.hashes.xor16, HashAlgorithm.xor16, 16w0, { hdr.operands.wide, hdr.operands.a }, 32w0x10000);
        hash(hdr.hashes.bounded, HashAlgorithm.crc32, 8w10, { hdr.operands.a }, 8w5);
        random(hdr.hashes.random, 8w3, 8w6);
        hdr.hashes.loop = 0;
        for (bit<8> i = 1; i <= 10; i = i + 1) {
            if (i == hdr.operands.b) { break; }
            hdr.hashes.loop = hdr.hashes.loop + i;
        }
    }
    apply {
        standard.egress_spec = 1;
        compute();
        hash_all();
        log_msg("a={} b={}", { hdr.operands.a, hdr.operands.b });
    }
}

control Outbound(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) { apply {} }

control Update(inout headers_t hdr, inout metadata_t meta) { apply {} }

control Deparse(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.results);
        packet.emit(hdr.hashes);
        packet.emit(hdr.operands);
    }
}

V1Switch(Parse(), Verify(), Inbound(), Outbound(), Update(), Deparse()) main;
