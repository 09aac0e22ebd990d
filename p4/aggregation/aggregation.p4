// In-switch sums for workers: the slot protocol of dataplane/allreduce/reference/aggregator.py.
#ifndef P4_AGGREGATION_AGGREGATION_P4
#define P4_AGGREGATION_AGGREGATION_P4

#include "../shared/headers.p4"
#include "../shared/metadata.p4"
#include "completions.p4"
#include "lanes.p4"

const bit<8> AGGREGATION_TTL = 64;

enum bit<3> sender_t {
    NONE = 0,
    CHILD = 1,
    PARENT = 2,
    SERVER = 3
}

// Outcome of a packet: the index of its counter.
const bit<32> OUTCOME_STALE = 0;
const bit<32> OUTCOME_AGAIN = 1;
const bit<32> OUTCOME_EPOCH = 2;
const bit<32> OUTCOME_MISMATCH = 3;
const bit<32> OUTCOME_REPEATED = 4;
const bit<32> OUTCOME_OPENED = 5;
const bit<32> OUTCOME_ADDED = 6;
const bit<32> OUTCOME_COMPLETE = 7;
const bit<32> OUTCOME_FORGED = 8;

enum bit<3> answer_t {
    NOTHING = 0,
    BACK = 1,
    ALL = 2,
    UP = 3
}

