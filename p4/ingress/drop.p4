// Drops packets to which an earlier stage gave a drop reason; that stage has counted it under that name.
#ifndef P4_INGRESS_DROP_P4
#define P4_INGRESS_DROP_P4

#include "../shared/drop_request.p4"
#include "../shared/metadata.p4"

control Drop(inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    DropRequest() request;

    bit<1> reported = 0;

    action report_drops() {
        reported = 1;
    }

    // The default action enables drop reports; egress selects the drops.
    table drop_reports {
        actions = {
            report_drops;
            NoAction;
        }
        default_action = NoAction();
    }

    @hidden
    action read() {
        meta.hop_ingress_port = standard_metadata.ingress_port;
        meta.hop_egress_port = PORT_UNAVAILABLE;
        meta.hop_queue_id = QUEUE_UNAVAILABLE;
        meta.report_as_it_came = 1;
        meta.hop_ingress_time_ns = (bit<64>) standard_metadata.ingress_global_timestamp * NANOS_PER_MICRO;
    }

    apply {
        mark_to_drop(standard_metadata);
        drop_reports.apply();
        // A forged packet's addresses identify no flow: it is counted, nothing more.
        if (reported == 1 && meta.drop_reason != DROP_SOURCE_SPOOFED) {
            read();
            request.apply(meta);
            clone_preserving_field_list(CloneType.I2E, REPORT_CLONE_SESSION, 1);
        }
    }
}

#endif
