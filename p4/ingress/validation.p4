// What may not be routed is dropped here, under a name; `exit` ends ingress for it.
#ifndef P4_INGRESS_VALIDATION_P4
#define P4_INGRESS_VALIDATION_P4

#include "../shared/headers.p4"
#include "../shared/metadata.p4"

control Validation(in headers_t hdr, in metadata_t meta, inout standard_metadata_t standard_metadata) {
    counter(1, CounterType.packets_and_bytes) drop_parser_error;
    counter(1, CounterType.packets_and_bytes) drop_unknown_ethertype;
    counter(1, CounterType.packets_and_bytes) drop_bad_ipv4_checksum;
    counter(1, CounterType.packets_and_bytes) drop_int_at_edge;
    counter(1, CounterType.packets_and_bytes) drop_int_malformed;
    counter(1, CounterType.packets_and_bytes) drop_ttl_expired;

    @hidden
    action drop() {
        mark_to_drop(standard_metadata);
        exit;
    }

    apply {
        if (meta.from_edge == 1 && meta.dscp == INT_DSCP) {
            // Hosts may neither forge telemetry nor use the mark for anything else. First, because the mark makes the
            // parser look for INT headers that such a packet need not have.
            drop_int_at_edge.count(0);
            drop();
        }
        if (standard_metadata.parser_error != error.NoError) {
            drop_parser_error.count(0);
            drop();
        }
        if (!hdr.ipv4.isValid() && !hdr.ipv6.isValid()) {
            drop_unknown_ethertype.count(0);
            drop();
        }
        if (standard_metadata.checksum_error == 1) {
            drop_bad_ipv4_checksum.count(0);
            drop();
        }
        if ((hdr.ipv4.isValid() && hdr.ipv4.ttl <= 1) || (hdr.ipv6.isValid() && hdr.ipv6.hop_limit <= 1)) {
            drop_ttl_expired.count(0);
            drop();
        }
        if (hdr.int_shim.isValid()) {
            bit<16> payload_bytes;
            if (hdr.ipv4.isValid()) {
                payload_bytes = hdr.ipv4.total_length - ((bit<16>) hdr.ipv4.ihl << 2);
            } else {
                payload_bytes = hdr.ipv6.payload_length;
            }
            bit<16> int_end = 4 + ((bit<16>) hdr.int_shim.length << 2);
            if (hdr.tcp.isValid()) {
                int_end = int_end + ((bit<16>) hdr.tcp.data_offset << 2);
            } else {
                int_end = int_end + 8;
            }
            // INT headers that reach past their payload cannot be taken out without breaking the lengths.
            if (payload_bytes < int_end || (hdr.udp.isValid() && hdr.udp.length < int_end)) {
                drop_int_malformed.count(0);
                drop();
            }
        }
    }
}

#endif
