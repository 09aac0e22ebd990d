// Drops packets that exceed their port's MTU: v1model cannot fragment.
#ifndef P4_EGRESS_MTU_P4
#define P4_EGRESS_MTU_P4

#include "../shared/headers.p4"
#include "../shared/metadata.p4"

control Mtu(in headers_t hdr, inout metadata_t meta) {
    counter(1, CounterType.packets_and_bytes) drop_mtu_exceeded;

    bit<16> packet_bytes;

    apply {
        if (hdr.ipv4.isValid()) {
            packet_bytes = hdr.ipv4.total_length + meta.int_growth_bytes;
        } else {
            packet_bytes = hdr.ipv6.payload_length + 40 + meta.int_growth_bytes;
        }
        if (packet_bytes > meta.mtu_bytes) {
            drop_mtu_exceeded.count(0);
            meta.drop_reason = DROP_MTU_EXCEEDED;
        }
    }
}

#endif
