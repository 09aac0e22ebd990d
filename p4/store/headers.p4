// Named content over UDP: 40 bytes, then `quarters` times 256 bytes of values.
#ifndef P4_STORE_HEADERS_P4
#define P4_STORE_HEADERS_P4

const bit<4>  STORE_VERSION = 1;
const bit<16> STORE_BYTES = 40;

const bit<4> STORE_INTEREST = 1;
const bit<4> STORE_DATA = 2;
const bit<4> STORE_PUT = 3;
const bit<4> STORE_PUT_ACK = 4;
const bit<4> STORE_NACK = 5;
const bit<4> STORE_ANNOUNCE = 6;

// Requests to this address go to whoever has announced a prefix of their name. An INTEREST for it has the hashes of the
// name's first one and two components in `content_version` and `freshness_ms`.
const bit<32> STORE_NAMES_ADDR = 0x0afffffd;
const bit<48> STORE_ANNOUNCE_US = 100000;

const bit<8> STORE_TOO_SHORT = 1;
const bit<8> STORE_ABSENT = 2;
const bit<8> STORE_STALE = 3;
const bit<8> STORE_FORBIDDEN = 4;

// The greatest lead of an unsolicited version that is believed, and how long a copy may be served.
const bit<32> STORE_FAR = 1 << 16;
const bit<32> STORE_LONGEST_FRESHNESS_MS = 3600000;

const bit<9> STORE_ANY_PORT = 0x1ff;

// 1,024 bytes each.
#define STORE_CELLS 4096

header store_t {
    bit<4>   version;
    bit<4>   kind;
    bit<4>   quarters;
    bit<4>   size;
    bit<8>   reason;
    bit<8>   reserved;
    bit<32>  segment;
    bit<128> name;
    bit<32>  content_version;
    bit<32>  freshness_ms;
    bit<32>  tag;
    bit<32>  number;
}

// State of a cell's content: generation32 version32 writer32 arrival_us48 freshness_ms32 quarters4 zero2
// synced1 valid1. Generation 0: none.
typedef bit<184> store_cell_t;

#endif
