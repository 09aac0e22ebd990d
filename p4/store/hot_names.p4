// Names requested often and not stored here: the controller is notified, once per interval.
#ifndef P4_STORE_HOT_NAMES_P4
#define P4_STORE_HOT_NAMES_P4

#include "../shared/headers.p4"

#define STORE_SKETCH_CELLS 16384

struct hot_name_t {
    bit<128> name;
    bit<32>  segment;
    bit<16>  requests;
    bit<16>  interval;
    bit<32>  producer;
}

// A row of a count-min sketch. A cell is interval15 told1 count16: with another interval's number it is empty, so that
// nothing needs clearing. The `told` bits form a Bloom filter.
control SketchRow(in bit<32> place, in bit<15> interval, in bit<1> tell, inout bit<16> count, inout bit<1> told) {
    register<bit<32>>(STORE_SKETCH_CELLS) store_sketch;
    bit<32> cell;

    @hidden
    action fetch() {
        store_sketch.read(cell, place);
        count = cell[15:0];
        told = cell[16:16];
    }

    @hidden
    action keep() {
        store_sketch.write(place, interval ++ told ++ count);
    }

    apply {
        if (tell == 1) {
            told = 1;
        } else {
            fetch();
            if (cell[31:17] != interval) {
                count = 0;
                told = 0;
            }
            count = count |+| 1;
        }
        keep();
    }
}

control HotNames(in store_t asked, in bit<32> producer, in bit<1> announced) {
    SketchRow() row0;
    SketchRow() row1;
    SketchRow() row2;

    bit<15> interval = 0;
    bit<16> threshold = 0;
    bit<16> count0;
    bit<16> count1;
    bit<16> count2;
    bit<1> told0;
    bit<1> told1;
    bit<1> told2;

    // The controller numbers the intervals.
    action find_hot(@name("interval") bit<15> number, @name("threshold") bit<16> requests) {
        interval = number;
        threshold = requests;
    }

    table store_hot_names {
        actions = {
            find_hot;
            @defaultonly NoAction;
        }
        default_action = NoAction();
    }

    bit<1> report;
    bit<16> least = 0;

    apply {
        report = announced;
        if (announced == 0) {
            store_hot_names.apply();
        }
        if (threshold != 0) {
            // The name is a hash; its segments are spread by a multiplier per row.
            bit<32> mixed0 = asked.name[31:0] + asked.segment * 0x9e3779b1;
            bit<32> mixed1 = asked.name[63:32] + asked.segment * 0x85ebca6b;
            bit<32> mixed2 = asked.name[95:64] + asked.segment * 0xc2b2ae35;
            bit<32> place0 = mixed0 >> 18;
            bit<32> place1 = mixed1 >> 18;
            bit<32> place2 = mixed2 >> 18;
            row0.apply(place0, interval, 0, count0, told0);
            row1.apply(place1, interval, 0, count1, told1);
            row2.apply(place2, interval, 0, count2, told2);
            least = count0;
            if (count1 < least) {
                least = count1;
            }
            if (count2 < least) {
                least = count2;
            }
            if (least >= threshold && told0 & told1 & told2 == 0) {
                row0.apply(place0, interval, 1, count0, told0);
                row1.apply(place1, interval, 1, count1, told1);
                row2.apply(place2, interval, 1, count2, told2);
                report = 1;
            }
        }
        // An announcement has no requests.
        if (report == 1) {
            hot_name_t hot = { asked.name, asked.segment, least, (bit<16>) interval, producer };
            digest<hot_name_t>(1, hot);
        }
    }
}

#endif
