// Requests the one clone that becomes the packet's report: all requests for a packet are merged into one report.
#ifndef P4_EGRESS_REPORT_REQUEST_P4
#define P4_EGRESS_REPORT_REQUEST_P4

#include "../shared/metadata.p4"

control ReportRequest(in metadata_t meta) {
    apply {
        if (meta.report_wanted == 1 || meta.report_flush == 1) {
            clone_preserving_field_list(CloneType.E2E, REPORT_CLONE_SESSION, 1);
        }
    }
}

#endif
