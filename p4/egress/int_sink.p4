// INT sink: the packet leaves as it came to the source; its INT headers stay behind for the report.
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
    }

    @hidden
    action take_from_payload() {
        bit<16> complement;
        hash(complement, HashAlgorithm.csum16, 16w0, {
            hdr.int_shim.type, hdr.int_shim.npt, hdr.int_shim.reserved1, hdr.int_shim.length,
            hdr.int_shim.reserved2, hdr.int_shim.dscp, hdr.int_shim.reserved3,
            hdr.int_md.version, hdr.int_md.discard, hdr.int_md.hops_exceeded, hdr.int_md.mtu_exceeded,
            hdr.int_md.reserved, hdr.int_md.hop_words, hdr.int_md.remaining_hops,
            hdr.int_md.instructions, hdr.int_md.domain_id,
            hdr.int_md.domain_instructions, hdr.int_md.domain_flags,
            hdr.int_stack.words
        }, 32w0x10000);
        // csum16 ends with a complement, which is the negative that taking away asks for.
        meta.int_sum = (bit<64>) complement;
        meta.report_int_sum = (bit<64>) (~complement);
        meta.int_growth_bytes = 16w0xfffc - ((bit<16>) hdr.int_shim.length << 2);
    }

    @hidden
    action take_back() {
        meta.report_int_sum = meta.int_sum;
        meta.int_sum = 0;
        meta.int_growth_bytes = 0;
    }

    @hidden
    action remove() {
        hdr.int_shim.setInvalid();
        hdr.int_md.setInvalid();
        hdr.int_stack.setInvalid();
    }

    @hidden
    action report() {
        meta.report_wanted = 1;
        meta.report_tracked = 1;
        meta.report_bits = hdr.sunk_md.instructions & REPORT_METADATA_BITS;
        meta.report_domain_id = hdr.sunk_md.domain_id;
        meta.report_restores_int = 1;
    }

    @hidden
    action end_hop_by_hop() {
        bit<8> remaining_hops = hdr.int_md.remaining_hops;
        remaining_hops = (remaining_hops == 0) ? 8w0 : remaining_hops - 1;
        meta.report_domain_status = STATUS_HOP_BY_HOP | STATUS_LAST_HOP | (bit<16>) remaining_hops;
    }

    apply {
        if (hdr.ipv4.isValid()) {
            hdr.ipv4.dscp = hdr.int_shim.dscp;
        } else {
            hdr.ipv6.dscp = hdr.int_shim.dscp;
        }
        if (hdr.int_md.domain_id == HOP_BY_HOP_DOMAIN && hdr.int_md.domain_flags & HOP_BY_HOP_FLAG != 0) {
            end_hop_by_hop();
        }
        hand_over();
        if (hdr.int_stack.isValid()) {
            take_from_payload();
        } else {
            // Only this switch's own source leaves out the stack: nothing but the report ever sees its headers.
            take_back();
        }
        remove();
        report();
        int_sunk.count(0);
        if (hdr.sunk_md.discard == 1) {
            // The source sent a copy that was to be measured, not delivered. Its report is cloned all the same.
            drop_int_discard.count(0);
            meta.drop_reason = DROP_INT_DISCARD;
        }
    }
}

#endif
