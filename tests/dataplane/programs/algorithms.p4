// SPDX-License-Identifier: Apache-2.0
// Every hash algorithm, and checksums over the payload and under conditions.
#include <core.p4>
#include <v1model.p4>

header input_t {
    bit<8>  what;     // 1: hash again in egress; 2: the checksum is verified; 4: it is updated
    bit<4>  high;
    bit<12> low;
    bit<16> checksum;
}

header output_t {
    bit<16> crc16;
    bit<32> crc32;
    bit<16> crc16_custom;
    bit<32> crc32_custom;
    bit<16> csum16;
    bit<16> xor16;
    bit<64> identity;
    bit<8>  wrong;
    bit<32> egress;
}

struct headers_t {
    input_t  data;
    output_t result;
}

struct metadata_t {}

parser Parse(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.data);
        transition accept;
    }
}

control Verify(inout headers_t hdr, inout metadata_t meta) {
    apply {
        verify_checksum_with_payload(hdr.data.what & 2 != 0, { hdr.data.what, hdr.data.high, hdr.data.low },
            hdr.data.checksum, HashAlgorithm.csum16);
    }
}

control Inbound(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {
        standard.egress_spec = 1;
        hdr.result.setValid();
        hash(hdr.result.crc16, HashAlgorithm.crc16, 16w0, { hdr.data.high, hdr.data.low }, 32w0x10000);
        hash(hdr.result.crc32, HashAlgorithm.crc32, 32w0, { hdr.data.high, hdr.data.low }, 64w0x100000000);
        hash(hdr.result.crc16_custom, HashAlgorithm.crc16_custom, 16w0, { hdr.data.high, hdr.data.low }, 32w0x10000);
        hash(hdr.result.crc32_custom, HashAlgorithm.crc32_custom, 32w0, { hdr.data.low }, 64w0x100000000);
        hash(hdr.result.csum16, HashAlgorithm.csum16, 16w0, { hdr.data.high, hdr.data.low, 4w5 }, 32w0x10000);
        hash(hdr.result.xor16, HashAlgorithm.xor16, 16w0, { hdr.data.low, hdr.data.what, hdr.data.high }, 32w0x10000);
        hash(hdr.result.identity, HashAlgorithm.identity, 64w0, { hdr.data.what, hdr.data.low }, 64w0xffffffffffffffff);
        hdr.result.wrong = (bit<8>) standard.checksum_error;
    }
}

control Outbound(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {
        if (hdr.data.what & 1 != 0) {
            hash(hdr.result.egress, HashAlgorithm.crc32, 32w7, { hdr.result.crc16, hdr.data.what }, 32w1000);
        }
    }
}

control Update(inout headers_t hdr, inout metadata_t meta) {
    apply {
        update_checksum_with_payload(hdr.data.what & 4 != 0, { hdr.data.what, hdr.data.high, hdr.data.low },
            hdr.data.checksum, HashAlgorithm.csum16);
    }
}

control Deparse(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.result);
        packet.emit(hdr.data);
    }
}

V1Switch(Parse(), Verify(), Inbound(), Outbound(), Update(), Deparse()) main;
