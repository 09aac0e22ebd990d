// Turns a clone into a Telemetry Report v2.0: outer headers, this hop's metadata, then the packet down to L4 and INT.
#ifndef P4_EGRESS_REPORT_P4
#define P4_EGRESS_REPORT_P4

#include "../shared/headers.p4"
#include "../shared/instructions.p4"
#include "../shared/metadata.p4"
#include "forwarding_word.p4"
#include "hop_words.p4"
#ifdef AGGREGATION
#include "../aggregation/completions.p4"
#endif

control Report(
    inout headers_t hdr,
    inout metadata_t meta,
    inout standard_metadata_t standard_metadata
) {
    HopWords() hop_words;
    ForwardingWord() forwarding_word;
#ifdef AGGREGATION
    CompletionWords() completion_words;
#endif

    bit<8> metadata_words;
    bit<16> plain_words;
    bit<16> other_words;
    bit<16> inner_words;
    bit<16> report_words;
    bit<4> inner_type;
    bit<64> unused_sum = 0;

    // All parsed headers of the packet; the packet is truncated where parsing failed.
    @hidden
    action measure_ip() {
        inner_type = hdr.ipv4.isValid() ? INNER_TYPE_IPV4 : INNER_TYPE_IPV6;
        plain_words = (hdr.ipv4.isValid() ? 16w5 : 16w10)
            + (hdr.udp.isValid() ? 16w2 : 16w0)
            + (hdr.tcp.isValid() ? 16w5 : 16w0);
        other_words = (hdr.ipv4_options.isValid() ? (bit<16>) hdr.ipv4.ihl - 5 : 16w0)
            + (hdr.tcp_options.isValid() ? (bit<16>) hdr.tcp.data_offset - 5 : 16w0)
            + (hdr.gre.isValid() ? 16w1 : 16w0)
            + (hdr.gre_checksum.isValid() ? 16w1 : 16w0)
            + (hdr.gre_options.isValid() ? (bit<16>) hdr.gre.has_key + (bit<16>) hdr.gre.has_sequence : 16w0)
            + (hdr.vxlan.isValid() ? 16w2 : 16w0)
            + (hdr.probe_marker.isValid() ? 16w2 : 16w0)
            + (hdr.int_shim.isValid() ? 1 + (bit<16>) hdr.int_shim.length : 16w0)
            + (bit<16>) meta.inner_words;
        hdr.ethernet.setInvalid();
        hdr.vlan.setInvalid();
    }

    // The only packets that Gather can store: IP alone, and TCP or UDP without options.
    @hidden
    action add_up_ip() {
        inner_words = plain_words + other_words;
        meta.report_plain = (other_words == 0 && meta.int_growth_bytes == 0) ? 1w1 : 1w0;
    }

    // Whole words: two bytes after the EtherType.
    @hidden
    action measure_ethernet() {
        inner_words = hdr.vlan.isValid() ? 16w5 : 16w4;
        inner_type = INNER_TYPE_ETHERNET;
        if (standard_metadata.packet_length < (bit<32>) inner_words << 2) {
            inner_words = 0;
            inner_type = INNER_TYPE_NONE;
            hdr.ethernet.setInvalid();
            hdr.vlan.setInvalid();
        }
    }

    @hidden
    action count_metadata() {
        metadata_words = count_report_words(meta.report_bits) + (bit<8>) meta.report_bits[0:0]
            + count_domain_words(meta.report_domain_bits);
#ifdef AGGREGATION
        metadata_words = metadata_words
            + ((meta.report_domain_bits & DOMAIN_COMPLETION != 0) ? COMPLETION_WORDS : 8w0);
#endif
    }

    @hidden
    action measure() {
        report_words = REPORT_MAIN_WORDS + (bit<16>) metadata_words + inner_words;
        meta.report_words = 1 + report_words;
    }

    @hidden
    action fill_report() {
        hdr.report.setValid();
        hdr.report.report_type = REPORT_TYPE_INT;
        hdr.report.inner_type = inner_type;
        hdr.report.report_words = (report_words > REPORT_WORDS_LIMIT) ? 8w0xff : (bit<8>) report_words;
        hdr.report.metadata_words = metadata_words;
        hdr.report.dropped = meta.report_dropped;
        hdr.report.congested = meta.report_congested;
        hdr.report.tracked = meta.report_tracked;
        hdr.report.intermediate = meta.report_intermediate;
        hdr.report.reserved = 0;
        hdr.report.metadata_bits = meta.report_bits;
        hdr.report.domain_id = meta.report_domain_id;
        hdr.report.domain_metadata_bits = meta.report_domain_bits;
        hdr.report.domain_status = meta.report_domain_status;
    }

    @hidden
    action fill_drop() {
        hdr.report_drop.setValid();
        hdr.report_drop.queue_id = meta.hop_queue_id;
        hdr.report_drop.reason = meta.report_drop_reason;
        hdr.report_drop.pad = 0;
    }

    apply {
        if (hdr.ipv4.isValid() || hdr.ipv6.isValid()) {
            measure_ip();
            add_up_ip();
        } else {
            measure_ethernet();
        }
        count_metadata();
        measure();
        fill_report();
        // The outer UDP checksum is zero, so these words' contribution to it is not needed.
        hop_words.apply(
            meta.report_bits, meta,
            hdr.report_level1, hdr.report_latency, hdr.report_queue,
            hdr.report_ingress_time, hdr.report_egress_time,
            hdr.report_level2, hdr.report_utilization, hdr.report_buffer, unused_sum
        );
        if (meta.report_bits & DROP_WORD_BIT != 0) {
            fill_drop();
        }
        if (meta.report_domain_bits & DOMAIN_FORWARDING != 0) {
            forwarding_word.apply(hdr.ipv4, hdr.ipv6, meta, hdr.report_forwarding, unused_sum);
        }
#ifdef AGGREGATION
        if (meta.report_domain_bits & DOMAIN_COMPLETION != 0) {
            completion_words.apply(hdr.aggregation, meta, hdr.report_completion);
        }
#endif
    }
}

#endif
