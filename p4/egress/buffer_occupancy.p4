// Frames waiting in the switch: the sum over all ports of what each port's newest packet left in its queue.
#ifndef P4_EGRESS_BUFFER_OCCUPANCY_P4
#define P4_EGRESS_BUFFER_OCCUPANCY_P4

#include "../shared/metadata.p4"

control BufferOccupancy(in standard_metadata_t standard_metadata, out bit<24> occupancy) {
    register<bit<24>>(512) port_frames;
    register<bit<24>>(1) buffer_frames;

    // A single action, so that updates of the sum stay atomic.
    @hidden
    action account() {
        bit<24> before;
        port_frames.read(before, (bit<32>) standard_metadata.egress_port);
        buffer_frames.read(occupancy, 0);
        occupancy = occupancy - before + (bit<24>) standard_metadata.deq_qdepth;
        buffer_frames.write(0, occupancy);
        port_frames.write((bit<32>) standard_metadata.egress_port, (bit<24>) standard_metadata.deq_qdepth);
    }

    apply {
        account();
    }
}

#endif
