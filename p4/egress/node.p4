// This switch's identity in INT metadata and reports; set as the table's default action.
#ifndef P4_EGRESS_NODE_P4
#define P4_EGRESS_NODE_P4

#include "../shared/metadata.p4"

control Node(inout metadata_t meta) {
    action set_node(@name("node_id") bit<32> node_id) {
        meta.node_id = node_id;
    }

    table node {
        actions = {
            set_node;
            NoAction;
        }
        default_action = NoAction();
    }

    apply {
        node.apply();
    }
}

#endif
