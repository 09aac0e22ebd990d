// Gives a drop reason to packets that must not be routed, and counts them under that name.
#ifndef P4_INGRESS_VALIDATION_P4
#define P4_INGRESS_VALIDATION_P4

#include "../shared/headers.p4"
#include "../shared/metadata.p4"
#include "int_start_place.p4"

control Validation(in headers_t hdr, inout metadata_t meta, in standard_metadata_t standard_metadata) {
    counter(1, CounterType.packets_and_bytes) drop_parser_error;
    counter(1, CounterType.packets_and_bytes) drop_unknown_ethertype;
    counter(1, CounterType.packets_and_bytes) drop_bad_ipv4_checksum;
    counter(1, CounterType.packets_and_bytes) drop_int_at_edge;
    counter(1, CounterType.packets_and_bytes) drop_int_malformed;
    counter(1, CounterType.packets_and_bytes) drop_ttl_expired;
    counter(1, CounterType.packets_and_bytes) drop_report_at_edge;
    counter(1, CounterType.packets_and_bytes) drop_source_spoofed;

    IntStartPlace() shield_place;

    int_place_t place;

    // INT that requests nothing from any hop.
    @hidden
    action start_shield() {
        meta.int_start = 1;
        meta.int_place = place;
        meta.int_mode = MODE_MD;
        meta.int_instructions = 0;
        meta.int_domain_instructions = 0;
        meta.int_max_hops = 0;
        meta.int_discard = 0;
    }

    apply {
        if (meta.from_edge == 1 && meta.int_seen == 1) {
            // Hosts may neither forge telemetry nor use the mark for anything else. Checked first, because a damaged
            // packet with the mark is a forgery, too.
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
        } else if (meta.from_outside == 1) {
            if (meta.is_report == 1) {
                // Only switches send reports.
                drop_report_at_edge.count(0);
                meta.drop_reason = DROP_REPORT_AT_EDGE;
            } else if (meta.spoofed == 1) {
                drop_source_spoofed.count(0);
                meta.drop_reason = DROP_SOURCE_SPOOFED;
            } else if (meta.int_shield == 1) {
                shield_place.apply(hdr, meta, place);
                if (place == PLACE_NONE) {
                    drop_int_at_edge.count(0);
                    meta.drop_reason = DROP_INT_AT_EDGE;
                } else {
                    start_shield();
                }
            }
        }
    }
}

#endif
