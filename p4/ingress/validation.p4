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

    apply {
        if (meta.from_edge == 1 && meta.int_seen == 1) {
            // Hosts may neither forge telemetry nor use the mark for anything else. First, because a damaged packet with
            // the mark is a forgery, too.
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
        } else if (meta.int_seen == 1 && meta.int_overrun == 1) {
            drop_int_malformed.count(0);
            meta.drop_reason = DROP_INT_MALFORMED;
        }
    }
}

#endif
