// Aggregation over UDP: 32 bytes, then `quarters` times 256 bytes of values.
#ifndef P4_AGGREGATION_HEADERS_P4
#define P4_AGGREGATION_HEADERS_P4

const bit<4>  AGGREGATION_VERSION = 2;
const bit<16> AGGREGATION_BYTES = 32;

const bit<4> KIND_CONTRIBUTION = 1;
const bit<4> KIND_RESULT = 2;
const bit<4> KIND_AGAIN = 3;
const bit<4> KIND_REFUSED = 4;
const bit<4> KIND_PULL = 5;
const bit<4> KIND_DISTRIBUTE = 6;

// RepMdBits: interfaces and ingress timestamp. The domain's bit is for reports only.
const bit<16> COMPLETION_METADATA_BITS = 0x4800;
const bit<16> DOMAIN_COMPLETION = 0x2000;
const bit<8>  COMPLETION_WORDS = 4;

const bit<8> FLAG_SATURATED = 1;
const bit<8> FLAG_CONGESTED = 2;
const bit<8> FLAG_FINAL = 4;
const bit<8> FLAG_DISTRIBUTED = 8;
const bit<8> FLAG_CALL = 16;

const bit<2> ECN_ECT0 = 2;
const bit<2> ECN_CE = 3;

const bit<4> OPERATION_SUM = 1;
const bit<4> OPERATION_MAX = 2;

const bit<8> REASON_EPOCH = 1;
const bit<8> REASON_MISMATCH = 2;

// The cells of all jobs together, 1,024 bytes each.
#define AGGREGATION_CELLS 8192

typedef bit<2048> lanes_t;

header aggregation_t {
    bit<4>  version;
    bit<4>  kind;
    bit<8>  flags;
    bit<16> job;
    bit<32> item;
    bit<16> epoch;
    bit<16> workers;
    bit<4>  operation;
    bit<4>  quarters;
    bit<8>  reason;
    bit<16> reserved;
    // The job's secret: packets without it are ignored.
    bit<64> nonce;
    // Summed like any lane, modulo 2^64, over all contributions: workers detect by it any changed bit of a result.
    bit<64> check;
}

// Report content for an item to which all children have contributed. `ahead`: the number of newer items in progress.
header completion_words_t {
    bit<16> job;
    bit<8>  last_child;
    bit<1>  leaf;
    bit<7>  zero;
    bit<32> item;
    bit<32> wait_us;
    bit<16> repeated;
    bit<16> ahead;
}

header values_t {
    lanes_t lanes;
}

// State of a cell's item: done1 zero7 job16 epoch16 item32 seen64 workers16 flags8 operation4 quarters4
// repeated16 opened_us48 check64. Job 0: none.
typedef bit<296> cell_t;

#endif
