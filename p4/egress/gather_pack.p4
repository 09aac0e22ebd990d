// Packs a finished individual report into one number, aligned at its last bit, to be stored in registers.
#ifndef P4_EGRESS_GATHER_PACK_P4
#define P4_EGRESS_GATHER_PACK_P4

#include "../shared/headers.p4"
#include "../shared/metadata.p4"

// Only for packets that Gather lets wait: no options, tunnels or INT behind the IP header.
control GatherPack(inout headers_t hdr, in metadata_t meta, out gathered_record_t record) {
    @hidden
    action add_report() {
        record = (gathered_record_t) (
            hdr.report.report_type ++ hdr.report.inner_type ++ hdr.report.report_words ++ hdr.report.metadata_words
            ++ hdr.report.dropped ++ hdr.report.congested ++ hdr.report.tracked ++ hdr.report.intermediate
            ++ hdr.report.reserved ++ hdr.report.metadata_bits ++ hdr.report.domain_id
            ++ hdr.report.domain_metadata_bits ++ hdr.report.domain_status
        );
    }

    // The packet's own header checksum is computed in the deparser; a waiting report needs it now.
    @hidden
    action complete_ipv4() {
        hash(hdr.ipv4.checksum, HashAlgorithm.csum16, 16w0, {
            hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.dscp, hdr.ipv4.ecn, hdr.ipv4.total_length,
            hdr.ipv4.identification, hdr.ipv4.reserved, hdr.ipv4.do_not_fragment, hdr.ipv4.more_fragments,
            hdr.ipv4.fragment_offset, hdr.ipv4.ttl, hdr.ipv4.protocol, hdr.ipv4.src_addr, hdr.ipv4.dst_addr
        }, 32w0x10000);
    }

    @hidden
    action add_ipv4() {
        record = (record << 160) | (gathered_record_t) (
            hdr.ipv4.version ++ hdr.ipv4.ihl ++ hdr.ipv4.dscp ++ hdr.ipv4.ecn ++ hdr.ipv4.total_length
            ++ hdr.ipv4.identification ++ hdr.ipv4.reserved ++ hdr.ipv4.do_not_fragment ++ hdr.ipv4.more_fragments
            ++ hdr.ipv4.fragment_offset ++ hdr.ipv4.ttl ++ hdr.ipv4.protocol ++ hdr.ipv4.checksum
            ++ hdr.ipv4.src_addr ++ hdr.ipv4.dst_addr
        );
    }

    @hidden
    action add_ipv6() {
        record = (record << 192) | (gathered_record_t) (
            hdr.ipv6.version ++ hdr.ipv6.dscp ++ hdr.ipv6.ecn ++ hdr.ipv6.flow_label ++ hdr.ipv6.payload_length
            ++ hdr.ipv6.next_header ++ hdr.ipv6.hop_limit ++ hdr.ipv6.src_addr
        );
        record = (record << 128) | (gathered_record_t) hdr.ipv6.dst_addr;
    }

    @hidden
    action add_tcp() {
        record = (record << 160) | (gathered_record_t) (
            hdr.tcp.src_port ++ hdr.tcp.dst_port ++ hdr.tcp.sequence ++ hdr.tcp.acknowledgment ++ hdr.tcp.data_offset
            ++ hdr.tcp.reserved ++ hdr.tcp.flags ++ hdr.tcp.window ++ hdr.tcp.checksum ++ hdr.tcp.urgent_pointer
        );
    }

    @hidden
    action add_udp() {
        record = (record << 64) | (gathered_record_t) (
            hdr.udp.src_port ++ hdr.udp.dst_port ++ hdr.udp.length ++ hdr.udp.checksum
        );
    }

    apply {
        add_report();
        if (hdr.report_level1.isValid()) {
            record = (record << 32)
                | (gathered_record_t) (hdr.report_level1.ingress_port ++ hdr.report_level1.egress_port);
        }
        if (hdr.report_latency.isValid()) {
            record = (record << 32) | (gathered_record_t) hdr.report_latency.latency_ns;
        }
        if (hdr.report_queue.isValid()) {
            record = (record << 32) | (gathered_record_t) (hdr.report_queue.queue_id ++ hdr.report_queue.occupancy);
        }
        if (hdr.report_ingress_time.isValid()) {
            record = (record << 64) | (gathered_record_t) hdr.report_ingress_time.timestamp_ns;
        }
        if (hdr.report_egress_time.isValid()) {
            record = (record << 64) | (gathered_record_t) hdr.report_egress_time.timestamp_ns;
        }
        if (hdr.report_level2.isValid()) {
            record = (record << 64)
                | (gathered_record_t) (hdr.report_level2.ingress_port ++ hdr.report_level2.egress_port);
        }
        if (hdr.report_utilization.isValid()) {
            record = (record << 32) | (gathered_record_t) hdr.report_utilization.transmitted_bytes;
        }
        if (hdr.report_buffer.isValid()) {
            record = (record << 32) | (gathered_record_t) (hdr.report_buffer.queue_id ++ hdr.report_buffer.occupancy);
        }
        if (hdr.report_drop.isValid()) {
            record = (record << 32)
                | (gathered_record_t) (hdr.report_drop.queue_id ++ hdr.report_drop.reason ++ hdr.report_drop.pad);
        }
        if (hdr.ipv4.isValid()) {
            if (meta.report_as_it_came == 0) {
                complete_ipv4();
            }
            add_ipv4();
        } else {
            add_ipv6();
        }
        if (hdr.udp.isValid()) {
            add_udp();
        } else if (hdr.tcp.isValid()) {
            add_tcp();
        }
    }
}

#endif
