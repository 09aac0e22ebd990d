// Coalesces individual reports: short ones wait in registers for the next, up to a maximum number and age.
#ifndef P4_EGRESS_GATHER_P4
#define P4_EGRESS_GATHER_P4

#include "../shared/headers.p4"
#include "../shared/metadata.p4"
#include "gather_pack.p4"
#include "gather_unpack.p4"

// v1model has no timer: reports that wait too long are sent by the next packet, whichever it is. Therefore every packet
// passes through here and requests a clone that carries nothing of its own.
control Gather(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    counter(1, CounterType.packets_and_bytes) reports_gathered;
    register<gathered_record_t>(3) gathered_records;
    register<bit<8>>(3) gathered_words;
    register<bit<8>>(1) gathered_waiting;
    // When the oldest is due (us): for clones, and for all other packets, which must not wait for clones.
    register<bit<64>>(1) gathered_due;
    register<bit<64>>(1) gathered_alarm;
    GatherPack() pack;
    GatherUnpack() unpack;

    bit<8> most = 1;
    bit<64> age_us = 0;
    bit<64> due_us;
    bit<8> waiting;
    bit<8> words;
    bit<1> due;
    gathered_record_t record;

    // Up to `most` reports per packet, 1 to 4; with traffic, none waits longer than `age_us`.
    action gather_reports(@name("most") bit<8> wanted, @name("age_us") bit<32> wanted_us) {
        most = wanted;
        age_us = (bit<64>) wanted_us;
    }

    table gather {
        actions = {
            gather_reports;
            NoAction;
        }
        default_action = NoAction();
    }

    // An alarm of 0 means none.
    @hidden
    action hear() {
        gathered_alarm.read(due_us, 0);
        due = (due_us != 0 && (bit<64>) standard_metadata.egress_global_timestamp >= due_us) ? 1w1 : 1w0;
        meta.report_flush = due;
    }

    @hidden
    action look() {
        gathered_waiting.read(waiting, 0);
        gathered_due.read(due_us, 0);
        due = (waiting != 0 && (bit<64>) standard_metadata.egress_global_timestamp >= due_us) ? 1w1 : 1w0;
    }

    @hidden
    action keep() {
        gathered_records.write((bit<32>) waiting, record);
        gathered_words.write((bit<32>) waiting, hdr.report.report_words + 1);
        due_us = (waiting == 0) ? (bit<64>) standard_metadata.egress_global_timestamp + age_us : due_us;
        gathered_due.write(0, due_us);
        gathered_waiting.write(0, waiting + 1);
    }

    @hidden
    action empty() {
        gathered_waiting.write(0, 0);
    }

    // A separate action, so that readers of the alarm do not wait for the registers of waiting reports.
    @hidden
    action set_alarm(in bit<64> time_us) {
        gathered_alarm.write(0, time_us);
    }

    @hidden
    action fetch(in bit<32> place) {
        gathered_records.read(record, place);
        gathered_words.read(words, place);
        meta.gathered_words = meta.gathered_words + (bit<16>) words;
    }

    apply {
        if (standard_metadata.instance_type == INSTANCE_NORMAL) {
            hear();
        } else {
            gather.apply();
            look();
            if (
                hdr.report.isValid() && due == 0 && waiting + 1 < most && waiting < 3
                && hdr.report.report_words <= 30 && meta.report_domain_bits == 0
                && (hdr.ipv4.isValid() || hdr.ipv6.isValid()) && meta.report_plain == 1
            ) {
                pack.apply(hdr, meta, record);
                keep();
                set_alarm(due_us);
                reports_gathered.count(0);
                mark_to_drop(standard_metadata);
                exit;
            }
            if (waiting > 0) {
                fetch(0);
                unpack.apply(
                    record, words, hdr.gathered16[0], hdr.gathered8[0], hdr.gathered4[0], hdr.gathered2[0],
                    hdr.gathered1[0]
                );
                empty();
            }
            if (waiting > 1) {
                fetch(1);
                unpack.apply(
                    record, words, hdr.gathered16[1], hdr.gathered8[1], hdr.gathered4[1], hdr.gathered2[1],
                    hdr.gathered1[1]
                );
            }
            if (waiting > 2) {
                fetch(2);
                unpack.apply(
                    record, words, hdr.gathered16[2], hdr.gathered8[2], hdr.gathered4[2], hdr.gathered2[2],
                    hdr.gathered1[2]
                );
            }
            set_alarm(0);
        }
    }
}

#endif
