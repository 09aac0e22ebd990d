// Values that the pipeline, the controller and the collector agree on.
#ifndef P4_SHARED_CONSTANTS_P4
#define P4_SHARED_CONSTANTS_P4

typedef bit<9>  port_t;
typedef bit<48> mac_t;

const port_t CPU_PORT = 255;

// v1model's timestamps are microseconds, INT's nanoseconds.
const bit<64> NANOS_PER_MICRO = 1000;

const bit<16> ETHERTYPE_IPV4 = 0x0800;
const bit<16> ETHERTYPE_VLAN = 0x8100;
const bit<16> ETHERTYPE_IPV6 = 0x86dd;

const bit<8> PROTOCOL_TCP = 6;
const bit<8> PROTOCOL_UDP = 17;

// INT v2.1, section "INT over TCP/UDP": a DSCP value reserved inside the INT domain marks the packet.
const bit<6> INT_DSCP = 0x17;
const bit<4> INT_TYPE_MD = 1;
const bit<4> INT_VERSION = 2;

// The MD header in words, as the shim's length counts it; with the shim it is what a source inserts.
const bit<8>  INT_MD_WORDS = 3;
const bit<16> INT_FIXED_BYTES = 16;

// What these add to a checksum before their variable fields: shim type and length, MD version.
const bit<64> INT_FIXED_SUM = 0x1003 + 0x2000;

// Our INT domain. It defines no metadata of its own, only the flag that turns on reports hop by hop.
const bit<16> HOP_BY_HOP_DOMAIN = 0x4d52;
const bit<16> HOP_BY_HOP_FLAG = 0x8000;

// DSMdstatus of a hop by hop report; the low eight bits are the remaining hop count behind this hop.
const bit<16> STATUS_HOP_BY_HOP = 0x8000;
const bit<16> STATUS_LAST_HOP = 0x4000;

// Telemetry Report v2.0.
const bit<4> REPORT_VERSION = 2;
const bit<4> REPORT_TYPE_INT = 1;
const bit<4> INNER_TYPE_NONE = 0;
const bit<4> INNER_TYPE_ETHERNET = 3;
const bit<4> INNER_TYPE_IPV4 = 4;
const bit<4> INNER_TYPE_IPV6 = 5;
// Main contents in words; all that precedes them in UDP, in bytes; the RepMdBits that are INT instructions here.
const bit<16> REPORT_MAIN_WORDS = 2;
const bit<16> REPORT_UDP_BYTES = 20;
const bit<16> REPORT_METADATA_BITS = 0x7f00;
// What a report says of a drop: interfaces, ingress time stamp, and the word with the reason.
const bit<16> DROP_METADATA_BITS = 0x4801;
// What a report says of a congested queue: interfaces, latency, queue, both time stamps, transmit utilisation.
const bit<16> QUEUE_METADATA_BITS = 0x7d00;
const bit<16> DROP_WORD_BIT = 0x0001;
// INT's "not available": a packet dropped before it was routed has neither.
const bit<16> PORT_UNAVAILABLE = 0xffff;
const bit<8>  QUEUE_UNAVAILABLE = 0xff;
// Report lengths from here on are written as this, "to the end".
const bit<16> REPORT_WORDS_LIMIT = 0xff;

const bit<32> REPORT_CLONE_SESSION = 250;
const bit<32> INSTANCE_NORMAL = 0;
const bit<32> INSTANCE_INGRESS_CLONE = 1;
const bit<32> INSTANCE_EGRESS_CLONE = 2;

#endif
