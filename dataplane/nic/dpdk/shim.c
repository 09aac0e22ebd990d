/* Plain C interface to DPDK for Millrace: most of DPDK's own API is inline functions without an address.
 *
 * A queue belongs to one thread at a time, and so does the pool of its mbufs, which therefore needs no atomics.
 * Functions return 0, or a negative errno. `struct line` is twin to DpdkLine in dataplane/nic/queue.py.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rte_dev.h>
#include <rte_eal.h>
#include <rte_ethdev.h>
#include <rte_log.h>
#include <rte_mbuf.h>

enum { LINE_SLOTS = 256, MOST_BORROWED = 1024, PEEKED = 32 };
/* Data of an mbuf that takes one page: net_af_xdp requires adjacent mbufs, none across a page boundary. */
enum { PAGE_DATA_BYTES = 4096 - RTE_MEMPOOL_ALIGN - sizeof(struct rte_mbuf) - RTE_PKTMBUF_HEADROOM };

struct line {
    uint64_t slots[LINE_SLOTS];   /* data addresses of mbufs waiting to be filled */
    uint32_t lengths[LINE_SLOTS]; /* bytes of the filled ones */
    uint32_t filled;              /* slots that have an mbuf */
    uint32_t room;                /* bytes that fit a slot */
    uint64_t rx_too_long;         /* chained frames without memory for a copy */
    uint64_t lost;                /* frames that the driver took and did not send */
    uint64_t sent_bytes;
};

struct queue {
    struct line line;
    uint16_t port, index;
    int counts_sent; /* the driver takes frames that it cannot send, which only its statistics show */
    uint32_t borrowed, gathered, peeked_first, peeked_end;
    struct rte_mempool *pool;
    struct rte_mbuf *ready[LINE_SLOTS], *lent[MOST_BORROWED], *peeked[PEEKED];
    void *copies[MOST_BORROWED];
    uint64_t opackets, obytes;
};

int millrace_start(int argc, char **argv, int log_fd)
{
    FILE *log = fdopen(log_fd, "w");
    if (log != NULL) {
        setvbuf(log, NULL, _IOLBF, 0);
        rte_openlog_stream(log);
    }
    int result = rte_eal_init(argc, argv) < 0 ? -rte_errno : 0;
    rmdir(rte_eal_get_runtime_dir()); /* empty, as nothing is shared */
    return result;
}

int millrace_attach(const char *bus, const char *name, const char *arguments, uint16_t *port, uint16_t *queues,
                    uint16_t *mtu)
{
    struct rte_eth_dev_info info;
    int result = rte_eal_hotplug_add(bus, name, arguments);
    if (result == 0)
        result = rte_eth_dev_get_port_by_name(name, port);
    if (result == 0)
        result = rte_eth_dev_info_get(*port, &info);
    if (result == 0)
        result = rte_eth_dev_get_mtu(*port, mtu);
    if (result == 0)
        *queues = RTE_MIN(info.max_rx_queues, info.max_tx_queues);
    return result;
}

/* Like rte_pktmbuf_pool_create_by_ops, but without gaps that spread mbufs over memory channels. */
static struct rte_mempool *make_pool(const char *name, uint32_t mbufs, uint16_t data_bytes, int socket)
{
    uint16_t room = RTE_PKTMBUF_HEADROOM + data_bytes;
    struct rte_pktmbuf_pool_private head = {.mbuf_data_room_size = room};
    struct rte_mempool *pool = rte_mempool_create_empty(name, mbufs, sizeof(struct rte_mbuf) + room, 0, sizeof(head),
                                                        socket, RTE_MEMPOOL_F_NO_SPREAD);
    if (pool == NULL)
        return NULL;
    int failed = rte_mempool_set_ops_byname(pool, "ring_sp_sc", NULL);
    if (failed == 0) {
        rte_pktmbuf_pool_init(pool, &head);
        failed = RTE_MIN(rte_mempool_populate_default(pool), 0);
    }
    if (failed == 0) {
        rte_mempool_obj_iter(pool, rte_pktmbuf_init, NULL);
        return pool;
    }
    rte_mempool_free(pool);
    rte_errno = -failed;
    return NULL;
}

/* `data_bytes` of 0 makes mbufs of one page. */
int millrace_make_queue(const char *pool_name, uint16_t port, uint16_t index, uint32_t mbufs, uint16_t data_bytes,
                        int counts_sent, struct queue **made)
{
    struct queue *q = calloc(1, sizeof(*q));
    if (q == NULL)
        return -ENOMEM;
    q->port = port, q->index = index;
    q->counts_sent = counts_sent && index < RTE_ETHDEV_QUEUE_STAT_CNTRS;
    q->line.room = data_bytes > 0 ? data_bytes : PAGE_DATA_BYTES;
    q->pool = make_pool(pool_name, mbufs, q->line.room, rte_eth_dev_socket_id(port));
    if (q->pool == NULL) {
        free(q);
        return -rte_errno;
    }
    *made = q;
    return 0;
}

static void refill(struct queue *q)
{
    uint32_t wanted = LINE_SLOTS - q->line.filled;
    if (wanted == 0 || rte_pktmbuf_alloc_bulk(q->pool, q->ready + q->line.filled, wanted) != 0)
        return;
    for (; q->line.filled < LINE_SLOTS; q->line.filled++)
        q->line.slots[q->line.filled] = (uint64_t)rte_pktmbuf_mtod(q->ready[q->line.filled], void *);
}

