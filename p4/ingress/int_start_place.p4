// Where INT headers would be inserted into a packet without any; nowhere, if it cannot carry them.
#ifndef P4_INGRESS_INT_START_PLACE_P4
#define P4_INGRESS_INT_START_PLACE_P4

#include "../shared/headers.p4"
#include "../shared/metadata.p4"

control IntStartPlace(in headers_t hdr, in metadata_t meta, out int_place_t place) {
    apply {
        place = PLACE_NONE;
        // If headers end beyond their packet, INT would, too; and the extended length must fit 16 bits.
        bit<1> fits = (
            meta.ip_payload_bytes >= meta.int_at && meta.payload_end >= meta.int_at
            && meta.ip_payload_bytes <= LONGEST_TO_START_BYTES
        ) ? 1w1 : 1w0;
        // A checksum of 0xffff is a second form of 0, and the sink could not tell which one to restore; UDP has one.
        if (hdr.gre.isValid()) {
            if (
                hdr.gre_options.isValid() && (!hdr.gre_checksum.isValid() || hdr.gre_checksum.checksum != 0xffff)
            ) {
                place = PLACE_GRE;
            }
        } else if (hdr.vxlan.isValid()) {
            // VXLAN becomes VXLAN-GPE in transit, which uses bits that are zero in VXLAN.
            if (
                (hdr.udp.dst_port == VXLAN_GPE_PORT && hdr.vxlan.flags & VXLAN_NEXT_PROTOCOL_FLAG != 0)
                || (
                    hdr.udp.dst_port == VXLAN_PORT && hdr.vxlan.flags == VXLAN_VNI_FLAG
                    && hdr.vxlan.next_protocol == 0
                )
            ) {
                place = PLACE_VXLAN;
            }
        } else if (meta.marker == PLACE_UDP_PORT) {
            if (hdr.udp.isValid() && meta.always_new_udp == 0) {
                place = PLACE_UDP_PORT;
            } else if (hdr.ipv4.isValid()) {
                place = (hdr.ipv4.more_fragments == 0 && hdr.ipv4.fragment_offset == 0) ? PLACE_NEW_UDP : PLACE_NONE;
            } else if (
                // IPv6's extension headers stay where routers expect them.
                hdr.ipv6.next_header != 0 && hdr.ipv6.next_header != 43 && hdr.ipv6.next_header != 44
                && hdr.ipv6.next_header != 60
            ) {
                place = PLACE_NEW_UDP;
            }
        } else if (hdr.udp.isValid() || (hdr.tcp.isValid() && hdr.tcp.checksum != 0xffff)) {
            place = meta.marker;
        }
        if (fits == 0) {
            place = PLACE_NONE;
        }
        // Switches in transit must find sums and names where hosts put them, and check for these before INT, whose
        // first bytes can look like a name's. XD leaves them in place.
        if (
            hdr.udp.isValid() && hdr.ipv4.isValid() && hdr.udp.checksum == 0
            && (
                hdr.udp.dst_port == AGGREGATION_PORT || hdr.udp.dst_port == STORE_PORT
                || hdr.udp.src_port == STORE_PORT
            )
        ) {
            place = PLACE_NONE;
        }
    }
}

#endif
