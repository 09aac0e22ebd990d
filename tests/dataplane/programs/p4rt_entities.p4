// Every kind of entity that P4Runtime names, for the tests of tables and P4Runtime.
// Build: p4c-bm2-ss --arch v1model -o p4rt_entities.json --p4runtime-files p4rt_entities.p4info.txtpb p4rt_entities.p4
#include <core.p4>
#include <v1model.p4>

@controller_header("packet_in")
header packet_in_t {
    bit<9> ingress_port;
    bit<7> pad;
}

@controller_header("packet_out")
header packet_out_t {
    bit<9> egress_port;
    bit<7> pad;
}

header ethernet_t {
    bit<48> dst;
    bit<48> src;
    bit<16> ether_type;
}

struct headers_t {
    packet_in_t packet_in;
    packet_out_t packet_out;
    ethernet_t ethernet;
}

struct metadata_t {
    bit<16> class;
    bit<2> color;
    bit<2> hit_color;
}

struct learned_t {
    bit<48> address;
    bit<9> port;
}

parser EntitiesParser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    value_set<bit<16>>(4) control_types;

    state start {
        transition select(std.ingress_port) {
            255: parse_packet_out;
            default: parse_ethernet;
        }
    }
    state parse_packet_out {
        packet.extract(hdr.packet_out);
        transition parse_ethernet;
    }
    state parse_ethernet {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.ether_type) {
            control_types: parse_control;
            default: accept;
        }
    }
    state parse_control {
        meta.class = 7;
        transition accept;
    }
}

control NoVerify(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control EntitiesIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    direct_counter(CounterType.packets_and_bytes) hits;
    direct_meter<bit<2>>(MeterType.bytes) entry_meter;
    meter(4, MeterType.packets) port_meter;
    register<bit<200>>(2) wide_cells;
    counter(8, CounterType.packets_and_bytes) port_counter;
    register<bit<32>>(4) cells;
    register<int<16>>(4) signed_cells;
    action_profile(8) next_hops;
    @max_group_size(4)
    action_selector(HashAlgorithm.crc16, 16, 16) ecmp;

    action forward(bit<9> port) {
        std.egress_spec = port;
    }
    action set_class(bit<16> class) {
        meta.class = class;
    }
    action drop() {
        mark_to_drop(std);
    }
    action forward_metered(bit<9> port) {
        std.egress_spec = port;
        entry_meter.read(meta.hit_color);
    }

    table exact_table {
        key = { hdr.ethernet.dst: exact; std.ingress_port: exact; }
        actions = { forward; @defaultonly drop; @tableonly set_class; }
        default_action = drop();
        counters = hits;
        size = 4;
    }
    table lpm_table {
        key = { hdr.ethernet.src: exact; hdr.ethernet.dst: lpm; }
        actions = { forward; drop; }
        const default_action = drop();
    }
    table mixed_table {
        key = {
            hdr.ethernet.dst: ternary;
            hdr.ethernet.ether_type: range;
            std.ingress_port: optional;
            hdr.ethernet.src: lpm;
            meta.class: exact;
        }
        actions = { forward; drop; NoAction; }
        size = 64;
    }
    table const_table {
        key = { hdr.ethernet.ether_type: ternary; }
        actions = { set_class; NoAction; }
        const entries = {
            0x0800: set_class(4);
            0x86dd &&& 0xffff: set_class(6);
            _: NoAction();
        }
    }
    table profile_table {
        key = { hdr.ethernet.dst: exact; }
        actions = { forward; drop; }
        implementation = next_hops;
    }
    table selector_table {
        key = { hdr.ethernet.dst: lpm; hdr.ethernet.src: selector; hdr.ethernet.ether_type: selector; }
        actions = { forward; drop; }
        implementation = ecmp;
        size = 16;
    }
    table aging_table {
        key = { hdr.ethernet.src: exact; }
        actions = { forward_metered; NoAction; }
        default_action = NoAction();
        meters = entry_meter;
        support_timeout = true;
        size = 8;
    }
    table preset_table {
        key = { hdr.ethernet.ether_type: exact; }
        actions = { set_class; NoAction; }
        entries = {
            const 0x0800: set_class(4);
            0x0806: set_class(8);
        }
    }
    table keyless {
        actions = { forward; drop; }
        default_action = drop();
    }

    apply {
        const_table.apply();
        preset_table.apply();
        port_meter.execute_meter((bit<32>) std.ingress_port, meta.color);
        bit<200> wide;
        wide_cells.read(wide, 0);
        wide_cells.write(0, wide | 1);
        port_counter.count((bit<32>) std.ingress_port);
        bit<32> seen;
        cells.read(seen, 0);
        cells.write(0, seen + 1);
        signed_cells.write(0, -1);
        if (hdr.packet_out.isValid()) {
            std.egress_spec = hdr.packet_out.egress_port;
            hdr.packet_out.setInvalid();
        } else if (hdr.ethernet.ether_type == 0x88cc) {
            std.egress_spec = 255;
            hdr.packet_in.setValid();
            hdr.packet_in.ingress_port = std.ingress_port;
            hdr.packet_in.pad = 0;
        } else if (aging_table.apply().hit) {
            digest<learned_t>(1, { hdr.ethernet.src, std.ingress_port });
        } else if (!exact_table.apply().hit) {
            if (!lpm_table.apply().hit) {
                if (!mixed_table.apply().hit) {
                    if (!profile_table.apply().hit) {
                        if (!selector_table.apply().hit) {
                            keyless.apply();
                        }
                    }
                }
            }
        }
    }
}

control EntitiesEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    apply { }
}

control EntitiesDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.packet_in);
        packet.emit(hdr.ethernet);
    }
}

V1Switch(EntitiesParser(), NoVerify(), EntitiesIngress(), EntitiesEgress(), NoVerify(), EntitiesDeparser()) main;
