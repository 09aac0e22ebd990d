// Port settings: framing of routed packets, whether the port leaves the INT domain, and its MTU.
#ifndef P4_EGRESS_PORTS_P4
#define P4_EGRESS_PORTS_P4

#include "../shared/headers.p4"
#include "../shared/metadata.p4"

control EgressPorts(inout headers_t hdr, inout metadata_t meta, in standard_metadata_t standard_metadata) {
    action set_egress_port(
        @name("src_mac") mac_t src_mac,
        @name("sink") bit<1> sink,
        @name("mtu_bytes") bit<16> mtu_bytes,
        @name("strip_at_mtu") bit<1> strip_at_mtu
    ) {
        hdr.ethernet.src_addr = src_mac;
        meta.to_edge = sink;
        meta.mtu_bytes = mtu_bytes;
        meta.strip_at_mtu = strip_at_mtu;
    }

    table egress_ports {
        key = {
            standard_metadata.egress_port: exact @name("egress_port");
        }
        actions = {
            set_egress_port;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        size = 512;
    }

    apply {
        egress_ports.apply();
    }
}

#endif
