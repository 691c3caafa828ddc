/* An open-loop MoldUDP64 multicast sender, and with --serve 1 its own request server.
 *
 *     heartbeat x 3 -> packets, each at its intended time -> end of session x 10 -> linger
 *
 * --count is in packets and --rate in packets per second.
 * Open loop: packet i is due at start + i / rate whatever happened to the packets before it, and
 * its messages carry that due time, so a sender that falls behind shows up as latency.
 * --rate 0 floods by sendmmsg of 32; the intended time is then the clock before the batch.
 * --skip N keeps every Nth packet of a paced run back: with --serve 1 it can be asked for, so every
 * receiver misses the same packets.
 * --template HEX sends those bytes as every message, with the intended time at --time-at.
 *
 * Messages have one size, so their blocks lie end to end in one store and any range of them is
 * one slice: a live packet and a retransmission are both {header, slice}. Without --serve the
 * store is a ring of one batch. With it, every message stays, and requests are read from the
 * sending socket between sends and answered with one packet each.
 */
#include "mold.h"

#include <poll.h>
#include <sys/mman.h>

#define BATCH 32                      /* packets per sendmmsg */
#define STORE_BYTES_MAX (1ull << 30)  /* refuse a run that would not fit in a small machine */
#define SERVE_ROOM_NS 2000            /* one look for a request costs less than this */
#define LINGER_STEP_NS (10 * NS_PER_MS) /* between ends of session */
#define LINGER_MAX_NS (30 * NS_PER_S) /* a peer that asks for ever must not hold the sender */

struct sender {
    int fd;
    struct sockaddr_in group;
    char session[SESSION_BYTES + 1];
    double rate_per_s;
    bool is_serving;
    uint64_t skip;          /* every so many packets one is kept back; 0 for none */
    uint64_t packets;       /* to send */
    uint16_t per_packet;    /* messages */
    size_t size, stride;    /* of a message, of its block */
    const char *template;   /* hex digits of every message; empty for stamps and padding */
    size_t time_at;         /* where the intended time stands in it */
    uint8_t *store;         /* `slots` packets' worth of blocks */
    uint64_t slots;
    uint64_t next_sequence; /* one above the last message sent */
    uint64_t requests, ignored, retransmitted;
};

static uint8_t *packet_blocks(const struct sender *s, uint64_t packet) {
    return s->store + packet % s->slots * s->per_packet * s->stride;
}

static void open_store(struct sender *s) {
    s->slots = s->is_serving ? s->packets : BATCH;
    uint64_t bytes = s->slots * s->per_packet * s->stride;
    if (bytes > STORE_BYTES_MAX) {
        fprintf(stderr, "the run needs %" PRIu64 " bytes of store, at most %llu are allowed\n",
                bytes, STORE_BYTES_MAX);
        exit(2);
    }
    s->store = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    check(s->store != MAP_FAILED, "mmap of the store");
    memset(s->store, 'x', bytes);
    for (uint64_t i = 0; i < s->slots * s->per_packet; i++) {
        uint8_t *block = s->store + i * s->stride;
        put16(block, (uint16_t)s->size);
        for (size_t at = 0; s->template[at]; at += 2)
            sscanf(s->template + at, "%2hhx", block + LENGTH_BYTES + at / 2);
    }
}

static void open_sender(struct sender *s, struct setting *settings) {
    const int on = 1;
    struct sockaddr_in interface = address(text(settings, "--interface"), 0);
    s->group = address(text(settings, "--group"), (int)number(settings, "--port", 1, 65535));
    s->fd = socket(AF_INET, SOCK_DGRAM, 0);
    check(s->fd >= 0, "socket");
    check(!setsockopt(s->fd, IPPROTO_IP, IP_MULTICAST_IF, &interface.sin_addr,
                      sizeof interface.sin_addr), "IP_MULTICAST_IF");
    check(!setsockopt(s->fd, IPPROTO_IP, IP_MULTICAST_LOOP, &on, sizeof on), "IP_MULTICAST_LOOP");
    set_receive_buffer(s->fd);
    check(!bind(s->fd, (struct sockaddr *)&interface, sizeof interface), "bind to the interface");
    /* Connecting spares a route lookup per send, but would shut requests out. */
    if (!s->is_serving)
        check(!connect(s->fd, (struct sockaddr *)&s->group, sizeof s->group), "connect");
}

static void stamp_packet(const struct sender *s, uint64_t packet, uint64_t intended_ns) {
    uint8_t *block = packet_blocks(s, packet);
    for (uint64_t i = 0; i < s->per_packet; i++, block += s->stride) {
        put64(block + LENGTH_BYTES + s->time_at, intended_ns);
        if (!*s->template) put64(block + LENGTH_BYTES + 8, packet * s->per_packet + i + 1);
    }
}

