// Parses headers as far as the pipeline understands them; the rest is payload.
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
#ifdef AGGREGATION
    bit<4> quarters;
#endif

    state start {
        transition select(standard_metadata.ingress_port) {
            CPU_PORT: parse_packet_out;
            default: parse_ethernet;
        }
    }

    // The controller's frame is sent unchanged, so nothing below its header is parsed.
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
        meta.protocol = hdr.ipv4.protocol;
        meta.ip_payload_bytes = hdr.ipv4.total_length - ((bit<16>) hdr.ipv4.ihl << 2);
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

    // All fragments of a packet must look alike, and only the first has ports, so none is parsed further.
    state parse_ipv4_payload {
        transition select(hdr.ipv4.more_fragments, hdr.ipv4.fragment_offset, hdr.ipv4.protocol) {
            (0, 0, PROTOCOL_TCP): parse_tcp;
            (0, 0, PROTOCOL_UDP): parse_udp;
            (0, 0, PROTOCOL_GRE): find_gre;
            (1, 0, PROTOCOL_UDP): find_fragment_port;
            default: accept;
        }
    }

    // Whether a fragmented datagram is for the collector's port must be known, however: its first fragment tells.
    state find_fragment_port {
        transition select((bit<1>) (meta.ip_payload_bytes >= UDP_BYTES)) {
            1: peek_fragment_port;
            default: accept;
        }
    }

    state peek_fragment_port {
        meta.inner_dst_port = packet.lookahead<inner_ports_t>().dst_port;
        transition accept;
    }

    state parse_ipv6 {
        packet.extract(hdr.ipv6);
        meta.dscp = hdr.ipv6.dscp;
        meta.protocol = hdr.ipv6.next_header;
        meta.ip_payload_bytes = hdr.ipv6.payload_length;
        verify(hdr.ipv6.version == 6, error.BadIpHeader);
        transition select(hdr.ipv6.next_header) {
            PROTOCOL_TCP: parse_tcp;
            PROTOCOL_UDP: parse_udp;
            PROTOCOL_GRE: find_gre;
            default: accept;
        }
    }

    state parse_tcp {
        packet.extract(hdr.tcp);
        verify(hdr.tcp.data_offset >= 5, error.BadTcpHeader);
        meta.l4_src_port = hdr.tcp.src_port;
        meta.l4_dst_port = hdr.tcp.dst_port;
        meta.int_at = (bit<16>) hdr.tcp.data_offset << 2;
        meta.payload_end = meta.ip_payload_bytes;
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
        meta.int_at = UDP_BYTES;
        meta.payload_end = hdr.udp.length;
#ifdef AGGREGATION
        transition select(hdr.udp.dst_port, hdr.udp.src_port) {
            (AGGREGATION_PORT, _): expect_aggregation;
            (STORE_PORT, _): expect_store;
            (_, STORE_PORT): expect_store;
            default: find_int;
        }
    }

    state expect_aggregation {
        transition select(
            hdr.udp.checksum,
            hdr.vlan.isValid(),
            hdr.ipv4.isValid(),
            hdr.ipv4.ihl,
            (bit<1>) (meta.ip_payload_bytes >= UDP_BYTES + AGGREGATION_BYTES)
        ) {
            (0, false, true, 5, 1): find_aggregation;
            default: find_int;
        }
    }

    state expect_store {
        transition select(
            hdr.udp.checksum,
            hdr.ipv4.isValid(),
            hdr.ipv4.ihl,
            (bit<1>) (meta.ip_payload_bytes >= UDP_BYTES + STORE_BYTES)
        ) {
            (0, true, 5, 1): find_store;
            default: find_int;
        }
    }

    // A packet shorter than it claims is an ordinary one, and so is one with a checksum, which nothing would verify.
    state find_aggregation {
        aggregation_t found = packet.lookahead<aggregation_t>();
        bit<16> bytes = UDP_BYTES + AGGREGATION_BYTES + ((bit<16>) found.quarters << 8);
        transition select(
            found.version,
            found.kind,
            found.operation,
            found.quarters,
            (bit<1>) (hdr.udp.length == bytes),
            (bit<1>) (meta.ip_payload_bytes == bytes)
        ) {
            (AGGREGATION_VERSION, KIND_CONTRIBUTION .. KIND_DISTRIBUTE, OPERATION_SUM .. OPERATION_MAX, 0 .. 4, 1, 1):
                parse_aggregation;
            default: find_int;
        }
    }

    state parse_aggregation {
        packet.extract(hdr.aggregation);
        quarters = hdr.aggregation.quarters;
        transition find_values;
    }

    state find_store {
        store_t found = packet.lookahead<store_t>();
        bit<16> bytes = UDP_BYTES + STORE_BYTES + ((bit<16>) found.quarters << 8);
        transition select(
            found.version,
            found.quarters,
            (bit<1>) (hdr.udp.length == bytes),
            (bit<1>) (meta.ip_payload_bytes == bytes)
        ) {
            (STORE_VERSION, 0 .. 4, 1, 1): parse_store;
            default: find_int;
        }
    }

    state parse_store {
        packet.extract(hdr.store);
        quarters = hdr.store.quarters;
        transition find_values;
    }

    state find_values {
        transition select(quarters) {
            0: accept;
            default: parse_values0;
        }
    }

    state parse_values0 {
        packet.extract(hdr.values0);
        transition select(quarters) {
            1: accept;
            default: parse_values1;
        }
    }

    state parse_values1 {
        packet.extract(hdr.values1);
        transition select(quarters) {
            2: accept;
            default: parse_values2;
        }
    }

    state parse_values2 {
        packet.extract(hdr.values2);
        transition select(quarters) {
            3: accept;
            default: parse_values3;
        }
    }

    state parse_values3 {
        packet.extract(hdr.values3);
        transition accept;
    }
