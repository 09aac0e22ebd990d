// Verifies IPv4's header checksum on arrival. L4 checksums are verified by hosts; here they are only updated.
#ifndef P4_WIRE_VERIFY_CHECKSUMS_P4
#define P4_WIRE_VERIFY_CHECKSUMS_P4

#include "../shared/headers.p4"
#include "../shared/metadata.p4"

control FabricVerifyChecksums(inout headers_t hdr, inout metadata_t meta) {
    apply {
        verify_checksum(
            hdr.ipv4.isValid(),
            {
                hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.dscp, hdr.ipv4.ecn, hdr.ipv4.total_length,
                hdr.ipv4.identification, hdr.ipv4.reserved, hdr.ipv4.do_not_fragment, hdr.ipv4.more_fragments,
                hdr.ipv4.fragment_offset, hdr.ipv4.ttl, hdr.ipv4.protocol, hdr.ipv4.src_addr, hdr.ipv4.dst_addr,
                hdr.ipv4_options.options
            },
            hdr.ipv4.checksum,
            HashAlgorithm.csum16
        );
    }
}

#endif
