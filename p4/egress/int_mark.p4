// Marks a packet that carries INT headers as the domain's: at the source, and in a sink's report.
#ifndef P4_EGRESS_INT_MARK_P4
#define P4_EGRESS_INT_MARK_P4

#include "../shared/headers.p4"
#include "../shared/metadata.p4"

control IntMark(inout headers_t hdr, inout metadata_t meta) {
    bit<14> flow_hash;

    @hidden
    action mark_dscp() {
        hdr.ipv4.dscp = (hdr.ipv4.dscp & ~meta.marker_dscp_mask) | meta.marker_dscp;
    }

    @hidden
    action mark_dscp_ipv6() {
        hdr.ipv6.dscp = (hdr.ipv6.dscp & ~meta.marker_dscp_mask) | meta.marker_dscp;
    }

    @hidden
    action mark_udp_port() {
        meta.int_sum = meta.int_sum + (bit<64>) (~hdr.udp.dst_port) + (bit<64>) meta.marker_udp_port;
        hdr.udp.dst_port = meta.marker_udp_port;
    }

    @hidden
    action insert_probe_marker() {
        hdr.probe_marker.setValid();
        hdr.probe_marker.marker = meta.marker_probe;
        meta.int_growth_bytes = meta.int_growth_bytes + PROBE_MARKER_BYTES;
        meta.int_sum = meta.int_sum + (meta.marker_probe >> 32) + (meta.marker_probe & 0xffffffff);
    }

    @hidden
    action move_l4() {
        meta.inner_words = hdr.tcp.isValid() ? hdr.tcp.data_offset : 4w0;
        meta.inner_words = hdr.udp.isValid() ? 4w2 : meta.inner_words;
        hdr.inner_tcp = hdr.tcp;
        hdr.inner_tcp_options = hdr.tcp_options;
        hdr.inner_udp = hdr.udp;
        hdr.tcp.setInvalid();
        hdr.tcp_options.setInvalid();
    }

    @hidden
    action hash_ipv4() {
        hash(flow_hash, HashAlgorithm.crc16, 14w0, {
            hdr.ipv4.src_addr, hdr.ipv4.dst_addr, meta.protocol, meta.l4_src_port, meta.l4_dst_port
        }, 32w0x4000);
    }

    @hidden
    action hash_ipv6() {
        hash(flow_hash, HashAlgorithm.crc16, 14w0, {
            hdr.ipv6.src_addr, hdr.ipv6.dst_addr, meta.protocol, meta.l4_src_port, meta.l4_dst_port
        }, 32w0x4000);
    }

    // A source port per flow preserves load balancing in other networks; 49152 and up are for such uses (RFC 6335).
    @hidden
    action insert_udp() {
        hdr.udp.setValid();
        hdr.udp.src_port = 16w0xc000 | (bit<16>) flow_hash;
        hdr.udp.dst_port = meta.marker_udp_port;
        hdr.udp.checksum = 0;
    }

    // The length without INT; it is increased together with the packet's.
    @hidden
    action enter_udp() {
        hdr.udp.length = hdr.ipv4.total_length - ((bit<16>) hdr.ipv4.ihl << 2);
        hdr.ipv4.protocol = PROTOCOL_UDP;
        meta.int_growth_bytes = meta.int_growth_bytes + UDP_BYTES;
    }

    @hidden
    action enter_udp_ipv6() {
        hdr.udp.length = hdr.ipv6.payload_length;
        hdr.ipv6.next_header = PROTOCOL_UDP;
        meta.int_growth_bytes = meta.int_growth_bytes + UDP_BYTES;
    }

    @hidden
    action mark_gre() {
        meta.int_sum = meta.int_sum + (bit<64>) (~hdr.gre.protocol) + (bit<64>) meta.tunnel_gre_protocol;
        hdr.gre.protocol = meta.tunnel_gre_protocol;
    }

    @hidden
    action mark_vxlan() {
        meta.int_sum = meta.int_sum + (bit<64>) (~(bit<16>) hdr.vxlan.next_protocol) + (bit<64>) VXLAN_NEXT_INT;
        hdr.vxlan.next_protocol = VXLAN_NEXT_INT;
    }

    @hidden
    action make_vxlan_gpe() {
        meta.int_sum = meta.int_sum + ((bit<64>) VXLAN_NEXT_PROTOCOL_FLAG << 8)
            + (bit<64>) (~VXLAN_PORT) + (bit<64>) VXLAN_GPE_PORT;
        hdr.vxlan.flags = hdr.vxlan.flags | VXLAN_NEXT_PROTOCOL_FLAG;
        hdr.udp.dst_port = VXLAN_GPE_PORT;
    }

    apply {
        if (meta.int_place == PLACE_DSCP) {
            if (hdr.ipv4.isValid()) {
                mark_dscp();
            } else {
                mark_dscp_ipv6();
            }
        } else if (meta.int_place == PLACE_UDP_PORT) {
            mark_udp_port();
        } else if (meta.int_place == PLACE_PROBE) {
            insert_probe_marker();
        } else if (meta.int_place == PLACE_NEW_UDP) {
            if (hdr.sunk_udp.isValid()) {
                hdr.udp = hdr.sunk_udp;
            } else {
                move_l4();
                if (hdr.ipv4.isValid()) {
                    hash_ipv4();
                } else {
                    hash_ipv6();
                }
                insert_udp();
            }
            if (hdr.ipv4.isValid()) {
                enter_udp();
            } else {
                enter_udp_ipv6();
            }
        } else if (meta.int_place == PLACE_GRE) {
            mark_gre();
        } else {
            mark_vxlan();
            if (hdr.int_shim.value[15:15] == 1) {
                make_vxlan_gpe();
            }
        }
    }
}

#endif
