// A packet refused by a full queue and handed over by the traffic manager for its report; bmv2 never does this.
#ifndef P4_EGRESS_DEFLECTED_P4
#define P4_EGRESS_DEFLECTED_P4

#include "../shared/drop_request.p4"
#include "../shared/metadata.p4"

// It has passed ingress and keeps its results; enq_qdepth is that of the queue that refused it.
control Deflected(inout metadata_t meta, in standard_metadata_t standard_metadata) {
    DropRequest() request;

    apply {
        meta.hop_ingress_port = standard_metadata.ingress_port;
        meta.hop_egress_port = meta.next_port;
        meta.hop_queue_id = (bit<8>) standard_metadata.priority;
        meta.hop_queue_occupancy = standard_metadata.enq_qdepth;
        meta.hop_ingress_time_ns = (bit<64>) standard_metadata.ingress_global_timestamp * NANOS_PER_MICRO;
        meta.report_bits = QUEUE_WORD_BIT;
        meta.drop_reason = DROP_QUEUE_FULL;
        request.apply(meta);
    }
}

#endif
