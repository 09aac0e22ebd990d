// Unpacks a stored report into bytes: these pieces add up to any number of words.
#ifndef P4_EGRESS_GATHER_UNPACK_P4
#define P4_EGRESS_GATHER_UNPACK_P4

#include "../shared/headers.p4"

control GatherUnpack(
    in gathered_record_t record,
    in bit<8> words,
    inout words16_t words16,
    inout words8_t words8,
    inout words4_t words4,
    inout words2_t words2,
    inout words1_t words1
) {
    apply {
        gathered_record_t rest = record;
        if (words[0:0] == 1) {
            words1.setValid();
            words1.data = rest[31:0];
            rest = rest >> 32;
        }
        if (words[1:1] == 1) {
            words2.setValid();
            words2.data = rest[63:0];
            rest = rest >> 64;
        }
        if (words[2:2] == 1) {
            words4.setValid();
            words4.data = rest[127:0];
            rest = rest >> 128;
        }
        if (words[3:3] == 1) {
            words8.setValid();
            words8.data = rest[255:0];
            rest = rest >> 256;
        }
        if (words[4:4] == 1) {
            words16.setValid();
            words16.data = rest[511:0];
        }
    }
}

#endif
