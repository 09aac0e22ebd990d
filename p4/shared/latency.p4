// The packet's time in the switch, in INT's format.
#ifndef P4_SHARED_LATENCY_P4
#define P4_SHARED_LATENCY_P4

#include "constants.p4"

// Times beyond 32 bits (4.29 s) are INT's "not available": all ones.
bit<32> latency_between(in bit<48> ingress_us, in bit<48> egress_us) {
    bit<64> latency_ns = ((bit<64>) egress_us - (bit<64>) ingress_us) * NANOS_PER_MICRO;
    return (latency_ns > 0xffffffff) ? 0xffffffff : (bit<32>) latency_ns;
}

#endif
