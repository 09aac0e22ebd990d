// Emits headers: a report in front, then the packet, with this hop's words on top of the INT stack.
#ifndef P4_WIRE_DEPARSER_P4
#define P4_WIRE_DEPARSER_P4

#include "../shared/headers.p4"

control FabricDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.packet_in);

        packet.emit(hdr.report_ethernet);
        packet.emit(hdr.report_ipv4);
        packet.emit(hdr.report_udp);
        packet.emit(hdr.report_group);
        packet.emit(hdr.gathered16[0]);
        packet.emit(hdr.gathered8[0]);
        packet.emit(hdr.gathered4[0]);
        packet.emit(hdr.gathered2[0]);
        packet.emit(hdr.gathered1[0]);
        packet.emit(hdr.gathered16[1]);
        packet.emit(hdr.gathered8[1]);
        packet.emit(hdr.gathered4[1]);
        packet.emit(hdr.gathered2[1]);
        packet.emit(hdr.gathered1[1]);
        packet.emit(hdr.gathered16[2]);
        packet.emit(hdr.gathered8[2]);
        packet.emit(hdr.gathered4[2]);
        packet.emit(hdr.gathered2[2]);
        packet.emit(hdr.gathered1[2]);
        packet.emit(hdr.report);
        packet.emit(hdr.report_level1);
        packet.emit(hdr.report_latency);
        packet.emit(hdr.report_queue);
        packet.emit(hdr.report_ingress_time);
        packet.emit(hdr.report_egress_time);
        packet.emit(hdr.report_level2);
        packet.emit(hdr.report_utilization);
        packet.emit(hdr.report_buffer);
        packet.emit(hdr.report_drop);
        packet.emit(hdr.report_forwarding);
#ifdef AGGREGATION
        packet.emit(hdr.report_completion);
#endif

        packet.emit(hdr.ethernet);
        packet.emit(hdr.vlan);
        packet.emit(hdr.ipv4);
        packet.emit(hdr.ipv4_options);
        packet.emit(hdr.ipv6);
        packet.emit(hdr.tcp);
        packet.emit(hdr.tcp_options);
        packet.emit(hdr.udp);
#ifdef AGGREGATION
        packet.emit(hdr.aggregation);
        packet.emit(hdr.store);
        packet.emit(hdr.values0);
        packet.emit(hdr.values1);
        packet.emit(hdr.values2);
        packet.emit(hdr.values3);
#endif

        packet.emit(hdr.gre);
        packet.emit(hdr.gre_checksum);
        packet.emit(hdr.gre_options);
        packet.emit(hdr.vxlan);

        packet.emit(hdr.probe_marker);
        packet.emit(hdr.int_shim);
        packet.emit(hdr.int_md);
        packet.emit(hdr.hop_node);
        packet.emit(hdr.hop_level1);
        packet.emit(hdr.hop_latency);
        packet.emit(hdr.hop_queue);
        packet.emit(hdr.hop_ingress_time);
        packet.emit(hdr.hop_egress_time);
        packet.emit(hdr.hop_level2);
        packet.emit(hdr.hop_utilization);
        packet.emit(hdr.hop_buffer);
        packet.emit(hdr.hop_reserved);
        packet.emit(hdr.hop_forwarding);
        packet.emit(hdr.hop_complement);
        packet.emit(hdr.int_stack);
        packet.emit(hdr.int_source_word);

        packet.emit(hdr.inner_tcp);
        packet.emit(hdr.inner_tcp_options);
        packet.emit(hdr.inner_udp);

        packet.emit(hdr.payload_gre);
        packet.emit(hdr.payload_gre_checksum);
        packet.emit(hdr.payload_gre_options);
        packet.emit(hdr.payload_vxlan);
        packet.emit(hdr.payload_probe_marker);
        packet.emit(hdr.payload_shim);
        packet.emit(hdr.payload_md);
        packet.emit(hdr.payload_stack);
        packet.emit(hdr.payload_source_word);
    }
}

#endif
