// Entries that come with the program, const and not, of every kind of key: for the tests of p4c's entries file.
// Build: p4c-bm2-ss --arch v1model -o presets.json --p4runtime-files presets.p4info.txtpb
//        --p4runtime-entries-files presets.entries.txtpb presets.p4
#include <core.p4>
#include <v1model.p4>

@p4runtime_translation("millrace.org/port", 32)
type bit<9> port_t;

header cells_t {
    bit<8> kind;
    bit<16> length;
    bit<32> address;
    bit<9> port;
    bit<7> pad;
}

struct headers_t {
    cells_t cells;
}

struct metadata_t {
    port_t port;
}

parser PresetsParser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.cells);
        meta.port = (port_t) hdr.cells.port;
        transition accept;
    }
}

control PresetsVerify(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control PresetsIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    direct_counter(CounterType.packets_and_bytes) open_hits;
    direct_counter(CounterType.packets_and_bytes) fixed_hits;

    action forward(port_t port) {
        standard.egress_spec = (bit<9>) port;
    }
    action drop() {
        mark_to_drop(standard);
    }

    table fixed {
        key = { hdr.cells.kind : exact; }
        actions = { forward; drop; }
        const default_action = drop;
        counters = fixed_hits;
        const entries = {
            1 : forward((port_t) 1);
            2 : forward((port_t) 2);
        }
    }

    table fixed_ternary {
        key = { hdr.cells.kind : ternary; hdr.cells.length : exact; }
        actions = { forward; drop; }
        const default_action = drop;
        const entries = {
            (0x10 &&& 0xf0, 1) : forward((port_t) 1);
            (0x20, 2) : forward((port_t) 2);
            (_, 1) : drop();
        }
    }

    table open {
        key = { hdr.cells.kind : exact; meta.port : exact; }
        actions = { forward; drop; }
        default_action = drop;
        counters = open_hits;
        size = 8;
        entries = {
            const (1, (port_t) 300) : forward((port_t) 300);
            (2, (port_t) 2) : forward((port_t) 2);
        }
    }

    // The entries' order is that of their priorities, not that in which they stand here.
    table ranked {
        key = { hdr.cells.kind : ternary; hdr.cells.length : range; meta.port : optional; }
        actions = { forward; drop; }
        default_action = drop;
        size = 8;
        entries = {
            const priority = 10 : (0x10 &&& 0xf0, 1..5, _) : forward((port_t) 1);
            (0x20, _, (port_t) 3) : forward((port_t) 2);
            priority = 50 : (_, 7..9, (port_t) 1) : drop();
            const priority = 1 : (_, _, _) : forward((port_t) 3);
        }
    }

    table smallest_wins {
        largest_priority_wins = false;
        priority_delta = 10;
        key = { hdr.cells.kind : ternary; }
        actions = { forward; drop; }
        default_action = drop;
        size = 8;
        entries = {
            priority = 10 : 0x10 &&& 0xf0 : forward((port_t) 1);
            const 0x02 &&& 0x0f : forward((port_t) 2);
        }
    }

    table routes {
        key = { hdr.cells.address : lpm; }
        actions = { forward; drop; }
        default_action = drop;
        size = 8;
        entries = {
            const 0x0a000000 &&& 0xff000000 : forward((port_t) 1);
            0x0a010000 &&& 0xffff0000 : forward((port_t) 2);
            _ : drop();
        }
    }

    // No packet reaches it, which p4c notices after it has written the P4Info.
    table unreached {
        key = { hdr.cells.kind : exact; }
        actions = { forward; drop; }
        default_action = drop;
        size = 8;
        entries = {
            const 1 : forward((port_t) 1);
            2 : forward((port_t) 2);
        }
    }

    apply {
        bit<8> never = 1;
        fixed.apply();
        fixed_ternary.apply();
        open.apply();
        routes.apply();
        smallest_wins.apply();
        ranked.apply();
        if (never == 2) {
            unreached.apply();
        }
        // p4c makes a table of its own of this, with entries that P4Runtime does not know.
        switch (hdr.cells.kind) {
            1: { hdr.cells.pad = 1; }
            2: { hdr.cells.pad = 2; }
            default: { }
        }
    }
}

control PresetsEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply { }
}

control PresetsCompute(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control PresetsDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.cells);
    }
}

V1Switch(PresetsParser(), PresetsVerify(), PresetsIngress(), PresetsEgress(), PresetsCompute(), PresetsDeparser()) main;
