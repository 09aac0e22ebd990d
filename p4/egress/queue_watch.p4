// Congested queues: packets that meet one are reported, up to a quota per episode of congestion.
#ifndef P4_EGRESS_QUEUE_WATCH_P4
#define P4_EGRESS_QUEUE_WATCH_P4

#include "../shared/latency.p4"
#include "../shared/metadata.p4"

// An episode begins at a threshold and ends when all readings are below their lower thresholds: a queue that oscillates
// around one value is a single episode, whose quota is not refilled.
control QueueWatch(inout metadata_t meta, in standard_metadata_t standard_metadata) {
    counter(1, CounterType.packets_and_bytes) queue_reports;
    counter(1, CounterType.packets_and_bytes) queue_report_over_quota;
    // For each port and queue: 0, or during an episode one plus the remaining reports of its quota.
    register<bit<32>>(4096) queue_quota_left;

    bit<1> congested = 0;
    bit<1> reported = 0;

    action watch_queue(
        @name("occupancy") bit<24> occupancy,
        @name("latency_ns") bit<32> latency_ns,
        @name("clear_occupancy") bit<24> clear_occupancy,
        @name("clear_latency_ns") bit<32> clear_latency_ns,
        @name("quota") bit<16> quota
    ) {
        // A threshold of 0 means none.
        bit<24> found = (bit<24>) standard_metadata.enq_qdepth;
        bit<32> passage_ns = latency_between(
            standard_metadata.ingress_global_timestamp, standard_metadata.egress_global_timestamp
        );
        bit<1> full = (occupancy != 0 && found >= occupancy) ? 1w1 : 1w0;
        bit<1> slow = (latency_ns != 0 && passage_ns >= latency_ns) ? 1w1 : 1w0;
        bit<1> not_empty = (occupancy != 0 && found >= clear_occupancy) ? 1w1 : 1w0;
        bit<1> not_fast = (latency_ns != 0 && passage_ns >= clear_latency_ns) ? 1w1 : 1w0;
        bit<32> cell = ((bit<32>) standard_metadata.egress_port << 3) | (bit<32>) standard_metadata.priority;
        bit<32> left;
        queue_quota_left.read(left, cell);
        left = (left == 0 && full | slow == 1) ? (bit<32>) quota + 1 : left;
        left = (not_empty | not_fast == 0) ? 0 : left;
        congested = (left != 0) ? 1w1 : 1w0;
        // Reports in transit must not use up the quota of the queue's victims.
        reported = (left > 1 && meta.is_report == 0) ? 1w1 : 1w0;
        queue_quota_left.write(cell, left - (bit<32>) reported);
    }

    table queue_watch {
        key = {
            standard_metadata.egress_port: exact @name("egress_port");
            ((bit<8>) standard_metadata.priority): exact @name("queue_id");
        }
        actions = {
            watch_queue;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        size = 4096;
    }

    apply {
        queue_watch.apply();
        if (reported == 1) {
            meta.report_wanted = 1;
            meta.report_congested = 1;
            meta.report_bits = meta.report_bits | QUEUE_METADATA_BITS;
            queue_reports.count(0);
        } else if (congested == 1 && meta.is_report == 0) {
            queue_report_over_quota.count(0);
        }
    }
}

#endif
