// The fabric's program with sums in the switch: what fabric.p4 does, and aggregation/.
#define AGGREGATION
#include "fabric.p4"
