// INT source, first half: which packets from hosts start to carry telemetry. Egress inserts the headers.
#ifndef P4_INGRESS_INT_WATCH_P4
#define P4_INGRESS_INT_WATCH_P4

#include "../shared/headers.p4"
#include "../shared/metadata.p4"

control IntWatch(in headers_t hdr, inout metadata_t meta) {
    // How many packets each watch has let pass since its last sample.
    register<bit<32>>(65536) watch_packets;

    action watch(
        @name("watch_id") bit<16> watch_id,
        @name("sample_every") bit<32> sample_every,
        @name("instructions") bit<16> instructions,
        @name("max_hops") bit<8> max_hops,
        @name("hop_by_hop") bit<1> hop_by_hop
    ) {
        // The first packet and every sample_every-th after it; 0 means every packet, as 1 does. No hops, no telemetry.
        bit<32> passed;
        watch_packets.read(passed, (bit<32>) watch_id);
        meta.int_start = (passed == 0 && max_hops != 0) ? 1w1 : 1w0;
        passed = passed + 1;
        passed = (passed >= sample_every) ? 0 : passed;
        watch_packets.write((bit<32>) watch_id, passed);
        meta.int_instructions = instructions;
        meta.int_max_hops = max_hops;
        meta.int_hop_by_hop = hop_by_hop;
    }

    table ipv4_watchlist {
        key = {
            hdr.ipv4.src_addr: ternary @name("src_addr");
            hdr.ipv4.dst_addr: ternary @name("dst_addr");
            hdr.ipv4.protocol: ternary @name("protocol");
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
            hdr.ipv6.next_header: ternary @name("protocol");
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
        // A TCP checksum of 0xffff is a second spelling of 0, and the sink could not tell which one to restore.
        if (hdr.udp.isValid() || (hdr.tcp.isValid() && hdr.tcp.checksum != 0xffff)) {
            if (hdr.ipv4.isValid()) {
                ipv4_watchlist.apply();
            } else {
                ipv6_watchlist.apply();
            }
        }
    }
}

#endif
