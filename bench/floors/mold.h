/* What the floor programs share: options, clock, header, sockets, injected loss, latencies.
 *
 * Wire: MoldUDP64. Every number is big-endian; a session starts at sequence number 1.
 *
 *     0          10                 18       20
 *     | session  | sequence number  | count  | length(2) data | length(2) data | ...
 *
 * Message data of these programs: intended send time (8 bytes, CLOCK_REALTIME ns), sequence
 * number (8 bytes), padding.
 */
#ifndef MOLD_H
#define MOLD_H
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#define SESSION_BYTES 10
#define HEADER_BYTES 20
#define LENGTH_BYTES 2
#define STAMP_BYTES 16            /* intended time and sequence number */
#define END_OF_SESSION 0xFFFF     /* in place of the message count */
#define MESSAGE_COUNT_MAX 0xFFFE  /* one below end of session */
#define DATAGRAM_MAX 1472         /* an Ethernet frame's payload less IP and UDP */
#define MESSAGE_BYTES_MAX (DATAGRAM_MAX - HEADER_BYTES - LENGTH_BYTES)
#define RECEIVE_BUFFER_BYTES (4 << 20)
#define NS_PER_S 1000000000ull
#define NS_PER_MS 1000000ull

/* ---- options: a table of names and defaults, filled from `--name value` pairs ---- */

struct setting {
    const char *name;  /* with its dashes; a NULL name ends the table */
    const char *value; /* the default until parse_settings replaces it */
};

static inline struct setting *find_setting(struct setting *settings, const char *name) {
    for (; settings->name; settings++)
        if (!strcmp(settings->name, name)) return settings;
    return NULL;
}

static inline void parse_settings(int argc, char **argv, struct setting *settings) {
    for (int i = 1; i < argc; i += 2) {
        struct setting *found = find_setting(settings, argv[i]);
        if (!found || i + 1 == argc) {
            fprintf(stderr, "%s: %s: %s; options, each with a value:", argv[0], argv[i],
                    found ? "has no value" : "no such option");
            for (; settings->name; settings++) fprintf(stderr, " %s", settings->name);
            fprintf(stderr, "\n");
            exit(2);
        }
        found->value = argv[i + 1];
    }
}

static inline const char *text(struct setting *settings, const char *name) {
    return find_setting(settings, name)->value;
}

static inline double number(struct setting *settings, const char *name, double low, double high) {
    const char *value = text(settings, name);
    char *end;
    double parsed = strtod(value, &end);
    if (end == value || *end || !(parsed >= low && parsed <= high)) {
        fprintf(stderr, "%s is %s, expected a number from %.15g to %.15g\n", name, value, low,
                high);
        exit(2);
    }
    return parsed;
}

static inline void check(bool is_good, const char *what) {
    if (is_good) return;
    perror(what);
    exit(1);
}

/* ---- clock: the sender's stamp and the receiver's reading are on one machine ---- */

static inline uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

/* ---- header ---- */

static inline uint64_t get64(const uint8_t *at) {
    uint64_t v;
    memcpy(&v, at, sizeof v);
    return be64toh(v);
}

static inline void put64(uint8_t *at, uint64_t v) {
    v = htobe64(v);
    memcpy(at, &v, sizeof v);
}

static inline uint16_t get16(const uint8_t *at) { return (uint16_t)(at[0] << 8 | at[1]); }

static inline void put16(uint8_t *at, uint16_t v) {
    at[0] = (uint8_t)(v >> 8);
    at[1] = (uint8_t)v;
}

static inline uint64_t header_sequence(const uint8_t *packet) { return get64(packet + 10); }
static inline uint16_t header_count(const uint8_t *packet) { return get16(packet + 18); }

static inline void put_header(uint8_t *at, const char *session, uint64_t sequence, uint16_t count) {
    memcpy(at, session, SESSION_BYTES);
    put64(at + 10, sequence);
    put16(at + 18, count);
}

/* Length of the block's data, or -1 when the block does not end inside the packet. */
static inline int block_length(const uint8_t *block, const uint8_t *packet_end) {
    if (packet_end - block < LENGTH_BYTES) return -1;
    int length = get16(block);
    return packet_end - block - LENGTH_BYTES < length ? -1 : length;
}

/* ---- sockets ---- */

static inline struct sockaddr_in address(const char *host, int port) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    if (inet_pton(AF_INET, host, &a.sin_addr) != 1) {
        fprintf(stderr, "%s is not an IPv4 address\n", host);
        exit(2);
    }
    return a;
}

