// SPDX-License-Identifier: Apache-2.0
// Everything a parser can do: stacks, varbits, lookahead, advance, masks in select, verify. The egress port is 1; the
// deparser writes a report of what was found in front of what it has parsed.
#include <core.p4>
#include <v1model.p4>

error { BadKind }

header report_t {
    bit<8>  parser_error;
    bit<8>  labels;
    bit<8>  peeked;
    bit<8>  picked;
    bit<32> packet_length;
}

header kind_t {
    bit<8> kind;
    bit<8> argument;
}

header label_t {
    bit<7> value;
    bit<1> last;
}

header options_t {
    bit<4>      version;
    bit<4>      words;
    varbit<64>  data;
    bit<8>      tail;
}

struct headers_t {
    report_t   report;
    kind_t     kind;
    label_t[3] labels;
    options_t  options;
    options_t  spare;
}

struct metadata_t {
    bit<8> peeked;
    bit<8> labels;
}

parser Parse(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.kind);
        transition select(hdr.kind.kind, hdr.kind.argument) {
            (1, _): parse_label;
            (2, _): parse_options;
            (3, 0x80 &&& 0xf0): skip;
            (4, 5 .. 9): accept;
            (0xee, _): failed;
            (0xc0 .. 0xcf, _): accept;
        }
    }
    state parse_label {
        packet.extract(hdr.labels.next);
        meta.labels = meta.labels + 1;
        transition select(hdr.labels.last.last) {
            0: parse_label;
            default: accept;
        }
    }
    state parse_options {
        bit<8> first = packet.lookahead<bit<8>>();
        meta.peeked = first;
        packet.extract(hdr.options, (bit<32>) (first & 0xf) << 3);
        transition accept;
    }
    state skip {
        packet.advance((bit<32>) (hdr.kind.argument & 0xf) * 8);
        transition parse_label;
    }
    state failed {
        verify(hdr.kind.argument == 0, error.BadKind);
        transition accept;
    }
}

control Verify(inout headers_t hdr, inout metadata_t meta) { apply {} }

control Inbound(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {
        standard.egress_spec = 1;
        hdr.report.setValid();
        hdr.report.packet_length = standard.packet_length;
        hdr.report.labels = meta.labels;
        hdr.report.peeked = meta.peeked;
        if (standard.parser_error == error.NoError) {
            hdr.report.parser_error = 0;
        } else if (standard.parser_error == error.PacketTooShort) {
            hdr.report.parser_error = 1;
        } else if (standard.parser_error == error.StackOutOfBounds) {
            hdr.report.parser_error = 2;
        } else if (standard.parser_error == error.NoMatch) {
            hdr.report.parser_error = 3;
        } else if (standard.parser_error == error.HeaderTooShort) {
            hdr.report.parser_error = 4;
        } else if (standard.parser_error == error.BadKind) {
            hdr.report.parser_error = 5;
        } else {
            hdr.report.parser_error = 255;
        }
        if (hdr.kind.kind == 1 && hdr.kind.argument < 0x10) {
            hdr.report.picked = (bit<8>) hdr.labels[(bit<2>) hdr.kind.argument].value;
        }
        if (hdr.kind.argument == 0x21) {
            hdr.labels.push_front(1);
            hdr.labels[0].setValid();
            hdr.labels[0].value = 0x55;
        } else if (hdr.kind.argument == 0x22) {
            hdr.labels.pop_front(1);
        } else if (hdr.kind.argument == 0x23) {
            hdr.labels.push_front(5);
        } else if (hdr.kind.argument == 0x24) {
            hdr.spare = hdr.options;
            hdr.options.setInvalid();
        }
    }
}

control Outbound(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {
        // As at the start of egress: what ingress has added and taken away counts.
        hdr.report.packet_length = standard.packet_length;
    }
}

control Update(inout headers_t hdr, inout metadata_t meta) { apply {} }

control Deparse(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.report);
        packet.emit(hdr.kind);
        packet.emit(hdr.labels);
        packet.emit(hdr.options);
        packet.emit(hdr.spare);
    }
}

V1Switch(Parse(), Verify(), Inbound(), Outbound(), Update(), Deparse()) main;
