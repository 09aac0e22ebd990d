// Forwarding: an explicit path for the packet's flow, else one for its destination, else routes with ECMP.
#ifndef P4_INGRESS_ROUTING_P4
#define P4_INGRESS_ROUTING_P4

#include "../shared/headers.p4"
#include "../shared/metadata.p4"

const bit<64> FLOW_HASH_VALUES = 64w1 << 32;

control Routing(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    counter(1, CounterType.packets_and_bytes) drop_no_route;

    @max_group_size(32)
    action_selector(HashAlgorithm.crc32, 16384, 32) ipv4_ecmp;
    @max_group_size(32)
    action_selector(HashAlgorithm.crc32, 16384, 32) ipv6_ecmp;

    action forward(@name("egress_port") port_t egress_port, @name("dst_mac") mac_t dst_mac) {
        standard_metadata.egress_spec = egress_port;
        hdr.ethernet.dst_addr = dst_mac;
        meta.routed = 1;
        meta.next_port = (bit<16>) egress_port;
    }

    bit<32> flow_hash = 0;
    bit<32> path_hash_multiplier = 0x9e3779b1;

    // CRCs are linear: with the same one at every switch, or one with a mere offset, switches behind a first choice see
    // only a part of the values. The upper half of the product with each switch's own odd number avoids that.
    action set_path_hash_multiplier(@name("multiplier") bit<32> multiplier) {
        path_hash_multiplier = multiplier;
    }

    table path_hash {
        key = { }
        actions = {
            set_path_hash_multiplier;
            @defaultonly NoAction;
        }
        default_action = NoAction();
    }

    table ipv4_flow_paths {
        key = {
            hdr.ipv4.src_addr: ternary @name("src_addr");
            hdr.ipv4.dst_addr: ternary @name("dst_addr");
            meta.protocol: ternary @name("protocol");
            meta.l4_src_port: ternary @name("src_port");
            meta.l4_dst_port: ternary @name("dst_port");
        }
        actions = {
            forward;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        size = 4096;
    }

    table ipv4_destination_paths {
        key = {
            hdr.ipv4.dst_addr: lpm @name("dst_addr");
        }
        actions = {
            forward;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        size = 4096;
    }

    table ipv4_routes {
        key = {
            hdr.ipv4.dst_addr: lpm @name("dst_addr");
            meta.path_hash: selector;
        }
        actions = {
            forward;
            @defaultonly NoAction;
        }
        implementation = ipv4_ecmp;
        size = 4096;
    }

    table ipv6_flow_paths {
        key = {
            hdr.ipv6.src_addr: ternary @name("src_addr");
            hdr.ipv6.dst_addr: ternary @name("dst_addr");
            meta.protocol: ternary @name("protocol");
            meta.l4_src_port: ternary @name("src_port");
            meta.l4_dst_port: ternary @name("dst_port");
        }
        actions = {
            forward;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        size = 4096;
    }

    table ipv6_destination_paths {
        key = {
            hdr.ipv6.dst_addr: lpm @name("dst_addr");
        }
        actions = {
            forward;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        size = 4096;
    }

    table ipv6_routes {
        key = {
            hdr.ipv6.dst_addr: lpm @name("dst_addr");
            meta.path_hash: selector;
        }
        actions = {
            forward;
            @defaultonly NoAction;
        }
        implementation = ipv6_ecmp;
        size = 4096;
    }

    apply {
        bit<1> by_route = 0;
        if (hdr.ipv4.isValid()) {
            hdr.ipv4.ttl = hdr.ipv4.ttl - 1;
            meta.decision = 1;
            if (!ipv4_flow_paths.apply().hit) {
                meta.decision = 2;
                if (!ipv4_destination_paths.apply().hit) {
                    meta.decision = 3;
                    by_route = 1;
                    hash(flow_hash, HashAlgorithm.crc32, 32w0, {
                        hdr.ipv4.src_addr,
                        hdr.ipv4.dst_addr,
                        meta.protocol,
                        meta.l4_src_port,
                        meta.l4_dst_port
                    }, FLOW_HASH_VALUES);
                }
            }
        } else {
            hdr.ipv6.hop_limit = hdr.ipv6.hop_limit - 1;
            meta.decision = 1;
            if (!ipv6_flow_paths.apply().hit) {
                meta.decision = 2;
                if (!ipv6_destination_paths.apply().hit) {
                    meta.decision = 3;
                    by_route = 1;
                    hash(flow_hash, HashAlgorithm.crc32, 32w0, {
                        hdr.ipv6.src_addr,
                        hdr.ipv6.dst_addr,
                        meta.protocol,
                        meta.l4_src_port,
                        meta.l4_dst_port
                    }, FLOW_HASH_VALUES);
                }
            }
        }
        if (by_route == 1) {
            path_hash.apply();
            bit<32> product = flow_hash * path_hash_multiplier;
            meta.path_hash = product[31:16];
            if (hdr.ipv4.isValid()) {
                ipv4_routes.apply();
            } else {
                ipv6_routes.apply();
            }
        }
        // Not the last table's miss: a route whose group has lost its last member leads nowhere either.
        if (meta.routed == 0) {
            drop_no_route.count(0);
            meta.drop_reason = DROP_NO_ROUTE;
        }
    }
}

#endif