/* Fills in one datagram of a batch: the stamped packet behind its header. */
static void prepare_packet(const struct sender *s, uint64_t packet, uint64_t intended_ns,
                           uint8_t *header, struct iovec *parts, struct msghdr *datagram) {
    stamp_packet(s, packet, intended_ns);
    put_header(header, s->session, packet * s->per_packet + 1, s->per_packet);
    parts[0] = (struct iovec){.iov_base = header, .iov_len = HEADER_BYTES};
    parts[1] = (struct iovec){.iov_base = packet_blocks(s, packet),
                              .iov_len = s->per_packet * s->stride};
    *datagram = (struct msghdr){.msg_iov = parts, .msg_iovlen = 2};
    if (s->is_serving) {
        datagram->msg_name = (void *)&s->group;
        datagram->msg_namelen = sizeof s->group;
    }
}

static void send_control(const struct sender *s, uint16_t count) {
    uint8_t header[HEADER_BYTES];
    put_header(header, s->session, s->next_sequence, count);
    const struct sockaddr *to = s->is_serving ? (const struct sockaddr *)&s->group : NULL;
    check(sendto(s->fd, header, sizeof header, 0, to, to ? sizeof s->group : 0) == HEADER_BYTES,
          "send heartbeat or end of session");
}

/* One packet with as many of the wanted messages as fit in it and have been sent. */
static void retransmit(struct sender *s, uint64_t first, uint64_t wanted, struct sockaddr_in *to) {
    uint8_t header[HEADER_BYTES];
    uint64_t count = (DATAGRAM_MAX - HEADER_BYTES) / s->stride;
    if (count > wanted) count = wanted;
    if (count > s->next_sequence - first) count = s->next_sequence - first;
    put_header(header, s->session, first, (uint16_t)count);
    struct iovec parts[2] = {
        {.iov_base = header, .iov_len = HEADER_BYTES},
        {.iov_base = s->store + (first - 1) * s->stride, .iov_len = count * s->stride},
    };
    struct msghdr reply = {
        .msg_name = to, .msg_namelen = sizeof *to, .msg_iov = parts, .msg_iovlen = 2};
    if (sendmsg(s->fd, &reply, 0) > 0) s->retransmitted += count;
}

/* Answers one request if there is one; says whether there was. */
static bool serve(struct sender *s) {
    uint8_t request[HEADER_BYTES + 1]; /* one more, to see that a datagram is too long */
    struct sockaddr_in from;
    socklen_t from_size = sizeof from;
    ssize_t size = recvfrom(s->fd, request, sizeof request, MSG_DONTWAIT,
                            (struct sockaddr *)&from, &from_size);
    if (size < 0) return false;
    uint64_t first = size == HEADER_BYTES ? header_sequence(request) : 0;
    if (first < 1 || first >= s->next_sequence || header_count(request) == 0 ||
        memcmp(request, s->session, SESSION_BYTES)) {
        s->ignored++;
        return true;
    }
    s->requests++;
    retransmit(s, first, header_count(request), &from);
    return true;
}

static void wait_until(struct sender *s, uint64_t due_ns) {
    if (s->is_serving) /* at least one look per send, however late the sender is */
        do serve(s);
        while (now_ns() + SERVE_ROOM_NS < due_ns);
    while (now_ns() < due_ns) continue;
}

static void send_paced(struct sender *s, uint64_t start_ns) {
    uint8_t header[HEADER_BYTES];
    struct iovec parts[2];
    struct msghdr datagram;
    for (uint64_t i = 0; i < s->packets; i++) {
        uint64_t due_ns = start_ns + (uint64_t)((double)i * 1e9 / s->rate_per_s);
        prepare_packet(s, i, due_ns, header, parts, &datagram);
        wait_until(s, due_ns);
        if (!s->skip || (i + 1) % s->skip)
            check(sendmsg(s->fd, &datagram, 0) > 0, "sendmsg");
        s->next_sequence += s->per_packet;
    }
}

static void send_flood(struct sender *s) {
    static uint8_t headers[BATCH][HEADER_BYTES];
    static struct iovec parts[BATCH][2];
    static struct mmsghdr batch[BATCH];
    for (uint64_t sent = 0; sent < s->packets;) {
        uint64_t now = now_ns();
        unsigned ready = 0;
        for (; ready < BATCH && sent + ready < s->packets; ready++)
            prepare_packet(s, sent + ready, now, headers[ready], parts[ready],
                           &batch[ready].msg_hdr);
        int went = sendmmsg(s->fd, batch, ready, 0);
        check(went > 0, "sendmmsg");
        sent += (unsigned)went;
        s->next_sequence += (uint64_t)went * s->per_packet;
        /* As many requests as packets: one loss per packet is then still kept up with. */
        for (int i = 0; s->is_serving && i < BATCH && serve(s); i++) continue;
    }
}

