// Recognises packets that are reports themselves, of any switch: they are not reported on, and no host may send them.
// Set as the table's default action.
#ifndef P4_INGRESS_COLLECTOR_P4
#define P4_INGRESS_COLLECTOR_P4

#include "../shared/headers.p4"
#include "../shared/metadata.p4"

control Collector(in headers_t hdr, inout metadata_t meta) {
    bit<32> collector_addr = 0;
    bit<128> collector_ipv6_addr = 0;
    bit<16> collector_port = 0;

    action set_collector(
        @name("addr") bit<32> addr,
        @name("ipv6_addr") bit<128> ipv6_addr,
        @name("udp_port") bit<16> udp_port
    ) {
        collector_addr = addr;
        collector_ipv6_addr = ipv6_addr;
        collector_port = udp_port;
    }

    table collector {
        actions = {
            set_collector;
            NoAction;
        }
        default_action = NoAction();
    }

    apply {
        // Switches report over IPv4; reports over IPv6 are forged.
        if (hdr.ipv4.isValid() && meta.protocol == PROTOCOL_UDP || hdr.ipv6.isValid() && meta.from_outside == 1) {
            collector.apply();
            if (hdr.ipv6.isValid()) {
                if (hdr.ipv6.dst_addr == collector_ipv6_addr) {
                    if (meta.protocol == PROTOCOL_UDP) {
                        bit<16> ipv6_port = hdr.udp.isValid() ? meta.l4_dst_port : meta.inner_dst_port;
                        meta.is_report = (bit<1>) (ipv6_port == collector_port);
                    } else if (
                        meta.protocol == PROTOCOL_HOP_BY_HOP || meta.protocol == PROTOCOL_ROUTING
                        || meta.protocol == PROTOCOL_FRAGMENT || meta.protocol == PROTOCOL_DESTINATION_OPTIONS
                    ) {
                        // A header that hides the port, as a fragment's does.
                        meta.is_report = 1;
                    }
                }
            } else if (hdr.ipv4.dst_addr == collector_addr) {
                // The port is the packet's own, also behind INT, or that of its first fragment.
                bit<16> port = hdr.udp.isValid() ? meta.l4_dst_port : meta.inner_dst_port;
                meta.is_report = (bit<1>) (port == collector_port);
            }
#ifdef AGGREGATION
            // Nor does a switch answer, on a host's behalf, to the reports' destination.
            if (
                hdr.store.isValid() && hdr.ipv4.src_addr == collector_addr && hdr.udp.src_port == collector_port
            ) {
                meta.is_report = 1;
            }
#endif
        }
    }
}

#endif
