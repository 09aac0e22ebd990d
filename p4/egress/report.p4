// A clone becomes a Telemetry Report v2.0: outer headers, this hop's metadata, then the packet down to L4 and INT.
#ifndef P4_EGRESS_REPORT_P4
#define P4_EGRESS_REPORT_P4

#include "../shared/headers.p4"
#include "../shared/instructions.p4"
#include "../shared/metadata.p4"
#include "drop_watch.p4"
#include "forwarding_word.p4"
#include "hop_words.p4"
#include "int_unmark.p4"
#include "report_target.p4"

control Report(
    inout headers_t hdr,
    inout metadata_t meta,
    inout standard_metadata_t standard_metadata
) {
    counter(1, CounterType.packets_and_bytes) drop_report_without_target;
    counter(1, CounterType.packets_and_bytes) drop_report_about_report;
    ReportTarget() report_target;
    DropWatch() drop_watch;
    HopWords() hop_words;
    IntUnmark() unmark;
    ForwardingWord() forwarding_word;

    bit<8> metadata_words;
    bit<16> inner_words;
    bit<16> report_words;
    bit<4> inner_type;
    bit<64> unused_sum = 0;

    // The report specification, "Embedded Telemetry Metadata": only with F may there be any in the packet. Without it
    // are packets whose INT headers nobody should believe, and those that just met a congested queue.
    @hidden
    action forget_int() {
        hdr.probe_marker.setInvalid();
        hdr.int_shim.setInvalid();
        hdr.int_md.setInvalid();
        hdr.int_stack.setInvalid();
        hdr.int_source_word.setInvalid();
        hdr.hop_node.setInvalid();
        hdr.hop_level1.setInvalid();
        hdr.hop_latency.setInvalid();
        hdr.hop_queue.setInvalid();
        hdr.hop_ingress_time.setInvalid();
        hdr.hop_egress_time.setInvalid();
        hdr.hop_level2.setInvalid();
        hdr.hop_utilization.setInvalid();
        hdr.hop_buffer.setInvalid();
        hdr.hop_reserved[0].setInvalid();
        hdr.hop_reserved[1].setInvalid();
        hdr.hop_reserved[2].setInvalid();
        hdr.hop_reserved[3].setInvalid();
        hdr.hop_reserved[4].setInvalid();
        hdr.hop_reserved[5].setInvalid();
        hdr.hop_forwarding.setInvalid();
        hdr.hop_complement.setInvalid();
    }

    // All that was parsed of the packet; that is cut where parsing ended with an error.
    @hidden
    action measure_ip() {
        inner_type = hdr.ipv4.isValid() ? INNER_TYPE_IPV4 : INNER_TYPE_IPV6;
        inner_words = hdr.ipv4.isValid() ? 16w5 : 16w10;
        // What Gather knows how to keep: nothing but IP, and TCP or UDP without options.
        bit<16> plain_words = inner_words + (hdr.udp.isValid() ? 16w2 : 16w0) + (hdr.tcp.isValid() ? 16w5 : 16w0);
        inner_words = inner_words + (hdr.ipv4_options.isValid() ? (bit<16>) hdr.ipv4.ihl - 5 : 16w0);
        inner_words = inner_words + (hdr.udp.isValid() ? 16w2 : 16w0);
        inner_words = inner_words + (hdr.tcp.isValid() ? 16w5 : 16w0);
        inner_words = inner_words + (hdr.tcp_options.isValid() ? (bit<16>) hdr.tcp.data_offset - 5 : 16w0);
        inner_words = inner_words + (hdr.gre.isValid() ? 16w1 : 16w0);
        inner_words = inner_words + (hdr.gre_checksum.isValid() ? 16w1 : 16w0);
        inner_words = inner_words
            + (hdr.gre_options.isValid() ? (bit<16>) hdr.gre.has_key + (bit<16>) hdr.gre.has_sequence : 16w0);
        inner_words = inner_words + (hdr.vxlan.isValid() ? 16w2 : 16w0);
        inner_words = inner_words + (hdr.probe_marker.isValid() ? 16w2 : 16w0);
        inner_words = inner_words + (hdr.int_shim.isValid() ? 1 + (bit<16>) hdr.int_shim.length : 16w0);
        inner_words = inner_words + (bit<16>) meta.inner_words;
        meta.report_plain = (inner_words == plain_words && meta.int_growth_bytes == 0) ? 1w1 : 1w0;
        hdr.ethernet.setInvalid();
        hdr.vlan.setInvalid();
    }

    // Whole words: two bytes of what follows the EtherType.
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
    action measure() {
        metadata_words = count_report_words(meta.report_bits) + (bit<8>) meta.report_bits[0:0]
            + count_domain_words(meta.report_domain_bits);
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

    @hidden
    action end() {
        mark_to_drop(standard_metadata);
        exit;
    }

    @hidden
    action withdraw() {
        meta.report_dropped = 0;
        meta.report_congested = 0;
        meta.report_tracked = 0;
    }

    apply {
        report_target.apply(hdr);
        if (!hdr.report_ethernet.isValid()) {
            drop_report_without_target.count(0);
            end();
        }
        if (meta.is_report == 1) {
            if (meta.report_flush == 0) {
                drop_report_about_report.count(0);
            }
            withdraw();
        } else if (meta.report_dropped == 1) {
            drop_watch.apply(hdr, meta, standard_metadata);
            if (
                hdr.int_shim.isValid() && meta.report_drop_reason > DROP_INT_MALFORMED && meta.int_place != PLACE_NONE
            ) {
                meta.report_tracked = meta.report_tracked | meta.report_dropped;
            }
        }
        if (meta.report_dropped == 1 || meta.report_congested == 1 || meta.report_tracked == 1) {
            if (meta.report_tracked == 0) {
                if (meta.report_as_it_came == 1 || meta.int_place == PLACE_NONE) {
                    meta.inner_words = 0;
                } else if (hdr.int_shim.isValid()) {
                    unmark.apply(hdr, meta);
                }
                forget_int();
            }
            if (hdr.ipv4.isValid() || hdr.ipv6.isValid()) {
                measure_ip();
            } else {
                measure_ethernet();
            }
            measure();
            fill_report();
            // The outer UDP checksum is zero, so nobody asks for what these words add to it.
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
        } else if (meta.report_flush == 0) {
            end();
        }
    }
}

#endif
