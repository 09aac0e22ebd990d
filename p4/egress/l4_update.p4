// Updates lengths and the L4 checksum after INT headers were added or removed: incrementally (RFC 1624), so that damage
// stays visible. If this hop pushed a checksum complement, that absorbs the difference, and the checksum stays.
#ifndef P4_EGRESS_L4_UPDATE_P4
#define P4_EGRESS_L4_UPDATE_P4

#include "../shared/headers.p4"
#include "../shared/metadata.p4"

control L4Update(inout headers_t hdr, in metadata_t meta) {
    bit<16> old_complement;
    bit<16> new_length;
    bit<16> checksum_complement;

    @hidden
    action resize_ipv4() {
        old_complement = ~hdr.ipv4.total_length;
        hdr.ipv4.total_length = hdr.ipv4.total_length + meta.int_growth_bytes;
        new_length = hdr.ipv4.total_length;
    }

    @hidden
    action resize_ipv6() {
        old_complement = ~hdr.ipv6.payload_length;
        hdr.ipv6.payload_length = hdr.ipv6.payload_length + meta.int_growth_bytes;
        new_length = hdr.ipv6.payload_length;
    }

    // The pseudo header has the length, and UDP has it a second time; the DSCP is in neither.
    @hidden
    action update_udp() {
        checksum_complement = ~hdr.udp.checksum;
        hash(hdr.udp.checksum, HashAlgorithm.csum16, 16w0, {
            checksum_complement, meta.int_sum, old_complement, new_length, old_complement, new_length
        }, 32w0x10000);
        // RFC 768: zero means that there is no checksum.
        hdr.udp.checksum = (hdr.udp.checksum == 0) ? 16w0xffff : hdr.udp.checksum;
    }

    @hidden
    action update_tcp() {
        checksum_complement = ~hdr.tcp.checksum;
        hash(hdr.tcp.checksum, HashAlgorithm.csum16, 16w0, {
            checksum_complement, meta.int_sum, old_complement, new_length
        }, 32w0x10000);
    }

    // RFC 2784: the checksum is over the GRE header and its payload; there is no pseudo header.
    @hidden
    action update_gre() {
        checksum_complement = ~hdr.gre_checksum.checksum;
        hash(hdr.gre_checksum.checksum, HashAlgorithm.csum16, 16w0, {
            checksum_complement, meta.int_sum
        }, 32w0x10000);
    }

    @hidden
    action complement_udp() {
        hdr.hop_complement.zero = 0;
        hash(hdr.hop_complement.complement, HashAlgorithm.csum16, 16w0, {
            meta.int_sum, old_complement, new_length, old_complement, new_length
        }, 32w0x10000);
    }

    @hidden
    action complement_tcp() {
        hdr.hop_complement.zero = 0;
        hash(hdr.hop_complement.complement, HashAlgorithm.csum16, 16w0, {
            meta.int_sum, old_complement, new_length
        }, 32w0x10000);
    }

    @hidden
    action complement_gre() {
        hdr.hop_complement.zero = 0;
        hash(hdr.hop_complement.complement, HashAlgorithm.csum16, 16w0, { meta.int_sum }, 32w0x10000);
    }

    apply {
        if (hdr.ipv4.isValid()) {
            resize_ipv4();
        } else {
            resize_ipv6();
        }
        if (hdr.gre.isValid()) {
            if (hdr.gre_checksum.isValid()) {
                if (hdr.hop_complement.isValid()) {
                    complement_gre();
                } else {
                    update_gre();
                }
            }
        } else if (hdr.tcp.isValid()) {
            if (hdr.hop_complement.isValid()) {
                complement_tcp();
            } else {
                update_tcp();
            }
        } else if (hdr.udp.isValid()) {
            hdr.udp.length = hdr.udp.length + meta.int_growth_bytes;
            // A UDP header removed by the sink and restored for a report keeps its original checksum.
            if (hdr.udp.checksum != 0 && !hdr.sunk_udp.isValid()) {
                if (hdr.hop_complement.isValid()) {
                    complement_udp();
                } else {
                    update_udp();
                }
            }
        }
    }
}

#endif
