// INT source, second half: a packet that ingress chose gets a shim and an MD header with an empty stack.
#ifndef P4_EGRESS_INT_SOURCE_P4
#define P4_EGRESS_INT_SOURCE_P4

#include "../shared/headers.p4"
#include "../shared/instructions.p4"
#include "../shared/metadata.p4"

control IntSource(inout headers_t hdr, inout metadata_t meta) {
    counter(1, CounterType.packets_and_bytes) int_sourced;

    @hidden
    action insert_shim() {
        hdr.int_shim.setValid();
        hdr.int_shim.type = INT_TYPE_MD;
        hdr.int_shim.npt = 0;
        hdr.int_shim.reserved1 = 0;
        hdr.int_shim.length = INT_MD_WORDS;
        hdr.int_shim.reserved2 = 0;
        hdr.int_shim.dscp = meta.dscp;
        hdr.int_shim.reserved3 = 0;
    }

    @hidden
    action insert_md() {
        hdr.int_md.setValid();
        hdr.int_md.version = INT_VERSION;
        hdr.int_md.discard = 0;
        hdr.int_md.hops_exceeded = 0;
        hdr.int_md.mtu_exceeded = 0;
        hdr.int_md.reserved = 0;
        hdr.int_md.hop_words = (bit<5>) (
            count_report_words(meta.int_instructions) + count_stack_only_words(meta.int_instructions)
        );
        hdr.int_md.remaining_hops = meta.int_max_hops;
        hdr.int_md.instructions = meta.int_instructions;
        hdr.int_md.domain_id = (meta.int_hop_by_hop == 1) ? HOP_BY_HOP_DOMAIN : 0;
        hdr.int_md.domain_instructions = 0;
        hdr.int_md.domain_flags = (meta.int_hop_by_hop == 1) ? HOP_BY_HOP_FLAG : 0;
    }

    @hidden
    action add_to_payload() {
        meta.int_growth_bytes = INT_FIXED_BYTES;
        meta.int_sum = INT_FIXED_SUM
            + ((bit<64>) hdr.int_shim.dscp << 2)
            + ((bit<64>) hdr.int_md.hop_words << 8)
            + (bit<64>) hdr.int_md.remaining_hops
            + (bit<64>) hdr.int_md.instructions
            + (bit<64>) hdr.int_md.domain_id
            + (bit<64>) hdr.int_md.domain_flags;
    }

    apply {
        insert_shim();
        insert_md();
        add_to_payload();
        if (hdr.ipv4.isValid()) {
            hdr.ipv4.dscp = INT_DSCP;
        } else {
            hdr.ipv6.dscp = INT_DSCP;
        }
        int_sourced.count(0);
    }
}

#endif