static void send_spaced(struct sender *s, uint16_t count, int times) {
    for (int i = 0; i < times; i++) {
        send_control(s, count);
        wait_until(s, now_ns() + NS_PER_MS);
    }
}

/* Repeats end of session, and serves, until nobody has asked for anything for `quiet_ns`: a slow
 * receiver's full socket buffer can swallow all ten of the first ends of session. */
static void linger(struct sender *s, uint64_t quiet_ns) {
    struct pollfd readable = {.fd = s->fd, .events = POLLIN};
    uint64_t now = now_ns(), stop_ns = now + LINGER_MAX_NS, heard_ns = now, due_ns = now;
    for (; now < heard_ns + quiet_ns && now < stop_ns; now = now_ns()) {
        if (now >= due_ns) {
            send_control(s, END_OF_SESSION);
            due_ns = now + LINGER_STEP_NS;
        }
        poll(&readable, 1, 1);
        if (s->is_serving && serve(s)) heard_ns = now;
    }
}

int main(int argc, char **argv) {
    struct setting settings[] = {
        {"--group", "239.255.7.1"}, {"--port", "31001"},       {"--interface", "127.0.0.1"},
        {"--rate", "10000"},        {"--count", "10000"},      {"--messages-per-packet", "1"},
        {"--size", "64"},           {"--session", "FLOOR"},     {"--start-delay", "0.5"},
        {"--serve", "0"},           {"--linger", "0.25"},      {"--skip", "0"},
        {"--template", ""},         {"--time-at", "0"},        {NULL, NULL},
    };
    parse_settings(argc, argv, settings);
    struct sender s = {.next_sequence = 1};
    int length = snprintf(s.session, sizeof s.session, "%-10s", text(settings, "--session"));
    if (length != SESSION_BYTES) {
        fprintf(stderr, "--session has %d characters, expected at most %d\n", length,
                SESSION_BYTES);
        return 2;
    }
    s.rate_per_s = number(settings, "--rate", 0, 1e7);
    s.is_serving = number(settings, "--serve", 0, 1) == 1;
    s.skip = (uint64_t)number(settings, "--skip", 0, 1e9);
    s.packets = (uint64_t)number(settings, "--count", 1, 1e9);
    s.template = text(settings, "--template");
    size_t digits = strlen(s.template);
    if (digits % 2 || strspn(s.template, "0123456789abcdef") != digits ||
        digits > 2 * MESSAGE_BYTES_MAX) {
        fprintf(stderr, "--template is not hex bytes, at most %d of them\n", MESSAGE_BYTES_MAX);
        return 2;
    }
    s.size = digits ? digits / 2
                    : (size_t)number(settings, "--size", STAMP_BYTES, MESSAGE_BYTES_MAX);
    s.time_at = (size_t)number(settings, "--time-at", 0, (double)s.size - 8);
    s.stride = LENGTH_BYTES + s.size;
    s.per_packet = (uint16_t)number(settings, "--messages-per-packet", 1,
                                    (double)((DATAGRAM_MAX - HEADER_BYTES) / s.stride));
    uint64_t delay_ns = (uint64_t)(number(settings, "--start-delay", 0, 3600) * 1e9);
    uint64_t quiet_ns = (uint64_t)(number(settings, "--linger", 0, 30) * 1e9);
    open_store(&s);
    open_sender(&s, settings);
    struct timespec delay = {.tv_sec = (time_t)(delay_ns / NS_PER_S),
                             .tv_nsec = (long)(delay_ns % NS_PER_S)};
    nanosleep(&delay, NULL);

    send_spaced(&s, 0, 3); /* heartbeats */
    uint64_t start_ns = now_ns();
    if (s.rate_per_s > 0) send_paced(&s, start_ns);
    else send_flood(&s);
    uint64_t end_ns = now_ns();
    send_spaced(&s, END_OF_SESSION, 10);
    linger(&s, quiet_ns);

    printf("{\"sent\": %" PRIu64 ", \"packets\": %" PRIu64 ", \"requests\": %" PRIu64
           ", \"ignored\": %" PRIu64 ", \"retransmitted\": %" PRIu64 ", ",
           s.next_sequence - 1, s.packets, s.requests, s.ignored, s.retransmitted);
    print_rate(s.next_sequence - 1, start_ns, end_ns);
    printf("}\n");
    return 0;
}
