// Content addressed by name and stored in the switch: dataplane/store/reference/holder.py describes it.
#ifndef P4_STORE_STORE_P4
#define P4_STORE_STORE_P4

#include "../shared/headers.p4"
#include "../shared/metadata.p4"
#include "hot_names.p4"
#include "quarter.p4"

const bit<8> STORE_TTL = 64;

// Outcome of a packet: the index of its counter.
const bit<32> STORE_WAS_ANSWERED = 0;
const bit<32> STORE_WAS_MISSED = 1;
const bit<32> STORE_WAS_FILLED = 2;
const bit<32> STORE_WAS_RAISED = 3;
const bit<32> STORE_WAS_OLD = 4;
const bit<32> STORE_WAS_KEPT = 5;
const bit<32> STORE_WAS_REPEATED = 6;
const bit<32> STORE_WAS_REFUSED = 7;
const bit<32> STORE_WAS_PASSED = 8;

control Store(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    counter(9, CounterType.packets_and_bytes) store_outcomes;
    direct_counter(CounterType.packets_and_bytes) store_name_packets;
    register<store_cell_t>(STORE_CELLS) store_cells;
    StoredQuarter() quarter0;
    StoredQuarter() quarter1;
    StoredQuarter() quarter2;
    StoredQuarter() quarter3;
    HotNames() hot_names;

    bit<32> place = 0;
    bit<32> generation = 0;
    bit<32> producer = 0;
    port_t producer_port = 0;
    bit<16> writers = 0;
    bit<1> forward = 0;
    bit<1> of_record = 0;

    store_cell_t cell;
    bit<32> cell_generation;
    bit<32> version;
    bit<32> writer;
    bit<48> arrival_us;
    bit<32> freshness_ms;
    bit<4> quarters;
    bit<1> synced;
    bit<1> valid;

    bit<32> outcome = STORE_WAS_PASSED;
    bit<1> answered = 0;
    bit<1> read = 0;
    bit<1> write = 0;

    // A copy of a producer's content; port 0x1ff: from any other switch.
    action cached(
        @name("cell") bit<32> at,
        @name("generation") bit<32> number,
        @name("producer") bit<32> address,
        @name("port") port_t port
    ) {
        place = at;
        generation = number;
        producer = address;
        producer_port = port;
    }

    // The content lives in the switch; `forward`: the addressee of a PUT gets it, too, and acknowledges it.
    action recorded(
        @name("cell") bit<32> at,
        @name("generation") bit<32> number,
        @name("writers") bit<16> group,
        @name("forward") bit<1> goes_on
    ) {
        place = at;
        generation = number;
        writers = group;
        forward = goes_on;
        of_record = 1;
    }

    table store_names {
        key = {
            hdr.store.name: exact @name("name");
            hdr.store.segment: exact @name("segment");
        }
        actions = {
            cached;
            recorded;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        size = STORE_CELLS;
        counters = store_name_packets;
    }

    table store_writers {
        key = {
            hdr.ipv4.src_addr: exact @name("src_addr");
            writers: exact @name("writers");
            standard_metadata.ingress_port: ternary @name("ingress_port");
        }
        actions = {
            NoAction;
        }
        const default_action = NoAction();
        size = 4096;
    }

    // A name's requests go to the producer of its longest known prefix.
    action to_producer(@name("producer") bit<32> address) {
        hdr.ipv4.dst_addr = address;
    }

    table store_routes {
        key = {
            hdr.store.content_version: ternary @name("first");
            hdr.store.freshness_ms: ternary @name("first_two");
        }
        actions = {
            to_producer;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        size = 1024;
    }

    // Announcements that reach the controller, at most one per port and STORE_ANNOUNCE_US.
    register<bit<48>>(512) store_announced_us;

    @hidden
    action fetch() {
        store_cells.read(cell, place);
        cell_generation = cell[183:152];
        version = cell[151:120];
        writer = cell[119:88];
        arrival_us = cell[87:40];
        freshness_ms = cell[39:8];
        quarters = cell[7:4];
        synced = cell[1:1];
        valid = cell[0:0];
    }

    @hidden
    action keep() {
        store_cells.write(
            place,
            generation ++ version ++ writer ++ arrival_us ++ freshness_ms ++ quarters ++ 2w0 ++ synced ++ valid
        );
    }

    // The cell belonged to another name, or to this one before its eviction.
    @hidden
    action forget() {
        version = 0;
        synced = 0;
        valid = 0;
    }

    @hidden
    action take() {
        valid = 1;
        version = hdr.store.content_version;
        writer = hdr.ipv4.src_addr;
        arrival_us = standard_metadata.ingress_global_timestamp;
        freshness_ms = (hdr.store.freshness_ms < STORE_LONGEST_FRESHNESS_MS)
            ? hdr.store.freshness_ms : STORE_LONGEST_FRESHNESS_MS;
        quarters = hdr.store.quarters;
        write = 1;
    }

    @hidden
    action answer(in bit<4> kind, in bit<4> length) {
        hdr.store.kind = kind;
        hdr.store.quarters = length;
        hdr.store.size = quarters;
        hdr.store.content_version = version;
        answered = 1;
    }

    @hidden
    action refuse(in bit<8> reason) {
        hdr.store.reason = reason;
        hdr.store.freshness_ms = 0;
        outcome = STORE_WAS_REFUSED;
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
        hdr.udp.length = UDP_BYTES + STORE_BYTES + ((bit<16>) hdr.store.quarters << 8);
        hdr.udp.checksum = 0;
        hdr.ipv4.total_length = 20 + hdr.udp.length;
        hdr.ipv4.ttl = STORE_TTL;
        standard_metadata.egress_spec = standard_metadata.ingress_port;
        meta.answered = 1;
    }

    apply {
        if (hdr.store.kind == STORE_INTEREST && hdr.ipv4.dst_addr == STORE_NAMES_ADDR) {
            store_routes.apply();
        }
        if (hdr.store.kind == STORE_ANNOUNCE) {
            bit<48> before_us;
            store_announced_us.read(before_us, (bit<32>) standard_metadata.ingress_port);
            if (
                meta.from_outside == 1 && hdr.store.quarters == 0 && hdr.ipv4.dst_addr == STORE_NAMES_ADDR
                && (before_us == 0 || standard_metadata.ingress_global_timestamp - before_us >= STORE_ANNOUNCE_US)
            ) {
                store_announced_us.write(
                    (bit<32>) standard_metadata.ingress_port, standard_metadata.ingress_global_timestamp
                );
                hot_names.apply(hdr.store, hdr.ipv4.src_addr, 1);
                version = 0;
                quarters = 0;
                answer(STORE_PUT_ACK, 0);
                hdr.store.reason = 0;
                send_back();
            }
        } else if (store_names.apply().hit) {
            fetch();
            if (cell_generation != generation) {
                forget();
            }
            if (valid == 0) {
                quarters = 0;
            }
            bit<48> age_us = standard_metadata.ingress_global_timestamp - arrival_us;
            bit<1> newer = (bit<1>) (version == 0);
            bit<32> ahead = hdr.store.content_version - version;
            if (ahead != 0 && ahead[31:31] == 0) {
                newer = 1;
            }
            bit<1> same = (bit<1>) (version != 0 && ahead == 0);

            if (hdr.store.kind == STORE_INTEREST) {
                bit<1> fresh = of_record | (bit<1>) ((bit<64>) age_us < (bit<64>) freshness_ms * 1000);
                if (valid == 1 && fresh == 1 && hdr.store.quarters < quarters) {
                    // No answer is longer than its request.
                    answer(STORE_NACK, 0);
                    refuse(STORE_TOO_SHORT);
                } else if (valid == 1 && fresh == 1) {
                    answer(STORE_DATA, quarters);
                    hdr.store.reason = 0;
                    hdr.store.freshness_ms = freshness_ms;
                    if (of_record == 0) {
                        // 67,109 of 2^26 are a thousandth and two millionths of it: the rest is slightly too small.
                        bit<64> age_ms = ((bit<64>) age_us * 67109) >> 26;
                        hdr.store.freshness_ms = freshness_ms |-| ((bit<32>) age_ms + 1);
                    }
                    read = 1;
                    outcome = STORE_WAS_ANSWERED;
                } else if (of_record == 1 && forward == 0) {
                    answer(STORE_NACK, 0);
                    refuse(STORE_ABSENT);
                } else {
                    outcome = STORE_WAS_MISSED;
                    if (of_record == 0 && synced == 0 && hdr.store.tag == 0) {
                        hdr.store.tag = generation;
                    }
                }
            } else if (of_record == 0) {
                if (
                    hdr.ipv4.src_addr == producer
                    && (
                        standard_metadata.ingress_port == producer_port
                        || (producer_port == STORE_ANY_PORT && meta.from_outside == 0)
                    )
                    && hdr.store.content_version != 0
                    && (hdr.store.kind == STORE_DATA || hdr.store.kind == STORE_PUT_ACK || hdr.store.kind == STORE_NACK)
                ) {
                    if (hdr.store.tag == generation) {
                        // A solicited answer refutes unsolicited content that is far ahead of it.
                        if (synced == 0 && ahead[31:31] == 1 && 0 - ahead > STORE_FAR) {
                            newer = 1;
                        }
                        synced = 1;
                    } else if (version != 0 && newer == 1 && ahead > STORE_FAR) {
                        synced = 0;
                    }
                    if (newer == 0 && same == 0) {
                        outcome = STORE_WAS_OLD;
                    } else if (
                        synced == 1 && hdr.store.kind != STORE_NACK
                        && hdr.store.quarters != 0 && hdr.store.freshness_ms != 0
                    ) {
                        take();
                        outcome = STORE_WAS_FILLED;
                    } else if (newer == 1) {
                        valid = 0;
                        version = hdr.store.content_version;
                        outcome = STORE_WAS_RAISED;
                    }
                    keep();
                }
            } else if (hdr.store.kind == STORE_PUT) {
                if (!store_writers.apply().hit) {
                    answer(STORE_NACK, 0);
                    refuse(STORE_FORBIDDEN);
                } else if (hdr.store.content_version != 0 && newer == 1) {
                    take();
                    keep();
                    outcome = STORE_WAS_KEPT;
                } else if (hdr.store.content_version != 0 && same == 1 && writer == hdr.ipv4.src_addr) {
                    outcome = STORE_WAS_REPEATED;
                } else {
                    answer(STORE_NACK, 0);
                    refuse(STORE_STALE);
                }
                if (answered == 0 && forward == 0) {
                    answer(STORE_PUT_ACK, 0);
                    hdr.store.reason = 0;
                }
            }
            store_outcomes.count(outcome);

            // Read and stored before the lengths become the answer's.
            if (hdr.store.quarters > 0 || write == 1 && quarters > 0) {
                hdr.values0.setValid();
                quarter0.apply(read, write, place, hdr.values0.lanes);
            }
            if (hdr.store.quarters > 1 || write == 1 && quarters > 1) {
                hdr.values1.setValid();
                quarter1.apply(read, write, place, hdr.values1.lanes);
            }
            if (hdr.store.quarters > 2 || write == 1 && quarters > 2) {
                hdr.values2.setValid();
                quarter2.apply(read, write, place, hdr.values2.lanes);
            }
            if (hdr.store.quarters > 3 || write == 1 && quarters > 3) {
                hdr.values3.setValid();
                quarter3.apply(read, write, place, hdr.values3.lanes);
            }
            if (answered == 1) {
                if (hdr.store.quarters < 1) {
                    hdr.values0.setInvalid();
                }
                if (hdr.store.quarters < 2) {
                    hdr.values1.setInvalid();
                }
                if (hdr.store.quarters < 3) {
                    hdr.values2.setInvalid();
                }
                if (hdr.store.quarters < 4) {
                    hdr.values3.setInvalid();
                }
                send_back();
            }
        } else if (hdr.store.kind == STORE_INTEREST) {
            hot_names.apply(hdr.store, hdr.ipv4.dst_addr, 0);
        }
    }
}

#endif