#else
        transition find_int;
    }
#endif

    // The controller chooses the INT mark, so the parser goes by shape: a shim of a known type and an INT header
    // of version 2 that fits into the payload. Ingress (int_marker) decides whether that is INT. Most packets are
    // plain payload, so one lookahead rules out INT at once, behind a probe marker, and VXLAN.
    state find_int {
        transition select((bit<1>) (meta.ip_payload_bytes >= meta.int_at + PROBE_MARKER_BYTES + INT_FIXED_BYTES)) {
            1: peek;
            default: find_short_int;
        }
    }

    state peek {
        transition select(packet.lookahead<bit<104>>(), meta.l4_dst_port) {
            (SHAPE_AT_ONCE &&& SHAPE_AT_ONCE_MASK, _): peek_int;
            (_, VXLAN_PORTS &&& VXLAN_PORTS_MASK): find_vxlan;
            (SHAPE_BEHIND_MARKER &&& SHAPE_BEHIND_MARKER_MASK, _): peek_probe_marker;
            default: accept;
        }
    }

    state find_short_int {
        transition select((bit<1>) (meta.ip_payload_bytes >= meta.int_at + INT_FIXED_BYTES)) {
            1: peek_int;
            default: accept;
        }
    }

    state peek_int {
        int_shape_t shape = packet.lookahead<int_shape_t>();
        meta.int_end = meta.int_at + 4 + ((bit<16>) shape.length << 2);
        transition select(shape.type, shape.npt, shape.length, shape.version) {
            (_, _, 0 &&& 0xfe, _): find_vxlan;
            (_, _, 2, _): find_vxlan;
            (_, 3, _, _): find_vxlan;
            (INT_TYPE_MD, _, _, INT_VERSION): check_int;
            (INT_TYPE_MX, _, _, INT_VERSION): check_int;
            default: find_vxlan;
        }
    }

    // VXLAN may be behind a probe marker, too, but hardly one that looks like VXLAN's own flags.
    state find_vxlan {
        transition select(meta.protocol, meta.l4_dst_port, packet.lookahead<bit<8>>()) {
            (PROTOCOL_UDP, VXLAN_PORT, VXLAN_VNI_FLAG): parse_vxlan;
            (PROTOCOL_UDP, VXLAN_GPE_PORT, VXLAN_VNI_FLAG): parse_vxlan;
            (PROTOCOL_UDP, VXLAN_GPE_PORT, VXLAN_VNI_FLAG | VXLAN_NEXT_PROTOCOL_FLAG): parse_vxlan;
            default: find_probe_marker;
        }
    }

    state parse_vxlan {
        packet.extract(hdr.vxlan);
        meta.int_at = meta.int_at + 8;
        transition select(hdr.vxlan.flags, hdr.vxlan.next_protocol) {
            (VXLAN_NEXT_PROTOCOL_FLAG &&& VXLAN_NEXT_PROTOCOL_FLAG, VXLAN_NEXT_INT): find_int_in_tunnel;
            (VXLAN_NEXT_PROTOCOL_FLAG &&& VXLAN_NEXT_PROTOCOL_FLAG, VXLAN_NEXT_IPV4): find_tunnelled_ipv4;
            (VXLAN_NEXT_PROTOCOL_FLAG &&& VXLAN_NEXT_PROTOCOL_FLAG, VXLAN_NEXT_ETHERNET): find_tunnelled_frame;
            (0 &&& VXLAN_NEXT_PROTOCOL_FLAG, _): find_tunnelled_frame;
            default: accept;
        }
    }

    state find_probe_marker {
        transition select((bit<1>) (meta.ip_payload_bytes >= meta.int_at + PROBE_MARKER_BYTES + INT_FIXED_BYTES)) {
            1: peek_probe_marker;
            default: accept;
        }
    }

    state peek_probe_marker {
        probe_shape_t shape = packet.lookahead<probe_shape_t>();
        meta.int_end = meta.int_at + PROBE_MARKER_BYTES + 4 + ((bit<16>) shape.length << 2);
        transition select(shape.type, shape.npt, shape.length, shape.version) {
            (_, _, 0 &&& 0xfe, _): accept;
            (_, _, 2, _): accept;
            (INT_TYPE_MD, NPT_NONE, _, INT_VERSION): check_int_behind_marker;
            (INT_TYPE_MX, NPT_NONE, _, INT_VERSION): check_int_behind_marker;
            default: accept;
        }
    }

    // Nothing is removed from a payload that is not complete INT, including the marker. Other locations of INT have
    // a mark outside the payload, which survives damage; here there are only the bytes themselves.
    state check_int_behind_marker {
        transition select(
            (bit<1>) (meta.ip_payload_bytes >= meta.int_end),
            (bit<1>) (meta.payload_end >= meta.int_end)
        ) {
            (1, 1): parse_probe_marker;
            default: accept;
        }
    }

    state parse_probe_marker {
        packet.extract(hdr.probe_marker);
        transition parse_int;
    }

    state find_gre {
        transition select((bit<1>) (meta.ip_payload_bytes >= GRE_LONGEST_BYTES)) {
            1: parse_gre;
            default: accept;
        }
    }

    state parse_gre {
        packet.extract(hdr.gre);
        meta.int_at = 4 + ((bit<16>) hdr.gre.has_checksum << 2)
            + ((bit<16>) hdr.gre.has_key << 2) + ((bit<16>) hdr.gre.has_sequence << 2);
        meta.payload_end = meta.ip_payload_bytes;
        transition select(hdr.gre.has_routing, hdr.gre.version, hdr.gre.has_checksum) {
            (0, 0, 0): parse_gre_options;
            (0, 0, 1): parse_gre_checksum;
            default: accept;
        }
    }

    state parse_gre_checksum {
        packet.extract(hdr.gre_checksum);
        transition parse_gre_options;
    }

    state parse_gre_options {
        packet.extract(hdr.gre_options, ((bit<32>) hdr.gre.has_key + (bit<32>) hdr.gre.has_sequence) << 5);
        transition select(hdr.gre.protocol) {
            ETHERTYPE_IPV4: find_tunnelled_ipv4;
            GRE_BRIDGED: find_tunnelled_frame;
            default: find_int_in_tunnel;
        }
    }

    // A tunnel's content is payload, but the edge must know its alleged sender.
    state find_tunnelled_ipv4 {
        transition select((bit<1>) (meta.ip_payload_bytes >= meta.int_at + IPV4_BYTES)) {
            1: peek_tunnelled_ipv4;
            default: accept;
        }
    }

    state peek_tunnelled_ipv4 {
        meta.tunnelled_addr = packet.lookahead<inner_ipv4_t>().src_addr;
        transition accept;
    }

    state find_tunnelled_frame {
        transition select((bit<1>) (meta.ip_payload_bytes >= meta.int_at + ETHERNET_BYTES + IPV4_BYTES)) {
            1: peek_tunnelled_frame;
            default: accept;
        }
    }

    state peek_tunnelled_frame {
        transition select(packet.lookahead<inner_ethernet_t>().ether_type) {
            ETHERTYPE_IPV4: peek_ipv4_in_frame;
            ETHERTYPE_VLAN: find_ipv4_behind_vlan;
            default: accept;
        }
    }

    state peek_ipv4_in_frame {
        meta.tunnelled_addr = packet.lookahead<inner_ethernet_t>().src_addr;
        transition accept;
    }

    state find_ipv4_behind_vlan {
        transition select(
            (bit<1>) (meta.ip_payload_bytes >= meta.int_at + ETHERNET_BYTES + VLAN_BYTES + IPV4_BYTES)
        ) {
            1: peek_vlan;
            default: accept;
        }
    }

    state peek_vlan {
        transition select(packet.lookahead<inner_vlan_t>().ether_type) {
            ETHERTYPE_IPV4: peek_ipv4_behind_vlan;
            default: accept;
        }
    }

    state peek_ipv4_behind_vlan {
        meta.tunnelled_addr = packet.lookahead<inner_vlan_t>().src_addr;
        transition accept;
    }

    state find_int_in_tunnel {
        transition select((bit<1>) (meta.ip_payload_bytes >= meta.int_at + INT_FIXED_BYTES)) {
            1: peek_int_in_tunnel;
            default: accept;
        }
    }

    state peek_int_in_tunnel {
        int_shape_t shape = packet.lookahead<int_shape_t>();
        meta.int_end = meta.int_at + 4 + ((bit<16>) shape.length << 2);
        transition select(shape.type, shape.length, shape.version) {
            (_, 0 &&& 0xfe, _): accept;
            (_, 2, _): accept;
            (INT_TYPE_MD, _, INT_VERSION): check_int;
            (INT_TYPE_MX, _, INT_VERSION): check_int;
            default: accept;
        }
    }

    // INT headers that extend beyond their payload cannot be removed without breaking the lengths.
    state check_int {
        transition select(
            (bit<1>) (meta.ip_payload_bytes >= meta.int_end),
            (bit<1>) (meta.payload_end >= meta.int_end)
        ) {
            (1, 1): parse_int;
            default: overrun;
        }
    }

    state overrun {
        meta.int_overrun = 1;
        transition accept;
    }

    state parse_int {
        packet.extract(hdr.int_shim);
        packet.extract(hdr.int_md);
        transition select(hdr.int_md.domain_id, hdr.int_md.domain_instructions, hdr.int_shim.length) {
            (_, _, INT_HEADER_WORDS): parse_stack;
            (OUR_DOMAIN, DOMAIN_SOURCE_NUMBER &&& DOMAIN_SOURCE_NUMBER, _): parse_stack_and_source_word;
            default: parse_stack;
        }
    }

    state parse_stack {
        packet.extract(hdr.int_stack, (bit<32>) (hdr.int_shim.length - INT_HEADER_WORDS) << 5);
        transition find_inner;
    }

    state parse_stack_and_source_word {
        packet.extract(hdr.int_stack, (bit<32>) (hdr.int_shim.length - INT_HEADER_WORDS - 1) << 5);
        packet.extract(hdr.int_source_word);
        transition find_inner;
    }

    // NPT 2: the packet's own L4 header follows. It stays payload, but its ports and length are used.
    state find_inner {
        transition select(
            meta.protocol,
            hdr.int_shim.npt,
            hdr.int_shim.value,
            (bit<1>) (meta.ip_payload_bytes >= meta.int_end + 20),
            (bit<1>) (meta.ip_payload_bytes >= meta.int_end + UDP_BYTES)
        ) {
            (PROTOCOL_UDP, NPT_L4, 6 &&& 0xff, 1, _): peek_inner_tcp;
            (PROTOCOL_UDP, NPT_L4, 17 &&& 0xff, _, 1): peek_inner_udp;
            default: accept;
        }
    }

    state peek_inner_tcp {
        inner_tcp_t inner = packet.lookahead<inner_tcp_t>();
        meta.inner_src_port = inner.src_port;
        meta.inner_dst_port = inner.dst_port;
        meta.inner_words = inner.data_offset;
        transition accept;
    }

    state peek_inner_udp {
        inner_ports_t inner = packet.lookahead<inner_ports_t>();
        meta.inner_src_port = inner.src_port;
        meta.inner_dst_port = inner.dst_port;
        meta.inner_words = 2;
        transition accept;
    }
}

#endif
