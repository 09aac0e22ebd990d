// INT source, second half: a packet selected in ingress gets a shim and an MD or MX header; int_mark.p4 marks it.
#ifndef P4_EGRESS_INT_SOURCE_P4
#define P4_EGRESS_INT_SOURCE_P4

#include "../shared/headers.p4"
#include "../shared/instructions.p4"
#include "../shared/metadata.p4"

control IntSource(inout headers_t hdr, inout metadata_t meta) {
    counter(1, CounterType.packets_and_bytes) int_sourced;
    counter(1, CounterType.packets_and_bytes) int_not_sourced;

    // Number of packets numbered by each watch.
    register<bit<32>>(65536) watch_numbers;

    bit<16> growth;
    bit<16> longest;

    @hidden
    action measure() {
        growth = INT_FIXED_BYTES;
        growth = growth + ((meta.int_domain_instructions & DOMAIN_SOURCE_NUMBER != 0) ? 16w4 : 16w0);
        bit<16> marker_bytes = (meta.int_place == PLACE_NEW_UDP) ? UDP_BYTES : 16w0;
        marker_bytes = (meta.int_place == PLACE_PROBE) ? PROBE_MARKER_BYTES : marker_bytes;
        longest = hdr.ipv4.isValid() ? hdr.ipv4.total_length : hdr.ipv6.payload_length + 40;
        longest = longest + growth + marker_bytes;
    }

    // The original value of the field that INT replaces, for the sink to restore.
    @hidden
    action replace_value() {
        bit<16> value = (bit<16>) meta.dscp << 2;
        value = (meta.int_place == PLACE_UDP_PORT) ? hdr.udp.dst_port : value;
        value = (meta.int_place == PLACE_NEW_UDP) ? (bit<16>) meta.protocol : value;
        value = (meta.int_place == PLACE_GRE) ? hdr.gre.protocol : value;
        value = (meta.int_place == PLACE_VXLAN) ? (bit<16>) hdr.vxlan.next_protocol : value;
        // VXLAN becomes VXLAN-GPE with the G bit, and carries Ethernet.
        value = (meta.int_place == PLACE_VXLAN && hdr.udp.dst_port == VXLAN_PORT) ? 16w0x8003 : value;
        hdr.int_shim.value = value;
    }

    @hidden
    action insert_shim() {
        hdr.int_shim.setValid();
        hdr.int_shim.type = (meta.int_mode == MODE_MX) ? INT_TYPE_MX : INT_TYPE_MD;
        hdr.int_shim.npt = (meta.int_place == PLACE_UDP_PORT) ? NPT_UDP_PAYLOAD : NPT_NONE;
        hdr.int_shim.npt = (meta.int_place == PLACE_NEW_UDP) ? NPT_L4 : hdr.int_shim.npt;
        hdr.int_shim.reserved = 0;
        hdr.int_shim.length = (bit<8>) (growth >> 2) - 1;
    }

    @hidden
    action insert_header() {
        bit<8> words = count_report_words(meta.int_instructions) + count_stack_only_words(meta.int_instructions)
            + count_domain_words(meta.int_domain_instructions);
        hdr.int_md.setValid();
        hdr.int_md.version = INT_VERSION;
        hdr.int_md.discard = meta.int_discard;
        hdr.int_md.hops_exceeded = 0;
        hdr.int_md.mtu_exceeded = 0;
        hdr.int_md.reserved = 0;
        hdr.int_md.hop_words = (meta.int_mode == MODE_MX) ? 5w0 : (bit<5>) words;
        hdr.int_md.remaining_hops = (meta.int_mode == MODE_MX) ? 8w0 : meta.int_max_hops;
        hdr.int_md.instructions = meta.int_instructions;
        hdr.int_md.domain_flags = (meta.int_mode == MODE_HOP_BY_HOP) ? HOP_BY_HOP_FLAG : 0;
        hdr.int_md.domain_flags = (meta.int_shield == 1) ? SHIELD_FLAG : hdr.int_md.domain_flags;
        hdr.int_md.domain_id =
            (hdr.int_md.domain_flags != 0 || meta.int_domain_instructions != 0) ? OUR_DOMAIN : 0;
        hdr.int_md.domain_instructions = meta.int_domain_instructions;
    }

    @hidden
    action insert_number() {
        bit<32> number;
        watch_numbers.read(number, (bit<32>) meta.int_watch_id);
        watch_numbers.write((bit<32>) meta.int_watch_id, number + 1);
        hdr.int_source_word.setValid();
        hdr.int_source_word.number = number;
        meta.int_sum = meta.int_sum + (bit<64>) number;
    }

    @hidden
    action add_to_payload() {
        meta.int_growth_bytes = growth;
        meta.int_sum = ((bit<64>) hdr.int_shim.type << 12)
            + ((bit<64>) hdr.int_shim.npt << 10)
            + (bit<64>) hdr.int_shim.length
            + (bit<64>) hdr.int_shim.value
            + ((bit<64>) hdr.int_md.version << 12)
            + ((bit<64>) hdr.int_md.discard << 11)
            + ((bit<64>) hdr.int_md.hop_words << 8)
            + (bit<64>) hdr.int_md.remaining_hops
            + (bit<64>) hdr.int_md.instructions
            + (bit<64>) hdr.int_md.domain_id
            + (bit<64>) hdr.int_md.domain_instructions
            + (bit<64>) hdr.int_md.domain_flags;
    }

    apply {
        measure();
        if (meta.mtu_bytes != 0 && longest > meta.mtu_bytes && meta.int_shield == 0) {
            // INT v2.1, "MTU Settings": if not even the fixed headers fit, INT is omitted. A payload that requires INT
            // as a shield is then too long (mtu.p4).
            int_not_sourced.count(0);
            meta.int_place = PLACE_NONE;
        } else {
            insert_shim();
            replace_value();
            insert_header();
            add_to_payload();
            if (meta.int_domain_instructions & DOMAIN_SOURCE_NUMBER != 0) {
                insert_number();
            }
            meta.int_mark = 1;
            int_sourced.count(0);
        }
    }
}

#endif
