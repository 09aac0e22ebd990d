// Restores headers that a sink or a strip removed, in the packet's report.
#ifndef P4_EGRESS_REPORT_RESTORE_P4
#define P4_EGRESS_REPORT_RESTORE_P4

#include "../shared/headers.p4"
#include "../shared/metadata.p4"

control ReportRestore(inout headers_t hdr, inout metadata_t meta) {
    @hidden
    action put_back() {
        hdr.int_shim = hdr.sunk_shim;
        hdr.int_md = hdr.sunk_md;
        hdr.int_stack = hdr.sunk_stack;
        hdr.int_source_word = hdr.sunk_source_word;
        meta.int_sum = meta.report_int_sum;
        meta.int_growth_bytes = meta.report_growth_bytes;
        meta.int_mark = meta.report_restores_mark;
    }

    apply {
        if (meta.report_restores_int == 1) {
            put_back();
        }
    }
}

#endif
