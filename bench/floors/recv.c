/* The latency and drain floors: receive, read the header, walk the messages, nothing else.
 *
 *     --mode block   recv, asleep until a datagram comes
 *     --mode spin    recv with MSG_DONTWAIT, never asleep
 *     --mode mmsg    recvmmsg of up to 64 with MSG_WAITFORONE
 *
 * Budget per datagram: one system call (or a share of one), one clock reading, no allocation.
 * Latency is the clock after the system call less each message's intended send time.
 * Nothing is repaired: lost is what the sequence numbers say was sent from 1 on and did not come.
 * It assumes a network that does not duplicate, as one machine's loopback or veth does not.
 */
#include "mold.h"

#define BATCH 64 /* datagrams per recvmmsg */

struct receiver {
    int fd;
    uint64_t timeout_ns;
    struct loss loss;
    struct latencies latencies;
    uint64_t next_sequence; /* one above the highest heard of */
    uint64_t delivered, packets, malformed;
    uint64_t first_ns, last_ns; /* of packets that carry messages */
    bool is_ended;
};

static void walk_messages(struct receiver *r, const uint8_t *block, const uint8_t *packet_end,
                          uint16_t count, uint64_t now) {
    for (; count; count--) {
        int length = block_length(block, packet_end);
        if (length < 0) {
            r->malformed++;
            return;
        }
        if (length >= STAMP_BYTES) record(&r->latencies, get64(block + LENGTH_BYTES), now);
        r->delivered++;
        block += LENGTH_BYTES + length;
    }
}

static void receive_datagram(struct receiver *r, const uint8_t *packet, size_t size, uint64_t now) {
    if (is_dropped(&r->loss)) return;
    if (size < HEADER_BYTES) {
        r->malformed++;
        return;
    }
    uint16_t count = header_count(packet);
    uint64_t next = header_sequence(packet);
    if (count == END_OF_SESSION) {
        r->is_ended = true;
    } else if (count) {
        next += count;
        if (!r->packets++) r->first_ns = now;
        r->last_ns = now;
        walk_messages(r, packet + HEADER_BYTES, packet + size, count, now);
    }
    if (next > r->next_sequence) r->next_sequence = next;
}

static bool is_silence(ssize_t result) {
    bool nothing_came = result < 0 && errno == EAGAIN;
    check(result >= 0 || nothing_came, "receive");
    return nothing_came;
}

static void run_block(struct receiver *r) {
    uint8_t packet[DATAGRAM_MAX];
    while (!r->is_ended) {
        ssize_t size = recv(r->fd, packet, sizeof packet, 0);
        if (is_silence(size)) return;
        receive_datagram(r, packet, (size_t)size, now_ns());
    }
}

static void run_spin(struct receiver *r) {
    uint8_t packet[DATAGRAM_MAX];
    uint64_t heard_ns = now_ns();
    while (!r->is_ended) {
        ssize_t size = recv(r->fd, packet, sizeof packet, MSG_DONTWAIT);
        uint64_t now = now_ns();
        if (!is_silence(size)) {
            heard_ns = now;
            receive_datagram(r, packet, (size_t)size, now);
        } else if (now > heard_ns + r->timeout_ns) {
            return;
        }
    }
}

static void run_mmsg(struct receiver *r) {
    static uint8_t packets[BATCH][DATAGRAM_MAX];
    struct iovec parts[BATCH];
    struct mmsghdr batch[BATCH];
    memset(batch, 0, sizeof batch);
    for (int i = 0; i < BATCH; i++) {
        parts[i] = (struct iovec){.iov_base = packets[i], .iov_len = DATAGRAM_MAX};
        batch[i].msg_hdr.msg_iov = &parts[i];
        batch[i].msg_hdr.msg_iovlen = 1;
    }
    while (!r->is_ended) {
        int came = recvmmsg(r->fd, batch, BATCH, MSG_WAITFORONE, NULL);
        if (is_silence(came)) return;
        for (int i = 0; i < came; i++)
            receive_datagram(r, packets[i], batch[i].msg_len, now_ns());
    }
}

static void set_timeout(int fd, uint64_t timeout_ns) {
    struct timeval t = {.tv_sec = (time_t)(timeout_ns / NS_PER_S),
                        .tv_usec = (suseconds_t)(timeout_ns % NS_PER_S / 1000)};
    check(!setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t), "SO_RCVTIMEO");
}

static void print_report(const struct receiver *r) {
    uint64_t sent = r->next_sequence - 1;
    printf("{");
    print_latencies("latency_us", &r->latencies);
    printf(", \"delivered\": %" PRIu64 ", \"lost\": %" PRIu64 ", \"packets\": %" PRIu64 ", ",
           r->delivered, sent > r->delivered ? sent - r->delivered : 0, r->packets);
    print_rate(r->delivered, r->first_ns, r->last_ns);
    printf(", \"dropped\": %" PRIu64 ", \"malformed\": %" PRIu64 ", \"ended\": %s}\n",
           r->loss.dropped, r->malformed, r->is_ended ? "true" : "false");
}

int main(int argc, char **argv) {
    struct setting settings[] = {
        {"--group", "239.255.7.1"}, {"--port", "31001"}, {"--interface", "127.0.0.1"},
        {"--mode", "block"},        {"--timeout", "5"},  {"--loss", "0"},
        {"--seed", "1"},            {NULL, NULL},
    };
    static struct receiver r;
    parse_settings(argc, argv, settings);
    r.timeout_ns = (uint64_t)(number(settings, "--timeout", 0.001, 3600) * 1e9);
    r.loss = open_loss(settings);
    r.next_sequence = 1;
    r.fd = open_group(settings);
    set_timeout(r.fd, r.timeout_ns);

    const char *mode = text(settings, "--mode");
    if (!strcmp(mode, "block")) {
        run_block(&r);
    } else if (!strcmp(mode, "spin")) {
        run_spin(&r);
    } else if (!strcmp(mode, "mmsg")) {
        run_mmsg(&r);
    } else {
        fprintf(stderr, "--mode is %s, expected block, spin or mmsg\n", mode);
        return 2;
    }
    print_report(&r);
    return 0;
}
