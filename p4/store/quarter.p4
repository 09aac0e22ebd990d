// 256 bytes of each content stored in the switch.
#ifndef P4_STORE_QUARTER_P4
#define P4_STORE_QUARTER_P4

#include "../aggregation/headers.p4"
#include "headers.p4"

control StoredQuarter(in bit<1> read, in bit<1> write, in bit<32> cell, inout lanes_t lanes) {
    register<lanes_t>(STORE_CELLS) store_values;

    @hidden
    action fetch() {
        store_values.read(lanes, cell);
    }

    @hidden
    action keep() {
        store_values.write(cell, lanes);
    }

    apply {
        if (read == 1) {
            fetch();
        } else if (write == 1) {
            keep();
        }
    }
}

#endif
