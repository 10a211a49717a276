/* The test program of the C ABI: main <socket> <case>. Started by the harness, plainly and under valgrind. */
#include <stddef.h>

#include "check.h"

/* A struct that changes its layout is another ABI. */
#define SAME(condition) _Static_assert(condition, #condition)
SAME(sizeof(kvd_bytes) == 16 && sizeof(kvd_namespace) == 16 && sizeof(kvd_options) == 24);
SAME(sizeof(kvd_connection) == 96 && offsetof(kvd_connection, server_id) == 64);
SAME(sizeof(kvd_located) == 16 && offsetof(kvd_located, tier) == 13);
SAME(sizeof(kvd_fetched) == 32 && offsetof(kvd_fetched, miss) == 24);
SAME(sizeof(kvd_reserved) == 32 && offsetof(kvd_reserved, refusal) == 24);
SAME(sizeof(kvd_commit_item) == 40 && offsetof(kvd_commit_item, lineage) == 32);
SAME(sizeof(kvd_lineage) == 72 && offsetof(kvd_lineage, tokens_per_block) == 64);
SAME(sizeof(kvd_stat) == 72 && offsetof(kvd_stat, name) == 8);
SAME(sizeof(kvd_status) == 4 && sizeof(kvd_miss) == 1 && KVD_ABI_VERSION == 1);

int main(int count, char **words) {
    static const struct {
        const char *name;
        void (*run)(kvd_client);
    } cases[] = {
        {"everything", everything}, {"misuse", misuse}, {"threads", threads},
        {"forks", forks},           {"forks_while_busy", forks_while_busy}, {"outage", outage},
    };
    CHECK(count == 3);
    kvd_options options;
    memset(&options, 0, sizeof options);
    options.socket = words[1];
    options.client_id = "c-test";
    /* Long enough for a slow machine under valgrind; nothing waits for it in vain. */
    options.deadline_ms = 30000;
    options.connect_deadline_ms = 30000;
    for (size_t at = 0; at < sizeof cases / sizeof cases[0]; at++) {
        if (strcmp(words[2], cases[at].name) == 0) {
            kvd_client client = 0;
            EXPECT(KVD_STATUS_OK, kvd_attach(KVD_ABI_VERSION, &options, &client));
            cases[at].run(client);
            EXPECT(KVD_STATUS_OK, kvd_detach(client));
            puts("done");
            return 0;
        }
    }
    fprintf(stderr, "no case %s\n", words[2]);
    return 2;
}
