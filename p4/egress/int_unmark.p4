// Removes INT from a packet: at the sink, and in reports that show the packet as its source sent it.
#ifndef P4_EGRESS_INT_UNMARK_P4
#define P4_EGRESS_INT_UNMARK_P4

#include "../shared/headers.p4"
#include "../shared/metadata.p4"

control IntUnmark(inout headers_t hdr, inout metadata_t meta) {
    // report_int_sum is the part pushed by this hop; a sink pushes nothing.
    @hidden
    action take_from_payload() {
        bit<16> complement;
        bit<32> number = hdr.int_source_word.isValid() ? hdr.int_source_word.number : 32w0;
        bit<16> pushed = hdr.hop_complement.isValid() ? hdr.hop_complement.complement : 16w0;
        hash(complement, HashAlgorithm.csum16, 16w0, {
            hdr.int_shim.type, hdr.int_shim.npt, hdr.int_shim.reserved, hdr.int_shim.length, hdr.int_shim.value,
            hdr.int_md.version, hdr.int_md.discard, hdr.int_md.hops_exceeded, hdr.int_md.mtu_exceeded,
            hdr.int_md.reserved, hdr.int_md.hop_words, hdr.int_md.remaining_hops,
            hdr.int_md.instructions, hdr.int_md.domain_id,
            hdr.int_md.domain_instructions, hdr.int_md.domain_flags,
            number, meta.report_int_sum, pushed, hdr.int_stack.words
        }, 32w0x10000);
        // csum16 ends with a complement, which is the negation that a subtraction needs.
        meta.int_sum = (bit<64>) complement;
        meta.report_int_sum = (bit<64>) (~complement);
        meta.int_growth_bytes = -(4 + ((bit<16>) hdr.int_shim.length << 2));
    }

    @hidden
    action restore_udp_port() {
        meta.int_sum = meta.int_sum + (bit<64>) (~hdr.udp.dst_port) + (bit<64>) hdr.int_shim.value;
        hdr.udp.dst_port = hdr.int_shim.value;
    }

    @hidden
    action remove_probe_marker() {
        bit<64> complement = ~hdr.probe_marker.marker;
        meta.int_sum = meta.int_sum + (complement >> 32) + (complement & 0xffffffff);
        meta.int_growth_bytes = meta.int_growth_bytes - PROBE_MARKER_BYTES;
        hdr.probe_marker.setInvalid();
    }

    @hidden
    action remove_udp() {
        meta.int_growth_bytes = meta.int_growth_bytes - UDP_BYTES;
        hdr.sunk_udp = hdr.udp;
        hdr.udp.setInvalid();
    }

    @hidden
    action restore_gre() {
        meta.int_sum = meta.int_sum + (bit<64>) (~hdr.gre.protocol) + (bit<64>) hdr.int_shim.value;
        hdr.gre.protocol = hdr.int_shim.value;
    }

    @hidden
    action restore_vxlan_gpe() {
        meta.int_sum = meta.int_sum + (bit<64>) (~(bit<16>) hdr.vxlan.next_protocol)
            + (bit<64>) hdr.int_shim.value[7:0];
        hdr.vxlan.next_protocol = hdr.int_shim.value[7:0];
    }

    @hidden
    action restore_vxlan() {
        meta.int_sum = meta.int_sum + (bit<64>) (~(bit<16>) hdr.vxlan.next_protocol)
            + (bit<64>) (~((bit<16>) VXLAN_NEXT_PROTOCOL_FLAG << 8))
            + (bit<64>) (~VXLAN_GPE_PORT) + (bit<64>) VXLAN_PORT;
        hdr.vxlan.next_protocol = 0;
        hdr.vxlan.flags = hdr.vxlan.flags & ~VXLAN_NEXT_PROTOCOL_FLAG;
        hdr.udp.dst_port = VXLAN_PORT;
    }

    @hidden
    action remove_headers() {
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

    apply {
        if (meta.int_unmark == 1) {
            take_from_payload();
            if (meta.int_place == PLACE_DSCP) {
                if (hdr.ipv4.isValid()) {
                    hdr.ipv4.dscp = hdr.int_shim.value[7:2];
                } else {
                    hdr.ipv6.dscp = hdr.int_shim.value[7:2];
                }
            } else if (meta.int_place == PLACE_UDP_PORT) {
                restore_udp_port();
            } else if (meta.int_place == PLACE_PROBE) {
                remove_probe_marker();
            } else if (meta.int_place == PLACE_NEW_UDP) {
                remove_udp();
                if (hdr.ipv4.isValid()) {
                    hdr.ipv4.protocol = hdr.int_shim.value[7:0];
                } else {
                    hdr.ipv6.next_header = hdr.int_shim.value[7:0];
                }
            } else if (meta.int_place == PLACE_GRE) {
                restore_gre();
            } else if (hdr.int_shim.value[15:15] == 1) {
                restore_vxlan();
            } else {
                restore_vxlan_gpe();
            }
        }
        remove_headers();
    }
}

#endif
