// The end of a packet to which an earlier stage gave a drop reason; that stage has counted it by name.
#ifndef P4_INGRESS_DROP_P4
#define P4_INGRESS_DROP_P4

control Drop(inout standard_metadata_t standard_metadata) {
    apply {
        mark_to_drop(standard_metadata);
    }
}

#endif
