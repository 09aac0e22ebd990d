// What the stages of the pipeline tell each other about a packet.
#ifndef P4_SHARED_METADATA_P4
#define P4_SHARED_METADATA_P4

#include "constants.p4"

// The fields of list 1 survive the clone from a packet to its report.
struct metadata_t {
    // From the parser: as it arrived, zero where there is none (no IP; ports also of other protocols and fragments).
    bit<16> ether_type;
    bit<6>  dscp;
    bit<16> l4_src_port;
    bit<16> l4_dst_port;

    // From ingress.
    bit<1>  from_edge;
    bit<1>  routed;

    // What the watchlist asked for, where this packet is to become an INT packet.
    bit<1>  int_start;
    bit<1>  int_hop_by_hop;
    bit<16> int_instructions;
    bit<8>  int_max_hops;

    // From egress.
    bit<1>  to_edge;
    bit<32> node_id;

    // How INT headers change the L4 payload: bytes more (two's complement), and what they add to its checksum. That
    // is a plain sum, congruent to the checksum's modulo 0xffff, so that carries need no care.
    bit<16> int_growth_bytes;
    bit<64> int_sum;

    // The readings of this hop, which its report repeats.
    @field_list(1) port_t   hop_ingress_port;
    @field_list(1) port_t   hop_egress_port;
    @field_list(1) bit<3>   hop_queue_id;
    @field_list(1) bit<19>  hop_queue_occupancy;
    @field_list(1) bit<32>  hop_latency_ns;
    @field_list(1) bit<64>  hop_ingress_time_ns;
    @field_list(1) bit<64>  hop_egress_time_ns;
    @field_list(1) bit<32>  hop_transmitted_bytes;

    // Why and on what the report is.
    @field_list(1) bit<1>   report_is_sink;
    @field_list(1) bit<16>  report_status;
    @field_list(1) bit<64>  report_int_sum;
}

#endif
