// Suppresses redundant reports of tracked flows: same path through the switch, about the same latency.
#ifndef P4_EGRESS_FLOW_FILTER_P4
#define P4_EGRESS_FLOW_FILTER_P4

#include "../shared/headers.p4"
#include "../shared/metadata.p4"

// Each flow has a cell in two arrays, and is known if either holds its key. Flows that share one cell do not evict
// each other while their other cells differ; flows that share both are reported too often, never too seldom.
control FlowFilter(in headers_t hdr, inout metadata_t meta, in standard_metadata_t standard_metadata) {
    counter(1, CounterType.packets_and_bytes) flow_reports_filtered;
    // Key (a hash of flow and ports), latency and time (us) of the flow's last report, 32 bits each.
    register<bit<96>>(65536) flow_cells_1;
    register<bit<96>>(65536) flow_cells_2;

    bit<1> filtered = 0;
    bit<32> quantum_ns;
    bit<32> refresh_us;
    bit<16> first;
    bit<16> second;
    bit<32> name;

    action filter_reports(@name("quantum_ns") bit<32> quantum, @name("refresh_us") bit<32> refresh) {
        filtered = 1;
        quantum_ns = quantum;
        refresh_us = refresh;
    }

    table ipv4_flow_filter {
        key = {
            hdr.ipv4.src_addr: ternary @name("src_addr");
            hdr.ipv4.dst_addr: ternary @name("dst_addr");
            meta.protocol: ternary @name("protocol");
            meta.l4_src_port: ternary @name("src_port");
            meta.l4_dst_port: ternary @name("dst_port");
        }
        actions = {
            filter_reports;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        size = 1024;
    }

    table ipv6_flow_filter {
        key = {
            hdr.ipv6.src_addr: ternary @name("src_addr");
            hdr.ipv6.dst_addr: ternary @name("dst_addr");
            meta.protocol: ternary @name("protocol");
            meta.l4_src_port: ternary @name("src_port");
            meta.l4_dst_port: ternary @name("dst_port");
        }
        actions = {
            filter_reports;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        size = 1024;
    }

    @hidden
    action hash_ipv4() {
        hash(first, HashAlgorithm.crc16, 16w0, {
            hdr.ipv4.src_addr, hdr.ipv4.dst_addr, meta.protocol, meta.l4_src_port, meta.l4_dst_port
        }, 32w0x10000);
        hash(second, HashAlgorithm.crc16, 16w0, {
            meta.l4_dst_port, meta.l4_src_port, meta.protocol, hdr.ipv4.dst_addr, hdr.ipv4.src_addr
        }, 32w0x10000);
        hash(name, HashAlgorithm.crc32, 32w0, {
            hdr.ipv4.src_addr, hdr.ipv4.dst_addr, meta.protocol, meta.l4_src_port, meta.l4_dst_port,
            meta.hop_ingress_port, meta.hop_egress_port
        }, 64w0x100000000);
    }

    @hidden
    action hash_ipv6() {
        hash(first, HashAlgorithm.crc16, 16w0, {
            hdr.ipv6.src_addr, hdr.ipv6.dst_addr, meta.protocol, meta.l4_src_port, meta.l4_dst_port
        }, 32w0x10000);
        hash(second, HashAlgorithm.crc16, 16w0, {
            meta.l4_dst_port, meta.l4_src_port, meta.protocol, hdr.ipv6.dst_addr, hdr.ipv6.src_addr
        }, 32w0x10000);
        hash(name, HashAlgorithm.crc32, 32w0, {
            hdr.ipv6.src_addr, hdr.ipv6.dst_addr, meta.protocol, meta.l4_src_port, meta.l4_dst_port,
            meta.hop_ingress_port, meta.hop_egress_port
        }, 64w0x100000000);
    }

    @hidden
    action look_up() {
        bit<32> now = (bit<32>) standard_metadata.egress_global_timestamp;
        bit<96> last;
        bit<96> other;
        flow_cells_1.read(last, (bit<32>) first);
        flow_cells_2.read(other, (bit<32>) second);
        last = (last[95:64] == name) ? last : other;
        bit<32> change = (meta.hop_latency_ns > last[63:32])
            ? meta.hop_latency_ns - last[63:32]
            : last[63:32] - meta.hop_latency_ns;
        if (last[95:64] != name || change >= quantum_ns || now - last[31:0] >= refresh_us) {
            filtered = 0;
            last = name ++ meta.hop_latency_ns ++ now;
            flow_cells_1.write((bit<32>) first, last);
            flow_cells_2.write((bit<32>) second, last);
        }
    }

    apply {
        if (hdr.ipv4.isValid()) {
            ipv4_flow_filter.apply();
        } else {
            ipv6_flow_filter.apply();
        }
        if (filtered == 1) {
            if (hdr.ipv4.isValid()) {
                hash_ipv4();
            } else {
                hash_ipv6();
            }
            look_up();
        }
        if (filtered == 1) {
            // The packet may still be cloned: for reports that wait, or because it was dropped.
            meta.report_wanted = meta.report_dropped;
            meta.report_tracked = 0;
            flow_reports_filtered.count(0);
        }
    }
}

#endif
