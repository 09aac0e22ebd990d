// The reports' destination: their outer headers, except for lengths; set as the table's default action.
#ifndef P4_EGRESS_REPORT_TARGET_P4
#define P4_EGRESS_REPORT_TARGET_P4

#include "../shared/headers.p4"

control ReportTarget(inout headers_t hdr) {
    action set_report_target(
        @name("src_mac") mac_t src_mac,
        @name("dst_mac") mac_t dst_mac,
        @name("src_addr") bit<32> src_addr,
        @name("dst_addr") bit<32> dst_addr,
        @name("udp_port") bit<16> udp_port
    ) {
        hdr.report_ethernet.setValid();
        hdr.report_ethernet.dst_addr = dst_mac;
        hdr.report_ethernet.src_addr = src_mac;
        hdr.report_ethernet.ether_type = ETHERTYPE_IPV4;

        hdr.report_ipv4.setValid();
        hdr.report_ipv4.version = 4;
        hdr.report_ipv4.ihl = 5;
        hdr.report_ipv4.dscp = 0;
        hdr.report_ipv4.ecn = 0;
        // The report specification, "Outer Encapsulation": without an identification of its own, DF is set.
        hdr.report_ipv4.identification = 0;
        hdr.report_ipv4.reserved = 0;
        hdr.report_ipv4.do_not_fragment = 1;
        hdr.report_ipv4.more_fragments = 0;
        hdr.report_ipv4.fragment_offset = 0;
        hdr.report_ipv4.ttl = 64;
        hdr.report_ipv4.protocol = PROTOCOL_UDP;
        hdr.report_ipv4.src_addr = src_addr;
        hdr.report_ipv4.dst_addr = dst_addr;

        hdr.report_udp.setValid();
        // A fixed source port instead of a hash of the flow: reports must stay in order.
        hdr.report_udp.src_port = udp_port;
        hdr.report_udp.dst_port = udp_port;
        hdr.report_udp.checksum = 0;
    }

    table report_target {
        actions = {
            set_report_target;
            NoAction;
        }
        default_action = NoAction();
    }

    apply {
        report_target.apply();
    }
}

#endif
