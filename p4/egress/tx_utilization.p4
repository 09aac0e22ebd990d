// Bytes transmitted by each port in windows of 2^16 us: the last complete window is INT's TX utilisation.
#ifndef P4_EGRESS_TX_UTILIZATION_P4
#define P4_EGRESS_TX_UTILIZATION_P4

#include "../shared/metadata.p4"

control TxUtilization(in bit<32> bytes, in standard_metadata_t standard_metadata, out bit<32> transmitted_bytes) {
    register<bit<32>>(512) tx_window;
    register<bit<32>>(512) tx_window_bytes;
    register<bit<32>>(512) tx_last_window_bytes;

    // A single action, which bmv2 executes atomically.
    @hidden
    action account() {
        bit<32> port = (bit<32>) standard_metadata.egress_port;
        bit<32> now = (bit<32>) (standard_metadata.egress_global_timestamp >> 16);
        bit<32> window;
        bit<32> sum;
        tx_window.read(window, port);
        tx_window_bytes.read(sum, port);
        if (window != now) {
            // A window without traffic is visible only as a gap.
            sum = (window + 1 == now) ? sum : 0;
            tx_last_window_bytes.write(port, sum);
            tx_window.write(port, now);
            sum = 0;
        }
        tx_window_bytes.write(port, sum + bytes);
        tx_last_window_bytes.read(transmitted_bytes, port);
    }

    apply {
        account();
    }
}

#endif