control Aggregation(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    counter(9, CounterType.packets_and_bytes) aggregation_outcomes;
    register<cell_t>(AGGREGATION_CELLS) aggregation_cells;
    // The newest item of a job, stored at the job's first cell.
    register<bit<32>>(AGGREGATION_CELLS) aggregation_newest;
    Lanes() lanes0;
    Lanes() lanes1;
    Lanes() lanes2;
    Lanes() lanes3;
    Completions() completions;

    // Packets received from each child and from the parent.
    direct_counter(CounterType.packets_and_bytes) aggregation_peer_packets;

    sender_t sender = sender_t.NONE;
    bit<64> child = 0;
    bit<8> child_number = 0;

    bit<64> nonce;
    bit<16> epoch;
    bit<64> children;
    bit<32> first_cell;
    bit<32> last_cell;
    bit<1> leaf;
    bit<16> group;
    bit<16> group_with_server;
    bit<32> parent;

    bit<32> place;
    cell_t cell;
    bit<1> done;
    bit<16> cell_epoch;
    bit<32> cell_item;
    bit<64> seen;
    bit<16> workers;
    bit<8> flags;
    bit<4> operation;
    bit<4> quarters;
    bit<16> repeated;
    bit<48> opened_us;
    bit<64> check;
    bit<32> newest;
    bit<1> all_in = 0;

    bit<32> outcome = OUTCOME_STALE;
    answer_t answer = answer_t.NOTHING;
    bit<1> read = 0;
    bit<1> combine = 0;
    bit<1> write = 0;
    bit<1> saturated = 0;

    // A child's number is its bit in the job's mask, so that none can speak for another. PULL needs none.
    action from_child(@name("number") bit<6> number) {
        sender = sender_t.CHILD;
        child = 64w1 << number;
        child_number = (bit<8>) number;
    }

    // The job's main server has no bit: it requests results, and distributes.
    action from_server() {
        sender = sender_t.SERVER;
    }

    action from_parent() {
        sender = sender_t.PARENT;
    }

    // The UDP port tells a worker from an earlier one on the same host, which may still be running.
    table aggregation_peers {
        key = {
            hdr.ipv4.src_addr: exact @name("src_addr");
            hdr.ipv4.dst_addr: exact @name("dst_addr");
            hdr.aggregation.job: exact @name("job");
            hdr.udp.src_port: ternary @name("src_port");
            standard_metadata.ingress_port: ternary @name("ingress_port");
        }
        actions = {
            from_child;
            from_server;
            from_parent;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        counters = aggregation_peer_packets;
        size = 4096;
    }

    // A single entry, so that children and epoch change at once. `cells` is a power of two, twice the window.
    action add_up(
        @name("nonce") bit<64> job_nonce,
        @name("epoch") bit<16> job_epoch,
        @name("children") bit<64> mask,
        @name("first_cell") bit<32> first,
        @name("last_cell") bit<32> last,
        @name("group") bit<16> multicast_group,
        @name("group_with_server") bit<16> multicast_group_with_server
    ) {
        nonce = job_nonce;
        epoch = job_epoch;
        children = mask;
        first_cell = first;
        last_cell = last;
        group = multicast_group;
        group_with_server = multicast_group_with_server;
        leaf = 0;
        parent = 0;
    }

    action add_up_for(
        @name("nonce") bit<64> job_nonce,
        @name("epoch") bit<16> job_epoch,
        @name("children") bit<64> mask,
        @name("first_cell") bit<32> first,
        @name("last_cell") bit<32> last,
        @name("group") bit<16> multicast_group,
        @name("parent") bit<32> parent_address
    ) {
        nonce = job_nonce;
        epoch = job_epoch;
        children = mask;
        first_cell = first;
        last_cell = last;
        group = multicast_group;
        group_with_server = multicast_group;
        leaf = 1;
        parent = parent_address;
    }

    table aggregation_jobs {
        key = {
            hdr.aggregation.job: exact @name("job");
        }
        actions = {
            add_up;
            add_up_for;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        size = 256;
    }

    @hidden
    action fetch() {
        place = first_cell + (hdr.aggregation.item & (last_cell - first_cell));
        aggregation_cells.read(cell, place);
        done = cell[295:295];
        cell_epoch = cell[271:256];
        cell_item = cell[255:224];
        seen = cell[223:160];
        workers = cell[159:144];
        flags = cell[143:136];
        operation = cell[135:132];
        quarters = cell[131:128];
        repeated = cell[127:112];
        opened_us = cell[111:64];
        check = cell[63:0];
    }

    @hidden
    action keep() {
        aggregation_cells.write(
            place,
            done ++ 7w0 ++ hdr.aggregation.job ++ cell_epoch ++ cell_item ++ seen ++ workers ++ flags ++ operation
                ++ quarters ++ repeated ++ opened_us ++ check
        );
    }

    @hidden
    action open() {
        done = 0;
        cell_epoch = epoch;
        cell_item = hdr.aggregation.item;
        seen = child;
        workers = hdr.aggregation.workers;
        flags = hdr.aggregation.flags;
        operation = hdr.aggregation.operation;
        quarters = hdr.aggregation.quarters;
        repeated = 0;
        opened_us = standard_metadata.ingress_global_timestamp;
        check = hdr.aggregation.check;
        write = 1;
        outcome = OUTCOME_OPENED;
        // Cells outside the job's range belong to a job that had them before.
        aggregation_newest.read(newest, first_cell);
        newest = (newest - hdr.aggregation.item > last_cell - first_cell) ? hdr.aggregation.item : newest;
        aggregation_newest.write(first_cell, newest);
    }

    // A value of the main server's is complete at once: no child contributes to it.
    @hidden
    action distribute() {
        open();
        done = 1;
        seen = children;
        flags = flags | FLAG_DISTRIBUTED;
        answer = answer_t.ALL;
        outcome = OUTCOME_COMPLETE;
    }

    @hidden
    action look_ahead() {
        aggregation_newest.read(newest, first_cell);
    }

    @hidden
    action add() {
        seen = seen | child;
        workers = workers |+| hdr.aggregation.workers;
        flags = flags | hdr.aggregation.flags;
        check = check + hdr.aggregation.check;
        read = 1;
        combine = 1;
        write = 1;
        outcome = OUTCOME_ADDED;
    }

    // The parent's result replaces this rack's sum.
    @hidden
    action take() {
        done = 1;
        cell_epoch = hdr.aggregation.epoch;
        workers = hdr.aggregation.workers;
        flags = hdr.aggregation.flags;
        operation = hdr.aggregation.operation;
        quarters = hdr.aggregation.quarters;
        check = hdr.aggregation.check;
        write = 1;
        answer = answer_t.ALL;
        outcome = OUTCOME_COMPLETE;
    }

    // Nothing was added up here for a value that the parent distributes.
    @hidden
    action pass_on() {
        take();
        cell_item = hdr.aggregation.item;
        seen = children;
        repeated = 0;
        opened_us = standard_metadata.ingress_global_timestamp;
    }

    @hidden
    action refuse(in bit<8> reason) {
        hdr.aggregation.kind = KIND_REFUSED;
        hdr.aggregation.reason = reason;
        answer = answer_t.BACK;
    }

    // The cell's values become the packet's.
    @hidden
    action show() {
        hdr.aggregation.epoch = cell_epoch;
        hdr.aggregation.workers = workers;
        hdr.aggregation.flags = flags;
        hdr.aggregation.operation = operation;
        hdr.aggregation.quarters = quarters;
        hdr.aggregation.reason = 0;
        hdr.aggregation.reserved = 0;
        hdr.aggregation.check = check;
    }

    @hidden
    action set_lengths() {
        hdr.udp.length = UDP_BYTES + AGGREGATION_BYTES + ((bit<16>) hdr.aggregation.quarters << 8);
        hdr.udp.checksum = 0;
        hdr.ipv4.total_length = 20 + hdr.udp.length;
        hdr.ipv4.ttl = AGGREGATION_TTL;
        // Congestion on arrival is passed on by a flag; the queues ahead mark packets themselves.
        hdr.ipv4.ecn = (hdr.ipv4.ecn == ECN_CE) ? ECN_ECT0 : hdr.ipv4.ecn;
    }

    @hidden
    action send_back() {
        bit<32> address = hdr.ipv4.src_addr;
        hdr.ipv4.src_addr = hdr.ipv4.dst_addr;
        hdr.ipv4.dst_addr = address;
        bit<16> port = hdr.udp.src_port;
        hdr.udp.src_port = hdr.udp.dst_port;
        hdr.udp.dst_port = port;
        hdr.ethernet.dst_addr = hdr.ethernet.src_addr;
        standard_metadata.egress_spec = standard_metadata.ingress_port;
        meta.next_port = (bit<16>) standard_metadata.ingress_port;
        meta.routed = 1;
    }

    @hidden
    action send_up() {
        hdr.ipv4.src_addr = hdr.ipv4.dst_addr;
        hdr.ipv4.dst_addr = parent;
        hdr.udp.src_port = AGGREGATION_PORT;
        meta.l4_src_port = AGGREGATION_PORT;
        hdr.aggregation.kind = (hdr.aggregation.kind == KIND_PULL) ? KIND_PULL : KIND_CONTRIBUTION;
    }

    // Egress addresses each copy, with the switch as its sender.
    @hidden
    action send_all() {
        hdr.ipv4.src_addr = hdr.ipv4.dst_addr;
        hdr.udp.src_port = AGGREGATION_PORT;
        hdr.aggregation.kind = KIND_RESULT;
        meta.routed = 1;
    }

    apply {
        aggregation_peers.apply();
        if (sender != sender_t.NONE && aggregation_jobs.apply().hit) {
            meta.aggregated = 1;
            if (hdr.ipv4.ecn == ECN_CE) {
                hdr.aggregation.flags = hdr.aggregation.flags | FLAG_CONGESTED;
            }
            if (sender == sender_t.SERVER && hdr.aggregation.flags & FLAG_CALL != 0) {
                // The main server asks where the workers are.
                look_ahead();
                hdr.aggregation.item = newest;
            }
            if (hdr.aggregation.kind == KIND_CONTRIBUTION) {
                hdr.aggregation.flags = hdr.aggregation.flags & ~FLAG_DISTRIBUTED;
            }
            fetch();
            bit<1> known = (bit<1>) (cell[287:272] == hdr.aggregation.job);
            bit<1> same = known & (bit<1>) (cell_item == hdr.aggregation.item);
            bit<32> age = hdr.aggregation.item - cell_item;
            if (hdr.aggregation.nonce != nonce || hdr.aggregation.workers == 0) {
                // No member of the job sends this: no cell changes, and there is no answer.
                outcome = OUTCOME_FORGED;
            } else if (sender == sender_t.PARENT) {
                if (same == 1 && done == 0 && (hdr.aggregation.kind == KIND_RESULT || hdr.aggregation.kind == KIND_AGAIN)) {
                    take();
                } else if (
                    hdr.aggregation.flags & FLAG_DISTRIBUTED != 0 && same == 0 && known & age[31:31] == 0
                    && (hdr.aggregation.kind == KIND_RESULT || hdr.aggregation.kind == KIND_AGAIN)
                ) {
                    pass_on();
                }
            } else if (same == 1 && done == 1 && hdr.aggregation.quarters < quarters) {
                // No answer is longer than its request.
                outcome = OUTCOME_MISMATCH;
                hdr.aggregation.quarters = 0;
                refuse(REASON_MISMATCH);
            } else if (same == 1 && done == 1) {
                read = 1;
                answer = answer_t.BACK;
                outcome = OUTCOME_AGAIN;
                show();
                hdr.aggregation.kind = KIND_AGAIN;
            } else if (known & age[31:31] == 1) {
                outcome = OUTCOME_STALE;
            } else if (hdr.aggregation.kind == KIND_DISTRIBUTE && sender == sender_t.SERVER) {
                if (same == 1) {
                    outcome = OUTCOME_MISMATCH;
                    hdr.aggregation.quarters = 0;
                    refuse(REASON_MISMATCH);
                } else {
                    distribute();
                }
            } else if (hdr.aggregation.kind == KIND_PULL && leaf == 1 && hdr.aggregation.flags & FLAG_DISTRIBUTED != 0) {
                // Lost on the way from the parent, which has it.
                answer = answer_t.UP;
            } else if (hdr.aggregation.kind != KIND_CONTRIBUTION) {
                outcome = OUTCOME_STALE;
            } else if (hdr.aggregation.epoch != epoch) {
                outcome = OUTCOME_EPOCH;
                hdr.aggregation.epoch = epoch;
                hdr.aggregation.quarters = 0;
                refuse(REASON_EPOCH);
            } else if (child & children == 0) {
                outcome = OUTCOME_STALE;
            } else if (same == 0 || cell_epoch != epoch) {
                open();
            } else if (operation != hdr.aggregation.operation || quarters != hdr.aggregation.quarters) {
                outcome = OUTCOME_MISMATCH;
                hdr.aggregation.quarters = 0;
                refuse(REASON_MISMATCH);
            } else if (seen & child != 0) {
                outcome = OUTCOME_REPEATED;
                repeated = repeated |+| 1;
                if (leaf == 1 && seen == children) {
                    read = 1;
                    answer = answer_t.UP;
                }
            } else {
                add();
            }

            if ((outcome == OUTCOME_OPENED || outcome == OUTCOME_ADDED) && seen == children) {
                all_in = 1;
                if (leaf == 1) {
                    answer = answer_t.UP;
                } else {
                    done = 1;
                    answer = answer_t.ALL;
                    outcome = OUTCOME_COMPLETE;
                }
            }

            if (hdr.aggregation.quarters > 0) {
                hdr.values0.setValid();
                lanes0.apply(read, combine, write, operation, place, hdr.values0.lanes, saturated);
            } else {
                hdr.values0.setInvalid();
            }
            if (hdr.aggregation.quarters > 1) {
                hdr.values1.setValid();
                lanes1.apply(read, combine, write, operation, place, hdr.values1.lanes, saturated);
            } else {
                hdr.values1.setInvalid();
            }
            if (hdr.aggregation.quarters > 2) {
                hdr.values2.setValid();
                lanes2.apply(read, combine, write, operation, place, hdr.values2.lanes, saturated);
            } else {
                hdr.values2.setInvalid();
            }
            if (hdr.aggregation.quarters > 3) {
                hdr.values3.setValid();
                lanes3.apply(read, combine, write, operation, place, hdr.values3.lanes, saturated);
            } else {
                hdr.values3.setInvalid();
            }
            if (saturated == 1) {
                flags = flags | FLAG_SATURATED;
            }
            if (outcome >= OUTCOME_REPEATED && outcome != OUTCOME_FORGED) {
                keep();
                show();
            }
            aggregation_outcomes.count(outcome);
            if (all_in == 1) {
                look_ahead();
                completions.apply(
                    hdr.aggregation, child_number, leaf, newest - hdr.aggregation.item, opened_us, repeated, meta,
                    standard_metadata
                );
            }

            set_lengths();
            if (answer == answer_t.ALL) {
                // Copies of what the main server distributes are its acknowledgements.
                if (flags & (FLAG_FINAL | FLAG_DISTRIBUTED) != 0) {
                    standard_metadata.mcast_grp = group_with_server;
                } else {
                    standard_metadata.mcast_grp = group;
                }
                send_all();
            } else if (answer == answer_t.BACK) {
                send_back();
            } else if (answer == answer_t.UP) {
                send_up();
                meta.aggregated = 0;
            } else {
                mark_to_drop(standard_metadata);
            }
        }
    }
}

#endif
