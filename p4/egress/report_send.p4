// Completes a report: the group header with its sequence number, and all lengths, now that its content is known.
#ifndef P4_EGRESS_REPORT_SEND_P4
#define P4_EGRESS_REPORT_SEND_P4

#include "../shared/headers.p4"
#include "../shared/metadata.p4"

control ReportSend(
    inout headers_t hdr,
    inout metadata_t meta,
    inout standard_metadata_t standard_metadata,
    inout bit<32> bytes
) {
    counter(1, CounterType.packets_and_bytes) int_reports;
    // Sequence numbers per destination, indexed by a hash of its address and port.
    register<bit<32>>(1024) report_sequence;

    bit<16> destination;

    @hidden
    action hash_destination() {
        hash(destination, HashAlgorithm.crc16, 16w0, {
            hdr.report_ipv4.dst_addr, hdr.report_udp.dst_port
        }, 32w1024);
    }

    @hidden
    action fill_group() {
        bit<32> sequence;
        report_sequence.read(sequence, (bit<32>) destination);
        report_sequence.write((bit<32>) destination, sequence + 1);
        hdr.report_group.setValid();
        hdr.report_group.version = REPORT_VERSION;
        hdr.report_group.hardware_id = 0;
        hdr.report_group.sequence = (bit<22>) sequence;
        hdr.report_group.node_id = meta.node_id;
    }

    @hidden
    action fill_lengths() {
        hdr.report_udp.length = REPORT_UDP_BYTES + ((meta.report_words + meta.gathered_words) << 2);
        hdr.report_ipv4.total_length = hdr.report_udp.length + 20;
        bytes = (bit<32>) hdr.report_ipv4.total_length + 14;
        truncate(bytes);
    }

    apply {
        // Another packet has sent the reports that this one was cloned for.
        if (meta.report_words + meta.gathered_words == 0) {
            mark_to_drop(standard_metadata);
            exit;
        }
        hash_destination();
        fill_group();
        fill_lengths();
        int_reports.count(0);
    }
}

#endif
