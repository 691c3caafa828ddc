/* The loss floor: a MoldUDP64 receiver that asks for every gap at once and delivers in order.
 *
 *     group socket  --\                       /-- next in order -> deliver, then what it frees
 *                      >-- drop? -- header --<
 *     reply socket  --/                       \-- above it -> reorder buffer, gap -> request
 *
 *     --mode block   asleep in ppoll until a datagram or the next retry
 *     --mode spin    MSG_DONTWAIT, never asleep
 *
 * The reply socket is looked at only while a gap is open: a run without loss pays nothing for it.
 * A request goes by unicast to where the data came from, from a socket of its own: a unicast
 * reply to the group's port would reach only one of several receivers on a machine.
 * Each gap has its retry timer (1 ms, doubling, at most 16 ms), which fires only when both sockets
 * are empty, so nothing is asked for that has already come. There is no protection against a
 * storm of requests from many receivers, and one request per gap is under way at a time: a
 * receiver that falls a whole window behind a flood catches up only packet by packet.
 * Latency is from intended time to in-order delivery.
 */
#include "gaps.h"

#include <poll.h>
#include <sys/mman.h>

#define WINDOW 65536ull /* messages; a packet that ends further ahead counts as not received */
#define TURN 64         /* datagrams read from one socket before the other has its turn */

struct receiver {
    int group_fd, reply_fd;
    struct sockaddr_in source; /* of the last packet from the group */
    uint64_t timeout_ns, heard_ns;
    struct loss loss;
    char session[SESSION_BYTES]; /* that of the first packet seen */
    uint64_t expected;           /* next to deliver */
    uint64_t next_sequence;      /* one above the highest heard of */
    uint64_t end;                /* from end of session, 0 before it */
    uint8_t *window;             /* block of sequence n at n % WINDOW; its length 0 is no block */
    size_t slot_bytes;
    struct gaps gaps;
    struct latencies latencies;
    uint64_t delivered, packets, requests, duplicates, refused, malformed, foreign, misplaced;
    uint64_t first_ns, last_ns;
};

static void request(struct receiver *r, const struct gap *gap) {
    uint8_t packet[HEADER_BYTES];
    uint64_t count = gap->end - gap->first;
    put_header(packet, r->session, gap->first,
               (uint16_t)(count < MESSAGE_COUNT_MAX ? count : MESSAGE_COUNT_MAX));
    if (sendto(r->reply_fd, packet, sizeof packet, 0, (struct sockaddr *)&r->source,
               sizeof r->source) == HEADER_BYTES)
        r->requests++; /* otherwise the timer asks again */
}

static void retry_due(struct receiver *r, uint64_t now) {
    if (now < r->gaps.next_deadline_ns) return;
    r->gaps.next_deadline_ns = NEVER;
    for (size_t i = 0; i < r->gaps.count; i++) {
        struct gap *gap = &r->gaps.at[i];
        if (gap->deadline_ns <= now) {
            request(r, gap);
            arm(&r->gaps, gap, gap->interval_ns * 2, now);
        } else if (gap->deadline_ns < r->gaps.next_deadline_ns) {
            r->gaps.next_deadline_ns = gap->deadline_ns;
        }
    }
}

static void deliver(struct receiver *r, const uint8_t *data, uint64_t now) {
    record(&r->latencies, get64(data), now);
    r->misplaced += get64(data + 8) != r->expected;
    r->delivered++;
    r->expected++;
    r->last_ns = now;
}

static uint8_t *slot(const struct receiver *r, uint64_t sequence) {
    return r->window + sequence % WINDOW * r->slot_bytes;
}

static void receive_message(struct receiver *r, uint64_t sequence, const uint8_t *block,
                            size_t length, uint64_t now) {
    uint8_t *place = slot(r, sequence);
    if (sequence < r->expected || (sequence > r->expected && get16(place))) {
        r->duplicates++;
    } else if (sequence > r->expected) {
        memcpy(place, block, LENGTH_BYTES + length);
    } else {
        deliver(r, block + LENGTH_BYTES, now);
        for (place = slot(r, r->expected); get16(place); place = slot(r, r->expected)) {
            put16(place, 0);
            deliver(r, place + LENGTH_BYTES, now);
        }
    }
}