static inline void set_receive_buffer(int fd) {
    int bytes = RECEIVE_BUFFER_BYTES;
    check(!setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes), "SO_RCVBUF");
}

/* Bound to the group's own address, so no other group's traffic on the port comes in. */
static inline int open_group(struct setting *settings) {
    const int on = 1;
    struct sockaddr_in group = address(text(settings, "--group"),
                                       (int)number(settings, "--port", 1, 65535));
    struct ip_mreq membership = {.imr_multiaddr = group.sin_addr};
    membership.imr_interface = address(text(settings, "--interface"), 0).sin_addr;
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    check(fd >= 0, "socket");
    check(!setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on), "SO_REUSEADDR");
    set_receive_buffer(fd);
    check(!bind(fd, (struct sockaddr *)&group, sizeof group), "bind to the group");
    check(!setsockopt(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &membership, sizeof membership),
          "IP_ADD_MEMBERSHIP");
    return fd;
}

/* ---- injected loss: a receiver throws datagrams away before it looks at them ----
 *
 * Every datagram counts, data, heartbeats and replies alike. It needs no namespaces and no root.
 * The bench does the same to our own receivers, at the same place (after the system call, before
 * the header is read), so both pay for the datagrams they lose.
 * xorshift64; the seed is multiplied first because small seeds give small first numbers.
 */
struct loss {
    uint64_t state;
    double probability;
    uint64_t dropped;
};

static inline struct loss open_loss(struct setting *settings) {
    return (struct loss){
        .state = (uint64_t)number(settings, "--seed", 1, 1e15) * 0x9E3779B97F4A7C15ull,
        .probability = number(settings, "--loss", 0, 1),
    };
}

static inline bool is_dropped(struct loss *loss) {
    if (loss->probability == 0) return false;
    loss->state ^= loss->state << 13;
    loss->state ^= loss->state >> 7;
    loss->state ^= loss->state << 17;
    bool drop = (double)(loss->state >> 11) * 0x1p-53 < loss->probability;
    loss->dropped += drop;
    return drop;
}

/* ---- latencies: log-linear buckets, exact below 512 ns, within 0.2 % above ----
 *
 * Constant memory, so recording never faults a page in however long the run is. The maximum is
 * exact. A negative latency (the clock was set back) is recorded as 0.
 */
#define BUCKET_BITS 8
#define BUCKETS ((64 - BUCKET_BITS + 1) << BUCKET_BITS)

struct latencies {
    uint32_t buckets[BUCKETS];
    uint64_t total;
    uint64_t max_ns;
};

static inline void record(struct latencies *l, uint64_t from_ns, uint64_t to_ns) {
    uint64_t ns = to_ns > from_ns ? to_ns - from_ns : 0;
    int top_bit = 63 - __builtin_clzll(ns | 1);
    int shift = top_bit > BUCKET_BITS ? top_bit - BUCKET_BITS : 0;
    l->buckets[((uint64_t)shift << BUCKET_BITS) + (ns >> shift)]++;
    l->total++;
    if (ns > l->max_ns) l->max_ns = ns;
}

static inline double percentile_us(const struct latencies *l, double share) {
    uint64_t wanted = (uint64_t)(share * (double)l->total), seen = 0;
    for (uint64_t i = 0; i < BUCKETS; i++) {
        seen += l->buckets[i];
        if (seen <= wanted) continue;
        if (i < 2u << BUCKET_BITS) return (double)i / 1e3;
        uint64_t shift = (i >> BUCKET_BITS) - 1;
        uint64_t low = ((i & ((1u << BUCKET_BITS) - 1)) + (1u << BUCKET_BITS)) << shift;
        uint64_t middle = low + (1ull << shift) / 2;
        return (double)(middle < l->max_ns ? middle : l->max_ns) / 1e3;
    }
    return (double)l->max_ns / 1e3;
}

static inline void print_latencies(const char *key, const struct latencies *l) {
    printf("\"%s\": {\"p50\": %.3f, \"p90\": %.3f, \"p99\": %.3f, \"p999\": %.3f, \"max\": %.3f}",
           key, percentile_us(l, 0.5), percentile_us(l, 0.9), percentile_us(l, 0.99),
           percentile_us(l, 0.999), (double)l->max_ns / 1e3);
}

static inline void print_rate(uint64_t messages, uint64_t first_ns, uint64_t last_ns) {
    double elapsed_s = last_ns > first_ns ? (double)(last_ns - first_ns) / 1e9 : 0;
    printf("\"elapsed_s\": %.6f, \"rate_per_s\": %.1f", elapsed_s,
           elapsed_s > 0 ? (double)messages / elapsed_s : 0);
}

#endif
