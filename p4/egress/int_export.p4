// INT-XD: the packet is forwarded unchanged, and this hop reports according to its own watchlist.
#ifndef P4_EGRESS_INT_EXPORT_P4
#define P4_EGRESS_INT_EXPORT_P4

#include "../shared/metadata.p4"

control IntExport(inout metadata_t meta) {
    counter(1, CounterType.packets_and_bytes) int_exported;

    @hidden
    action report() {
        meta.report_wanted = 1;
        meta.report_tracked = 1;
        meta.report_bits = meta.int_instructions & REPORT_METADATA_BITS;
        meta.report_domain_bits = meta.int_domain_instructions & DOMAIN_FORWARDING;
        meta.report_domain_id = (meta.report_domain_bits != 0) ? OUR_DOMAIN : 0;
    }

    apply {
        report();
        int_exported.count(0);
    }
}

#endif
