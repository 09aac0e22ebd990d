// Where the INT domain begins: a source port faces hosts, or whoever else may not send INT into the domain.
#ifndef P4_INGRESS_PORT_ROLES_P4
#define P4_INGRESS_PORT_ROLES_P4

#include "../shared/metadata.p4"

control PortRoles(inout metadata_t meta, in standard_metadata_t standard_metadata) {
    action set_source_port() {
        meta.from_edge = 1;
    }

    table port_roles {
        key = {
            standard_metadata.ingress_port: exact @name("ingress_port");
        }
        actions = {
            set_source_port;
            @defaultonly NoAction;
        }
        const default_action = NoAction();
        size = 512;
    }

    apply {
        port_roles.apply();
    }
}

#endif
