// Decides whether a clone becomes a report, with which flags, and with or without INT headers.
#ifndef P4_EGRESS_REPORT_CHOICE_P4
#define P4_EGRESS_REPORT_CHOICE_P4

#include "../shared/headers.p4"
#include "../shared/metadata.p4"
#include "drop_watch.p4"
#include "report_target.p4"

control ReportChoice(
    inout headers_t hdr,
    inout metadata_t meta,
    inout standard_metadata_t standard_metadata,
    out bit<1> chosen
) {
    counter(1, CounterType.packets_and_bytes) drop_report_without_target;
    counter(1, CounterType.packets_and_bytes) drop_report_about_report;
    ReportTarget() report_target;
    DropWatch() drop_watch;

    @hidden
    action end() {
        mark_to_drop(standard_metadata);
        exit;
    }

    @hidden
    action withdraw() {
        meta.report_dropped = 0;
        meta.report_congested = 0;
        meta.report_tracked = 0;
    }

    apply {
        chosen = 0;
        report_target.apply(hdr);
        if (!hdr.report_ethernet.isValid()) {
            drop_report_without_target.count(0);
            end();
        }
        if (meta.is_report == 1) {
            if (meta.report_flush == 0) {
                drop_report_about_report.count(0);
            }
            withdraw();
        } else if (meta.report_dropped == 1) {
            drop_watch.apply(hdr, meta, standard_metadata);
            if (
                hdr.int_shim.isValid() && meta.report_drop_reason > DROP_INT_MALFORMED && meta.int_place != PLACE_NONE
            ) {
                meta.report_tracked = meta.report_tracked | meta.report_dropped;
            }
        }
        if (meta.report_dropped == 1 || meta.report_congested == 1 || meta.report_tracked == 1) {
            chosen = 1;
            // The report specification, "Embedded Telemetry Metadata": only with F may the packet contain any.
            // Reports without it are of packets with untrusted INT headers, and of those that just met congestion.
            if (meta.report_tracked == 0) {
                meta.int_remove = 1;
                if (meta.report_as_it_came == 1 || meta.int_place == PLACE_NONE) {
                    meta.inner_words = 0;
                } else if (hdr.int_shim.isValid()) {
                    meta.int_unmark = 1;
                }
            }
        } else if (meta.report_flush == 0) {
            end();
        }
    }
}

#endif
