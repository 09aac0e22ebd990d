// Is a packet itself a report, of whichever switch? Then nobody reports on it; set as the table's default action.
#ifndef P4_EGRESS_COLLECTOR_P4
#define P4_EGRESS_COLLECTOR_P4

#include "../shared/headers.p4"
#include "../shared/metadata.p4"

control Collector(in headers_t hdr, inout metadata_t meta) {
    bit<32> collector_addr = 0;
    bit<16> collector_port = 0;

    action set_collector(@name("addr") bit<32> addr, @name("udp_port") bit<16> udp_port) {
        collector_addr = addr;
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
        if (hdr.udp.isValid() && hdr.ipv4.isValid()) {
            collector.apply();
            meta.is_report = (hdr.udp.dst_port == collector_port && hdr.ipv4.dst_addr == collector_addr) ? 1w1 : 1w0;
        }
    }
}

#endif
