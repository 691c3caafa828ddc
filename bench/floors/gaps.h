/* The gaps of a MoldUDP64 receiver: ranges of sequence numbers that are missing, lowest first.
 *
 * Each gap has its own retry timer. `next_deadline_ns` is never later than the earliest of them,
 * so a caller compares one number and looks through the gaps only when it has passed.
 */
#ifndef GAPS_H
#define GAPS_H
#include "mold.h"

#define GAPS_MAX 4096 /* past it a packet that would open one more counts as not received */
#define RETRY_FIRST_NS (1 * NS_PER_MS)
#define RETRY_LAST_NS (16 * NS_PER_MS)
#define NEVER UINT64_MAX

struct gap {
    uint64_t first, end; /* missing: first <= sequence < end */
    uint64_t noticed_ns, deadline_ns, interval_ns;
};

struct gaps {
    struct gap at[GAPS_MAX];
    size_t count;
    uint64_t next_deadline_ns;
    struct latencies filled; /* from noticed to the gap's last message */
};

/* (Re)starts the gap's timer. */
static inline void arm(struct gaps *gaps, struct gap *gap, uint64_t interval_ns, uint64_t now) {
    gap->interval_ns = interval_ns < RETRY_LAST_NS ? interval_ns : RETRY_LAST_NS;
    gap->deadline_ns = now + gap->interval_ns;
    if (gap->deadline_ns < gaps->next_deadline_ns) gaps->next_deadline_ns = gap->deadline_ns;
}

/* Opens [first, end) above every other gap; the caller has seen that there is room. */
static inline struct gap *open_gap(struct gaps *gaps, uint64_t first, uint64_t end, uint64_t now) {
    struct gap *gap = &gaps->at[gaps->count++];
    *gap = (struct gap){.first = first, .end = end, .noticed_ns = now};
    arm(gaps, gap, RETRY_FIRST_NS, now);
    return gap;
}

static inline void close_gap(struct gaps *gaps, size_t i, uint64_t now) {
    record(&gaps->filled, gaps->at[i].noticed_ns, now);
    memmove(&gaps->at[i], &gaps->at[i + 1], (gaps->count - i - 1) * sizeof gaps->at[0]);
    if (!--gaps->count) gaps->next_deadline_ns = NEVER;
}

/* Leaves [gap.first, first) in place and puts [end, gap.end) behind it. With no room for one more
 * the gap stays whole: what came is asked for again and thrown away as a duplicate. */
static inline void split_gap(struct gaps *gaps, size_t i, uint64_t first, uint64_t end) {
    if (gaps->count == GAPS_MAX) return;
    struct gap *gap = &gaps->at[i];
    memmove(gap + 1, gap, (gaps->count++ - i) * sizeof *gap);
    gap[0].end = first;
    gap[1].first = end;
}

/* Takes the messages [first, end) that have come out of the gaps. Returns the gap they left
 * only the tail of, which a reply that did not hold everything does, or NULL. */
static inline struct gap *fill_gaps(struct gaps *gaps, uint64_t first, uint64_t end, uint64_t now) {
    struct gap *tail = NULL;
    for (size_t i = 0; i < gaps->count && gaps->at[i].first < end;) {
        struct gap *gap = &gaps->at[i];
        if (gap->end <= first) {
            i++; /*   gap |---|         came       |---|       */
        } else if (first <= gap->first && end >= gap->end) {
            close_gap(gaps, i, now); /* gap |---|  came |-----| */
        } else if (first <= gap->first) {
            gap->first = end; /* gap   |-----|     came |---|   */
            tail = gap;
            i++;
        } else if (end >= gap->end) {
            gap->end = first; /* gap |-----|       came    |---| */
            i++;
        } else {
            split_gap(gaps, i, first, end); /* gap |-----| came |-| */
            break;
        }
    }
    return tail;
}

#endif
