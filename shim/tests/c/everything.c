/* Every function, used as it is meant. */
#include "check.h"

static void words(void) {
    CHECK(kvd_abi_version() == KVD_ABI_VERSION);
    CHECK(strchr(kvd_version(), '.'));
    CHECK(strcmp(kvd_status_name(KVD_STATUS_OK), "ok") == 0);
    CHECK(strcmp(kvd_status_name(-5), "unknown") == 0);
    CHECK(strcmp(kvd_miss_name(KVD_MISS_EVICTED_LONG), "evicted_long") == 0);
    CHECK(strcmp(kvd_miss_name(200), "unknown") == 0);
    CHECK(strcmp(kvd_refusal_name(KVD_REFUSAL_DOWNGRADE), "downgrade") == 0);
    CHECK(strcmp(kvd_refusal_name(200), "unknown") == 0);
    CHECK(strcmp(kvd_last_error(), "") == 0);
}

static void connection(kvd_client client) {
    kvd_connection now;
    memset(&now, 0xff, sizeof now);
    EXPECT(KVD_STATUS_OK, kvd_connect(client, &now));
    EXPECT(KVD_STATUS_OK, kvd_connect(client, NULL));
    CHECK(now.epoch > 0 && now.arena_bytes >= 64u << 20 && now.keys_max >= 1);
    CHECK(strncmp(now.server_id, "kvd-", 4) == 0 && strlen(now.server_id) == 12);
}

/* More keys than one request takes: filled in place and by copy, with lineage, read in place and by copy. */
static void batches(kvd_client client) {
    enum { COUNT = 5000, LEN = 1000 };
    static char names[COUNT][16];
    static kvd_bytes keys[COUNT + 1];
    static uint64_t lens[COUNT];
    static kvd_reserved reserved[COUNT];
    static kvd_commit_item items[COUNT];
    static uint8_t refusals[COUNT];
    static kvd_located located[COUNT + 1];
    static kvd_fetched fetched[COUNT + 1];
    static unsigned char bytes[LEN];
    const uint64_t router_hashes[] = {1, 2};
    const kvd_bytes engine_hashes[] = {text("first"), text("second")};
    const kvd_lineage lineage = {
        engine_hashes, 2, router_hashes, 2, text("parent"), "lora", "salt", 16,
    };
    const kvd_lineage sparse = {NULL, 0, NULL, 0, {NULL, 0}, NULL, NULL, 16};

    for (int at = 0; at < COUNT; at++) {
        snprintf(names[at], sizeof names[at], "key-%d", at);
        keys[at] = text(names[at]);
        lens[at] = (uint64_t)(at % (LEN + 1));
    }
    /* The daemon grants a session so many tickets; ask for no more at once. */
    for (int begin = 0; begin < COUNT; begin += 500) {
        EXPECT(KVD_STATUS_OK, kvd_reserve(client, lens + begin, 500, KVD_RETENTION_LONG, 0, reserved + begin));
        for (int at = begin; at < begin + 500; at++) {
            CHECK(reserved[at].refusal == KVD_REFUSAL_NONE && reserved[at].len == lens[at]);
            memset(bytes, at % 251, LEN);
            if (at % 2) {
                memcpy(reserved[at].data, bytes, lens[at]);
            } else {
                kvd_bytes whole = {bytes, (size_t)lens[at]};
                EXPECT(KVD_STATUS_OK, kvd_ticket_write(reserved[at].ticket, 0, whole));
            }
            items[at] = item(reserved[at].ticket, names[at], lens[at]);
            items[at].lineage = at % 3 == 0 ? &lineage : at % 3 == 1 ? &sparse : NULL;
        }
        EXPECT(KVD_STATUS_OK, kvd_commit(client, &SPACE, items + begin, 500, KVD_RETENTION_LONG, 0, refusals + begin));
    }
    for (int at = 0; at < COUNT; at++) {
        CHECK(refusals[at] == KVD_REFUSAL_NONE);
    }

    /* One that is not there, before the last. */
    keys[COUNT] = keys[COUNT - 1];
    keys[COUNT - 1] = text("absent");
    EXPECT(KVD_STATUS_OK, kvd_locate(client, &SPACE, keys, COUNT + 1, 0, located));
    CHECK(located[7].miss == KVD_MISS_NONE && located[7].tier == KVD_TIER_HOST && located[7].len == lens[7]);
    CHECK(located[COUNT - 1].miss == KVD_MISS_NEVER_STORED && located[COUNT - 1].tier == KVD_TIER_NONE);
    CHECK(located[COUNT].miss == KVD_MISS_NONE);
    EXPECT(KVD_STATUS_OK, kvd_locate(client, &SPACE, keys, COUNT + 1, KVD_PREFIX, located));
    CHECK(located[COUNT - 1].miss == KVD_MISS_NEVER_STORED && located[COUNT].miss == KVD_MISS_NOT_ASKED);

    EXPECT(KVD_STATUS_OK, kvd_fetch(client, &SPACE, keys, COUNT + 1, KVD_PREFIX, 60000, fetched));
    for (int at = 0; at < COUNT - 1; at++) {
        CHECK(fetched[at].miss == KVD_MISS_NONE && fetched[at].len == lens[at]);
        memset(bytes, at % 251, LEN);
        CHECK(memcmp(fetched[at].data, bytes, lens[at]) == 0);
    }
    CHECK(fetched[COUNT - 1].miss == KVD_MISS_NEVER_STORED && fetched[COUNT - 1].view == 0);
    CHECK(fetched[COUNT].miss == KVD_MISS_NOT_ASKED && fetched[COUNT].data == NULL);
    memset(bytes, 0, LEN);
    EXPECT(KVD_STATUS_OK, kvd_view_copy(fetched[777].view, bytes, LEN));
    CHECK(bytes[0] == 777 % 251 && bytes[776] == 777 % 251 && bytes[777] == 0);
    EXPECT(KVD_STATUS_OK, kvd_release(fetched[777].view));
    fetched[777].view = 0;
    EXPECT(KVD_STATUS_OK, kvd_release_fetched(fetched, COUNT + 1));
    CHECK(fetched[0].view == 0 && fetched[0].miss == KVD_MISS_NOT_ASKED);
}

