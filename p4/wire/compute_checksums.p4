// Computes IPv4's header checksum on departure, for the packet and for a report's outer header.
#ifndef P4_WIRE_COMPUTE_CHECKSUMS_P4
#define P4_WIRE_COMPUTE_CHECKSUMS_P4

#include "../shared/headers.p4"
#include "../shared/metadata.p4"

control FabricComputeChecksums(inout headers_t hdr, inout metadata_t meta) {
    apply {
        update_checksum(
            hdr.ipv4.isValid() && meta.report_as_it_came == 0,
            {
                hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.dscp, hdr.ipv4.ecn, hdr.ipv4.total_length,
                hdr.ipv4.identification, hdr.ipv4.reserved, hdr.ipv4.do_not_fragment, hdr.ipv4.more_fragments,
                hdr.ipv4.fragment_offset, hdr.ipv4.ttl, hdr.ipv4.protocol, hdr.ipv4.src_addr, hdr.ipv4.dst_addr,
                hdr.ipv4_options.options
            },
            hdr.ipv4.checksum,
            HashAlgorithm.csum16
        );
        update_checksum(
            hdr.report_ipv4.isValid(),
            {
                hdr.report_ipv4.version, hdr.report_ipv4.ihl, hdr.report_ipv4.dscp, hdr.report_ipv4.ecn,
                hdr.report_ipv4.total_length, hdr.report_ipv4.identification, hdr.report_ipv4.reserved,
                hdr.report_ipv4.do_not_fragment, hdr.report_ipv4.more_fragments, hdr.report_ipv4.fragment_offset,
                hdr.report_ipv4.ttl, hdr.report_ipv4.protocol, hdr.report_ipv4.src_addr, hdr.report_ipv4.dst_addr
            },
            hdr.report_ipv4.checksum,
            HashAlgorithm.csum16
        );
    }
}

#endif
