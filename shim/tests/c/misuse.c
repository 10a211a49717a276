/* What must not be done, and is an error, not the end of the process. */
#include "check.h"

static void nulls(kvd_client client) {
    kvd_client none = 7;
    kvd_bytes key = text("key");
    kvd_located located;
    kvd_fetched fetched;
    kvd_reserved reserved;
    kvd_commit_item items[1] = {item(1, "key", 1)};
    kvd_bytes nowhere = {NULL, 3};
    const kvd_namespace nameless = {NULL, "c"};
    const kvd_namespace half = {"m", NULL};
    uint64_t len = 8;
    uint8_t code = 0;
    char room[8];

    EXPECT(KVD_STATUS_ABI_VERSION, kvd_attach(KVD_ABI_VERSION + 1, NULL, &none));
    EXPECT(KVD_STATUS_ARGUMENT, kvd_attach(KVD_ABI_VERSION, NULL, NULL));
    EXPECT(KVD_STATUS_ARGUMENT, kvd_locate(client, NULL, &key, 1, 0, &located));
    EXPECT(KVD_STATUS_ARGUMENT, kvd_locate(client, &nameless, &key, 1, 0, &located));
    CHECK(strcmp(kvd_last_error(), "the namespace's model is null") == 0);
    CHECK(located.miss == KVD_MISS_NOT_ASKED);
    EXPECT(KVD_STATUS_ARGUMENT, kvd_locate(client, &half, &key, 1, 0, &located));
    EXPECT(KVD_STATUS_ARGUMENT, kvd_locate(client, &SPACE, NULL, 1, 0, &located));
    EXPECT(KVD_STATUS_ARGUMENT, kvd_locate(client, &SPACE, &nowhere, 1, 0, &located));
    EXPECT(KVD_STATUS_ARGUMENT, kvd_locate(client, &SPACE, &key, 1, 0, NULL));
    EXPECT(KVD_STATUS_OK, kvd_locate(client, &SPACE, NULL, 0, 0, NULL));
    EXPECT(KVD_STATUS_ARGUMENT, kvd_fetch(client, &SPACE, NULL, 1, 0, 0, &fetched));
    CHECK(fetched.view == 0 && fetched.miss == KVD_MISS_NOT_ASKED);
    EXPECT(KVD_STATUS_ARGUMENT, kvd_fetch(client, &SPACE, &key, 1, 0, 0, NULL));
    EXPECT(KVD_STATUS_OK, kvd_fetch(client, &SPACE, NULL, 0, 0, 0, NULL));
    EXPECT(KVD_STATUS_ARGUMENT, kvd_prefetch(client, NULL, &key, 1, 0));
    EXPECT(KVD_STATUS_ARGUMENT, kvd_prefetch(client, &SPACE, NULL, 1, 0));
    EXPECT(KVD_STATUS_ARGUMENT, kvd_prefetch(client, &SPACE, &nowhere, 1, 0));
    EXPECT(KVD_STATUS_ARGUMENT, kvd_release_fetched(NULL, 1));
    EXPECT(KVD_STATUS_OK, kvd_release_fetched(NULL, 0));
    EXPECT(KVD_STATUS_ARGUMENT, kvd_reserve(client, NULL, 1, KVD_RETENTION_LONG, 0, &reserved));
    CHECK(reserved.ticket == 0 && reserved.refusal == KVD_REFUSAL_NOT_ASKED);
    EXPECT(KVD_STATUS_ARGUMENT, kvd_reserve(client, &len, 1, KVD_RETENTION_LONG, 0, NULL));
    EXPECT(KVD_STATUS_OK, kvd_reserve(client, NULL, 0, KVD_RETENTION_LONG, 0, NULL));
    EXPECT(KVD_STATUS_ARGUMENT, kvd_commit(client, &SPACE, NULL, 1, KVD_RETENTION_LONG, 0, &code));
    EXPECT(KVD_STATUS_ARGUMENT, kvd_commit(client, &SPACE, items, 1, KVD_RETENTION_LONG, 0, NULL));
    EXPECT(KVD_STATUS_OK, kvd_commit(client, &SPACE, NULL, 0, KVD_RETENTION_LONG, 0, NULL));
    EXPECT(KVD_STATUS_ARGUMENT, kvd_put(client, &SPACE, nowhere, key, KVD_RETENTION_LONG, 0, NULL));
    EXPECT(KVD_STATUS_ARGUMENT, kvd_put(client, &SPACE, key, nowhere, KVD_RETENTION_LONG, 0, &code));
    CHECK(code == KVD_REFUSAL_NOT_ASKED);
    EXPECT(KVD_STATUS_ARGUMENT, kvd_get(client, &SPACE, key, room, sizeof room, NULL, NULL));
    EXPECT(KVD_STATUS_ARGUMENT, kvd_get(client, &SPACE, key, NULL, sizeof room, &len, NULL));
    EXPECT(KVD_STATUS_ARGUMENT, kvd_stats(client, NULL, 1, (size_t[]){0}));
    EXPECT(KVD_STATUS_ARGUMENT, kvd_stats(client, NULL, 0, NULL));
    EXPECT(KVD_STATUS_ARGUMENT, kvd_clear(client, NULL, NULL, 0, NULL));
    EXPECT(KVD_STATUS_ARGUMENT, kvd_clear(client, NULL, "c", 0, NULL));
    EXPECT(KVD_STATUS_ARGUMENT, kvd_clear(client, "m", NULL, KVD_EVERYTHING, NULL));
}

