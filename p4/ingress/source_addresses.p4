// Validates the source address of packets from outside the fabric. A host sends from its own addresses or from those
// of networks that it routes, never from a switch's, nor does it carry such a packet in a tunnel.
#ifndef P4_INGRESS_SOURCE_ADDRESSES_P4
#define P4_INGRESS_SOURCE_ADDRESSES_P4

#include "../shared/headers.p4"
#include "../shared/metadata.p4"

control SourceAddresses(in headers_t hdr, inout metadata_t meta, in standard_metadata_t standard_metadata) {
    bit<32> switch_addr = 0;
    bit<32> switch_mask = 0;
    bit<1>  own = 1;

    action set_switch_addresses(@name("addr") bit<32> addr, @name("mask") bit<32> mask) {
        switch_addr = addr;
        switch_mask = mask;
    }

    table switch_addresses {
        actions = {
            set_switch_addresses;
            NoAction;
        }
        default_action = NoAction();
    }

    // Networks routed by a host, by the port that it is attached to.
    table ipv4_sources {
        key = {
            standard_metadata.ingress_port: exact @name("ingress_port");
            hdr.ipv4.src_addr: lpm @name("src_addr");
        }
        actions = {
            NoAction;
        }
        const default_action = NoAction();
        size = 1024;
    }

    table ipv6_sources {
        key = {
            standard_metadata.ingress_port: exact @name("ingress_port");
            hdr.ipv6.src_addr: lpm @name("src_addr");
        }
        actions = {
            NoAction;
        }
        const default_action = NoAction();
        size = 1024;
    }

    apply {
        if (hdr.ipv4.isValid()) {
            own = (bit<1>) (hdr.ipv4.src_addr & meta.own_mask == meta.own_addr);
        } else if (hdr.ipv6.isValid()) {
            own = (bit<1>) (hdr.ipv6.src_addr & meta.own_ipv6_mask == meta.own_ipv6_addr);
        }
        // Most packets end here.
        if (own == 0 || meta.tunnelled_addr != 0) {
            switch_addresses.apply();
            if (own == 0) {
                if (hdr.ipv4.isValid()) {
                    if (!ipv4_sources.apply().hit) {
                        meta.spoofed = 1;
                    } else if (switch_mask != 0 && hdr.ipv4.src_addr & switch_mask == switch_addr) {
                        meta.spoofed = 1;
                    }
                } else if (!ipv6_sources.apply().hit) {
                    meta.spoofed = 1;
                }
            }
            if (switch_mask != 0 && meta.tunnelled_addr & switch_mask == switch_addr) {
                meta.spoofed = 1;
            }
        }
    }
}

#endif