/* A hint has no answer: it goes or it fails. */
static void hints(kvd_client client) {
    static kvd_bytes keys[5000];
    for (int at = 0; at < 5000; at++) {
        keys[at] = text("hinted");
    }
    EXPECT(KVD_STATUS_OK, kvd_prefetch(client, &SPACE, keys, 5000, 0));
    EXPECT(KVD_STATUS_OK, kvd_prefetch(client, &SPACE, keys, 1, 60000));
    EXPECT(KVD_STATUS_OK, kvd_prefetch(client, &SPACE, NULL, 0, 0));
}

/* Blocks of megabytes go past the cache; a block may be copied into the room of another. */
static void large(kvd_client client) {
    enum { LEN = 3 << 20 };
    unsigned char *bytes = malloc(LEN);
    unsigned char *back = malloc(LEN);
    CHECK(bytes && back);
    for (int at = 0; at < LEN; at++) {
        bytes[at] = (unsigned char)(at * 31 + at / 997);
    }
    kvd_bytes value = {bytes, LEN};
    EXPECT(KVD_STATUS_OK, kvd_put(client, &SPACE, text("large"), value, KVD_RETENTION_NONE, 60000, NULL));
    uint64_t len = 0;
    uint8_t miss = 99;
    EXPECT(KVD_STATUS_OK, kvd_get(client, &SPACE, text("large"), back, LEN, &len, &miss));
    CHECK(len == LEN && miss == KVD_MISS_NONE && memcmp(bytes, back, LEN) == 0);

    kvd_fetched from = fetch(client, "large");
    kvd_reserved to = reserve(client, LEN);
    EXPECT(KVD_STATUS_OK, kvd_view_copy(from.view, to.data, LEN));
    kvd_commit_item moved = item(to.ticket, "larger", LEN);
    uint8_t refusal = 99;
    EXPECT(KVD_STATUS_OK, kvd_commit(client, &SPACE, &moved, 1, KVD_RETENTION_LONG, 0, &refusal));
    CHECK(refusal == KVD_REFUSAL_NONE);
    EXPECT(KVD_STATUS_OK, kvd_release(from.view));
    memset(back, 0, LEN);
    EXPECT(KVD_STATUS_OK, kvd_get(client, &SPACE, text("larger"), back, LEN, &len, NULL));
    CHECK(memcmp(bytes, back, LEN) == 0);
    free(bytes);
    free(back);
}

