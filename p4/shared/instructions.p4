// Length in words of the metadata that INT instruction bits request (INT v2.1, "Instruction Bitmap").
#ifndef P4_SHARED_INSTRUCTIONS_P4
#define P4_SHARED_INSTRUCTIONS_P4

// Bits 1 to 8: metadata that a hop can also put into a report's main contents.
bit<8> count_report_words(in bit<16> instructions) {
    return (bit<8>) instructions[14:14]
        + (bit<8>) instructions[13:13]
        + (bit<8>) instructions[12:12]
        + ((bit<8>) instructions[11:11] << 1)
        + ((bit<8>) instructions[10:10] << 1)
        + ((bit<8>) instructions[9:9] << 1)
        + (bit<8>) instructions[8:8]
        + (bit<8>) instructions[7:7];
}

// Bits 0 and 9 to 15: the node, which a report names elsewhere, the reserved ones, and the checksum complement.
bit<8> count_stack_only_words(in bit<16> instructions) {
    return (bit<8>) instructions[15:15]
        + (bit<8>) instructions[6:6]
        + (bit<8>) instructions[5:5]
        + (bit<8>) instructions[4:4]
        + (bit<8>) instructions[3:3]
        + (bit<8>) instructions[2:2]
        + (bit<8>) instructions[1:1]
        + (bit<8>) instructions[0:0];
}

// Metadata that each hop adds for our own domain; the packet number is added by the source alone.
bit<8> count_domain_words(in bit<16> domain_instructions) {
    return (bit<8>) domain_instructions[14:14];
}

#endif
