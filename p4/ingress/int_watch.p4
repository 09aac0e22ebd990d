// INT source and INT-XD, first half: which packets start to carry telemetry or are reported, and how. Egress does it.
#ifndef P4_INGRESS_INT_WATCH_P4
#define P4_INGRESS_INT_WATCH_P4

#include "../shared/headers.p4"
#include "../shared/metadata.p4"
#include "int_start_place.p4"

control IntWatch(in headers_t hdr, inout metadata_t meta) {
    // How many packets each watch has let pass since its last sample, and how many it has numbered.
    register<bit<32>>(65536) watch_packets;
    register<bit<32>>(65536) watch_numbers;

    IntStartPlace() start_place;

    int_place_t place;
    bit<16> number_of;

    action watch(
        @name("watch_id") bit<16> watch_id,
        @name("sample_every") bit<32> sample_every,
        @name("instructions") bit<16> instructions,
        @name("max_hops") bit<8> max_hops,
        @name("mode") int_mode_t mode,
        @name("domain_instructions") bit<16> domain_instructions,
        @name("discard") bit<1> discard
    ) {
        // Sources are at the domain's edge, where the packet has room for INT; XD needs neither. No hops, no telemetry.
        bit<1> fits = (mode == MODE_XD || place != PLACE_NONE) ? 1w1 : 1w0;
        fits = (max_hops != 0) ? fits : 1w0;
        // The first packet and every sample_every-th after it; 0 means every packet, as 1 does.
        bit<32> passed;
        watch_packets.read(passed, (bit<32>) watch_id);
        bit<1> chosen = (passed == 0) ? fits : 1w0;
        bit<32> next = passed + 1;
        next = (next >= sample_every) ? 0 : next;
        next = (fits == 1) ? next : passed;
        watch_packets.write((bit<32>) watch_id, next);
        meta.int_start = (mode == MODE_XD) ? 1w0 : chosen;
        meta.int_export = (mode == MODE_XD) ? chosen : 1w0;
        meta.int_mode = mode;
        meta.int_instructions = instructions;
        meta.int_domain_instructions = domain_instructions;
        meta.int_max_hops = max_hops;
        meta.int_discard = discard;
        number_of = watch_id;
    }

    @hidden
    action take_number() {
        watch_numbers.read(meta.int_source_number, (bit<32>) number_of);
        watch_numbers.write((bit<32>) number_of, meta.int_source_number + 1);
    }

    table ipv4_watchlist {
        key = {
            hdr.ipv4.src_addr: ternary @name("src_addr");
            hdr.ipv4.dst_addr: ternary @name("dst_addr");
            meta.protocol: ternary @name("protocol");
            meta.l4_src_port: ternary @name("src_port");
            meta.l4_dst_port: ternary @name("dst_port");
        }
        actions = {
            watch;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        size = 1024;
    }

    table ipv6_watchlist {
        key = {
            hdr.ipv6.src_addr: ternary @name("src_addr");
            hdr.ipv6.dst_addr: ternary @name("dst_addr");
            meta.protocol: ternary @name("protocol");
            meta.l4_src_port: ternary @name("src_port");
            meta.l4_dst_port: ternary @name("dst_port");
        }
        actions = {
            watch;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        size = 1024;
    }

    apply {
        place = PLACE_NONE;
        if (meta.from_edge == 1) {
            start_place.apply(hdr, meta, place);
        }
        if (hdr.ipv4.isValid()) {
            ipv4_watchlist.apply();
        } else {
            ipv6_watchlist.apply();
        }
        if (meta.int_start == 1) {
            meta.int_place = place;
            if (meta.int_domain_instructions & DOMAIN_SOURCE_NUMBER != 0) {
                take_number();
            }
        }
    }
}

#endif
