// Values shared by the pipeline, the controller and the collector.
#ifndef P4_SHARED_CONSTANTS_P4
#define P4_SHARED_CONSTANTS_P4

typedef bit<9>  port_t;
typedef bit<48> mac_t;

const port_t CPU_PORT = 255;

// v1model's timestamps are in microseconds, INT's in nanoseconds.
const bit<64> NANOS_PER_MICRO = 1000;

const bit<16> ETHERTYPE_IPV4 = 0x0800;
const bit<16> ETHERTYPE_VLAN = 0x8100;
const bit<16> ETHERTYPE_IPV6 = 0x86dd;

const bit<8> PROTOCOL_TCP = 6;
const bit<8> PROTOCOL_UDP = 17;
const bit<8> PROTOCOL_GRE = 47;
// Extension headers between IPv6 and its payload (RFC 8200, section 4).
const bit<8> PROTOCOL_HOP_BY_HOP = 0;
const bit<8> PROTOCOL_ROUTING = 43;
const bit<8> PROTOCOL_FRAGMENT = 44;
const bit<8> PROTOCOL_DESTINATION_OPTIONS = 60;

// Sums and named content over UDP (fabric_aggregation.p4), always without a checksum.
const bit<16> AGGREGATION_PORT = 19777;
const bit<16> STORE_PORT = 19778;

// With fewer than 16 bytes behind IP a GRE header may be truncated: such packets are not parsed further.
const bit<16> GRE_LONGEST_BYTES = 16;
const bit<16> GRE_BRIDGED = 0x6558;
const bit<16> VXLAN_PORT = 4789;
const bit<16> VXLAN_GPE_PORT = 4790;
// Both ports, and the adjacent ones.
const bit<16> VXLAN_PORTS = 0x12b4;
const bit<16> VXLAN_PORTS_MASK = 0xfffc;
const bit<8>  VXLAN_VNI_FLAG = 0x08;
const bit<8>  VXLAN_NEXT_PROTOCOL_FLAG = 0x04;
const bit<8>  VXLAN_NEXT_IPV4 = 0x01;
const bit<8>  VXLAN_NEXT_ETHERNET = 0x03;
const bit<8>  VXLAN_NEXT_INT = 0x82;

const bit<4> INT_TYPE_MD = 1;
const bit<4> INT_TYPE_MX = 3;
const bit<4> INT_VERSION = 2;

// The first 13 bytes of a payload with INT: a shim of type 1 or 3 and version 2, at once or 8 bytes on.
const bit<104> SHAPE_AT_ONCE = 0x10000000_20000000_0000000000;
const bit<104> SHAPE_AT_ONCE_MASK = 0xd0000000_f0000000_0000000000;
const bit<104> SHAPE_BEHIND_MARKER = 0x10000000_20;
const bit<104> SHAPE_BEHIND_MARKER_MASK = 0xd0000000_f0;

// Location of the INT headers and the mark (INT v2.1, "Header Location"). DSCP and probe marker: behind TCP
// or UDP (NPT 0); UDP port: behind UDP (NPT 1); new UDP: behind a UDP header of their own (NPT 2); in tunnels: behind GRE
// or VXLAN-GPE.
typedef bit<3> int_place_t;
const int_place_t PLACE_NONE = 0;
const int_place_t PLACE_DSCP = 1;
const int_place_t PLACE_PROBE = 2;
const int_place_t PLACE_UDP_PORT = 3;
const int_place_t PLACE_NEW_UDP = 4;
const int_place_t PLACE_GRE = 5;
const int_place_t PLACE_VXLAN = 6;

const bit<2> NPT_NONE = 0;
const bit<2> NPT_UDP_PAYLOAD = 1;
const bit<2> NPT_L4 = 2;

// The specification's example value; the controller may choose another one, a bit, or another kind of mark.
const bit<6> DEFAULT_INT_DSCP = 0x17;

// Actions requested by a watch.
typedef bit<2> int_mode_t;
const int_mode_t MODE_MD = 0;
const int_mode_t MODE_HOP_BY_HOP = 1;
const int_mode_t MODE_MX = 2;
const int_mode_t MODE_XD = 3;

// The MD or MX header in words, as counted by the shim's length; with the shim it is the least that a source inserts.
const bit<8>  INT_HEADER_WORDS = 3;
const bit<16> INT_FIXED_BYTES = 16;
const bit<16> PROBE_MARKER_BYTES = 8;
const bit<16> UDP_BYTES = 8;
const bit<16> IPV4_BYTES = 20;
const bit<16> ETHERNET_BYTES = 14;
const bit<16> VLAN_BYTES = 4;
// The longest IP payload for INT; INT headers have 1,044 bytes at most.
const bit<16> LONGEST_TO_START_BYTES = 0xf000;

// Our INT domain: hop-by-hop reports are a flag, and so is INT that only shields a payload and is never reported; the
// source's packet number and each hop's forwarding decision are instructions.
const bit<16> OUR_DOMAIN = 0x4d52;
const bit<16> HOP_BY_HOP_FLAG = 0x8000;
const bit<16> SHIELD_FLAG = 0x4000;
const bit<16> DOMAIN_SOURCE_NUMBER = 0x8000;
const bit<16> DOMAIN_FORWARDING = 0x4000;
const bit<16> DOMAIN_RESERVED = 0x3fff;

// Instruction bit 15: the hop leaves the L4 checksum alone and pushes a complement that keeps it valid.
const bit<16> CHECKSUM_COMPLEMENT = 0x0001;

// DSMdstatus of a hop-by-hop report; the low eight bits are the remaining hop count after this hop.
const bit<16> STATUS_HOP_BY_HOP = 0x8000;
const bit<16> STATUS_LAST_HOP = 0x4000;

// Telemetry Report v2.0.
const bit<4> REPORT_VERSION = 2;
const bit<4> REPORT_TYPE_INT = 1;
const bit<4> INNER_TYPE_NONE = 0;
const bit<4> INNER_TYPE_ETHERNET = 3;
const bit<4> INNER_TYPE_IPV4 = 4;
const bit<4> INNER_TYPE_IPV6 = 5;
// Main contents in words; everything before reports in UDP, in bytes; the RepMdBits that are INT instructions here.
const bit<16> REPORT_MAIN_WORDS = 2;
const bit<16> REPORT_UDP_BYTES = 16;
const bit<16> REPORT_METADATA_BITS = 0x7f80;
// A drop report's metadata: interfaces, ingress timestamp, and the word with the reason.
const bit<16> DROP_METADATA_BITS = 0x4801;
// A congestion report's metadata: interfaces, latency, queue, both timestamps, transmit utilisation.
const bit<16> QUEUE_METADATA_BITS = 0x7d00;
const bit<16> QUEUE_WORD_BIT = 0x1000;
const bit<16> DROP_WORD_BIT = 0x0001;
// INT's "not available": a packet dropped before routing has neither.
const bit<16> PORT_UNAVAILABLE = 0xffff;
const bit<8>  QUEUE_UNAVAILABLE = 0xff;
// Report lengths from here on are encoded as this: "to the end".
const bit<16> REPORT_WORDS_LIMIT = 0xff;

const bit<32> REPORT_CLONE_SESSION = 250;
const bit<32> INSTANCE_NORMAL = 0;
const bit<32> INSTANCE_INGRESS_CLONE = 1;
const bit<32> INSTANCE_EGRESS_CLONE = 2;
const bit<32> INSTANCE_REPLICATION = 5;
// Set by the built-in switch itself: a full queue refused the packet.
const bit<32> INSTANCE_DEFLECTED = 7;

#endif
