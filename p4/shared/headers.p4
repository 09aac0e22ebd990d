// All headers that are parsed, inserted or sent, in the order on the wire.
#ifndef P4_SHARED_HEADERS_P4
#define P4_SHARED_HEADERS_P4

#include "constants.p4"
#ifdef AGGREGATION
#include "../aggregation/headers.p4"
#include "../store/headers.p4"
#endif

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

// RFC 2784 and 2890.
header gre_t {
    bit<1>  has_checksum;
    bit<1>  has_routing;
    bit<1>  has_key;
    bit<1>  has_sequence;
    bit<9>  reserved;
    bit<3>  version;
    bit<16> protocol;
}

header gre_checksum_t {
    bit<16> checksum;
    bit<16> offset;
}

// Key and sequence number, if present.
header gre_options_t {
    varbit<64> options;
}

// RFC 7348, and draft-ietf-nvo3-vxlan-gpe for the next protocol.
header vxlan_t {
    bit<8>  flags;
    bit<16> reserved1;
    bit<8>  next_protocol;
    bit<24> vni;
    bit<8>  reserved2;
}

// INT v2.1, section "INT over TCP/UDP", option 3.
header probe_marker_t {
    bit<64> marker;
}

// INT v2.1, sections "INT over TCP/UDP", "... IPv4/GRE", "... VXLAN GPE". `length` counts the words after the shim;
// `npt` is the Next Protocol Type, or in its first bit GRE's G; `value` is what the source replaced: the DSCP
// (shifted by 2), UDP port, IP protocol, EtherType, or VXLAN-GPE's next protocol with G in the first bit.
header int_shim_t {
    bit<4>  type;
    bit<2>  npt;
    bit<2>  reserved;
    bit<8>  length;
    bit<16> value;
}

// INT v2.1, section "INT-MD Metadata Header Format"; MX has zeros from hops_exceeded to remaining_hops.
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

// Metadata of earlier hops, as one piece: at most 255 words after a shim, minus the MD header.
header int_stack_t {
    varbit<8064> words;
}

// Lookahead of the parser before it parses INT headers: a shim and the next header's version.
struct int_shape_t {
    bit<4>  type;
    bit<2>  npt;
    bit<2>  reserved;
    bit<8>  length;
    bit<16> value;
    bit<4>  version;
}

struct probe_shape_t {
    bit<64> marker;
    bit<4>  type;
    bit<2>  npt;
    bit<2>  reserved;
    bit<8>  length;
    bit<16> value;
    bit<4>  version;
}

struct inner_ports_t {
    bit<16> src_port;
    bit<16> dst_port;
}

struct inner_tcp_t {
    bit<16> src_port;
    bit<16> dst_port;
    bit<64> sequences;
    bit<4>  data_offset;
}

// A tunnel's payload, as far as it is parsed.
struct inner_ipv4_t {
    bit<96> before;
    bit<32> src_addr;
}

struct inner_ethernet_t {
    bit<96> addresses;
    bit<16> ether_type;
    bit<96> before;
    bit<32> src_addr;
}

struct inner_vlan_t {
    bit<128> before_type;
    bit<16>  ether_type;
    bit<96>  before;
    bit<32>  src_addr;
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

header reserved_word_t {
    bit<32> all_ones;
}

// Our domain: the table that decided (1 path of a flow, 2 of a destination, 3 route), TTL on departure.
header forwarding_word_t {
    bit<8>  decision;
    bit<8>  ttl;
    bit<16> zero;
}

// All ones if the L4 checksum itself was updated, or if there is none.
header complement_word_t {
    bit<16> zero;
    bit<16> complement;
}

// Our domain: the source's number of the packet, among those of its watch.
header source_word_t {
    bit<32> number;
}

// Individual reports that waited in registers: each is a number of words, sent in pieces of 16, 8, 4, 2 and 1.
typedef bit<992> gathered_record_t;

header words16_t {
    bit<512> data;
}

header words8_t {
    bit<256> data;
}

header words4_t {
    bit<128> data;
}

header words2_t {
    bit<64> data;
}

header words1_t {
    bit<32> data;
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

    // A report's own headers; its metadata are instruction bits 1 to 7, and the reason for a drop.
    ethernet_t         report_ethernet;
    ipv4_t             report_ipv4;
    udp_t              report_udp;
    report_group_t     report_group;
    words16_t[3]       gathered16;
    words8_t[3]        gathered8;
    words4_t[3]        gathered4;
    words2_t[3]        gathered2;
    words1_t[3]        gathered1;
    report_t           report;
    level1_word_t      report_level1;
    latency_word_t     report_latency;
    queue_word_t       report_queue;
    timestamp_words_t  report_ingress_time;
    timestamp_words_t  report_egress_time;
    level2_words_t     report_level2;
    utilization_word_t report_utilization;
    queue_word_t       report_buffer;
    drop_word_t        report_drop;
    forwarding_word_t  report_forwarding;
#ifdef AGGREGATION
    completion_words_t report_completion;
#endif

    ethernet_t         ethernet;
    vlan_t             vlan;
    ipv4_t             ipv4;
    ipv4_options_t     ipv4_options;
    ipv6_t             ipv6;
    tcp_t              tcp;
    tcp_options_t      tcp_options;
    udp_t              udp;

#ifdef AGGREGATION
    aggregation_t      aggregation;
    store_t            store;
    values_t           values0;
    values_t           values1;
    values_t           values2;
    values_t           values3;
#endif

    // Tunnels that carry INT.
    gre_t              gre;
    gre_checksum_t     gre_checksum;
    gre_options_t      gre_options;
    vxlan_t            vxlan;

    // INT: headers in transit, then this hop's metadata (instruction bits 0, 1 to 7, 8, 9 to 14, the domain's, 15),
    // then earlier hops' metadata.
    probe_marker_t     probe_marker;
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
    queue_word_t       hop_buffer;
    reserved_word_t[6] hop_reserved;
    forwarding_word_t  hop_forwarding;
    complement_word_t  hop_complement;
    int_stack_t        int_stack;
    source_word_t      int_source_word;

    // The packet's own L4 headers, if this switch inserted a UDP header and INT before them.
    tcp_t              inner_tcp;
    tcp_options_t      inner_tcp_options;
    udp_t              inner_udp;

    // Parsed as a tunnel or INT, but payload here, because it bears no mark.
    gre_t              payload_gre;
    gre_checksum_t     payload_gre_checksum;
    gre_options_t      payload_gre_options;
    vxlan_t            payload_vxlan;
    probe_marker_t     payload_probe_marker;
    int_shim_t         payload_shim;
    int_md_t           payload_md;
    int_stack_t        payload_stack;
    source_word_t      payload_source_word;

    // Never emitted: a clone inherits headers but not what the packet lost, so INT headers for a report go here.
    udp_t              sunk_udp;
    int_shim_t         sunk_shim;
    int_md_t           sunk_md;
    int_stack_t        sunk_stack;
    source_word_t      sunk_source_word;
}

#endif
