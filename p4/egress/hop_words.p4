// Converts readings to metadata: instruction bits 1 to 8, laid out the same in a stack and in a report.
#ifndef P4_EGRESS_HOP_WORDS_P4
#define P4_EGRESS_HOP_WORDS_P4

#include "../shared/headers.p4"
#include "../shared/metadata.p4"

// `sum` grows by the words' part of a checksum; modulo 0xffff only a field's position within 16 bits matters.
control HopWords(
    in bit<16> instructions,
    in metadata_t meta,
    inout level1_word_t level1,
    inout latency_word_t latency,
    inout queue_word_t queue,
    inout timestamp_words_t ingress_time,
    inout timestamp_words_t egress_time,
    inout level2_words_t level2,
    inout utilization_word_t utilization,
    inout queue_word_t buffer,
    inout bit<64> sum
) {
    apply {
        if (instructions[14:14] == 1) {
            level1.setValid();
            level1.ingress_port = (bit<16>) meta.hop_ingress_port;
            level1.egress_port = meta.hop_egress_port;
            sum = sum + (bit<64>) meta.hop_ingress_port + (bit<64>) meta.hop_egress_port;
        }
        if (instructions[13:13] == 1) {
            latency.setValid();
            latency.latency_ns = meta.hop_latency_ns;
            sum = sum + (bit<64>) meta.hop_latency_ns;
        }
        if (instructions[12:12] == 1) {
            queue.setValid();
            queue.queue_id = meta.hop_queue_id;
            queue.occupancy = (bit<24>) meta.hop_queue_occupancy;
            sum = sum + ((bit<64>) meta.hop_queue_id << 8) + (bit<64>) meta.hop_queue_occupancy;
        }
        if (instructions[11:11] == 1) {
            ingress_time.setValid();
            ingress_time.timestamp_ns = meta.hop_ingress_time_ns;
            sum = sum + meta.hop_ingress_time_ns;
        }
        if (instructions[10:10] == 1) {
            egress_time.setValid();
            egress_time.timestamp_ns = meta.hop_egress_time_ns;
            sum = sum + meta.hop_egress_time_ns;
        }
        if (instructions[9:9] == 1) {
            level2.setValid();
            level2.ingress_port = (bit<32>) meta.hop_ingress_port;
            level2.egress_port = (bit<32>) meta.hop_egress_port;
            sum = sum + (bit<64>) meta.hop_ingress_port + (bit<64>) meta.hop_egress_port;
        }
        if (instructions[8:8] == 1) {
            utilization.setValid();
            utilization.transmitted_bytes = meta.hop_transmitted_bytes;
            sum = sum + (bit<64>) meta.hop_transmitted_bytes;
        }
        if (instructions[7:7] == 1) {
            buffer.setValid();
            // One buffer, shared by all ports.
            buffer.queue_id = 0;
            buffer.occupancy = meta.hop_buffer_occupancy;
            sum = sum + (bit<64>) (meta.hop_buffer_occupancy >> 16) + (bit<64>) (meta.hop_buffer_occupancy & 0xffff);
        }
    }
}

#endif
