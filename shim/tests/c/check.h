/* What the test programs stop with: the place, the status and the library's own words. */
#ifndef KVD_CHECK_H
#define KVD_CHECK_H

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "infera_kvd.h"

#define CHECK(condition)                                                           \
    do {                                                                           \
        if (!(condition)) {                                                        \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
            exit(1);                                                               \
        }                                                                          \
    } while (0)

/* That a call ends with a status. */
#define EXPECT(expected, call)                                                              \
    do {                                                                                    \
        kvd_status got_ = (call);                                                           \
        if (got_ != (expected)) {                                                           \
            fprintf(stderr, "%s:%d: %s is %s, not %s: %s\n", __FILE__, __LINE__, #call,     \
                    kvd_status_name(got_), kvd_status_name(expected), kvd_last_error());    \
            exit(1);                                                                        \
        }                                                                                   \
    } while (0)

/* The cases, each in its file. */
void everything(kvd_client client);
void misuse(kvd_client client);
void threads(kvd_client client);
void forks(kvd_client client);
void forks_while_busy(kvd_client client);
void outage(kvd_client client);

static const kvd_namespace SPACE = {"model", "layout"};

static inline kvd_bytes text(const char *words) {
    kvd_bytes bytes = {words, strlen(words)};
    return bytes;
}

/* Stores one block and insists. */
static inline void put(kvd_client client, const char *key, const char *value) {
    uint8_t refusal = 99;
    EXPECT(KVD_STATUS_OK,
           kvd_put(client, &SPACE, text(key), text(value), KVD_RETENTION_SHORT, 0, &refusal));
    CHECK(refusal == KVD_REFUSAL_NONE);
}

/* Fetches one block that must be there. */
static inline kvd_fetched fetch(kvd_client client, const char *key) {
    kvd_fetched fetched;
    kvd_bytes bytes = text(key);
    EXPECT(KVD_STATUS_OK, kvd_fetch(client, &SPACE, &bytes, 1, 0, 0, &fetched));
    CHECK(fetched.miss == KVD_MISS_NONE && fetched.view != 0);
    return fetched;
}

/* Reserves room for one block and insists. */
static inline kvd_reserved reserve(kvd_client client, uint64_t len) {
    kvd_reserved reserved;
    EXPECT(KVD_STATUS_OK, kvd_reserve(client, &len, 1, KVD_RETENTION_LONG, 0, &reserved));
    CHECK(reserved.ticket != 0 && reserved.data && reserved.len == len && reserved.refusal == 0);
    return reserved;
}

static inline kvd_commit_item item(kvd_ticket ticket, const char *key, uint64_t len) {
    kvd_commit_item item = {ticket, text(key), len, NULL};
    return item;
}

#endif
