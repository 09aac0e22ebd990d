// A port's role: behind edge ports are hosts, or other devices that are not switches of this fabric. They send from
// their own addresses and send no reports; at a source port INT begins, and may not enter.
#ifndef P4_INGRESS_PORT_ROLES_P4
#define P4_INGRESS_PORT_ROLES_P4

#include "../shared/metadata.p4"

control PortRoles(inout metadata_t meta, in standard_metadata_t standard_metadata) {
    // Addresses under masks: a host's own with all ones, any address with zero.
    action set_host_port(
        @name("addr") bit<32> addr,
        @name("mask") bit<32> mask,
        @name("ipv6_addr") bit<128> ipv6_addr,
        @name("ipv6_mask") bit<128> ipv6_mask
    ) {
        meta.from_outside = 1;
        meta.own_addr = addr;
        meta.own_mask = mask;
        meta.own_ipv6_addr = ipv6_addr;
        meta.own_ipv6_mask = ipv6_mask;
    }

    action set_source_port(
        @name("addr") bit<32> addr,
        @name("mask") bit<32> mask,
        @name("ipv6_addr") bit<128> ipv6_addr,
        @name("ipv6_mask") bit<128> ipv6_mask
    ) {
        set_host_port(addr, mask, ipv6_addr, ipv6_mask);
        meta.from_edge = 1;
    }

    table port_roles {
        key = {
            standard_metadata.ingress_port: exact @name("ingress_port");
        }
        actions = {
            set_source_port;
            set_host_port;
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
