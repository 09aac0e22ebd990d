// If this hop's metadata would exceed the MTU, the stack so far leaves in an intermediate report.
#ifndef P4_EGRESS_INT_STRIP_P4
#define P4_EGRESS_INT_STRIP_P4

#include "../shared/headers.p4"
#include "../shared/metadata.p4"

control IntStrip(inout headers_t hdr, inout metadata_t meta) {
    counter(1, CounterType.packets_and_bytes) int_stripped;

    bit<8> kept_words;

    // A source-only word stays: it belongs to no hop, and the domain instructions still announce it.
    @hidden
    action strip() {
        kept_words = hdr.int_source_word.isValid() ? INT_HEADER_WORDS + 1 : INT_HEADER_WORDS;
        bit<16> old_length = (bit<16>) hdr.int_shim.length;
        bit<16> kept_complement = ~(bit<16>) kept_words;
        bit<16> complement;
        hash(complement, HashAlgorithm.csum16, 16w0, {
            old_length, kept_complement, hdr.int_stack.words
        }, 32w0x10000);
        meta.int_sum = meta.int_sum + (bit<64>) complement;
        meta.report_int_sum = (bit<64>) (~complement);
        meta.report_growth_bytes = ((bit<16>) (hdr.int_shim.length - kept_words)) << 2;
        meta.int_growth_bytes = meta.int_growth_bytes - meta.report_growth_bytes;
    }

    @hidden
    action hand_over() {
        hdr.sunk_shim = hdr.int_shim;
        hdr.sunk_md = hdr.int_md;
        hdr.sunk_stack = hdr.int_stack;
        hdr.sunk_source_word = hdr.int_source_word;
        hdr.int_stack.setInvalid();
        hdr.int_shim.length = kept_words;
        meta.report_restores_int = 1;
        meta.report_intermediate = 1;
    }

    apply {
        strip();
        hand_over();
        int_stripped.count(0);
    }
}

#endif
