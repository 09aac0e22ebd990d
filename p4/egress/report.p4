// A clone becomes a Telemetry Report v2.0: outer headers, this hop's metadata, then the packet down to its INT headers.
#ifndef P4_EGRESS_REPORT_P4
#define P4_EGRESS_REPORT_P4

#include "../shared/headers.p4"
#include "../shared/instructions.p4"
#include "../shared/metadata.p4"
#include "hop_words.p4"

control Report(
    inout headers_t hdr,
    inout metadata_t meta,
    inout standard_metadata_t standard_metadata,
    inout bit<32> bytes
) {
    counter(1, CounterType.packets_and_bytes) int_reports;
    counter(1, CounterType.packets_and_bytes) drop_report_without_target;
    register<bit<32>>(1) report_sequence;
    HopWords() hop_words;

    bit<8> metadata_words;
    bit<16> report_words;
    bit<64> unused_sum = 0;

    action set_report_target(
        @name("src_mac") mac_t src_mac,
        @name("dst_mac") mac_t dst_mac,
        @name("src_addr") bit<32> src_addr,
        @name("dst_addr") bit<32> dst_addr,
        @name("udp_port") bit<16> udp_port
    ) {
        hdr.report_ethernet.setValid();
        hdr.report_ethernet.dst_addr = dst_mac;
        hdr.report_ethernet.src_addr = src_mac;
        hdr.report_ethernet.ether_type = ETHERTYPE_IPV4;

        hdr.report_ipv4.setValid();
        hdr.report_ipv4.version = 4;
        hdr.report_ipv4.ihl = 5;
        hdr.report_ipv4.dscp = 0;
        hdr.report_ipv4.ecn = 0;
        // The report specification, "Outer Encapsulation": without an identification of its own, DF is set.
        hdr.report_ipv4.identification = 0;
        hdr.report_ipv4.reserved = 0;
        hdr.report_ipv4.do_not_fragment = 1;
        hdr.report_ipv4.more_fragments = 0;
        hdr.report_ipv4.fragment_offset = 0;
        hdr.report_ipv4.ttl = 64;
        hdr.report_ipv4.protocol = PROTOCOL_UDP;
        hdr.report_ipv4.src_addr = src_addr;
        hdr.report_ipv4.dst_addr = dst_addr;

        hdr.report_udp.setValid();
        // One source port, not a hash of the flow: reports must stay in sequence on their way.
        hdr.report_udp.src_port = udp_port;
        hdr.report_udp.dst_port = udp_port;
        hdr.report_udp.checksum = 0;
    }

    table report_target {
        actions = {
            set_report_target;
            NoAction;
        }
        default_action = NoAction();
    }

    @hidden
    action put_back() {
        hdr.int_shim = hdr.sunk_shim;
        hdr.int_md = hdr.sunk_md;
        hdr.int_stack = hdr.sunk_stack;
        meta.int_sum = meta.report_int_sum;
        meta.int_growth_bytes = 4 + ((bit<16>) hdr.int_shim.length << 2);
    }

    @hidden
    action measure() {
        metadata_words = count_report_words(meta.report_bits);
        bit<16> inner_words = hdr.ipv4.isValid() ? (bit<16>) hdr.ipv4.ihl : 16w10;
        inner_words = inner_words + (hdr.tcp.isValid() ? (bit<16>) hdr.tcp.data_offset : 16w2);
        inner_words = inner_words + (hdr.int_shim.isValid() ? 1 + (bit<16>) hdr.int_shim.length : 16w0);
        report_words = REPORT_MAIN_WORDS + (bit<16>) metadata_words + inner_words;
    }

    @hidden
    action fill_group() {
        bit<32> sequence;
        report_sequence.read(sequence, 0);
        report_sequence.write(0, sequence + 1);
        hdr.report_group.setValid();
        hdr.report_group.version = REPORT_VERSION;
        hdr.report_group.hardware_id = 0;
        hdr.report_group.sequence = (bit<22>) sequence;
        hdr.report_group.node_id = meta.node_id;
    }

    @hidden
    action fill_report() {
        hdr.report.setValid();
        hdr.report.report_type = REPORT_TYPE_INT;
        hdr.report.inner_type = hdr.ipv4.isValid() ? INNER_TYPE_IPV4 : INNER_TYPE_IPV6;
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
    action fill_lengths() {
        hdr.report_udp.length = REPORT_UDP_BYTES + (report_words << 2);
        hdr.report_ipv4.total_length = hdr.report_udp.length + 20;
        bytes = (bit<32>) hdr.report_ipv4.total_length + 14;
        truncate(bytes);
    }

    apply {
        report_target.apply();
        if (!hdr.report_ethernet.isValid()) {
            drop_report_without_target.count(0);
            mark_to_drop(standard_metadata);
            exit;
        }
        if (meta.report_restores_int == 1) {
            put_back();
            if (hdr.ipv4.isValid()) {
                hdr.ipv4.dscp = INT_DSCP;
            } else {
                hdr.ipv6.dscp = INT_DSCP;
            }
        }
        measure();
        fill_group();
        fill_report();
        // The outer UDP checksum is zero, so nobody asks for what these words add to it.
        hop_words.apply(
            meta.report_bits, meta,
            hdr.report_level1, hdr.report_latency, hdr.report_queue, hdr.report_ingress_time, hdr.report_egress_time,
            hdr.report_level2, hdr.report_utilization, unused_sum
        );
        fill_lengths();
        hdr.ethernet.setInvalid();
        hdr.vlan.setInvalid();
        int_reports.count(0);
    }
}

#endif
