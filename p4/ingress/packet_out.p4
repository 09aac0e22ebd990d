// Sends a controller's frame to the port in its packet_out header, bypassing all tables.
#ifndef P4_INGRESS_PACKET_OUT_P4
#define P4_INGRESS_PACKET_OUT_P4

#include "../shared/headers.p4"

control PacketOut(inout headers_t hdr, inout standard_metadata_t standard_metadata) {
    apply {
        standard_metadata.egress_spec = hdr.packet_out.egress_port;
        hdr.packet_out.setInvalid();
    }
}

#endif
