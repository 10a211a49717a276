/* The daemon is killed and comes back. The harness does both: it is told when, and says when it is done. */
#include "check.h"

static void have(const char *what) {
    char line[64];
    puts(what);
    fflush(stdout);
    CHECK(fgets(line, sizeof line, stdin));
}

void outage(kvd_client client) {
    char back[16];
    uint64_t len = 99;
    uint8_t code = 99;
    size_t count = 0;
    uint64_t lens[2] = {3, 3};
    kvd_bytes keys[2] = {text("key"), text("other")};
    kvd_fetched fetched[2];
    kvd_reserved reserved[2];
    kvd_located located[2];
    kvd_connection before;
    kvd_connection after;

    EXPECT(KVD_STATUS_OK, kvd_connect(client, &before));
    put(client, "key", "old");
    kvd_fetched held = fetch(client, "key");
    kvd_reserved room = reserve(client, 3);
    kvd_reserved unused = reserve(client, 3);
    have("kill");

    /* Look-ups are misses, the rest is an error with a reason; what is held stays mapped. */
    kvd_status first = kvd_locate(client, &SPACE, keys, 2, 0, located);
    CHECK(first == KVD_STATUS_DISCONNECTED || first == KVD_STATUS_NOT_CONNECTED);
    CHECK(located[0].miss == KVD_MISS_SHED && located[1].miss == KVD_MISS_SHED);
    EXPECT(KVD_STATUS_NOT_CONNECTED, kvd_fetch(client, &SPACE, keys, 2, KVD_PREFIX, 100, fetched));
    CHECK(fetched[0].miss == KVD_MISS_SHED && fetched[1].miss == KVD_MISS_NOT_ASKED && !fetched[0].view);
    CHECK(strstr(kvd_last_error(), "no daemon at"));
    EXPECT(KVD_STATUS_NOT_CONNECTED, kvd_prefetch(client, &SPACE, keys, 2, 0));
    EXPECT(KVD_STATUS_NOT_CONNECTED, kvd_get(client, &SPACE, text("key"), back, sizeof back, &len, &code));
    CHECK(len == 0 && code == KVD_MISS_SHED);
    EXPECT(KVD_STATUS_NOT_CONNECTED, kvd_reserve(client, lens, 2, KVD_RETENTION_LONG, 100, reserved));
    CHECK(reserved[1].refusal == KVD_REFUSAL_NOT_ASKED && reserved[1].ticket == 0);
    EXPECT(KVD_STATUS_NOT_CONNECTED, kvd_put(client, &SPACE, keys[0], keys[1], KVD_RETENTION_LONG, 0, &code));
    EXPECT(KVD_STATUS_NOT_CONNECTED, kvd_clear(client, "model", NULL, 0, &len));
    EXPECT(KVD_STATUS_NOT_CONNECTED, kvd_stats(client, NULL, 0, &count));
    EXPECT(KVD_STATUS_NOT_CONNECTED, kvd_connect(client, NULL));
    EXPECT(KVD_STATUS_OK, kvd_view_copy(held.view, back, sizeof back));
    CHECK(memcmp(back, "old", 3) == 0 && memcmp(held.data, "old", 3) == 0);
    EXPECT(KVD_STATUS_OK, kvd_ticket_write(room.ticket, 0, text("new")));
    have("start");

    /* Another daemon: the old rights mean nothing to it, and everything else works. */
    EXPECT(KVD_STATUS_OK, kvd_connect(client, &after));
    CHECK(after.epoch != before.epoch);
    kvd_commit_item stale = item(room.ticket, "key", 3);
    EXPECT(KVD_STATUS_STALE_EPOCH, kvd_commit(client, &SPACE, &stale, 1, KVD_RETENTION_LONG, 0, &code));
    CHECK(code == KVD_REFUSAL_NOT_ASKED);
    EXPECT(KVD_STATUS_STALE_HANDLE, kvd_cancel(room.ticket));
    EXPECT(KVD_STATUS_OK, kvd_cancel(unused.ticket));
    EXPECT(KVD_STATUS_MISS, kvd_get(client, &SPACE, text("key"), back, sizeof back, &len, &code));
    put(client, "key", "new");
    kvd_fetched fresh = fetch(client, "key");
    CHECK(memcmp(fresh.data, "new", 3) == 0 && memcmp(held.data, "old", 3) == 0);
    EXPECT(KVD_STATUS_OK, kvd_release(held.view));
    EXPECT(KVD_STATUS_OK, kvd_release(fresh.view));
}
