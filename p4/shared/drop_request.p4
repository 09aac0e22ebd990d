// Requests a report of a dropped packet; egress decides whether one is sent (drop_watch.p4).
#ifndef P4_SHARED_DROP_REQUEST_P4
#define P4_SHARED_DROP_REQUEST_P4

#include "metadata.p4"

control DropRequest(inout metadata_t meta) {
    apply {
        meta.report_wanted = 1;
        meta.report_dropped = 1;
        meta.report_drop_reason = meta.drop_reason;
    }
}

#endif
