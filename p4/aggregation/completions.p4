// Telemetry of items: the last child, how long it took, what was repeated. A report like XD's, with no packet waiting.
#ifndef P4_AGGREGATION_COMPLETIONS_P4
#define P4_AGGREGATION_COMPLETIONS_P4

#include "../shared/headers.p4"
#include "../shared/metadata.p4"

control Completions(
    in aggregation_t aggregation,
    in bit<8> last_child,
    in bit<1> leaf,
    in bit<32> ahead,
    in bit<48> opened_us,
    in bit<16> repeated,
    inout metadata_t meta,
    in standard_metadata_t standard_metadata
) {
    counter(1, CounterType.packets_and_bytes) completions_reported;

    bit<1> reported = 0;
    bit<48> wait_us;

    // Items whose number has none of the mask's bits, the same at all switches, and slow ones; 0 us: no slow ones.
    action report_items(@name("mask") bit<32> mask, @name("slow_us") bit<32> slow_us) {
        reported = (aggregation.item & mask == 0 || (slow_us != 0 && wait_us >= (bit<48>) slow_us)) ? 1w1 : 1w0;
    }

    table aggregation_reports {
        key = {
            aggregation.job: exact @name("job");
        }
        actions = {
            report_items;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        size = 256;
    }

    // The copy is of the packet as it arrived: the last child's.
    @hidden
    action request() {
        meta.report_tracked = 1;
        meta.report_bits = COMPLETION_METADATA_BITS;
        meta.report_domain_id = OUR_DOMAIN;
        meta.report_domain_bits = DOMAIN_COMPLETION;
        meta.completion_last_child = last_child;
        meta.completion_leaf = leaf;
        meta.completion_wait_us = (wait_us > 0xffffffff) ? 32w0xffffffff : (bit<32>) wait_us;
        meta.completion_repeated = repeated;
        meta.completion_ahead = (ahead > 0xffff) ? 16w0xffff : (bit<16>) ahead;
        meta.hop_ingress_port = standard_metadata.ingress_port;
        meta.hop_egress_port = PORT_UNAVAILABLE;
        meta.hop_ingress_time_ns = (bit<64>) standard_metadata.ingress_global_timestamp * NANOS_PER_MICRO;
    }

    apply {
        wait_us = standard_metadata.ingress_global_timestamp - opened_us;
        aggregation_reports.apply();
        if (reported == 1) {
            request();
            clone_preserving_field_list(CloneType.I2E, REPORT_CLONE_SESSION, 1);
            completions_reported.count(0);
        }
    }
}

// The copy becomes a report; the original requests none for itself.
control CompletionWords(in aggregation_t aggregation, in metadata_t meta, inout completion_words_t words) {
    apply {
        words.setValid();
        words.job = aggregation.job;
        words.last_child = meta.completion_last_child;
        words.leaf = meta.completion_leaf;
        words.zero = 0;
        words.item = aggregation.item;
        words.wait_us = meta.completion_wait_us;
        words.repeated = meta.completion_repeated;
        words.ahead = meta.completion_ahead;
    }
}

control CompletionDone(inout metadata_t meta) {
    apply {
        meta.report_tracked = 0;
        meta.report_bits = 0;
        meta.report_domain_id = 0;
        meta.report_domain_bits = 0;
    }
}

#endif