/* Stricter than the protocol: these programs' messages are never shorter than their stamp. */
static bool has_good_blocks(const struct receiver *r, const uint8_t *packet, size_t size) {
    const uint8_t *block = packet + HEADER_BYTES;
    for (uint16_t count = header_count(packet); count; count--) {
        int length = block_length(block, packet + size);
        if (length < STAMP_BYTES || LENGTH_BYTES + (size_t)length > r->slot_bytes) return false;
        block += LENGTH_BYTES + length;
    }
    return true;
}

/* Opens and asks for the gap below `sequence`, if there is one; false when there is no room. */
static bool notice_gap(struct receiver *r, uint64_t sequence, uint64_t now) {
    if (sequence <= r->next_sequence) return true;
    if (r->gaps.count == GAPS_MAX) return false;
    request(r, open_gap(&r->gaps, r->next_sequence, sequence, now));
    r->next_sequence = sequence;
    return true;
}

static void receive_data(struct receiver *r, const uint8_t *packet, bool is_reply, uint64_t now) {
    uint64_t first = header_sequence(packet), end = first + header_count(packet);
    if ((end > r->expected && end - r->expected > WINDOW) || !notice_gap(r, first, now)) {
        r->refused++;
        return;
    }
    if (!r->packets++) r->first_ns = now;
    if (r->gaps.count) {
        struct gap *tail = fill_gaps(&r->gaps, first, end, now);
        if (tail && is_reply) { /* the reply was full: ask for the rest without waiting */
            request(r, tail);
            arm(&r->gaps, tail, RETRY_FIRST_NS, now);
        }
    }
    if (end > r->next_sequence) r->next_sequence = end;
    const uint8_t *block = packet + HEADER_BYTES;
    for (uint64_t sequence = first; sequence < end; sequence++) {
        size_t length = get16(block);
        receive_message(r, sequence, block, length, now);
        block += LENGTH_BYTES + length;
    }
}

static void receive_datagram(struct receiver *r, const uint8_t *packet, size_t size,
                             const struct sockaddr_in *from, bool is_reply, uint64_t now) {
    if (is_dropped(&r->loss)) return;
    if (size < HEADER_BYTES) {
        r->malformed++;
        return;
    }
    if (!r->session[0]) memcpy(r->session, packet, SESSION_BYTES);
    if (memcmp(r->session, packet, SESSION_BYTES)) {
        r->foreign++;
        return;
    }
    r->heard_ns = now;
    if (!is_reply) r->source = *from;
    uint16_t count = header_count(packet);
    if (count == 0 || count == END_OF_SESSION) {
        if (!notice_gap(r, header_sequence(packet), now)) r->refused++;
        else if (count == END_OF_SESSION) r->end = header_sequence(packet);
    } else if (has_good_blocks(r, packet, size)) {
        receive_data(r, packet, is_reply, now);
    } else {
        r->malformed++;
    }
}

/* Reads up to a turn's worth; says whether the socket was left empty. */
static bool drain(struct receiver *r, int fd) {
    uint8_t packet[DATAGRAM_MAX];
    struct sockaddr_in from;
    for (int i = 0; i < TURN; i++) {
        socklen_t from_size = sizeof from;
        ssize_t size = recvfrom(fd, packet, sizeof packet, MSG_DONTWAIT, (struct sockaddr *)&from,
                                &from_size);
        check(size >= 0 || errno == EAGAIN, "recvfrom");
        if (size < 0) return true;
        receive_datagram(r, packet, (size_t)size, &from, fd == r->reply_fd, now_ns());
    }
    return false;
}

