// Domain-specific metadata of a hop: how the forwarding decision was made.
#ifndef P4_EGRESS_FORWARDING_WORD_P4
#define P4_EGRESS_FORWARDING_WORD_P4

#include "../shared/headers.p4"
#include "../shared/metadata.p4"

control ForwardingWord(
    in ipv4_t ipv4,
    in ipv6_t ipv6,
    in metadata_t meta,
    inout forwarding_word_t word,
    inout bit<64> sum
) {
    apply {
        word.setValid();
        word.decision = meta.hop_decision;
        word.ttl = ipv4.isValid() ? ipv4.ttl : ipv6.hop_limit;
        word.zero = 0;
        sum = sum + ((bit<64>) word.decision << 8) + (bit<64>) word.ttl;
    }
}

#endif
