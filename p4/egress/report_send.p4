// The last of a report: the group header with its number, and all lengths, now that everything in it is known.
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
    register<bit<32>>(1) report_sequence;

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
    action fill_lengths() {
        hdr.report_udp.length = REPORT_UDP_BYTES + ((meta.report_words + meta.gathered_words) << 2);
        hdr.report_ipv4.total_length = hdr.report_udp.length + 20;
        bytes = (bit<32>) hdr.report_ipv4.total_length + 14;
        truncate(bytes);
    }

    apply {
        // Somebody else's packet sent what this one was copied for.
        if (meta.report_words + meta.gathered_words == 0) {
            mark_to_drop(standard_metadata);
            exit;
        }
        fill_group();
        fill_lengths();
        int_reports.count(0);
    }
}

#endif
