// Drops decided in egress; the stage that set the drop reason has counted it under that name.
#ifndef P4_EGRESS_DROP_P4
#define P4_EGRESS_DROP_P4

#include "../shared/drop_request.p4"
#include "../shared/metadata.p4"

control EgressDrop(inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    DropRequest() request;

    apply {
        mark_to_drop(standard_metadata);
        request.apply(meta);
    }
}

#endif
