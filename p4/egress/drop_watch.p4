// Selects which drops are reported, and how many: packets match by flow and reason, and each watch has a quota.
#ifndef P4_EGRESS_DROP_WATCH_P4
#define P4_EGRESS_DROP_WATCH_P4

#include "../shared/headers.p4"
#include "../shared/metadata.p4"

// Runs in the clone of a dropped packet, wherever in the switch it was dropped: clears the D flag of drops that may
// not be reported, and selects the metadata of those that may.
control DropWatch(in headers_t hdr, inout metadata_t meta, in standard_metadata_t standard_metadata) {
    counter(1, CounterType.packets_and_bytes) drop_report_not_watched;
    counter(1, CounterType.packets_and_bytes) drop_report_over_quota;
    // For each watch, the window of 2^20 us of its last report, and its number of reports in that window.
    register<bit<32>>(1024) drop_window;
    register<bit<32>>(1024) drop_window_reports;

    bit<1> watched = 0;
    bit<1> allowed = 0;

    bit<16> watch;
    bit<32> most;

    action watch_drops(@name("watch_id") bit<16> watch_id, @name("quota") bit<32> quota) {
        watched = 1;
        watch = watch_id;
        most = quota;
    }

    @hidden
    action take_from_quota() {
        bit<32> now = (bit<32>) (standard_metadata.egress_global_timestamp >> 20);
        bit<32> window;
        bit<32> reports;
        drop_window.read(window, (bit<32>) watch);
        drop_window_reports.read(reports, (bit<32>) watch);
        reports = (window == now) ? reports : 0;
        // A quota of 0 means no limit.
        allowed = (most == 0 || reports < most) ? 1w1 : 1w0;
        drop_window.write((bit<32>) watch, now);
        drop_window_reports.write((bit<32>) watch, reports + (bit<32>) allowed);
    }

    table ipv4_drop_watch {
        key = {
            meta.report_drop_reason: ternary @name("reason");
            hdr.ipv4.src_addr: ternary @name("src_addr");
            hdr.ipv4.dst_addr: ternary @name("dst_addr");
            meta.protocol: ternary @name("protocol");
            meta.l4_src_port: ternary @name("src_port");
            meta.l4_dst_port: ternary @name("dst_port");
        }
        actions = {
            watch_drops;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        size = 1024;
    }

    table ipv6_drop_watch {
        key = {
            meta.report_drop_reason: ternary @name("reason");
            hdr.ipv6.src_addr: ternary @name("src_addr");
            hdr.ipv6.dst_addr: ternary @name("dst_addr");
            meta.protocol: ternary @name("protocol");
            meta.l4_src_port: ternary @name("src_port");
            meta.l4_dst_port: ternary @name("dst_port");
        }
        actions = {
            watch_drops;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        size = 1024;
    }

    // Non-IP packets, and packets too short to tell.
    table other_drop_watch {
        key = {
            meta.report_drop_reason: ternary @name("reason");
        }
        actions = {
            watch_drops;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        size = 32;
    }

    apply {
        if (hdr.ipv4.isValid()) {
            ipv4_drop_watch.apply();
        } else if (hdr.ipv6.isValid()) {
            ipv6_drop_watch.apply();
        } else {
            other_drop_watch.apply();
        }
        if (watched == 1) {
            take_from_quota();
        }
        if (watched == 0) {
            drop_report_not_watched.count(0);
            meta.report_dropped = 0;
        } else if (allowed == 0) {
            drop_report_over_quota.count(0);
            meta.report_dropped = 0;
        } else {
            meta.report_bits = meta.report_bits | DROP_METADATA_BITS;
        }
    }
}

#endif