/* What the daemon declines, what it does not have, and room that is given back. */
static void answers(kvd_client client) {
    char back[4];
    uint64_t len = 99;
    uint8_t code = 99;
    put(client, "small", "12345");
    EXPECT(KVD_STATUS_TOO_SMALL, kvd_get(client, &SPACE, text("small"), back, sizeof back, &len, &code));
    CHECK(len == 5 && code == KVD_MISS_NONE);
    EXPECT(KVD_STATUS_TOO_SMALL, kvd_get(client, &SPACE, text("small"), NULL, 0, &len, NULL));
    EXPECT(KVD_STATUS_MISS, kvd_get(client, &SPACE, text("nothing"), back, sizeof back, &len, &code));
    CHECK(len == 0 && code == KVD_MISS_NEVER_STORED && strstr(kvd_last_error(), "never_stored"));
    put(client, "", "an empty key is a key");
    kvd_fetched nameless = fetch(client, "");
    CHECK(nameless.len == 21);
    EXPECT(KVD_STATUS_OK, kvd_release(nameless.view));

    uint64_t vast = (uint64_t)1 << 60;
    kvd_reserved reserved;
    EXPECT(KVD_STATUS_OK, kvd_reserve(client, &vast, 1, KVD_RETENTION_LONG, 0, &reserved));
    CHECK(reserved.ticket == 0 && reserved.data == NULL && reserved.refusal == KVD_REFUSAL_OVERSIZE);

    kvd_reserved room = reserve(client, 8);
    kvd_commit_item more = item(room.ticket, "more", 9);
    EXPECT(KVD_STATUS_OK, kvd_commit(client, &SPACE, &more, 1, KVD_RETENTION_LONG, 0, &code));
    CHECK(code == KVD_REFUSAL_OVERSIZE_COMMIT);
    EXPECT(KVD_STATUS_STALE_HANDLE, kvd_cancel(room.ticket));

    room = reserve(client, 8);
    EXPECT(KVD_STATUS_OK, kvd_cancel(room.ticket));

    /* More than the arena that the harness gives the daemon; never touched, so it costs nothing. */
    kvd_bytes vast_value = {calloc(1, 80u << 20), 80u << 20};
    CHECK(vast_value.data);
    EXPECT(KVD_STATUS_DECLINED, kvd_put(client, &SPACE, text("vast"), vast_value, KVD_RETENTION_LONG, 0, &code));
    CHECK(code == KVD_REFUSAL_OVERSIZE && strstr(kvd_last_error(), "oversize"));
    free((void *)vast_value.data);
}

static uint64_t figure(kvd_client client, const char *name) {
    static kvd_stat stats[256];
    size_t count = 0;
    EXPECT(KVD_STATUS_OK, kvd_stats(client, stats, 256, &count));
    CHECK(count > 3 && count <= 256);
    for (size_t at = 0; at < count; at++) {
        if (strcmp(stats[at].name, name) == 0) {
            return stats[at].value;
        }
    }
    fprintf(stderr, "no figure %s\n", name);
    exit(1);
}

static void store(kvd_client client) {
    size_t count = 0;
    EXPECT(KVD_STATUS_OK, kvd_stats(client, NULL, 0, &count));
    CHECK(count > 3);
    kvd_stat first;
    memset(&first, 0xff, sizeof first);
    EXPECT(KVD_STATUS_OK, kvd_stats(client, &first, 1, &count));
    CHECK(strlen(first.name) > 0 && figure(client, first.name) >= first.value);

    const kvd_namespace other = {"model", "another layout"};
    EXPECT(KVD_STATUS_OK, kvd_put(client, &other, text("a"), text("b"), KVD_RETENTION_LONG, 0, NULL));
    kvd_fetched held = fetch(client, "small");
    uint64_t rows = 0;
    EXPECT(KVD_STATUS_OK, kvd_clear(client, "model", "another layout", 0, &rows));
    CHECK(rows == 1);
    EXPECT(KVD_STATUS_OK, kvd_clear(client, "model", NULL, 0, &rows));
    CHECK(rows > 4000);
    EXPECT(KVD_STATUS_OK, kvd_clear(client, NULL, NULL, KVD_EVERYTHING, NULL));
    CHECK(memcmp(held.data, "12345", 5) == 0);
    EXPECT(KVD_STATUS_OK, kvd_release(held.view));
    kvd_bytes key = text("small");
    kvd_located located;
    EXPECT(KVD_STATUS_OK, kvd_locate(client, &SPACE, &key, 1, 0, &located));
    CHECK(located.miss == KVD_MISS_CLEARED);
}

void everything(kvd_client client) {
    words();
    connection(client);
    batches(client);
    hints(client);
    large(client);
    answers(client);
    store(client);
}
