// Millrace's fabric switch for v1model: routing with explicit paths, and in-band telemetry (INT v2.1: MD, MX, XD).
//
// This file is the pipeline's table of contents; each stage is a control in a file of its own.

#include <core.p4>
#include <v1model.p4>

#include "shared/constants.p4"
#include "shared/headers.p4"
#include "shared/metadata.p4"
#include "shared/instructions.p4"

#include "wire/parser.p4"
#include "wire/verify_checksums.p4"

#include "ingress/packet_out.p4"
#include "ingress/port_roles.p4"
#include "ingress/punt.p4"
#include "ingress/int_marker.p4"
#include "ingress/collector.p4"
#include "ingress/source_addresses.p4"
#include "ingress/validation.p4"
#include "ingress/routing.p4"
#include "ingress/int_watch.p4"
#include "ingress/drop.p4"

#ifdef AGGREGATION
#include "aggregation/aggregation.p4"
#include "aggregation/replicas.p4"
#include "store/store.p4"
#define AGGREGATED (meta.aggregated == 1 || meta.answered == 1)
#define NAMED hdr.store.isValid()
#else
#define AGGREGATED false
#define NAMED false
#endif

#include "egress/ports.p4"
#include "egress/node.p4"
#include "egress/tx_utilization.p4"
#include "egress/buffer_occupancy.p4"
#include "egress/hop_readings.p4"
#include "egress/int_source.p4"
#include "egress/int_mark.p4"
#include "egress/int_transit.p4"
#include "egress/int_sink.p4"
#include "egress/int_unmark.p4"
#include "egress/deflected.p4"
#include "egress/queue_watch.p4"
#include "egress/flow_filter.p4"
#include "egress/drop.p4"
#include "egress/drop_watch.p4"
#include "egress/int_export.p4"
#include "egress/mtu.p4"
#include "egress/report_request.p4"
#include "egress/report_restore.p4"
#include "egress/report_choice.p4"
#include "egress/report.p4"
#include "egress/gather.p4"
#include "egress/report_send.p4"
#include "egress/l4_update.p4"

#include "wire/compute_checksums.p4"
#include "wire/deparser.p4"

control FabricIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    PacketOut() to_port;
    PortRoles() port_roles;
    Punt() punt;
    IntMarker() int_marker;
    Collector() collector;
    SourceAddresses() source_addresses;
    Validation() validation;
    Routing() routing;
    IntWatch() int_watch;
    Drop() drop;
#ifdef AGGREGATION
    Aggregation() aggregation;
    Store() store;
#endif

    apply {
        if (hdr.packet_out.isValid()) {
            to_port.apply(hdr, standard_metadata);
        } else {
            port_roles.apply(meta, standard_metadata);
            punt.apply(hdr, meta, standard_metadata);
            if (!hdr.packet_in.isValid()) {
                int_marker.apply(hdr, meta);
                collector.apply(hdr, meta);
                if (meta.from_outside == 1) {
                    source_addresses.apply(hdr, meta, standard_metadata);
                }
                validation.apply(hdr, meta, standard_metadata);
#ifdef AGGREGATION
                if (meta.drop_reason == DROP_UNKNOWN && hdr.aggregation.isValid()) {
                    aggregation.apply(hdr, meta, standard_metadata);
                }
                if (meta.drop_reason == DROP_UNKNOWN && hdr.store.isValid()) {
                    store.apply(hdr, meta, standard_metadata);
                }
#endif
                if (meta.drop_reason == DROP_UNKNOWN && !AGGREGATED) {
                    routing.apply(hdr, meta, standard_metadata);
                }
                if (meta.drop_reason != DROP_UNKNOWN) {
                    drop.apply(meta, standard_metadata);
                } else if (!hdr.int_shim.isValid() && meta.int_shield == 0 && !AGGREGATED && !NAMED) {
                    // Traffic with a name stays as the next switch must see it.
                    int_watch.apply(hdr, meta);
                }
            }
        }
    }
}

control FabricEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    EgressPorts() ports;
    Node() node;
    TxUtilization() tx_utilization;
    HopReadings() hop_readings;
    Deflected() deflected;
    QueueWatch() queue_watch;
    FlowFilter() flow_filter;
    EgressDrop() drop;
    BufferOccupancy() buffer;
    ReportRequest() report_request;
    ReportRestore() report_restore;
    ReportChoice() report_choice;
    IntSource() int_source;
    IntMark() int_mark;
    IntTransit() int_transit;
    IntSink() int_sink;
    IntUnmark() int_unmark;
    IntExport() int_export;
    Mtu() mtu;
    Report() report;
    Gather() gather;
    ReportSend() report_send;
    L4Update() l4_update;
