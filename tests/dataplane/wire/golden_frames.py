"""Golden packets of INT v2.1, from the IP header on: every mode in every encapsulation.

Written by hand from the specification's drawings; the remarks walk through them, numbers of sections in brackets.
Lengths and checksums are right, of the inner headers too: the test computes them again.
"""

from __future__ import annotations

from dataclasses import dataclass

from dataplane.wire.marking import Marking


@dataclass(frozen=True)
class Golden:
    """A packet as text, hexadecimal with remarks behind `#`; `marking` is its domain's INT mark."""

    title: str
    text: str
    marking: Marking

    @property
    def packet(self) -> bytes:
        """The packet's bytes, from its IP header on."""
        return bytes_of(self.text)


def bytes_of(text: str) -> bytes:
    """Return the bytes of hexadecimal text with remarks."""
    digits = "".join(line.partition("#")[0] for line in text.splitlines())
    return bytes.fromhex("".join(digits.split()))


MD_TCP = Golden(
    "INT-MD behind TCP, told by DSCP 0x17; INT v2.1, section 6.1, the packet as the sink receives it",
    """
    45 5c 0050 0001 4000 40 06 2649 0a000001 0a000002   # IPv4: IHL 5; TOS 5c = DSCP 010111 (0x17), ECN 0; DF; TTL 64;
                                                        # TCP
    1388 1771 01020304 0a0b0c0d 50 18 2000 dfa1 0000    # TCP: 5000 to 6001, data offset 5, PSH ACK
    10 07 0028                                          # shim (5.7.2): type 1 = MD, NPT 0; 7 words follow; original
                                                        # DSCP 001010 (0x0a)
    20 000 2 06                                         # MD (5.8): version 2, D E M clear; HopML 2; 6 hops remain of 8
    9000 0000 0000 0000                                 # instructions: bit 0 node id, bit 3 queue; domain 0, no DS
                                                        # instruction, no flag
    00000002 05 000011                                  # newest hop: node 2; queue 5 with 17 in it
    00000001 00 000003                                  # the source: node 1; queue 0 with 3 in it
    4d696c6c72616365                                    # TCP payload
    """,
    Marking(),
)

MD_TCP_OPTIONS_V6 = Golden(
    "INT-MD behind TCP with options over IPv6, told by a bit of the DSCP, one hop left no room (M)",
    """
    68a 00000 003a 06 3f                                # IPv6: version 6; traffic class 8a = DSCP 100010 (bit 0x20 is
                                                        # INT's), ECN 2; TCP; hops 63
    20010db8000000000000000000000001 20010db8000000000000000000000002
    1388 1771 01020304 0a0b0c0d 80 10 2000 4732 0000    # TCP: data offset 8, so 12 bytes of options, then INT (5.7.2)
    01 01 08 0a 00000009 00000008                       # NOP NOP timestamps
    10 05 0008                                          # shim: MD, NPT 0, 5 words; original DSCP 000010
    22 000 2 07                                         # MD: M set; HopML 2, 7 remain
    9000 0000 0000 0000
    00000001 00 000003                                  # only the source had room
    aabb
    """,
    Marking(dscp=0x20, dscp_mask=0x20),
)

MD_UDP_PORT = Golden(
    "INT-MD behind UDP, told by its destination port (NPT 1); section 6.5",
    """
    45 28 0044 0002 4000 40 11 267d 0a000001 0a000002   # IPv4: DSCP 0x0a stays as it was, the port tells
    1388 5678 0030 0f59                                 # UDP: to INT_TBD, here 0x5678
    14 07 1771                                          # shim: MD, NPT 01; 7 words; the original destination port, 6001
    20 000 2 06 9000 0000 0000 0000
    00000002 05 000011 00000001 00 000003
    4d696c6c72616365
    """,
    Marking(dscp=None, udp_port=0x5678),
)

MD_NEW_UDP = Golden(
    "INT-MD behind a new UDP header before TCP (NPT 2); section 6.3",
    """
    45 00 0058 0003 4000 40 11 2690 0a000001 0a000002   # IPv4: the protocol has become 17
    c0de 5678 0044 0000                                 # the new UDP header: port by hash, checksum 0 (5.7.2)
    18 07 0006                                          # shim: MD, NPT 10; 7 words; reserved, original protocol 6
    20 000 2 06 9000 0000 0000 0000
    00000002 05 000011 00000001 00 000003
    1388 1771 01020304 0a0b0c0d 50 18 2000 a70e 0000    # the original TCP header, its checksum untouched
    4d696c6c72616365
    """,
    Marking(dscp=None, udp_port=0x5678),
)

MX_TCP = Golden(
    "INT-MX behind TCP, told by DSCP; section 6.2",
    """
    45 5c 0040 0004 4000 40 06 2656 0a000001 0a000002
    1388 1771 01020304 0a0b0c0d 50 18 2000 c6d2 0000
    30 03 0028                                          # shim: type 3 = MX, NPT 0; 3 words; original DSCP 0x0a
    2000 0000 9000 0000 0000 0000                       # MX (5.9): version 2, D clear, 27 reserved bits; node id and
                                                        # queue; no domain
    4d696c6c72616365
    """,
    Marking(),
)

