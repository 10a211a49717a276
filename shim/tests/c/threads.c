/* Many threads on one client, and on each other's handles. */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>

#include "check.h"

enum { THREADS = 8, ROUNDS = 60, LEN = 5000 };

struct worker {
    kvd_client client;
    unsigned number;
};

/* Each stores and reads blocks of its own and makes failures of its own. */
static void *work(void *given) {
    const struct worker *self = given;
    unsigned char bytes[LEN];
    unsigned char back[LEN];
    char key[32];
    char words[64];
    CHECK(strcmp(kvd_last_error(), "") == 0);
    for (unsigned round = 0; round < ROUNDS; round++) {
        snprintf(key, sizeof key, "thread-%u-%u", self->number, round % 7);
        memset(bytes, (int)(self->number * 16 + round % 16), LEN);
        kvd_bytes value = {bytes, LEN - round};
        EXPECT(KVD_STATUS_OK, kvd_put(self->client, &SPACE, text(key), value, KVD_RETENTION_SHORT, 0, NULL));
        kvd_fetched fetched = fetch(self->client, key);
        CHECK(fetched.len == LEN - round && memcmp(fetched.data, bytes, LEN - round) == 0);
        EXPECT(KVD_STATUS_OK, kvd_view_copy(fetched.view, back, LEN));
        CHECK(memcmp(back, bytes, LEN - round) == 0);
        EXPECT(KVD_STATUS_OK, kvd_release(fetched.view));
        EXPECT(KVD_STATUS_STALE_HANDLE, kvd_release(fetched.view));
        uint64_t mine = (uint64_t)self->number << 32 | round;
        EXPECT(KVD_STATUS_STALE_HANDLE, kvd_detach(mine));
        snprintf(words, sizeof words, "%#" PRIx64 " is no client that is in use", mine);
        CHECK(mine == 0 || strcmp(kvd_last_error(), words) == 0);
    }
    return NULL;
}

static kvd_client contended_client;
static kvd_view contended_view;
static kvd_ticket contended_ticket;
static pthread_barrier_t together;

/* All release the same view, and commit or cancel the same ticket, while they use them: one succeeds, nobody is hurt. */
static void *contend(void *given) {
    unsigned *won = given;
    static const char zeros[LEN];
    const kvd_bytes whole = {zeros, LEN};
    char back[LEN];
    pthread_barrier_wait(&together);
    kvd_status copied = kvd_view_copy(contended_view, back, LEN);
    CHECK(copied == KVD_STATUS_OK || copied == KVD_STATUS_STALE_HANDLE);
    kvd_status written = kvd_ticket_write(contended_ticket, 0, whole);
    CHECK(written == KVD_STATUS_OK || written == KVD_STATUS_STALE_HANDLE);
    *won += kvd_release(contended_view) == KVD_STATUS_OK;
    const kvd_commit_item filled = item(contended_ticket, "contended", LEN);
    uint8_t refusal = 99;
    kvd_status committed =
        kvd_commit(contended_client, &SPACE, &filled, 1, KVD_RETENTION_LONG, 0, &refusal);
    CHECK(committed == KVD_STATUS_OK || committed == KVD_STATUS_STALE_HANDLE ||
          committed == KVD_STATUS_IN_USE);
    CHECK(refusal == (committed == KVD_STATUS_OK ? KVD_REFUSAL_NONE : KVD_REFUSAL_NOT_ASKED));
    *won += committed == KVD_STATUS_OK;
    *won += kvd_cancel(contended_ticket) == KVD_STATUS_OK;
    return NULL;
}

static void run(void *(*body)(void *), void *given, size_t size) {
    pthread_t started[THREADS];
    for (unsigned at = 0; at < THREADS; at++) {
        CHECK(pthread_create(&started[at], NULL, body, (char *)given + at * size) == 0);
    }
    for (unsigned at = 0; at < THREADS; at++) {
        CHECK(pthread_join(started[at], NULL) == 0);
    }
}

void threads(kvd_client client) {
    struct worker workers[THREADS];
    for (unsigned at = 0; at < THREADS; at++) {
        workers[at] = (struct worker){client, at};
    }
    run(work, workers, sizeof workers[0]);

    CHECK(pthread_barrier_init(&together, NULL, THREADS) == 0);
    for (unsigned round = 0; round < 20; round++) {
        unsigned won[THREADS] = {0};
        unsigned in_all = 0;
        contended_client = client;
        contended_ticket = reserve(client, LEN).ticket;
        contended_view = fetch(client, "thread-0-0").view;
        run(contend, won, sizeof won[0]);
        for (unsigned at = 0; at < THREADS; at++) {
            in_all += won[at];
        }
        CHECK(in_all == 2);
    }
    CHECK(pthread_barrier_destroy(&together) == 0);
}
