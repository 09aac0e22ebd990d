// Punts protocols that the controller handles (LLDP, ARP, ...), by EtherType, also behind a VLAN tag.
#ifndef P4_INGRESS_PUNT_P4
#define P4_INGRESS_PUNT_P4

#include "../shared/headers.p4"
#include "../shared/metadata.p4"

control Punt(inout headers_t hdr, in metadata_t meta, inout standard_metadata_t standard_metadata) {
    action send_to_cpu() {
        hdr.packet_in.setValid();
        hdr.packet_in.ingress_port = standard_metadata.ingress_port;
        hdr.packet_in.pad = 0;
        standard_metadata.egress_spec = CPU_PORT;
    }

    table punt {
        key = {
            meta.ether_type: exact @name("ether_type");
        }
        actions = {
            send_to_cpu;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        size = 32;
    }

    apply {
        punt.apply();
    }
}

#endif