int millrace_begin(uint16_t port, struct queue **queues, uint16_t count, uint16_t rx_slots, uint16_t tx_slots,
                   int promiscuous)
{
    struct rte_eth_conf conf = {0};
    int result = rte_eth_dev_configure(port, count, count, &conf);
    if (result == 0)
        result = rte_eth_dev_adjust_nb_rx_tx_desc(port, &rx_slots, &tx_slots);
    for (uint16_t i = 0; i < count && result == 0; i++) {
        result = rte_eth_rx_queue_setup(port, i, rx_slots, rte_eth_dev_socket_id(port), NULL, queues[i]->pool);
        if (result == 0)
            result = rte_eth_tx_queue_setup(port, i, tx_slots, rte_eth_dev_socket_id(port), NULL);
    }
    if (result == 0)
        result = rte_eth_dev_start(port);
    if (result == 0 && promiscuous)
        result = rte_eth_promiscuous_enable(port);
    for (uint16_t i = 0; i < count && result == 0; i++)
        refill(queues[i]);
    return result;
}

void millrace_release(struct queue *q)
{
    rte_pktmbuf_free_bulk(q->lent, q->borrowed);
    q->borrowed = 0;
    while (q->gathered > 0)
        free(q->copies[--q->gathered]);
}

/* Free the port's resources: queues give back mbufs first; pools are freed once the driver has released them. */
int millrace_end(uint16_t port, const char *bus, const char *name, struct queue **queues, uint16_t count)
{
    rte_eth_dev_stop(port);
    for (uint16_t i = 0; i < count; i++) {
        millrace_release(queues[i]);
        rte_pktmbuf_free_bulk(queues[i]->peeked + queues[i]->peeked_first,
                              queues[i]->peeked_end - queues[i]->peeked_first);
        rte_pktmbuf_free_bulk(queues[i]->ready, queues[i]->line.filled);
    }
    int result = rte_eal_hotplug_remove(bus, name);
    for (uint16_t i = 0; i < count; i++) {
        rte_mempool_free(queues[i]->pool);
        free(queues[i]);
    }
    return result;
}

/* A chained frame in one piece: inside its first mbuf, or in a copy that lives until the release. */
static void *gather(struct queue *q, struct rte_mbuf *m)
{
    if (rte_pktmbuf_linearize(m) == 0)
        return rte_pktmbuf_mtod(m, void *);
    void *copy = malloc(m->pkt_len);
    if (copy == NULL)
        return NULL;
    q->copies[q->gathered++] = copy;
    return (void *)(uintptr_t)rte_pktmbuf_read(m, 0, m->pkt_len, copy);
}

static uint32_t take(struct queue *q, struct rte_mbuf **into, uint32_t limit)
{
    uint32_t left = RTE_MIN(limit, q->peeked_end - q->peeked_first);
    if (left == 0)
        return rte_eth_rx_burst(q->port, q->index, into, limit);
    memcpy(into, q->peeked + q->peeked_first, left * sizeof(*into));
    q->peeked_first += left;
    return left;
}

uint32_t millrace_receive(struct queue *q, uint64_t *frames, uint32_t *lengths, uint32_t limit)
{
    uint32_t found = 0, first = q->borrowed;
    uint32_t taken = take(q, q->lent + first, RTE_MIN(limit, MOST_BORROWED - first));
    q->borrowed += taken;
    for (uint32_t i = first; i < first + taken; i++) {
        struct rte_mbuf *m = q->lent[i];
        void *data = m->nb_segs == 1 ? rte_pktmbuf_mtod(m, void *) : gather(q, m);
        if (data == NULL) {
            q->line.rx_too_long++;
            continue;
        }
        frames[found] = (uint64_t)data;
        lengths[found++] = m->pkt_len;
    }
    return found;
}

uint32_t millrace_peek(struct queue *q)
{
    if (q->peeked_first == q->peeked_end) {
        q->peeked_first = 0;
        q->peeked_end = rte_eth_rx_burst(q->port, q->index, q->peeked, PEEKED);
    }
    return q->peeked_end - q->peeked_first;
}

static void count_sent(struct queue *q, uint32_t taken)
{
    struct rte_eth_stats stats;
    if (rte_eth_stats_get(q->port, &stats) != 0)
        return;
    q->line.lost += taken - (stats.q_opackets[q->index] - q->opackets);
    q->line.sent_bytes += stats.q_obytes[q->index] - q->obytes;
    q->opackets = stats.q_opackets[q->index], q->obytes = stats.q_obytes[q->index];
}

/* Send the first `count` slots; return how many the driver took. The others move to the front. */
uint32_t millrace_transmit(struct queue *q, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        q->ready[i]->data_len = q->ready[i]->pkt_len = q->line.lengths[i];
    uint32_t taken = count > 0 ? rte_eth_tx_burst(q->port, q->index, q->ready, count) : 0;
    for (uint32_t i = 0; i < taken && !q->counts_sent; i++)
        q->line.sent_bytes += q->line.lengths[i];
    if (taken > 0 && q->counts_sent)
        count_sent(q, taken);
    q->line.filled -= taken;
    memmove(q->ready, q->ready + taken, q->line.filled * sizeof(q->ready[0]));
    memmove(q->line.slots, q->line.slots + taken, q->line.filled * sizeof(q->line.slots[0]));
    memmove(q->line.lengths, q->line.lengths + taken, q->line.filled * sizeof(q->line.lengths[0]));
    refill(q);
    return taken;
}

/* Frames that the device had no room for, received with errors, and did not send. */
int millrace_count_drops(uint16_t port, uint64_t *missed, uint64_t *wrong)
{
    struct rte_eth_stats stats;
    int result = rte_eth_stats_get(port, &stats);
    if (result == 0)
        *missed = stats.imissed + stats.rx_nombuf, *wrong = stats.ierrors;
    return result;
}