#ifdef AGGREGATION
    Replicas() replicas;
    Congestion() congestion;
    CompletionDone() completion_done;
#endif

    bit<32> bytes = standard_metadata.packet_length;
    bit<32> transmitted_bytes;
    bit<24> buffer_occupancy;
    bit<1> report_chosen;

    apply {
#ifdef AGGREGATION
        // Multicast copies are ordinary packets, not reports as clones are.
        if (standard_metadata.instance_type == INSTANCE_REPLICATION) {
            replicas.apply(hdr, meta, standard_metadata);
            standard_metadata.instance_type = INSTANCE_NORMAL;
        }
        // Reports carry their packets unchanged.
        if (standard_metadata.instance_type == INSTANCE_NORMAL && !hdr.packet_in.isValid()) {
            congestion.apply(hdr, standard_metadata);
            if (hdr.aggregation.isValid()) {
                completion_done.apply(meta);
            }
        }
#endif
        node.apply(meta);
        if (standard_metadata.instance_type == INSTANCE_DEFLECTED) {
            deflected.apply(meta, standard_metadata);
        }
        if (standard_metadata.instance_type != INSTANCE_NORMAL) {
            report_restore.apply(hdr, meta);
            report_choice.apply(hdr, meta, standard_metadata, report_chosen);
        } else if (hdr.ethernet.isValid() && !hdr.packet_in.isValid()) {
            ports.apply(hdr, meta, standard_metadata);
            if (meta.int_start == 1 && meta.is_report == 0) {
                int_source.apply(hdr, meta);
            }
            if (meta.to_edge == 1 && hdr.int_shim.isValid()) {
                int_sink.apply(hdr, meta);
            }
        }
        // If one switch is both source and sink, the packet never travels with a mark.
        if (meta.int_mark == 1 && meta.to_edge == 0) {
            int_mark.apply(hdr, meta);
        }
        if (meta.int_remove == 1) {
            int_unmark.apply(hdr, meta);
        }
        if (standard_metadata.instance_type != INSTANCE_NORMAL && report_chosen == 1) {
            report.apply(hdr, meta, standard_metadata);
        }
        gather.apply(hdr, meta, standard_metadata);
        if (standard_metadata.instance_type != INSTANCE_NORMAL) {
            report_send.apply(hdr, meta, standard_metadata, bytes);
        }
        tx_utilization.apply(bytes, standard_metadata, transmitted_bytes);
        buffer.apply(standard_metadata, buffer_occupancy);
        if (standard_metadata.instance_type == INSTANCE_NORMAL) {
            if (meta.int_export == 1 && meta.is_report == 0) {
                int_export.apply(meta);
            }
            if (meta.routed == 1) {
                queue_watch.apply(meta, standard_metadata);
            }
            // Most packets end here: no telemetry is requested from this hop.
            if (hdr.int_shim.isValid() || meta.report_wanted == 1 || meta.mtu_bytes != 0) {
                hop_readings.apply(transmitted_bytes, buffer_occupancy, meta, standard_metadata);
                if (hdr.int_shim.isValid() && !hdr.packet_in.isValid()) {
                    int_transit.apply(hdr, meta);
                }
                if (meta.routed == 1 && meta.mtu_bytes != 0) {
                    mtu.apply(hdr, meta);
                }
                if (meta.drop_reason != DROP_UNKNOWN) {
                    drop.apply(meta, standard_metadata);
                }
                if (
                    meta.report_tracked == 1 && meta.report_congested == 0
                    // The stripped headers exist nowhere else.
                    && meta.report_intermediate & meta.report_restores_int == 0
                ) {
                    flow_filter.apply(hdr, meta, standard_metadata);
                }
            }
            report_request.apply(meta);
        }
        if (meta.int_growth_bytes != 0 || meta.int_sum != 0) {
            l4_update.apply(hdr, meta);
        }
    }
}

V1Switch(
    FabricParser(),
    FabricVerifyChecksums(),
    FabricIngress(),
    FabricEgress(),
    FabricComputeChecksums(),
    FabricDeparser()
) main;