static void sizes(kvd_client client) {
    static char long_text[KVD_KEY_BYTES_MAX * 8];
    kvd_bytes key = text("key");
    kvd_bytes long_key = {long_text, KVD_KEY_BYTES_MAX + 1};
    kvd_bytes endless = {long_text, SIZE_MAX};
    kvd_located located[2];
    kvd_fetched fetched;
    const kvd_namespace garbled = {"\xff\xfe", "c"};
    kvd_namespace lengthy = {long_text, "c"};
    uint8_t code;

    EXPECT(KVD_STATUS_ARGUMENT, kvd_locate(client, &SPACE, &key, SIZE_MAX, 0, located));
    EXPECT(KVD_STATUS_ARGUMENT, kvd_locate(client, &SPACE, &key, KVD_ITEMS_MAX + 1, 0, located));
    EXPECT(KVD_STATUS_ARGUMENT, kvd_locate(client, &SPACE, &long_key, 1, 0, located));
    EXPECT(KVD_STATUS_ARGUMENT, kvd_locate(client, &SPACE, &endless, 1, 0, located));
    EXPECT(KVD_STATUS_ARGUMENT, kvd_locate(client, &SPACE, &key, 1, 2, located));
    EXPECT(KVD_STATUS_ARGUMENT, kvd_locate(client, &garbled, &key, 1, 0, located));
    EXPECT(KVD_STATUS_ARGUMENT,
           kvd_locate(client, &SPACE, &key, 1, 0, (kvd_located *)(void *)((char *)located + 1)));
    EXPECT(KVD_STATUS_ARGUMENT, kvd_put(client, &SPACE, key, endless, KVD_RETENTION_LONG, 0, NULL));
    EXPECT(KVD_STATUS_ARGUMENT, kvd_put(client, &SPACE, long_key, key, KVD_RETENTION_LONG, 0, NULL));
    EXPECT(KVD_STATUS_ARGUMENT, kvd_put(client, &SPACE, key, key, 3, 0, NULL));
    memset(long_text, 'x', sizeof long_text - 1);
    EXPECT(KVD_STATUS_ARGUMENT, kvd_fetch(client, &lengthy, &key, 1, 0, 0, &fetched));

    /* A commit that is refused here leaves its ticket. */
    static char hash[70000];
    const kvd_bytes hashes = {hash, sizeof hash};
    const kvd_lineage vast = {&hashes, 1, NULL, 0, {NULL, 0}, NULL, NULL, 16};
    kvd_reserved room = reserve(client, 8);
    kvd_commit_item items[2] = {item(room.ticket, "key", 8), item(room.ticket, "twice", 8)};
    EXPECT(KVD_STATUS_ARGUMENT, kvd_ticket_write(room.ticket, 1, text("12345678")));
    EXPECT(KVD_STATUS_ARGUMENT, kvd_ticket_write(room.ticket, UINT64_MAX, text("1")));
    EXPECT(KVD_STATUS_ARGUMENT, kvd_ticket_write(room.ticket, 0, (kvd_bytes){NULL, 8}));
    EXPECT(KVD_STATUS_OK, kvd_ticket_write(room.ticket, 8, (kvd_bytes){NULL, 0}));
    EXPECT(KVD_STATUS_OK, kvd_ticket_write(room.ticket, 0, text("12345678")));
    EXPECT(KVD_STATUS_ARGUMENT, kvd_commit(client, &SPACE, items, 2, KVD_RETENTION_LONG, 0, (uint8_t[2]){0}));
    EXPECT(KVD_STATUS_ARGUMENT, kvd_commit(client, &SPACE, items, 1, 77, 0, &code));
    EXPECT(KVD_STATUS_ARGUMENT, kvd_commit(client, &lengthy, items, 1, KVD_RETENTION_LONG, 0, &code));
    items[0].lineage = &vast;
    EXPECT(KVD_STATUS_ARGUMENT, kvd_commit(client, &SPACE, items, 1, KVD_RETENTION_LONG, 0, &code));
    CHECK(code == KVD_REFUSAL_NOT_ASKED);
    items[0].lineage = NULL;
    EXPECT(KVD_STATUS_OK, kvd_commit(client, &SPACE, items, 1, KVD_RETENTION_LONG, 0, &code));
    CHECK(code == KVD_REFUSAL_NONE);
}