MX_UDP_PORT = Golden(
    "INT-MX behind UDP, told by port (NPT 1), over IPv6, to be discarded at the sink (D); section 6.6",
    """
    600 00000 0020 11 40
    20010db8000000000000000000000001 20010db8000000000000000000000002
    1388 5678 0020 a727
    34 03 1771                                          # shim: MX, NPT 1; original port 6001
    2800 0000 9000 0000 0000 0000                       # MX: D set (bit 4 of the first byte)
    4d696c6c72616365
    """,
    Marking(dscp=None, udp_port=0x5678),
)

MX_NEW_UDP_SOURCE_INSERTED = Golden(
    "INT-MX with source-inserted metadata behind a new UDP header before TCP; section 6.16",
    """
    45 00 0050 0005 4000 40 11 2696 0a000001 0a000002
    c0de 5678 003c 0000
    38 05 0006                                          # shim: MX, NPT 2; 5 words: the header's 3 and 2 of metadata;
                                                        # original protocol 6
    2000 0000 9000 abcd c000 0000                       # MX: domain 0xabcd, DS instruction bits 0 and 1, both source-
                                                        # inserted
    0000000f 12345678                                   # sequence number 15, flow id 0x12345678
    1388 1771 01020304 0a0b0c0d 50 18 2000 a70e 0000
    4d696c6c72616365
    """,
    Marking(dscp=None, udp_port=0x5678),
)

MX_NEW_IP_UDP = Golden(
    "INT-MX behind new IP and UDP headers before a whole IPv4 packet (IPsec); section 6.7",
    """
    45 00 005c 0006 4000 40 11 b687 c0000201 c0000202
    c0de 5678 0048 0000
    38 03 0004                                          # shim: MX, NPT 2; original "protocol" 4: an IPv4 packet follows
    2000 0000 9000 0000 0000 0000
    45 00 0030 0007 4000 40 33 2692 0a000001 0a000002   # the original packet: protocol 51, authentication header
    06 04 0000 00000100 00000001 000102030405060708090a0b0c0d0e0f
    """,
    Marking(dscp=None, udp_port=0x5678),
)

MD_PROBE_MARKER = Golden(
    "INT-MD behind UDP and a probe marker (5.7.2, option 3)",
    """
    45 00 004c 0008 4000 40 11 2697 0a000001 0a000002
    1388 1771 0038 3aa5                                 # ports as they were
    4d494c4c 52414345                                   # probe marker (1) and (2), "MILLRACE"
    10 07 0000                                          # shim: MD, NPT 0; original DSCP 0
    20 000 2 06 9000 0000 0000 0000
    00000002 05 000011 00000001 00 000003
    4d696c6c72616365
    """,
    Marking(dscp=None, probe_marker=0x4D494C4C52414345),
)

MD_GRE = Golden(
    "INT-MD behind GRE that the source put there (G), before the original IPv4 packet; section 6.8",
    """
    45 00 005c 0009 4000 40 2f b666 c0000201 c0000202   # outer IPv4: protocol 47
    0000 88b5                                           # GRE (RFC 2784): no options, version 0; protocol type TBD_INT,
                                                        # here 0x88b5
    18 07 0800                                          # shim of GRE (5.7.1): type 1, G set; 7 words; an IPv4 packet
                                                        # follows
    20 000 2 06 9000 0000 0000 0000
    00000002 05 000011 00000001 00 000003
    45 00 0024 000a 4000 40 11 26bd 0a000001 0a000002
    1388 1771 0010 3136 4d696c6c72616365
    """,
    Marking(),
)

MX_GRE_BRIDGED = Golden(
    "INT-MX in a GRE tunnel that was there before, with a key, before an Ethernet frame; section 6.11 with G clear",
    """
    45 00 005e 000b 4000 40 2f b662 c0000201 c0000202
    2000 88b5 0000002a                                  # GRE: K set, key 42 (RFC 2890)
    30 03 6558                                          # shim: type 3, G clear; 3 words; transparent Ethernet bridging
                                                        # follows
    2000 0000 9000 0000 0000 0000
    020000000002 020000000001 0800
    45 00 0024 000c 4000 40 11 26bb 0a000001 0a000002 1388 1771 0010 3136 4d696c6c72616365
    """,
    Marking(),
)

