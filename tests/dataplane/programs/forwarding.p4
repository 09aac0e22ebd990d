// SPDX-License-Identifier: Apache-2.0
// Routing with an action selector, a ternary filter with constant entries, counters, a register and IPv4 checksums.
#include <core.p4>
#include <v1model.p4>

header ethernet_t {
    bit<48> dst_addr;
    bit<48> src_addr;
    bit<16> ether_type;
}

header ipv4_t {
    bit<4>  version;
    bit<4>  ihl;
    bit<8>  tos;
    bit<16> total_length;
    bit<16> identification;
    bit<16> fragment;
    bit<8>  ttl;
    bit<8>  protocol;
    bit<16> checksum;
    bit<32> src_addr;
    bit<32> dst_addr;
}

struct headers_t {
    ethernet_t ethernet;
    ipv4_t     ipv4;
}

struct metadata_t {}

parser Parse(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.ether_type) {
            0x0800: parse_ipv4;
            default: accept;
        }
    }
    state parse_ipv4 {
        packet.extract(hdr.ipv4);
        verify(hdr.ipv4.version == 4, error.NoMatch);
        transition accept;
    }
}

control Verify(inout headers_t hdr, inout metadata_t meta) {
    apply {
        verify_checksum(hdr.ipv4.isValid(), { hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.tos, hdr.ipv4.total_length,
            hdr.ipv4.identification, hdr.ipv4.fragment, hdr.ipv4.ttl, hdr.ipv4.protocol, hdr.ipv4.src_addr,
            hdr.ipv4.dst_addr }, hdr.ipv4.checksum, HashAlgorithm.csum16);
    }
}

control Inbound(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    action_selector(HashAlgorithm.crc16, 32w64, 32w16) ecmp;
    direct_counter(CounterType.packets_and_bytes) route_hits;
    counter(4, CounterType.packets_and_bytes) reasons;
    register<bit<16>>(8) packets_from;

    action drop(bit<32> reason) {
        reasons.count(reason);
        mark_to_drop(standard);
    }
    action forward(bit<9> port) {
        standard.egress_spec = port;
        hdr.ipv4.ttl = hdr.ipv4.ttl - 1;
    }
    action allow() {}

    table filter {
        key = {
            hdr.ipv4.src_addr: ternary;
            hdr.ipv4.protocol: ternary;
            hdr.ipv4.isValid(): exact;
        }
        actions = { allow; drop; }
        const default_action = allow();
        const entries = {
            (0x0a000000 &&& 0xff000000, 17, true): allow();
            (0x0a000000 &&& 0xff000000, _, true): drop(1);
            (_, _, false): drop(2);
        }
    }

    table routes {
        key = {
            hdr.ipv4.dst_addr: lpm;
            hdr.ipv4.src_addr: selector;
            hdr.ipv4.protocol: selector;
        }
        actions = { forward; drop; @defaultonly NoAction; }
        implementation = ecmp;
        counters = route_hits;
        size = 128;
    }

    apply {
        if (standard.checksum_error == 1) {
            drop(3);
            exit;
        }
        switch (filter.apply().action_run) {
            allow: {
                if (routes.apply().miss) {
                    drop(0);
                }
            }
        }
        bit<16> packets;
        packets_from.read(packets, (bit<32>) standard.ingress_port);
        packets_from.write((bit<32>) standard.ingress_port, packets + 1);
    }
}

control Outbound(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {
        hdr.ethernet.src_addr = (bit<48>) standard.egress_port;
    }
}

control Update(inout headers_t hdr, inout metadata_t meta) {
    apply {
        update_checksum(hdr.ipv4.isValid(), { hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.tos, hdr.ipv4.total_length,
            hdr.ipv4.identification, hdr.ipv4.fragment, hdr.ipv4.ttl, hdr.ipv4.protocol, hdr.ipv4.src_addr,
            hdr.ipv4.dst_addr }, hdr.ipv4.checksum, HashAlgorithm.csum16);
    }
}

control Deparse(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.ethernet);
        packet.emit(hdr.ipv4);
    }
}

V1Switch(Parse(), Verify(), Inbound(), Outbound(), Update(), Deparse()) main;
