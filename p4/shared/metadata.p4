// Per-packet state shared by the stages of the pipeline.
#ifndef P4_SHARED_METADATA_P4
#define P4_SHARED_METADATA_P4

#include "constants.p4"
#include "drop_reasons.p4"

// The fields of list 1 survive cloning from a packet to its report.
struct metadata_t {
    // From the parser: as on arrival, zero if absent (no IP; ports also of other protocols and fragments).
    bit<16> ether_type;
    bit<6>  dscp;
    // If INT is between IP and its payload, these are the packet's own.
    @field_list(1) bit<8> protocol;
    @field_list(1) bit<16> l4_src_port;
    @field_list(1) bit<16> l4_dst_port;

    // Byte counts from the end of the IP header: IP's payload, the part covered by UDP, where INT begins and ends.
    // An INT header that would end beyond the payload is an overrun.
    bit<16> ip_payload_bytes;
    bit<16> payload_end;
    bit<16> int_at;
    bit<16> int_end;
    bit<1>  int_overrun;
    // NPT 2: the ports behind INT, and the words of their header, which a report repeats. For the first fragment of
    // a UDP datagram, its port.
    bit<16> inner_src_port;
    bit<16> inner_dst_port;
    @field_list(1) bit<4>   inner_words;
    // Sender of the IPv4 packet inside a tunnel, 0 if there is none.
    bit<32> tunnelled_addr;

    // The INT domain's mark, from ingress; `int_seen`: this packet bears it. The place is the location of its INT
    // headers, present or to be inserted.
    @field_list(1) int_place_t marker;
    @field_list(1) bit<6>   marker_dscp;
    @field_list(1) bit<6>   marker_dscp_mask;
    @field_list(1) bit<16>  marker_udp_port;
    @field_list(1) bit<64>  marker_probe;
    bit<1>  always_new_udp;
    bit<1>  tunnels;
    @field_list(1) bit<16>  tunnel_gre_protocol;
    bit<1>  int_seen;
    // A host's payload looks like the domain's INT: it is shielded by INT of its own, so that no switch mistakes it.
    bit<1>  int_shield;
    @field_list(1) int_place_t int_place;

#ifdef AGGREGATION
    // The packet was part of a sum and is ready to be forwarded.
    bit<1>  aggregated;
    // The switch itself has answered the reader or writer of a name.
    bit<1>  answered;
    // Report content for an item.
    @field_list(1) bit<8>   completion_last_child;
    @field_list(1) bit<1>   completion_leaf;
    @field_list(1) bit<32>  completion_wait_us;
    @field_list(1) bit<16>  completion_repeated;
    @field_list(1) bit<16>  completion_ahead;
#endif

    // From ingress. Hosts, or other devices that are not switches of this fabric, are behind the port, and these are
    // their addresses under masks; `from_edge`: INT begins there. The packet's address is not valid for that port.
    bit<1>  from_outside;
    bit<1>  from_edge;
    bit<32> own_addr;
    bit<32> own_mask;
    bit<128> own_ipv6_addr;
    bit<128> own_ipv6_mask;
    bit<1>  spoofed;
    // A report of any switch on its way to the collector.
    @field_list(1) bit<1>   is_report;
    bit<1>  routed;
    bit<16> path_hash;
    bit<16> next_port;
    drop_reason_t drop_reason;

    // The watchlist's request, if this packet is to become an INT packet.
    bit<1>  int_start;
    bit<1>  int_export;
    int_mode_t int_mode;
    bit<16> int_instructions;
    bit<16> int_domain_instructions;
    bit<8>  int_max_hops;
    bit<1>  int_discard;
    bit<16> int_watch_id;

    // The table that decided the path: 1 path of a flow, 2 of a destination, 3 route.
    bit<8>  decision;

    // From egress. The port's MTU, 0 for none; whether the stack is reported and removed
    // if it would not fit, instead of setting M.
    bit<16> mtu_bytes;
    bit<1>  strip_at_mtu;
    // Whether the packet must still be marked; whether its INT headers are removed and its mark, lengths and checksum
    // restored as without them.
    bit<1>  int_mark;
    bit<1>  int_remove;
    bit<1>  int_unmark;
    bit<1>  to_edge;
    bit<32> node_id;

    // Change of the L4 payload by INT headers: additional bytes (two's complement), and their part of its checksum.
    // That is a plain sum, congruent to the checksum modulo 0xffff, so that carries need no care.
    bit<16> int_growth_bytes;
    bit<64> int_sum;

    // This hop's readings, which a report repeats.
    @field_list(1) port_t   hop_ingress_port;
    @field_list(1) bit<16>  hop_egress_port;
    @field_list(1) bit<8>   hop_queue_id;
    @field_list(1) bit<19>  hop_queue_occupancy;
    @field_list(1) bit<32>  hop_latency_ns;
    @field_list(1) bit<64>  hop_ingress_time_ns;
    @field_list(1) bit<64>  hop_egress_time_ns;
    @field_list(1) bit<32>  hop_transmitted_bytes;
    @field_list(1) bit<24>  hop_buffer_occupancy;
    @field_list(1) bit<8>   hop_decision;

    // A report request. Several stages may request one for the same packet: each sets report_wanted, the flags that
    // apply, and what else it knows. Egress then clones the packet once, and Report turns the clone into the report.
    bit<1>  report_wanted;
    @field_list(1) bit<1>   report_dropped;
    @field_list(1) bit<1>   report_congested;
    @field_list(1) bit<1>   report_tracked;
    @field_list(1) bit<1>   report_intermediate;
    @field_list(1) drop_reason_t report_drop_reason;
    // RepMdBits: which of this hop's metadata it carries; the domain's id, RepDSMdBits and status.
    @field_list(1) bit<16>  report_bits;
    @field_list(1) bit<16>  report_domain_id;
    @field_list(1) bit<16>  report_domain_bits;
    @field_list(1) bit<16>  report_domain_status;
    // The clone is also, or only, for reports that have waited long enough.
    @field_list(1) bit<1>   report_flush;
    // Words of this clone's own report, of those before it, and whether it could itself wait for others.
    bit<16> report_words;
    bit<16> gathered_words;
    bit<1>  report_plain;
    // The packet has been in ingress only, and is reported as it arrived, including checksum errors.
    @field_list(1) bit<1>   report_as_it_came;
    // INT headers were removed and handed over (sunk_*): they return into the report's packet, whose length and
    // checksum grow accordingly. The sink removed the mark, too. Otherwise the sum is that of this hop's metadata.
    @field_list(1) bit<1>   report_restores_int;
    @field_list(1) bit<1>   report_restores_mark;
    @field_list(1) bit<16>  report_growth_bytes;
    @field_list(1) bit<64>  report_int_sum;
}

#endif