MD_VXLAN_GPE = Golden(
    "INT-MD in a VXLAN-GPE tunnel, three hops; section 6.12",
    """
    45 00 007e 000d 4000 40 11 b65e c0000201 c0000202
    d431 12b6 006a 0000                                 # UDP: to 4790, checksum 0
    0c 0000 82 000064 00                                # VXLAN-GPE (5.7.3): I and P set; next protocol 0x82; VNI 100
    10 09 00 03                                         # shim of VXLAN-GPE: type 1; 9 words; G clear; next protocol 3,
                                                        # Ethernet
    20 000 2 05 9000 0000 0000 0000
    00000003 00 000000 00000002 05 000011 00000001 00 000003
    020000000002 020000000001 0800
    45 00 0024 000e 4000 40 11 26b9 0a000001 0a000002 1388 1771 0010 3136 4d696c6c72616365
    """,
    Marking(),
)

MX_VXLAN = Golden(
    "INT-MX in what was a plain VXLAN tunnel (G), its UDP checksum kept right; section 6.13 with G",
    """
    600 00000 0052 11 40
    20010db8000000000000000000000001 20010db8000000000000000000000002
    d431 12b6 0052 f484
    0c 0000 82 000064 00
    30 03 80 03                                         # shim: type 3; 3 words; G: the packet came as VXLAN, to port
                                                        # 4789
    2000 0000 9000 0000 0000 0000
    020000000002 020000000001 0800
    45 00 0024 000f 4000 40 11 26b8 0a000001 0a000002 1388 1771 0010 3136 4d696c6c72616365
    """,
    Marking(),
)

MD_GENEVE = Golden(
    "INT-MD as an option of Geneve; section 6.14",
    """
    45 00 007e 0010 4000 40 11 b65b c0000201 c0000202
    d431 17c1 006a 0000                                 # UDP: to 6081
    0a 00 6558 000064 00                                # Geneve: version 0, 10 words of options (the drawing's 9
                                                        # forgets the option header)
    0103 01 09                                          # option (5.7.4): class 0x0103, type 1 = MD, 9 words
    20 000 2 05 9000 0000 0000 0000
    00000003 00 000000 00000002 05 000011 00000001 00 000003
    020000000002 020000000001 0800
    45 00 0024 0011 4000 40 11 26b6 0a000001 0a000002 1388 1771 0010 3136 4d696c6c72616365
    """,
    Marking(),
)

MX_GENEVE = Golden(
    "INT-MX as an option of Geneve; section 6.15",
    """
    45 00 0066 0012 4000 40 11 b671 c0000201 c0000202
    d431 17c1 0052 0000
    04 00 6558 000064 00                                # Geneve: 4 words of options
    0103 03 03                                          # option: type 3 = MX, 3 words
    2000 0000 9000 0000 0000 0000
    020000000002 020000000001 0800
    45 00 0024 0013 4000 40 11 26b4 0a000001 0a000002 1388 1771 0010 3136 4d696c6c72616365
    """,
    Marking(),
)

MD_ALL_INSTRUCTIONS = Golden(
    "INT-MD with every baseline bit, a domain word and the checksum complement (5.6, 5.8), which leaves UDP's "
    "checksum as the source sent it",
    """
    45 5c 006c 0014 4000 40 11 260f 0a000001 0a000002
    1388 1771 0058 3136                                 # UDP: the checksum of the packet as it was without INT, length
                                                        # 16
    10 11 0000                                          # shim: MD, NPT 0; 17 words: 3 of the header, 14 of one hop
    20 000 e 07                                         # MD: HopML 14; 7 remain of 8
    ff81 4d52 4000 0000                                 # bits 0 to 8 and 15; domain 0x4d52, DS instruction bit 1
    00000001 00010002 000003e8                          # node 1; level 1: in 1, out 2; hop latency 1000
    00 000003                                           # queue 0 with 3 in it
    0000000000001000 00000000000013e8                   # ingress and egress timestamps, 8 bytes each
    00000065 00000066                                   # level 2: in 101, out 102
    000186a0 00 00002a                                  # TX utilisation 100000; buffer 0 with 42 in it
    02 3f 0000                                          # domain word: a destination path, TTL 63
    0000 82d6                                           # checksum complement, last: makes up for all of INT and the
                                                        # longer lengths
    4d696c6c72616365
    """,
    Marking(),
)

XD_UDP = Golden(
    "INT-XD: the packet as it always was; nothing rides (section 3.1)",
    """
    45 28 0024 0015 4000 40 11 268a 0a000001 0a000002
    1388 1771 0010 3136
    4d696c6c72616365
    """,
    Marking(),
)

HOP_BY_HOP = Golden(
    "INT-MD whose hops report and strip, behind UDP: our domain, no stack ever",
    """
    45 5c 0034 0016 4000 40 11 2645 0a000001 0a000002
    1388 1771 0020 a1b9
    10 03 0000                                          # shim: MD, NPT 0; 3 words, whatever the hop
    20 000 2 06 9000                                    # MD: 6 hops remain
    4d52 0000 8000                                      # domain 0x4d52, DS flag 0x8000: hop by hop
    4d696c6c72616365
    """,
    Marking(),
)

FRAMES = {name: value for name, value in list(globals().items()) if isinstance(value, Golden)}
"""All of them, by name."""
