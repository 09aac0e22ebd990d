// Every header that is parsed, inserted or sent, in the order of the wire.
#ifndef P4_SHARED_HEADERS_P4
#define P4_SHARED_HEADERS_P4

#include "constants.p4"

@controller_header("packet_in")
header packet_in_t {
    port_t ingress_port;
    bit<7> pad;
}

@controller_header("packet_out")
header packet_out_t {
    port_t egress_port;
    bit<7> pad;
}

header ethernet_t {
    mac_t   dst_addr;
    mac_t   src_addr;
    bit<16> ether_type;
}

header vlan_t {
    bit<3>  pcp;
    bit<1>  dei;
    bit<12> vid;
    bit<16> ether_type;
}

header ipv4_t {
    bit<4>  version;
    bit<4>  ihl;
    bit<6>  dscp;
    bit<2>  ecn;
    bit<16> total_length;
    bit<16> identification;
    bit<1>  reserved;
    bit<1>  do_not_fragment;
    bit<1>  more_fragments;
    bit<13> fragment_offset;
    bit<8>  ttl;
    bit<8>  protocol;
    bit<16> checksum;
    bit<32> src_addr;
    bit<32> dst_addr;
}

header ipv4_options_t {
    varbit<320> options;
}

header ipv6_t {
    bit<4>   version;
    bit<6>   dscp;
    bit<2>   ecn;
    bit<20>  flow_label;
    bit<16>  payload_length;
    bit<8>   next_header;
    bit<8>   hop_limit;
    bit<128> src_addr;
    bit<128> dst_addr;
}

header tcp_t {
    bit<16> src_port;
    bit<16> dst_port;
    bit<32> sequence;
    bit<32> acknowledgment;
    bit<4>  data_offset;
    bit<4>  reserved;
    bit<8>  flags;
    bit<16> window;
    bit<16> checksum;
    bit<16> urgent_pointer;
}

header tcp_options_t {
    varbit<320> options;
}

header udp_t {
    bit<16> src_port;
    bit<16> dst_port;
    bit<16> length;
    bit<16> checksum;
}

// INT v2.1, section "INT over TCP/UDP", NPT 0. `length` counts the words behind the shim.
header int_shim_t {
    bit<4> type;
    bit<2> npt;
    bit<2> reserved1;
    bit<8> length;
    bit<8> reserved2;
    bit<6> dscp;
    bit<2> reserved3;
}

// INT v2.1, section "INT-MD Metadata Header Format".
header int_md_t {
    bit<4>  version;
    bit<1>  discard;
    bit<1>  hops_exceeded;
    bit<1>  mtu_exceeded;
    bit<12> reserved;
    bit<5>  hop_words;
    bit<8>  remaining_hops;
    bit<16> instructions;
    bit<16> domain_id;
    bit<16> domain_instructions;
    bit<16> domain_flags;
}

// What earlier hops wrote, as one piece: 255 words at most behind a shim, less the MD header.
header int_stack_t {
    varbit<8064> words;
}

// What the parser looks at before it believes a DSCP mark: a shim and the MD header's version.
struct int_probe_t {
    bit<4>  type;
    bit<2>  npt;
    bit<2>  reserved;
    bit<8>  length;
    bit<16> dscp;
    bit<4>  version;
}

header node_word_t {
    bit<32> node_id;
}

header level1_word_t {
    bit<16> ingress_port;
    bit<16> egress_port;
}

header latency_word_t {
    bit<32> latency_ns;
}

header queue_word_t {
    bit<8>  queue_id;
    bit<24> occupancy;
}

header timestamp_words_t {
    bit<64> timestamp_ns;
}

header level2_words_t {
    bit<32> ingress_port;
    bit<32> egress_port;
}

header utilization_word_t {
    bit<32> transmitted_bytes;
}

// Only in reports (RepMdBits 15).
header drop_word_t {
    bit<8>  queue_id;
    bit<8>  reason;
    bit<16> pad;
}

header unavailable_word_t {
    bit<32> all_ones;
}

// Telemetry Report v2.0, section "Telemetry Report Group Header".
header report_group_t {
    bit<4>  version;
    bit<6>  hardware_id;
    bit<22> sequence;
    bit<32> node_id;
}

// Telemetry Report v2.0, sections "Individual Report Header" and "... Main Contents for RepType 1".
header report_t {
    bit<4>  report_type;
    bit<4>  inner_type;
    bit<8>  report_words;
    bit<8>  metadata_words;
    bit<1>  dropped;
    bit<1>  congested;
    bit<1>  tracked;
    bit<1>  intermediate;
    bit<4>  reserved;
    bit<16> metadata_bits;
    bit<16> domain_id;
    bit<16> domain_metadata_bits;
    bit<16> domain_status;
}

struct headers_t {
    packet_out_t       packet_out;
    packet_in_t        packet_in;

    // A report's own headers; its metadata are instruction bits 1 to 7, and the reason of a drop.
    ethernet_t         report_ethernet;
    ipv4_t             report_ipv4;
    udp_t              report_udp;
    report_group_t     report_group;
    report_t           report;
    level1_word_t      report_level1;
    latency_word_t     report_latency;
    queue_word_t       report_queue;
    timestamp_words_t  report_ingress_time;
    timestamp_words_t  report_egress_time;
    level2_words_t     report_level2;
    utilization_word_t report_utilization;
    drop_word_t        report_drop;

    ethernet_t         ethernet;
    vlan_t             vlan;
    ipv4_t             ipv4;
    ipv4_options_t     ipv4_options;
    ipv6_t             ipv6;
    tcp_t              tcp;
    tcp_options_t      tcp_options;
    udp_t              udp;

    // INT: what travels, then what this hop pushes (instruction bits 0, 1 to 7, 8 to 15), then what was there.
    int_shim_t         int_shim;
    int_md_t           int_md;
    node_word_t        hop_node;
    level1_word_t      hop_level1;
    latency_word_t     hop_latency;
    queue_word_t       hop_queue;
    timestamp_words_t  hop_ingress_time;
    timestamp_words_t  hop_egress_time;
    level2_words_t     hop_level2;
    utilization_word_t hop_utilization;
    unavailable_word_t[8] hop_unavailable;
    int_stack_t        int_stack;

    // Never emitted: a clone inherits headers, not what the packet lost, so the sink hands its INT headers over here.
    int_shim_t         sunk_shim;
    int_md_t           sunk_md;
    int_stack_t        sunk_stack;
}

#endif
