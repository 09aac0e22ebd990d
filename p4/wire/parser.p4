// Bytes to headers, as far as the pipeline understands them; the rest is payload.
#ifndef P4_WIRE_PARSER_P4
#define P4_WIRE_PARSER_P4

#include "../shared/headers.p4"
#include "../shared/metadata.p4"

error {
    BadIpHeader,
    BadTcpHeader
}

parser FabricParser(
    packet_in packet,
    out headers_t hdr,
    inout metadata_t meta,
    inout standard_metadata_t standard_metadata
) {
    state start {
        transition select(standard_metadata.ingress_port) {
            CPU_PORT: parse_packet_out;
            default: parse_ethernet;
        }
    }

    // The controller's frame goes out as it is, so nothing below the header is looked at.
    state parse_packet_out {
        packet.extract(hdr.packet_out);
        transition accept;
    }

    state parse_ethernet {
        packet.extract(hdr.ethernet);
        meta.ether_type = hdr.ethernet.ether_type;
        transition select(hdr.ethernet.ether_type) {
            ETHERTYPE_VLAN: parse_vlan;
            ETHERTYPE_IPV4: parse_ipv4;
            ETHERTYPE_IPV6: parse_ipv6;
            default: accept;
        }
    }

    state parse_vlan {
        packet.extract(hdr.vlan);
        meta.ether_type = hdr.vlan.ether_type;
        transition select(hdr.vlan.ether_type) {
            ETHERTYPE_IPV4: parse_ipv4;
            ETHERTYPE_IPV6: parse_ipv6;
            default: accept;
        }
    }

    state parse_ipv4 {
        packet.extract(hdr.ipv4);
        meta.dscp = hdr.ipv4.dscp;
        verify(
            hdr.ipv4.version == 4 && hdr.ipv4.ihl >= 5 && hdr.ipv4.total_length >= (bit<16>) hdr.ipv4.ihl << 2,
            error.BadIpHeader
        );
        transition select(hdr.ipv4.ihl) {
            5: parse_ipv4_payload;
            default: parse_ipv4_options;
        }
    }

    state parse_ipv4_options {
        packet.extract(hdr.ipv4_options, ((bit<32>) hdr.ipv4.ihl - 5) << 5);
        transition parse_ipv4_payload;
    }

    // All fragments of a packet must look alike, and only the first has ports: none is taken apart further.
    state parse_ipv4_payload {
        transition select(hdr.ipv4.more_fragments, hdr.ipv4.fragment_offset, hdr.ipv4.protocol) {
            (0, 0, PROTOCOL_TCP): parse_tcp;
            (0, 0, PROTOCOL_UDP): parse_udp;
            default: accept;
        }
    }

    state parse_ipv6 {
        packet.extract(hdr.ipv6);
        meta.dscp = hdr.ipv6.dscp;
        verify(hdr.ipv6.version == 6, error.BadIpHeader);
        transition select(hdr.ipv6.next_header) {
            PROTOCOL_TCP: parse_tcp;
            PROTOCOL_UDP: parse_udp;
            default: accept;
        }
    }

    state parse_tcp {
        packet.extract(hdr.tcp);
        verify(hdr.tcp.data_offset >= 5, error.BadTcpHeader);
        meta.l4_src_port = hdr.tcp.src_port;
        meta.l4_dst_port = hdr.tcp.dst_port;
        transition select(hdr.tcp.data_offset) {
            5: find_int;
            default: parse_tcp_options;
        }
    }

    state parse_tcp_options {
        packet.extract(hdr.tcp_options, ((bit<32>) hdr.tcp.data_offset - 5) << 5);
        transition find_int;
    }

    state parse_udp {
        packet.extract(hdr.udp);
        meta.l4_src_port = hdr.udp.src_port;
        meta.l4_dst_port = hdr.udp.dst_port;
        transition find_int;
    }

    state find_int {
        transition select(meta.dscp) {
            INT_DSCP: probe_int;
            default: accept;
        }
    }

    // A marked packet without a shim of ours behind L4 is passed on as it is.
    state probe_int {
        int_probe_t probe = packet.lookahead<int_probe_t>();
        transition select(probe.type, probe.npt, probe.length, probe.version) {
            (_, _, 0 &&& 0xfe, _): accept;
            (_, _, 2, _): accept;
            (INT_TYPE_MD, 0, _, INT_VERSION): parse_int;
            default: accept;
        }
    }

    state parse_int {
        packet.extract(hdr.int_shim);
        packet.extract(hdr.int_md);
        packet.extract(hdr.int_stack, (bit<32>) (hdr.int_shim.length - INT_MD_WORDS) << 5);
        transition accept;
    }
}

#endif