static void stale(kvd_client client) {
    char room[16];
    uint8_t codes[2];
    kvd_bytes key = text("key");
    kvd_located located;
    put(client, "key", "value");

    /* Released twice, used after release, another's kind, never given out. */
    kvd_fetched first = fetch(client, "key");
    kvd_view old = first.view;
    EXPECT(KVD_STATUS_TOO_SMALL, kvd_view_copy(old, room, 4));
    EXPECT(KVD_STATUS_ARGUMENT, kvd_view_copy(old, NULL, 16));
    EXPECT(KVD_STATUS_OK, kvd_release(old));
    EXPECT(KVD_STATUS_STALE_HANDLE, kvd_release(old));
    kvd_fetched next = fetch(client, "key");
    CHECK(next.view != old);
    EXPECT(KVD_STATUS_STALE_HANDLE, kvd_view_copy(old, room, sizeof room));
    EXPECT(KVD_STATUS_STALE_HANDLE, kvd_release(old));
    EXPECT(KVD_STATUS_STALE_HANDLE, kvd_release(0));
    EXPECT(KVD_STATUS_STALE_HANDLE, kvd_release(UINT64_MAX));
    EXPECT(KVD_STATUS_STALE_HANDLE, kvd_release(client));
    EXPECT(KVD_STATUS_STALE_HANDLE, kvd_cancel(next.view));
    EXPECT(KVD_STATUS_STALE_HANDLE, kvd_detach(next.view));
    EXPECT(KVD_STATUS_OK, kvd_view_copy(next.view, room, sizeof room));
    CHECK(memcmp(room, "value", 5) == 0);
    kvd_fetched both[2] = {first, next};
    EXPECT(KVD_STATUS_STALE_HANDLE, kvd_release_fetched(both, 2));
    EXPECT(KVD_STATUS_STALE_HANDLE, kvd_release(next.view));

    /* A batch with one stale ticket commits none; the good one stays. */
    kvd_reserved good = reserve(client, 4);
    kvd_reserved bad = reserve(client, 4);
    EXPECT(KVD_STATUS_OK, kvd_cancel(bad.ticket));
    EXPECT(KVD_STATUS_STALE_HANDLE, kvd_cancel(bad.ticket));
    EXPECT(KVD_STATUS_STALE_HANDLE, kvd_ticket_write(bad.ticket, 0, text("1234")));
    kvd_commit_item items[2] = {item(good.ticket, "good", 4), item(bad.ticket, "bad", 4)};
    EXPECT(KVD_STATUS_STALE_HANDLE, kvd_commit(client, &SPACE, items, 2, KVD_RETENTION_LONG, 0, codes));
    CHECK(codes[0] == KVD_REFUSAL_NOT_ASKED && codes[1] == KVD_REFUSAL_NOT_ASKED);
    EXPECT(KVD_STATUS_OK, kvd_ticket_write(good.ticket, 0, text("1234")));
    EXPECT(KVD_STATUS_OK, kvd_commit(client, &SPACE, items, 1, KVD_RETENTION_LONG, 0, codes));
    EXPECT(KVD_STATUS_STALE_HANDLE, kvd_commit(client, &SPACE, items, 1, KVD_RETENTION_LONG, 0, codes));

    /* A client that was never there. */
    EXPECT(KVD_STATUS_STALE_HANDLE, kvd_locate(0, &SPACE, &key, 1, 0, &located));
    EXPECT(KVD_STATUS_STALE_HANDLE, kvd_connect(client + 1, NULL));
    CHECK(strstr(kvd_last_error(), "is no client that is in use"));
}

/* The environment names the socket of this second client. It is detached while it has rights. */
static void detached(void) {
    kvd_client client = 0;
    char room[16];
    uint8_t code;
    EXPECT(KVD_STATUS_OK, kvd_attach(KVD_ABI_VERSION, NULL, &client));
    put(client, "mine", "bytes");
    kvd_fetched held = fetch(client, "mine");
    kvd_reserved filled = reserve(client, 3);
    kvd_reserved unused = reserve(client, 3);
    EXPECT(KVD_STATUS_OK, kvd_detach(client));
    EXPECT(KVD_STATUS_STALE_HANDLE, kvd_detach(client));
    EXPECT(KVD_STATUS_STALE_HANDLE, kvd_stats(client, NULL, 0, (size_t[]){0}));
    EXPECT(KVD_STATUS_STALE_HANDLE, kvd_clear(client, NULL, NULL, KVD_EVERYTHING, NULL));
    EXPECT(KVD_STATUS_OK, kvd_ticket_write(filled.ticket, 0, text("abc")));
    kvd_commit_item late = item(filled.ticket, "late", 3);
    EXPECT(KVD_STATUS_STALE_HANDLE, kvd_commit(client, &SPACE, &late, 1, KVD_RETENTION_LONG, 0, &code));
    EXPECT(KVD_STATUS_OK, kvd_view_copy(held.view, room, sizeof room));
    CHECK(memcmp(room, "bytes", 5) == 0 && memcmp(held.data, "bytes", 5) == 0);
    EXPECT(KVD_STATUS_OK, kvd_cancel(filled.ticket));
    EXPECT(KVD_STATUS_OK, kvd_release(held.view));
    EXPECT(KVD_STATUS_OK, kvd_cancel(unused.ticket));
}

void misuse(kvd_client client) {
    nulls(client);
    sizes(client);
    stale(client);
    detached();
}
