// The INT domain's mark, set at run time, and whether this packet bears it.
#ifndef P4_INGRESS_INT_MARKER_P4
#define P4_INGRESS_INT_MARKER_P4

#include "../shared/headers.p4"
#include "../shared/metadata.p4"

control IntMarker(inout headers_t hdr, inout metadata_t meta) {
    // A value under a mask: all six bits, one bit, or half of the code points.
    action mark_by_dscp(@name("dscp") bit<6> dscp, @name("mask") bit<6> mask) {
        meta.marker = PLACE_DSCP;
        meta.marker_dscp = dscp;
        meta.marker_dscp_mask = mask;
    }

    // UDP packets get the port (NPT 1), all others, or with always_new_udp all, a UDP header with the port (NPT 2).
    action mark_by_udp_port(@name("udp_port") bit<16> udp_port, @name("always_new_udp") bit<1> always_new_udp) {
        meta.marker = PLACE_UDP_PORT;
        meta.marker_udp_port = udp_port;
        meta.always_new_udp = always_new_udp;
    }

    // The marker must not look like a shim: types 1 and 3 are its first four bits.
    action mark_by_probe(@name("probe_marker") bit<64> probe_marker) {
        meta.marker = PLACE_PROBE;
        meta.marker_probe = probe_marker;
    }

    table int_marker {
        actions = {
            mark_by_dscp;
            mark_by_udp_port;
            mark_by_probe;
            NoAction;
        }
        default_action = NoAction();
    }

    // GRE, VXLAN and VXLAN-GPE packets carry INT inside the tunnel.
    action carry_in_tunnels(@name("gre_protocol") bit<16> gre_protocol) {
        meta.tunnels = 1;
        meta.tunnel_gre_protocol = gre_protocol;
    }

    table int_tunnels {
        actions = {
            carry_in_tunnels;
            NoAction;
        }
        default_action = NoAction();
    }

    @hidden
    action tunnels_are_payload() {
        hdr.payload_gre = hdr.gre;
        hdr.payload_gre_checksum = hdr.gre_checksum;
        hdr.payload_gre_options = hdr.gre_options;
        hdr.payload_vxlan = hdr.vxlan;
        hdr.gre.setInvalid();
        hdr.gre_checksum.setInvalid();
        hdr.gre_options.setInvalid();
        hdr.vxlan.setInvalid();
    }

    @hidden
    action int_is_payload() {
        hdr.payload_probe_marker = hdr.probe_marker;
        hdr.payload_shim = hdr.int_shim;
        hdr.payload_md = hdr.int_md;
        hdr.payload_stack = hdr.int_stack;
        hdr.payload_source_word = hdr.int_source_word;
        hdr.probe_marker.setInvalid();
        hdr.int_shim.setInvalid();
        hdr.int_md.setInvalid();
        hdr.int_stack.setInvalid();
        hdr.int_source_word.setInvalid();
        meta.inner_words = 0;
    }

    @hidden
    action see(in int_place_t place) {
        meta.int_seen = 1;
        meta.int_place = place;
    }

    // Only here is the mark part of the payload, which hosts may choose freely.
    @hidden
    action shield() {
        meta.int_shield = 1;
        meta.int_seen = 0;
    }

    @hidden
    action restore_ports() {
        meta.protocol = (bit<8>) hdr.int_shim.value;
        meta.l4_src_port = meta.inner_src_port;
        meta.l4_dst_port = meta.inner_dst_port;
    }

    apply {
        mark_by_dscp(DEFAULT_INT_DSCP, 0x3f);
        int_marker.apply();
        if (hdr.gre.isValid() || hdr.vxlan.isValid()) {
            int_tunnels.apply();
        }
        if (hdr.gre.isValid()) {
            if (meta.tunnels == 1 && hdr.gre.protocol == meta.tunnel_gre_protocol) {
                see(PLACE_GRE);
            }
        } else if (hdr.vxlan.isValid() && meta.tunnels == 1) {
            if (
                hdr.vxlan.next_protocol == VXLAN_NEXT_INT && hdr.udp.dst_port == VXLAN_GPE_PORT
                && hdr.vxlan.flags & VXLAN_NEXT_PROTOCOL_FLAG != 0
            ) {
                see(PLACE_VXLAN);
            }
        } else if (meta.marker == PLACE_DSCP) {
            if ((meta.dscp & meta.marker_dscp_mask) == meta.marker_dscp) {
                see(PLACE_DSCP);
            }
        } else if (meta.marker == PLACE_UDP_PORT) {
            if (hdr.udp.isValid() && hdr.udp.dst_port == meta.marker_udp_port) {
                see((hdr.int_shim.isValid() && hdr.int_shim.npt == NPT_L4) ? PLACE_NEW_UDP : PLACE_UDP_PORT);
            }
        } else if (hdr.probe_marker.isValid() && hdr.probe_marker.marker == meta.marker_probe) {
            see(PLACE_PROBE);
            if (meta.from_edge == 1) {
                shield();
            }
        }
        if (meta.tunnels == 0 && (hdr.gre.isValid() || hdr.vxlan.isValid())) {
            tunnels_are_payload();
        }
        if (hdr.int_shim.isValid()) {
            if (
                meta.int_seen == 0
                || (meta.int_place == PLACE_DSCP && (hdr.probe_marker.isValid() || hdr.int_shim.npt != NPT_NONE))
                || (meta.int_place == PLACE_UDP_PORT && (hdr.probe_marker.isValid() || hdr.int_shim.npt == NPT_NONE))
            ) {
                int_is_payload();
                meta.int_place = PLACE_NONE;
            } else if (meta.int_place == PLACE_UDP_PORT) {
                meta.l4_dst_port = hdr.int_shim.value;
            } else if (meta.int_place == PLACE_NEW_UDP) {
                restore_ports();
            } else if (meta.int_place == PLACE_VXLAN && hdr.int_shim.value[15:15] == 1) {
                meta.l4_dst_port = VXLAN_PORT;
            }
        } else {
            meta.int_place = PLACE_NONE;
        }
        // Nor may hosts bring the value into the domain on packets that cannot carry INT behind it, such as tunnels.
        if (
            meta.from_edge == 1 && meta.marker == PLACE_DSCP && (meta.dscp & meta.marker_dscp_mask) == meta.marker_dscp
        ) {
            meta.int_seen = 1;
        }
    }
}

#endif
