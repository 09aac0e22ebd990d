// INT transit (and the source's own hop): push this hop's metadata, or report it hop by hop and push nothing.
#ifndef P4_EGRESS_INT_TRANSIT_P4
#define P4_EGRESS_INT_TRANSIT_P4

#include "../shared/headers.p4"
#include "../shared/instructions.p4"
#include "../shared/metadata.p4"
#include "hop_words.p4"

control IntTransit(inout headers_t hdr, inout metadata_t meta) {
    counter(1, CounterType.packets_and_bytes) int_transit;
    counter(1, CounterType.packets_and_bytes) int_hops_exceeded;
    counter(1, CounterType.packets_and_bytes) int_skipped;
    HopWords() hop_words;

    bit<8> words;

    @hidden
    action exceed_hops() {
        // The flag's place in its 16 bits, unless an earlier hop has set it.
        meta.int_sum = (hdr.int_md.hops_exceeded == 0) ? 64w0x0400 : 64w0;
        hdr.int_md.hops_exceeded = 1;
    }

    @hidden
    action take_hop() {
        hdr.int_md.remaining_hops = hdr.int_md.remaining_hops - 1;
        // The count sits in the low bits of its 16: one less is 0xfffe more, modulo 0xffff.
        meta.int_sum = meta.int_sum + 0xfffe;
    }

    @hidden
    action report() {
        meta.report_wanted = 1;
        meta.report_tracked = 1;
        meta.report_intermediate = 1;
        meta.report_bits = hdr.int_md.instructions & REPORT_METADATA_BITS;
        meta.report_domain_id = hdr.int_md.domain_id;
        meta.report_domain_status = STATUS_HOP_BY_HOP | (bit<16>) hdr.int_md.remaining_hops;
    }

    @hidden
    action push_node() {
        hdr.hop_node.setValid();
        hdr.hop_node.node_id = meta.node_id;
        meta.int_sum = meta.int_sum + (bit<64>) meta.node_id;
    }

    @hidden
    action push_unavailable(in bit<16> bits) {
        // Buffer metadata, reserved bits, checksum complement: what v1model has not, or does not need. All ones add
        // nothing to a checksum.
        if (bits[7:7] == 1) { hdr.hop_unavailable[0].setValid(); hdr.hop_unavailable[0].all_ones = 0xffffffff; }
        if (bits[6:6] == 1) { hdr.hop_unavailable[1].setValid(); hdr.hop_unavailable[1].all_ones = 0xffffffff; }
        if (bits[5:5] == 1) { hdr.hop_unavailable[2].setValid(); hdr.hop_unavailable[2].all_ones = 0xffffffff; }
        if (bits[4:4] == 1) { hdr.hop_unavailable[3].setValid(); hdr.hop_unavailable[3].all_ones = 0xffffffff; }
        if (bits[3:3] == 1) { hdr.hop_unavailable[4].setValid(); hdr.hop_unavailable[4].all_ones = 0xffffffff; }
        if (bits[2:2] == 1) { hdr.hop_unavailable[5].setValid(); hdr.hop_unavailable[5].all_ones = 0xffffffff; }
        if (bits[1:1] == 1) { hdr.hop_unavailable[6].setValid(); hdr.hop_unavailable[6].all_ones = 0xffffffff; }
        if (bits[0:0] == 1) { hdr.hop_unavailable[7].setValid(); hdr.hop_unavailable[7].all_ones = 0xffffffff; }
    }

    @hidden
    action grow() {
        hdr.int_shim.length = hdr.int_shim.length + words;
        meta.int_sum = meta.int_sum + (bit<64>) words;
        meta.int_growth_bytes = meta.int_growth_bytes + ((bit<16>) words << 2);
    }

    apply {
        words = count_report_words(hdr.int_md.instructions) + count_stack_only_words(hdr.int_md.instructions);
        if (hdr.int_md.remaining_hops == 0) {
            exceed_hops();
            int_hops_exceeded.count(0);
        } else if (hdr.int_md.domain_id == HOP_BY_HOP_DOMAIN && hdr.int_md.domain_flags & HOP_BY_HOP_FLAG != 0) {
            take_hop();
            report();
            int_transit.count(0);
        } else if (
            // A hop adds what HopML promises or nothing; instructions of other domains are not ours to answer.
            hdr.int_md.domain_instructions != 0
            || (bit<8>) hdr.int_md.hop_words != words
            || hdr.int_shim.length > 255 - words
        ) {
            int_skipped.count(0);
        } else {
            take_hop();
            if (hdr.int_md.instructions[15:15] == 1) {
                push_node();
            }
            hop_words.apply(
                hdr.int_md.instructions, meta,
                hdr.hop_level1, hdr.hop_latency, hdr.hop_queue, hdr.hop_ingress_time, hdr.hop_egress_time,
                hdr.hop_level2, hdr.hop_utilization, meta.int_sum
            );
            if (hdr.int_md.instructions & 0xff != 0) {
                push_unavailable(hdr.int_md.instructions);
            }
            grow();
            int_transit.count(0);
        }
    }
}

#endif
