/* A forked child uses its parent's client, and cannot use its parent's rights. */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

static atomic_int over;

/* Keeps the locks of the library and of the client busy while others fork. */
static void *keep_busy(void *given) {
    const kvd_client *client = given;
    while (!atomic_load(&over)) {
        EXPECT(KVD_STATUS_STALE_HANDLE, kvd_detach(1));
        kvd_fetched fetched = fetch(*client, "busy");
        EXPECT(KVD_STATUS_OK, kvd_release(fetched.view));
    }
    return NULL;
}

static int child(kvd_client client, kvd_fetched held, kvd_reserved room, uint64_t session) {
    char back[16];
    uint64_t len;
    uint8_t code;
    kvd_connection mine;
    EXPECT(KVD_STATUS_OTHER_PROCESS, kvd_view_copy(held.view, back, sizeof back));
    EXPECT(KVD_STATUS_OTHER_PROCESS, kvd_ticket_write(room.ticket, 0, text("child")));
    kvd_commit_item theirs = item(room.ticket, "theirs", 5);
    EXPECT(KVD_STATUS_OTHER_PROCESS, kvd_commit(client, &SPACE, &theirs, 1, KVD_RETENTION_LONG, 0, &code));
    EXPECT(KVD_STATUS_OK, kvd_connect(client, &mine));
    CHECK(mine.session != session);
    EXPECT(KVD_STATUS_OK, kvd_get(client, &SPACE, text("forked"), back, sizeof back, &len, NULL));
    CHECK(len == 6 && memcmp(back, "parent", 6) == 0);
    put(client, "child", "child");
    EXPECT(KVD_STATUS_OK, kvd_release(held.view));
    EXPECT(KVD_STATUS_OK, kvd_cancel(room.ticket));
    EXPECT(KVD_STATUS_OK, kvd_detach(client));
    return 0;
}

void forks(kvd_client client) {
    char back[16];
    uint64_t len;
    kvd_connection mine;
    put(client, "forked", "parent");
    EXPECT(KVD_STATUS_OK, kvd_connect(client, &mine));
    for (int round = 0; round < 10; round++) {
        kvd_fetched held = fetch(client, "forked");
        kvd_reserved room = reserve(client, 6);
        fflush(NULL);
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            _exit(child(client, held, room, mine.session));
        }
        int status = 0;
        CHECK(waitpid(pid, &status, 0) == pid && status == 0);

        /* The child gave its copies back; ours are as they were. */
        EXPECT(KVD_STATUS_OK, kvd_view_copy(held.view, back, sizeof back));
        CHECK(memcmp(back, "parent", 6) == 0);
        EXPECT(KVD_STATUS_OK, kvd_ticket_write(room.ticket, 0, text("second")));
        kvd_commit_item ours = item(room.ticket, "second", 6);
        uint8_t refusal = 99;
        EXPECT(KVD_STATUS_OK, kvd_commit(client, &SPACE, &ours, 1, KVD_RETENTION_LONG, 0, &refusal));
        CHECK(refusal == KVD_REFUSAL_NONE);
        EXPECT(KVD_STATUS_OK, kvd_release(held.view));
        EXPECT(KVD_STATUS_OK, kvd_get(client, &SPACE, text("child"), back, sizeof back, &len, NULL));
        CHECK(len == 5);
    }
}

void forks_while_busy(kvd_client client) {
    enum { BUSY = 2, FORKS = 500 };
    pthread_t busy[BUSY];
    put(client, "busy", "bytes");
    for (int at = 0; at < BUSY; at++) {
        CHECK(pthread_create(&busy[at], NULL, keep_busy, &client) == 0);
    }
    forks(client);
    for (int round = 0; round < FORKS; round++) {
        fflush(NULL);
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            kvd_bytes key = text("busy");
            kvd_located located;
            alarm(30); /* A hang is a death. */
            EXPECT(KVD_STATUS_OK, kvd_locate(client, &SPACE, &key, 1, 0, &located));
            _exit(0);
        }
        int status = 0;
        CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    }
    atomic_store(&over, 1);
    for (int at = 0; at < BUSY; at++) {
        CHECK(pthread_join(busy[at], NULL) == 0);
    }
}