static void sleep_until_readable(struct receiver *r, uint64_t now) {
    struct pollfd sockets[2] = {{.fd = r->group_fd, .events = POLLIN},
                                {.fd = r->reply_fd, .events = POLLIN}};
    uint64_t wake_ns = r->heard_ns + r->timeout_ns + 1;
    if (r->gaps.next_deadline_ns < wake_ns) wake_ns = r->gaps.next_deadline_ns;
    uint64_t wait_ns = wake_ns > now ? wake_ns - now : 0;
    struct timespec wait = {.tv_sec = (time_t)(wait_ns / NS_PER_S),
                            .tv_nsec = (long)(wait_ns % NS_PER_S)};
    check(ppoll(sockets, r->gaps.count ? 2 : 1, &wait, NULL) >= 0, "ppoll");
}

static void run(struct receiver *r, bool is_spinning) {
    r->heard_ns = now_ns();
    while (!r->end || r->expected < r->end) {
        bool is_empty = drain(r, r->group_fd);
        if (r->gaps.count) is_empty &= drain(r, r->reply_fd);
        if (!is_empty) continue;
        uint64_t now = now_ns();
        if (now > r->heard_ns + r->timeout_ns) return;
        retry_due(r, now);
        if (!is_spinning && (!r->end || r->expected < r->end)) sleep_until_readable(r, now);
    }
}

static void print_report(const struct receiver *r) {
    printf("{");
    print_latencies("latency_us", &r->latencies);
    printf(", \"delivered\": %" PRIu64 ", \"lost\": %" PRIu64 ", \"packets\": %" PRIu64 ", ",
           r->delivered, r->next_sequence - 1 - r->delivered, r->packets);
    print_rate(r->delivered, r->first_ns, r->last_ns);
    printf(", \"dropped\": %" PRIu64 ", \"malformed\": %" PRIu64 ", \"ended\": %s",
           r->loss.dropped, r->malformed, r->end ? "true" : "false");
    printf(", \"requests\": %" PRIu64 ", \"gaps\": %" PRIu64 ", \"duplicates\": %" PRIu64
           ", \"refused\": %" PRIu64 ", \"foreign\": %" PRIu64 ", \"misplaced\": %" PRIu64 ", ",
           r->requests, r->gaps.filled.total, r->duplicates, r->refused, r->foreign, r->misplaced);
    print_latencies("gap_filled_us", &r->gaps.filled);
    printf("}\n");
}

int main(int argc, char **argv) {
    struct setting settings[] = {
        {"--group", "239.255.7.1"}, {"--port", "31001"}, {"--interface", "127.0.0.1"},
        {"--mode", "block"},        {"--timeout", "5"},  {"--loss", "0"},
        {"--seed", "1"},            {"--size", "64"},    {NULL, NULL},
    };
    static struct receiver r = {.expected = 1, .next_sequence = 1};
    parse_settings(argc, argv, settings);
    const char *mode = text(settings, "--mode");
    if (strcmp(mode, "block") && strcmp(mode, "spin")) {
        fprintf(stderr, "--mode is %s, expected block or spin\n", mode);
        return 2;
    }
    r.timeout_ns = (uint64_t)(number(settings, "--timeout", 0.001, 3600) * 1e9);
    r.loss = open_loss(settings);
    r.gaps.next_deadline_ns = NEVER;
    /* --size is the longest message there is room for */
    r.slot_bytes = LENGTH_BYTES;
    r.slot_bytes += (size_t)number(settings, "--size", STAMP_BYTES, MESSAGE_BYTES_MAX);
    r.window = mmap(NULL, WINDOW * r.slot_bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    check(r.window != MAP_FAILED, "mmap of the reorder buffer");
    struct sockaddr_in interface = address(text(settings, "--interface"), 0);
    r.reply_fd = socket(AF_INET, SOCK_DGRAM, 0);
    check(r.reply_fd >= 0, "socket");
    set_receive_buffer(r.reply_fd);
    check(!bind(r.reply_fd, (struct sockaddr *)&interface, sizeof interface), "bind for replies");
    r.group_fd = open_group(settings);
    run(&r, !strcmp(mode, "spin"));
    print_report(&r);
    return 0;
}
