// INT sink: restores the packet as it entered the source and keeps its INT headers for the report; int_unmark.p4
// removes them.
#ifndef P4_EGRESS_INT_SINK_P4
#define P4_EGRESS_INT_SINK_P4

#include "../shared/headers.p4"
#include "../shared/metadata.p4"

control IntSink(inout headers_t hdr, inout metadata_t meta) {
    counter(1, CounterType.packets_and_bytes) int_sunk;
    counter(1, CounterType.packets_and_bytes) drop_int_discard;

    @hidden
    action hand_over() {
        hdr.sunk_shim = hdr.int_shim;
        hdr.sunk_md = hdr.int_md;
        hdr.sunk_stack = hdr.int_stack;
        hdr.sunk_source_word = hdr.int_source_word;
        meta.report_restores_int = 1;
        meta.report_restores_mark = 1;
        meta.report_growth_bytes = 4 + ((bit<16>) hdr.int_shim.length << 2);
    }

    // This switch's own source inserted the headers, and only the report will carry them.
    @hidden
    action take_back() {
        meta.report_int_sum = meta.int_sum;
        meta.int_sum = 0;
        meta.int_growth_bytes = 0;
    }

    @hidden
    action report() {
        meta.report_wanted = 1;
        meta.report_tracked = 1;
        meta.report_bits = hdr.int_md.instructions & REPORT_METADATA_BITS;
        meta.report_domain_id = hdr.int_md.domain_id;
        meta.report_domain_bits = (hdr.int_md.domain_id == OUR_DOMAIN)
            ? hdr.int_md.domain_instructions & DOMAIN_FORWARDING : 0;
    }

    @hidden
    action end_hop_by_hop() {
        bit<8> remaining_hops = hdr.int_md.remaining_hops;
        remaining_hops = (remaining_hops == 0) ? 8w0 : remaining_hops - 1;
        meta.report_domain_status = STATUS_HOP_BY_HOP | STATUS_LAST_HOP | (bit<16>) remaining_hops;
    }

    apply {
        if (hdr.int_md.domain_id == OUR_DOMAIN && hdr.int_md.domain_flags & HOP_BY_HOP_FLAG != 0) {
            end_hop_by_hop();
        }
        hand_over();
        if (hdr.int_md.domain_id != OUR_DOMAIN || hdr.int_md.domain_flags & SHIELD_FLAG == 0) {
            report();
        }
        if (meta.int_start == 1) {
            take_back();
        } else {
            meta.int_unmark = 1;
        }
        meta.int_remove = 1;
        int_sunk.count(0);
        if (hdr.sunk_md.discard == 1) {
            // The source sent a copy for measurement only, not for delivery. Its report is cloned all the same.
            drop_int_discard.count(0);
            meta.drop_reason = DROP_INT_DISCARD;
        }
    }
}

#endif
