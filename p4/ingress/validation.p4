// What may not be routed gets its drop reason here, and is counted under that name.
#ifndef P4_INGRESS_VALIDATION_P4
#define P4_INGRESS_VALIDATION_P4

#include "../shared/headers.p4"
#include "../shared/metadata.p4"

control Validation(in headers_t hdr, inout metadata_t meta, in standard_metadata_t standard_metadata) {
    counter(1, CounterType.packets_and_bytes) drop_parser_error;
    counter(1, CounterType.packets_and_bytes) drop_unknown_ethertype;
    counter(1, CounterType.packets_and_bytes) drop_bad_ipv4_checksum;
    counter(1, CounterType.packets_and_bytes) drop_int_at_edge;
    counter(1, CounterType.packets_and_bytes) drop_int_malformed;
    counter(1, CounterType.packets_and_bytes) drop_ttl_expired;

    bit<16> payload_bytes;
    bit<16> int_end;

    @hidden
    action measure_int() {
        payload_bytes = hdr.ipv4.isValid()
            ? hdr.ipv4.total_length - ((bit<16>) hdr.ipv4.ihl << 2)
            : hdr.ipv6.payload_length;
        int_end = 4 + ((bit<16>) hdr.int_shim.length << 2);
        int_end = int_end + (hdr.tcp.isValid() ? (bit<16>) hdr.tcp.data_offset << 2 : 16w8);
    }

    apply {
        if (meta.from_edge == 1 && meta.dscp == INT_DSCP) {
            // Hosts may neither forge telemetry nor use the mark for anything else. First, because the mark makes the
            // parser look for INT headers that such a packet need not have.
            drop_int_at_edge.count(0);
            meta.drop_reason = DROP_INT_AT_EDGE;
        } else if (standard_metadata.parser_error != error.NoError) {
            drop_parser_error.count(0);
            meta.drop_reason = DROP_PARSER_ERROR;
        } else if (!hdr.ipv4.isValid() && !hdr.ipv6.isValid()) {
            drop_unknown_ethertype.count(0);
            meta.drop_reason = DROP_UNKNOWN_ETHERTYPE;
        } else if (standard_metadata.checksum_error == 1) {
            drop_bad_ipv4_checksum.count(0);
            meta.drop_reason = DROP_BAD_IPV4_CHECKSUM;
        } else if ((hdr.ipv4.isValid() && hdr.ipv4.ttl <= 1) || (hdr.ipv6.isValid() && hdr.ipv6.hop_limit <= 1)) {
            drop_ttl_expired.count(0);
            meta.drop_reason = DROP_TTL_EXPIRED;
        } else if (hdr.int_shim.isValid()) {
            measure_int();
            // INT headers that reach past their payload cannot be taken out without breaking the lengths.
            if (payload_bytes < int_end || (hdr.udp.isValid() && hdr.udp.length < int_end)) {
                drop_int_malformed.count(0);
                meta.drop_reason = DROP_INT_MALFORMED;
            }
        }
    }
}

#endif
