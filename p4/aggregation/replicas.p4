// Copies of a result, one for each child, and marking for senders when queues are long.
#ifndef P4_AGGREGATION_REPLICAS_P4
#define P4_AGGREGATION_REPLICAS_P4

#include "../shared/headers.p4"
#include "../shared/metadata.p4"

control Replicas(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    action address(@name("dst_mac") mac_t dst_mac, @name("dst_addr") bit<32> dst_addr, @name("dst_port") bit<16> port) {
        hdr.ethernet.dst_addr = dst_mac;
        hdr.ipv4.dst_addr = dst_addr;
        hdr.udp.dst_port = port;
        meta.next_port = (bit<16>) standard_metadata.egress_port;
    }

    counter(1, CounterType.packets_and_bytes) drop_no_replica;

    action nobody() {
        mark_to_drop(standard_metadata);
        drop_no_replica.count(0);
        exit;
    }

    table aggregation_replicas {
        key = {
            hdr.aggregation.job: exact @name("job");
            standard_metadata.egress_rid: exact @name("replica");
        }
        actions = {
            address;
            nobody;
        }
        const default_action = nobody();
        size = 4096;
    }

    apply {
        aggregation_replicas.apply();
    }
}

control Congestion(inout headers_t hdr, in standard_metadata_t standard_metadata) {
    bit<19> threshold = 0x7ffff;

    // RFC 3168: ECN-capable packets behind this many frames or more are marked.
    action mark_from(@name("queue_frames") bit<19> frames) {
        threshold = frames;
    }

    table congestion {
        actions = {
            mark_from;
            @defaultonly NoAction;
        }
        default_action = NoAction();
    }

    // Most packets cannot be marked, so the threshold is not looked up for them.
    apply {
        if ((hdr.ipv4.isValid() && hdr.ipv4.ecn != 0) || (hdr.ipv6.isValid() && hdr.ipv6.ecn != 0)) {
            congestion.apply();
            if (standard_metadata.enq_qdepth >= threshold) {
                if (hdr.ipv4.isValid()) {
                    hdr.ipv4.ecn = ECN_CE;
                } else {
                    hdr.ipv6.ecn = ECN_CE;
                }
            }
        }
    }
}

#endif
