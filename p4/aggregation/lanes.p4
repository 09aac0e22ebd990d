// 256 bytes of values in the switch: 64 lanes of int32 to add, or 128 lanes of 16 bits of which the maximum is kept.
#ifndef P4_AGGREGATION_LANES_P4
#define P4_AGGREGATION_LANES_P4

#include "headers.p4"

// All lanes are in one wide word, so a lane's arithmetic must not carry into its neighbour: each lane's first bit is
// masked out before words are added or subtracted, and computed separately.
#define LANES4(lane) lane ++ lane ++ lane ++ lane
#define LANES16(lane) LANES4(lane) ++ LANES4(lane) ++ LANES4(lane) ++ LANES4(lane)
#define LANES64(lane) LANES16(lane) ++ LANES16(lane) ++ LANES16(lane) ++ LANES16(lane)

const lanes_t FIRST_OF_32 = LANES64(32w0x80000000);
const lanes_t FIRST_OF_16 = LANES64(32w0x80008000);

control Lanes(
    in bit<1> read,
    in bit<1> combine,
    in bit<1> write,
    in bit<4> operation,
    in bit<32> cell,
    inout lanes_t lanes,
    inout bit<1> saturated
) {
    register<lanes_t>(AGGREGATION_CELLS) aggregation_lanes;

    lanes_t old;
    lanes_t sum;
    lanes_t over;
    lanes_t mask;

    @hidden
    action fetch() {
        aggregation_lanes.read(old, cell);
    }

    @hidden
    action keep() {
        aggregation_lanes.write(cell, lanes);
    }

    @hidden
    action add() {
        sum = ((lanes & ~FIRST_OF_32) + (old & ~FIRST_OF_32)) ^ ((lanes ^ old) & FIRST_OF_32);
        over = ~(lanes ^ old) & (lanes ^ sum) & FIRST_OF_32;
    }

    // Two values of one sign with a sum of the other: saturate at the greatest or the least value.
    @hidden
    action bound() {
        mask = (over - (over >> 31)) | over;
        lanes = (sum & ~mask) | ((((old & FIRST_OF_32) >> 31) + ~FIRST_OF_32) & mask);
        saturated = 1;
    }

    @hidden
    action greater() {
        over = (((lanes & ~old) | (~(lanes ^ old) & ((lanes | FIRST_OF_16) - (old & ~FIRST_OF_16)))) & FIRST_OF_16);
        mask = (over - (over >> 15)) | over;
        lanes = (lanes & mask) | (old & ~mask);
    }

    apply {
        if (read == 1) {
            fetch();
            if (combine == 0) {
                lanes = old;
            } else if (operation == OPERATION_MAX) {
                greater();
            } else {
                add();
                if (over != 0) {
                    bound();
                } else {
                    lanes = sum;
                }
            }
        }
        if (write == 1) {
            keep();
        }
    }
}

#endif
