// The header means the same to C++: it compiles without a warning, and its functions are found.
#include "infera_kvd.h"

#include <cstring>
#include <type_traits>

static_assert(sizeof(kvd_status) == 4 && sizeof(kvd_miss) == 1, "enums have their size");
static_assert(std::is_standard_layout<kvd_fetched>::value, "plain structs");
static_assert(std::is_trivially_copyable<kvd_commit_item>::value, "plain structs");

int main() {
    kvd_client client = 0;
    kvd_options options = {};
    options.socket = "/nowhere/kvd.sock";
    if (kvd_attach(KVD_ABI_VERSION, &options, &client) != KVD_STATUS_OK) {
        return 1;
    }
    const kvd_namespace space = {"model", "layout"};
    const kvd_bytes key = {"key", 3};
    kvd_located located = {};
    if (kvd_locate(client, &space, &key, 1, KVD_PREFIX, &located) != KVD_STATUS_NOT_CONNECTED) {
        return 2;
    }
    if (located.miss != KVD_MISS_SHED || std::strstr(kvd_last_error(), "/nowhere") == nullptr) {
        return 3;
    }
    return kvd_detach(client) == KVD_STATUS_OK ? 0 : 4;
}
