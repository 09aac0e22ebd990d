// This hop's readings of the packet's passage, used by both the INT stack and a report's clone.
#ifndef P4_EGRESS_HOP_READINGS_P4
#define P4_EGRESS_HOP_READINGS_P4

#include "../shared/latency.p4"
#include "../shared/metadata.p4"

control HopReadings(
    in bit<32> transmitted_bytes,
    in bit<24> buffer_occupancy,
    inout metadata_t meta,
    in standard_metadata_t standard_metadata
) {
    apply {
        meta.hop_ingress_port = standard_metadata.ingress_port;
        meta.hop_egress_port = (bit<16>) standard_metadata.egress_port;
        meta.hop_queue_id = (bit<8>) standard_metadata.priority;
        meta.hop_queue_occupancy = standard_metadata.enq_qdepth;
        meta.hop_ingress_time_ns = (bit<64>) standard_metadata.ingress_global_timestamp * NANOS_PER_MICRO;
        meta.hop_egress_time_ns = (bit<64>) standard_metadata.egress_global_timestamp * NANOS_PER_MICRO;
        meta.hop_latency_ns = latency_between(
            standard_metadata.ingress_global_timestamp, standard_metadata.egress_global_timestamp
        );
        meta.hop_transmitted_bytes = transmitted_bytes;
        meta.hop_buffer_occupancy = buffer_occupancy;
        meta.hop_decision = meta.decision;
    }
}

#endif
