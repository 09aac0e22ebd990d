// INT source and INT-XD, first half: selects packets to carry telemetry or to be reported; egress carries it out.
#ifndef P4_INGRESS_INT_WATCH_P4
#define P4_INGRESS_INT_WATCH_P4

#include "../shared/headers.p4"
#include "../shared/metadata.p4"
#include "int_start_place.p4"

control IntWatch(in headers_t hdr, inout metadata_t meta) {
    // Packets skipped by each watch since its last sample.
    register<bit<32>>(65536) watch_packets;

    IntStartPlace() start_place;

    int_place_t place;
    bit<1> watched = 0;
    bit<32> one_in;
    bit<32> identity;
    bit<32> sequence;
    bit<16> checksum;
    bit<32> packet_hash;

    action watch(
        @name("watch_id") bit<16> watch_id,
        @name("sample_every") bit<32> sample_every,
        @name("instructions") bit<16> instructions,
        @name("max_hops") bit<8> max_hops,
        @name("mode") int_mode_t mode,
        @name("domain_instructions") bit<16> domain_instructions,
        @name("discard") bit<1> discard
    ) {
        // No hops, no telemetry.
        watched = (max_hops != 0) ? 1w1 : 1w0;
        one_in = sample_every;
        meta.int_watch_id = watch_id;
        meta.int_mode = mode;
        meta.int_instructions = instructions;
        meta.int_domain_instructions = domain_instructions;
        meta.int_max_hops = max_hops;
        meta.int_discard = discard;
    }

    // The first packet and every `one_in`-th after it; 0 means every packet, as 1 does.
    @hidden
    action choose_by_count() {
        bit<32> passed;
        watch_packets.read(passed, (bit<32>) meta.int_watch_id);
        meta.int_start = (passed == 0) ? 1w1 : 1w0;
        bit<32> next = passed + 1;
        watch_packets.write((bit<32>) meta.int_watch_id, (next >= one_in) ? 0 : next);
    }

    // Distinguishes packets of a flow, and is the same at every switch.
    @hidden
    action identify() {
        identity = hdr.ipv4.isValid()
            ? hdr.ipv4.identification ++ 3w0 ++ hdr.ipv4.fragment_offset
            : (bit<32>) hdr.ipv6.flow_label;
        sequence = hdr.tcp.isValid() ? hdr.tcp.sequence : 32w0;
        checksum = hdr.udp.isValid() ? hdr.udp.checksum : 16w0;
        checksum = hdr.tcp.isValid() ? hdr.tcp.checksum : checksum;
    }

    @hidden
    action hash_ipv4() {
        hash(packet_hash, HashAlgorithm.crc32, 32w0, {
            hdr.ipv4.src_addr, hdr.ipv4.dst_addr, meta.protocol, meta.l4_src_port, meta.l4_dst_port,
            identity, sequence, checksum, meta.ip_payload_bytes
        }, 64w0x100000000);
    }

    @hidden
    action hash_ipv6() {
        hash(packet_hash, HashAlgorithm.crc32, 32w0, {
            hdr.ipv6.src_addr, hdr.ipv6.dst_addr, meta.protocol, meta.l4_src_port, meta.l4_dst_port,
            identity, sequence, checksum, meta.ip_payload_bytes
        }, 64w0x100000000);
    }

    // One in `one_in` hash values: CRCs are linear, and their products with an odd number are distributed better.
    @hidden
    action choose_by_hash() {
        bit<32> mixed = packet_hash * 0x9e3779b1;
        bit<64> product = (bit<64>) mixed * (bit<64>) one_in;
        meta.int_export = (product[63:32] == 0) ? 1w1 : 1w0;
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
        if (hdr.ipv4.isValid()) {
            ipv4_watchlist.apply();
        } else {
            ipv6_watchlist.apply();
        }
        if (watched == 1) {
            if (meta.int_mode == MODE_XD) {
                // All switches select the same packets, so that each has reports of its whole path.
                identify();
                if (hdr.ipv4.isValid()) {
                    hash_ipv4();
                } else {
                    hash_ipv6();
                }
                choose_by_hash();
            } else if (meta.from_edge == 1) {
                // Sources are at the domain's edge, and the packet needs room for INT.
                start_place.apply(hdr, meta, place);
                if (place != PLACE_NONE) {
                    choose_by_count();
                    meta.int_place = (meta.int_start == 1) ? place : PLACE_NONE;
                }
            }
        }
    }
}

#endif
