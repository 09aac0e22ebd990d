// Drop reasons as in a report's metadata (RepMdBits 15); dataplane/wire/drop_reasons.py has the same.
#ifndef P4_SHARED_DROP_REASONS_P4
#define P4_SHARED_DROP_REASONS_P4

typedef bit<8> drop_reason_t;

// Not dropped, as long as the packet is in the pipeline.
const drop_reason_t DROP_UNKNOWN = 0;
const drop_reason_t DROP_PARSER_ERROR = 1;
const drop_reason_t DROP_UNKNOWN_ETHERTYPE = 2;
const drop_reason_t DROP_BAD_IPV4_CHECKSUM = 3;
const drop_reason_t DROP_INT_AT_EDGE = 4;
const drop_reason_t DROP_INT_MALFORMED = 5;
const drop_reason_t DROP_TTL_EXPIRED = 6;
const drop_reason_t DROP_NO_ROUTE = 7;
const drop_reason_t DROP_INT_DISCARD = 8;
const drop_reason_t DROP_QUEUE_FULL = 9;
const drop_reason_t DROP_MTU_EXCEEDED = 10;
const drop_reason_t DROP_REPORT_AT_EDGE = 11;
const drop_reason_t DROP_SOURCE_SPOOFED = 12;

#endif
