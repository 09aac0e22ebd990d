// A forwarder that asks: packets to a destination that has no route go to the controller, which makes one.
//
//     p4c-bm2-ss --arch v1model --p4runtime-files forwarder.p4info.txtpb -o forwarder.json forwarder.p4
#include <core.p4>
#include <v1model.p4>

const bit<9> CPU_PORT = 255;
const bit<16> TYPE_IPV4 = 0x0800;

@controller_header("packet_in")
header packet_in_t {
    bit<16> ingress_port;
}

@controller_header("packet_out")
header packet_out_t {
    bit<16> egress_port;
}

header ethernet_t {
    bit<48> dst_addr;
    bit<48> src_addr;
    bit<16> ether_type;
}

header ipv4_t {
    bit<64> before_ttl;
    bit<8> ttl;
    bit<8> protocol;
    bit<16> checksum;
    bit<32> src_addr;
    bit<32> dst_addr;
}

struct headers_t {
    packet_in_t packet_in;
    packet_out_t packet_out;
    ethernet_t ethernet;
    ipv4_t ipv4;
}

struct metadata_t {}

parser ForwarderParse(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    state start {
        transition select(standard_metadata.ingress_port) {
            CPU_PORT: parse_packet_out;
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
            TYPE_IPV4: parse_ipv4;
            default: accept;
        }
    }

    state parse_ipv4 {
        packet.extract(hdr.ipv4);
        transition accept;
    }
}

control ForwarderVerify(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control ForwarderIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    direct_counter(CounterType.packets) routed;

    action forward(bit<9> port) {
        standard_metadata.egress_spec = port;
    }

    action ask() {
        standard_metadata.egress_spec = CPU_PORT;
        hdr.packet_in.setValid();
        hdr.packet_in.ingress_port = (bit<16>) standard_metadata.ingress_port;
    }

    table routes {
        key = {
            hdr.ipv4.dst_addr: lpm @name("dst_addr");
        }
        actions = {
            forward;
            @defaultonly ask;
        }
        const default_action = ask();
        counters = routed;
        size = 1024;
    }

    apply {
        if (hdr.packet_out.isValid()) {
            standard_metadata.egress_spec = (bit<9>) hdr.packet_out.egress_port;
            hdr.packet_out.setInvalid();
        } else if (hdr.ipv4.isValid()) {
            routes.apply();
        } else {
            mark_to_drop(standard_metadata);
        }
    }
}

control ForwarderEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    apply {}
}

control ForwarderCompute(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control ForwarderDeparse(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.packet_in);
        packet.emit(hdr.ethernet);
        packet.emit(hdr.ipv4);
    }
}

V1Switch(
    ForwarderParse(),
    ForwarderVerify(),
    ForwarderIngress(),
    ForwarderEgress(),
    ForwarderCompute(),
    ForwarderDeparse()
) main;
