// INT transit (and the source's own hop): pushes this hop's metadata, or reports it and pushes nothing.
#ifndef P4_EGRESS_INT_TRANSIT_P4
#define P4_EGRESS_INT_TRANSIT_P4

#include "../shared/headers.p4"
#include "../shared/instructions.p4"
#include "../shared/metadata.p4"
#include "forwarding_word.p4"
#include "hop_words.p4"
#include "int_strip.p4"

control IntTransit(inout headers_t hdr, inout metadata_t meta) {
    counter(1, CounterType.packets_and_bytes) int_transit;
    counter(1, CounterType.packets_and_bytes) int_hops_exceeded;
    counter(1, CounterType.packets_and_bytes) int_mtu_exceeded;
    counter(1, CounterType.packets_and_bytes) int_skipped;
    HopWords() hop_words;
    ForwardingWord() forwarding_word;
    IntStrip() strip;

    bit<8> words;
    bit<16> packet_bytes;
    bit<1> too_long;
    bit<1> strips = 0;

    @hidden
    action measure() {
        words = count_report_words(hdr.int_md.instructions) + count_stack_only_words(hdr.int_md.instructions)
            + count_domain_words(hdr.int_md.domain_instructions);
        packet_bytes = hdr.ipv4.isValid() ? hdr.ipv4.total_length : hdr.ipv6.payload_length + 40;
        packet_bytes = packet_bytes + meta.int_growth_bytes;
        // Earlier hops' metadata must not keep a packet from being forwarded, whatever this hop may add.
        too_long = (
            meta.mtu_bytes != 0 && packet_bytes > meta.mtu_bytes && hdr.int_shim.length > INT_HEADER_WORDS
        ) ? 1w1 : 1w0;
    }

    // The flags' positions within their 16 bits, unless an earlier hop has set them.
    @hidden
    action exceed_hops() {
        meta.int_sum = meta.int_sum + ((hdr.int_md.hops_exceeded == 0) ? 64w0x0400 : 64w0);
        hdr.int_md.hops_exceeded = 1;
    }

    @hidden
    action exceed_mtu() {
        meta.int_sum = meta.int_sum + ((hdr.int_md.mtu_exceeded == 0) ? 64w0x0200 : 64w0);
        hdr.int_md.mtu_exceeded = 1;
    }

    @hidden
    action take_hop() {
        hdr.int_md.remaining_hops = hdr.int_md.remaining_hops - 1;
        // The count is in the low bits of its 16-bit word: one less adds 0xfffe, modulo 0xffff.
        meta.int_sum = meta.int_sum + 0xfffe;
    }

    @hidden
    action report() {
        meta.report_wanted = 1;
        meta.report_tracked = 1;
        meta.report_domain_id = hdr.int_md.domain_id;
    }

    // A congested queue may have requested bits already.
    @hidden
    action report_readings() {
        meta.report_bits = meta.report_bits | (hdr.int_md.instructions & REPORT_METADATA_BITS);
        meta.report_domain_bits = (hdr.int_md.domain_id == OUR_DOMAIN)
            ? hdr.int_md.domain_instructions & DOMAIN_FORWARDING : 0;
    }

    @hidden
    action report_hop() {
        meta.report_intermediate = 1;
        meta.report_domain_status = STATUS_HOP_BY_HOP | (bit<16>) hdr.int_md.remaining_hops;
    }

    @hidden
    action push_node() {
        hdr.hop_node.setValid();
        hdr.hop_node.node_id = meta.node_id;
        meta.int_sum = meta.int_sum + (bit<64>) meta.node_id;
    }

    @hidden
    action push_reserved(in bit<16> bits) {
        // All ones do not change a checksum.
        if (bits[6:6] == 1) { hdr.hop_reserved[0].setValid(); hdr.hop_reserved[0].all_ones = 0xffffffff; }
        if (bits[5:5] == 1) { hdr.hop_reserved[1].setValid(); hdr.hop_reserved[1].all_ones = 0xffffffff; }
        if (bits[4:4] == 1) { hdr.hop_reserved[2].setValid(); hdr.hop_reserved[2].all_ones = 0xffffffff; }
        if (bits[3:3] == 1) { hdr.hop_reserved[3].setValid(); hdr.hop_reserved[3].all_ones = 0xffffffff; }
        if (bits[2:2] == 1) { hdr.hop_reserved[4].setValid(); hdr.hop_reserved[4].all_ones = 0xffffffff; }
        if (bits[1:1] == 1) { hdr.hop_reserved[5].setValid(); hdr.hop_reserved[5].all_ones = 0xffffffff; }
    }

    // l4_update.p4 inserts the complement if there is a checksum to preserve.
    @hidden
    action push_complement() {
        hdr.hop_complement.setValid();
        hdr.hop_complement.zero = 0xffff;
        hdr.hop_complement.complement = 0xffff;
    }

    @hidden
    action grow() {
        hdr.int_shim.length = hdr.int_shim.length + words;
        meta.int_sum = meta.int_sum + (bit<64>) words;
        meta.int_growth_bytes = meta.int_growth_bytes + ((bit<16>) words << 2);
    }

    apply {
        measure();
        if (hdr.int_shim.type == INT_TYPE_MX) {
            report();
            report_readings();
            int_transit.count(0);
        } else if (hdr.int_md.remaining_hops == 0) {
            exceed_hops();
            strips = too_long;
            int_hops_exceeded.count(0);
        } else if (hdr.int_md.domain_id == OUR_DOMAIN && hdr.int_md.domain_flags & HOP_BY_HOP_FLAG != 0) {
            take_hop();
            report();
            report_readings();
            report_hop();
            int_transit.count(0);
        } else if (
            // A hop adds exactly what HopML announces, or nothing; instructions of other domains are not answered.
            (hdr.int_md.domain_id != OUR_DOMAIN && hdr.int_md.domain_instructions != 0)
            || hdr.int_md.domain_instructions & DOMAIN_RESERVED != 0
            || (bit<8>) hdr.int_md.hop_words != words
            || hdr.int_shim.length > 255 - words
        ) {
            strips = too_long;
            int_skipped.count(0);
        } else if (meta.mtu_bytes != 0 && packet_bytes + ((bit<16>) words << 2) > meta.mtu_bytes) {
            int_mtu_exceeded.count(0);
            if (hdr.int_stack.isValid() && (meta.strip_at_mtu == 1 || too_long == 1)) {
                strips = 1;
            } else {
                exceed_mtu();
            }
        } else {
            take_hop();
            bit<64> before = meta.int_sum;
            if (hdr.int_md.instructions[15:15] == 1) {
                push_node();
            }
            hop_words.apply(
                hdr.int_md.instructions, meta,
                hdr.hop_level1, hdr.hop_latency, hdr.hop_queue, hdr.hop_ingress_time, hdr.hop_egress_time,
                hdr.hop_level2, hdr.hop_utilization, hdr.hop_buffer, meta.int_sum
            );
            if (hdr.int_md.instructions & 0x7e != 0) {
                push_reserved(hdr.int_md.instructions);
            }
            if (hdr.int_md.domain_instructions & DOMAIN_FORWARDING != 0) {
                forwarding_word.apply(hdr.ipv4, hdr.ipv6, meta, hdr.hop_forwarding, meta.int_sum);
            }
            meta.report_int_sum = meta.int_sum - before;
            if (hdr.int_md.instructions & CHECKSUM_COMPLEMENT != 0) {
                push_complement();
            }
            grow();
            int_transit.count(0);
        }
        if (strips == 1) {
            report();
            // With no hops left, instructions are ignored.
            if (hdr.int_md.remaining_hops != 0) {
                report_readings();
            }
            strip.apply(hdr, meta);
        }
    }
}

#endif
