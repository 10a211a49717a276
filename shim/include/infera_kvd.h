/*
 * infera-kvd: the C interface to the KV-cache daemon of this host. Link with -linfera_kvd. Guide: docs/c-api.md.
 *
 * Written by `cargo xtask gen` from shim/src; change it there.
 *
 * Handles are numbers. One that was given back, is of another kind or was never given out is
 * KVD_STATUS_STALE_HANDLE, never undefined behaviour. Any number of threads may call anything at any time; calls
 * through one client take turns on its connection.
 *
 * No call outlives its deadline, whatever the daemon does. While there is no daemon, look-ups are misses; when it is
 * back, it is attached again.
 *
 * Pointers: every array, text and struct is the caller's, is read or written during the call only, and is never
 * kept or freed. Arrays hold as many items as the count beside them says, and may be null if that is 0. Texts are UTF-8
 * and end with a 0. What is written must not overlap what is read. Null, misalignment and sizes that cannot be are
 * KVD_STATUS_ARGUMENT. What the library owns: the bytes behind the data of kvd_fetched and kvd_reserved, which are the
 * shared arena, for as long as the view or ticket is held; and the texts that functions return.
 *
 * Forks: a child may go on using its parent's clients; each gets a connection of its own. Views and tickets stay the
 * parent's: in the child they are KVD_STATUS_OTHER_PROCESS, and giving them back there frees memory of the child only.
 */


#ifndef INFERA_KVD_H
#define INFERA_KVD_H

#include <stddef.h>
#include <stdint.h>

/**
 * Version of this interface. It changes when a function or a struct changes its meaning or its layout; functions and
 * codes may be added without. Pass it to kvd_attach, which refuses another one.
 */
#define KVD_ABI_VERSION 1

/**
 * Flag of kvd_locate and kvd_fetch: stop after the first miss. Items behind it are KVD_MISS_NOT_ASKED.
 */
#define KVD_PREFIX 1

/**
 * Flag of kvd_clear: every block of every model.
 */
#define KVD_EVERYTHING 1

/**
 * Most items of one call. A call with more is KVD_STATUS_ARGUMENT.
 */
#define KVD_ITEMS_MAX (1 << 20)

/**
 * Longest key in bytes.
 */
#define KVD_KEY_BYTES_MAX 256

/**
 * Bytes of a server's name, the 0 at its end included.
 */
#define KVD_SERVER_ID_BYTES 32

/**
 * Bytes of a figure's name, the 0 at its end included.
 */
#define KVD_STAT_NAME_BYTES 64

/**
 * What a call ended with. 1 to 19: the caller's side; nothing was done. 20 to 39: trouble with the daemon. 40 to 59: the
 * daemon's answer. The text behind it is kvd_last_error's.
 */
enum kvd_status
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /**
   * Done.
   */
  KVD_STATUS_OK = 0,
  /**
   * A pointer is null or misaligned, a length or a count is impossible, a text is not UTF-8, a flag or a class is not
   * known, a key is too long.
   */
  KVD_STATUS_ARGUMENT = 1,
  /**
   * The handle was released, committed, cancelled or detached before, is of another kind, or never existed.
   */
  KVD_STATUS_STALE_HANDLE = 2,
  /**
   * The view or ticket was taken before a fork and belongs to the other process. Releasing or cancelling it here is
   * allowed, and is nothing to the other process.
   */
  KVD_STATUS_OTHER_PROCESS = 3,
  /**
   * Another thread is writing to the ticket.
   */
  KVD_STATUS_IN_USE = 4,
  /**
   * The buffer is too small; nothing was copied.
   */
  KVD_STATUS_TOO_SMALL = 5,
  /**
   * There are 16 million handles of this kind.
   */
  KVD_STATUS_TOO_MANY_HANDLES = 6,
  /**
   * The program was compiled against another version of the header than this library has.
   */
  KVD_STATUS_ABI_VERSION = 7,
  /**
   * There is no daemon, or it is too early to look for it again.
   */
  KVD_STATUS_NOT_CONNECTED = 20,
  /**
   * The daemon went away during the call. Whether it did what was asked is unknown.
   */
  KVD_STATUS_DISCONNECTED = 21,
  /**
   * The deadline passed. Whether the daemon did, or still does, what was asked is unknown.
   */
  KVD_STATUS_DEADLINE = 22,
  /**
   * The daemon broke the protocol, or speaks another one.
   */
  KVD_STATUS_PROTOCOL = 23,
  /**
   * The daemon's arena cannot be mapped.
   */
  KVD_STATUS_MAPPING = 24,
  /**
   * The daemon declined the request as a whole.
   */
  KVD_STATUS_REFUSED = 25,
  /**
   * The daemon shares no arena with this client.
   */
  KVD_STATUS_NO_ARENA = 26,
  /**
   * A ticket of a daemon that is gone. Its room is gone too.
   */
  KVD_STATUS_STALE_EPOCH = 27,
  /**
   * A ticket of an earlier connection to the same daemon. Its room is gone.
   */
  KVD_STATUS_STALE_SESSION = 28,
  /**
   * The daemon declined this block; the enum kvd_refusal says why.
   */
  KVD_STATUS_DECLINED = 40,
  /**
   * The block is not there; the enum kvd_miss says why.
   */
  KVD_STATUS_MISS = 41,
  /**
   * A defect of this library. What became of the call is unknown; later calls work.
   */
  KVD_STATUS_PANICKED = 60,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum kvd_status kvd_status;
#else
typedef int32_t kvd_status;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * Why a look-up found nothing.
 */
enum kvd_miss
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint8_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /**
   * It is no miss: the block is there.
   */
  KVD_MISS_NONE = 0,
  /**
   * Not stored, as far as the daemon remembers.
   */
  KVD_MISS_NEVER_STORED = 1,
  /**
   * Its time to live ran out.
   */
  KVD_MISS_EXPIRED = 2,
  /**
   * Removed by a clear.
   */
  KVD_MISS_CLEARED = 3,
  /**
   * Stored under the same key, but in another namespace.
   */
  KVD_MISS_OTHER_NAMESPACE = 4,
  /**
   * Its checksum was wrong; it was dropped.
   */
  KVD_MISS_CORRUPT = 5,
  /**
   * No answer in time, from the daemon or from the tier.
   */
  KVD_MISS_DEADLINE = 6,
  /**
   * The daemon could not be asked, or is at a limit.
   */
  KVD_MISS_SHED = 7,
  /**
   * Made room while it was of the class none.
   */
  KVD_MISS_EVICTED_NONE = 16,
  /**
   * Made room while it was of the class ephemeral.
   */
  KVD_MISS_EVICTED_EPHEMERAL = 17,
  /**
   * Made room while it was of the class short.
   */
  KVD_MISS_EVICTED_SHORT = 18,
  /**
   * Made room while it was of the class long.
   */
  KVD_MISS_EVICTED_LONG = 19,
  /**
   * Not looked for, because an earlier key of the prefix is a miss, or because the call failed.
   */
  KVD_MISS_NOT_ASKED = 255,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum kvd_miss kvd_miss;
#else
typedef uint8_t kvd_miss;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * Why the daemon would not grant room or keep a block.
 */
enum kvd_refusal
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint8_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /**
   * It is no refusal: granted, or stored.
   */
  KVD_REFUSAL_NONE = 0,
  /**
   * No arena is shared with this client.
   */
  KVD_REFUSAL_NO_ARENA = 1,
  /**
   * Larger than the arena can ever hold.
   */
  KVD_REFUSAL_OVERSIZE = 2,
  /**
   * Nothing that may be evicted frees enough room.
   */
  KVD_REFUSAL_ARENA_FULL = 3,
  /**
   * This connection holds as many rights as it may.
   */
  KVD_REFUSAL_SESSION_LIMIT = 4,
  /**
   * Room of lost clients whose end cannot be observed fills its bound.
   */
  KVD_REFUSAL_QUARANTINE_FULL = 5,
  /**
   * Only blocks of a higher class could make room.
   */
  KVD_REFUSAL_HIGHER_PRIORITY = 6,
  /**
   * The key is stored with a higher class and keeps it.
   */
  KVD_REFUSAL_DOWNGRADE = 7,
  /**
   * The daemon does not know the ticket.
   */
  KVD_REFUSAL_UNKNOWN_TICKET = 8,
  /**
   * The ticket belongs to another connection.
   */
  KVD_REFUSAL_WRONG_OWNER = 9,
  /**
   * More bytes committed than were reserved.
   */
  KVD_REFUSAL_OVERSIZE_COMMIT = 10,
  /**
   * Key or namespace beyond the daemon's limits.
   */
  KVD_REFUSAL_BAD_KEY = 11,
  /**
   * Larger than the daemon's memory budget.
   */
  KVD_REFUSAL_VALUE_LARGER_THAN_STORE = 12,
  /**
   * The daemon is at a limit.
   */
  KVD_REFUSAL_SHED = 13,
  /**
   * It was to be stored durably, and no device could. It may be in memory.
   */
  KVD_REFUSAL_NOT_DURABLE = 14,
  /**
   * Not asked for, because the call failed.
   */
  KVD_REFUSAL_NOT_ASKED = 255,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum kvd_refusal kvd_refusal;
#else
typedef uint8_t kvd_refusal;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * How much a block is worth keeping. The lowest class goes first.
 */
enum kvd_retention
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint8_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /**
   * Goes before anything else.
   */
  KVD_RETENTION_NONE = 0,
  /**
   * Of use for the present burst of work only.
   */
  KVD_RETENTION_EPHEMERAL = 10,
  /**
   * The usual one.
   */
  KVD_RETENTION_SHORT = 50,
  /**
   * Worth a lower tier.
   */
  KVD_RETENTION_LONG = 100,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum kvd_retention kvd_retention;
#else
typedef uint8_t kvd_retention;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * Where a block is.
 */
enum kvd_tier
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint8_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /**
   * Nowhere: a miss.
   */
  KVD_TIER_NONE = 0,
  /**
   * The shared arena in host memory.
   */
  KVD_TIER_HOST = 2,
  /**
   * Local or mounted files.
   */
  KVD_TIER_DISK = 3,
  /**
   * A distributed store.
   */
  KVD_TIER_REMOTE = 4,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum kvd_tier kvd_tier;
#else
typedef uint8_t kvd_tier;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * How to attach. Zero all of it, then set what is to differ from the defaults.
 */
typedef struct kvd_options {
  /**
   * Path of the daemon's socket. Null: that of the environment's INFERA_KVD_SOCKET, else /var/run/infera-kvd.sock.
   */
  const char *socket;
  /**
   * The name under which operators see this client. Null: pid- and the process id.
   */
  const char *client_id;
  /**
   * Upper bound in milliseconds of every call that is not given one of its own. 0: 1000.
   */
  uint32_t deadline_ms;
  /**
   * A greeting that has not ended after so many milliseconds is given up and begun anew. 0: 5000.
   */
  uint32_t connect_deadline_ms;
} kvd_options;

/**
 * A client: a connection to the daemon that is made when it is needed and made again when it is lost. From kvd_attach
 * until kvd_detach. 0 is never one.
 */
typedef uint64_t kvd_client;

/**
 * What a connection is to, and what it may hold.
 */
typedef struct kvd_connection {
  /**
   * The daemon's incarnation: tickets of another one mean nothing.
   */
  uint64_t epoch;
  /**
   * Number of the connection within the incarnation.
   */
  uint64_t session;
  /**
   * Size of the arena in bytes; 0 if none is shared.
   */
  uint64_t arena_bytes;
  /**
   * Most items of one request; calls with more are split by the library.
   */
  uint64_t keys_max;
  /**
   * Most blocks under unreleased views.
   */
  uint64_t leases_max;
  /**
   * Most tickets at once.
   */
  uint64_t tickets_max;
  /**
   * Most bytes under views and tickets at once.
   */
  uint64_t in_flight_bytes_max;
  /**
   * Longest block in bytes.
   */
  uint64_t value_bytes_max;
  /**
   * Name of the incarnation, ending with a 0.
   */
  char server_id[KVD_SERVER_ID_BYTES];
} kvd_connection;

/**
 * What must agree besides the key for bytes to be usable. Both texts are UTF-8, end with a 0, have at most 1024 bytes
 * and are never null.
 */
typedef struct kvd_namespace {
  /**
   * Name or path of the model.
   */
  const char *model;
  /**
   * Weights, layout, data type, rank: whatever else the bytes depend on.
   */
  const char *compat_key;
} kvd_namespace;

/**
 * Some bytes of the caller.
 */
typedef struct kvd_bytes {
  /**
   * Where they begin. May be null if len is 0.
   */
  const void *data;
  /**
   * How many there are.
   */
  size_t len;
} kvd_bytes;

/**
 * What kvd_locate says of one key.
 */
typedef struct kvd_located {
  /**
   * Length of the block in bytes; 0 for a miss.
   */
  uint64_t len;
  /**
   * How long loading it should take, in microseconds, by the daemon's estimate.
   */
  uint32_t load_us;
  /**
   * One of enum kvd_miss; KVD_MISS_NONE if the block is there.
   */
  uint8_t miss;
  /**
   * The fastest tier that has it: one of enum kvd_tier.
   */
  uint8_t tier;
} kvd_located;

/**
 * The right to read one block in place. From kvd_fetch until it is released. 0 is never one.
 */
typedef uint64_t kvd_view;

/**
 * What kvd_fetch says of one key.
 */
typedef struct kvd_fetched {
  /**
   * The right to read; 0 for a miss.
   */
  kvd_view view;
  /**
   * The block, in place. To be read until the view is released, and never to be written. Null for a miss.
   */
  const void *data;
  /**
   * Length of the block in bytes. Blocks may be empty.
   */
  uint64_t len;
  /**
   * One of enum kvd_miss; KVD_MISS_NONE if the block is there.
   */
  uint8_t miss;
} kvd_fetched;

/**
 * The right to fill room in the arena. From kvd_reserve until kvd_commit or kvd_cancel. 0 is never one.
 */
typedef uint64_t kvd_ticket;

/**
 * What kvd_reserve says of one length.
 */
typedef struct kvd_reserved {
  /**
   * The right to write; 0 if it was refused.
   */
  kvd_ticket ticket;
  /**
   * The room, in place. To be written until the ticket is committed or cancelled. Null if it was refused.
   */
  void *data;
  /**
   * Length of the room in bytes.
   */
  uint64_t len;
  /**
   * One of enum kvd_refusal; KVD_REFUSAL_NONE if it was granted.
   */
  uint8_t refusal;
} kvd_reserved;

/**
 * Which blocks of the engine one stored block stands for. The daemon passes it on and decides nothing by it.
 */
typedef struct kvd_lineage {
  /**
   * The engine's block hashes, first block first. May be null if the count is 0.
   */
  const struct kvd_bytes *engine_hashes;
  /**
   * How many engine hashes there are.
   */
  size_t engine_hash_count;
  /**
   * The router's hashes of the same blocks. May be null if the count is 0.
   */
  const uint64_t *router_hashes;
  /**
   * How many router hashes there are.
   */
  size_t router_hash_count;
  /**
   * The engine's hash of the block before the first. Null data: there is none.
   */
  struct kvd_bytes parent;
  /**
   * Adapter that the tokens were computed with: UTF-8, ending with a 0. May be null.
   */
  const char *lora;
  /**
   * Salt that keeps equal prompts apart: UTF-8, ending with a 0. May be null.
   */
  const char *salt;
  /**
   * Tokens in one engine block.
   */
  uint32_t tokens_per_block;
} kvd_lineage;

/**
 * A filled ticket and what it is to be.
 */
typedef struct kvd_commit_item {
  /**
   * The room that was filled.
   */
  kvd_ticket ticket;
  /**
   * The key under which it is stored.
   */
  struct kvd_bytes key;
  /**
   * How many bytes were written, from the beginning of the room.
   */
  uint64_t len;
  /**
   * What the bytes cover, for whoever routes requests by it. May be null.
   */
  const struct kvd_lineage *lineage;
} kvd_commit_item;

/**
 * One of the daemon's figures.
 */
typedef struct kvd_stat {
  /**
   * Its value.
   */
  uint64_t value;
  /**
   * Its name, ending with a 0; a longer one is cut.
   */
  char name[KVD_STAT_NAME_BYTES];
} kvd_stat;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * The KVD_ABI_VERSION of the library that is linked, to be compared with that of the header.
 */
uint32_t kvd_abi_version(void);

/**
 * The release of the library, such as "0.1.0". Never null; lives as long as the library.
 */
const char *kvd_version(void);

/**
 * A stable word for a status, such as "not_connected"; "unknown" for other numbers. Never null; lives as long as the
 * library.
 */
const char *kvd_status_name(int32_t status);

/**
 * A stable word for one of enum kvd_miss. As kvd_status_name.
 */
const char *kvd_miss_name(uint8_t miss);

/**
 * A stable word for one of enum kvd_refusal. As kvd_status_name.
 */
const char *kvd_refusal_name(uint8_t refusal);

/**
 * What was behind the latest status other than KVD_STATUS_OK that this thread got, for people: UTF-8, empty if there
 * was none. Never null. The text is the library's, and lives until this thread's next such status or its end.
 */
const char *kvd_last_error(void);

/**
 * Makes a client. Needs no daemon and waits for none: the connection is made by the first call that needs it. Give it
 * back with kvd_detach.
 *
 * abi_version: KVD_ABI_VERSION, always.
 * options: may be null, for the defaults. Not kept.
 * client: where the client is written; 0 unless the status is KVD_STATUS_OK.
 */
kvd_status kvd_attach(uint32_t abi_version,
                      const struct kvd_options *options,
                      kvd_client *client);

/**
 * Connects now if there is no connection, and tells to what. For those who want to know before they go on.
 *
 * connection: where that is written. May be null. Written only if the status is KVD_STATUS_OK.
 */
kvd_status kvd_connect(kvd_client client, struct kvd_connection *connection);

/**
 * Ends a client. Calls of other threads that use it go on to their end. Views stay readable, and views and tickets
 * have still to be given back; the connection closes with the last of them.
 */
kvd_status kvd_detach(kvd_client client);

/**
 * Asks where blocks are, without taking them. What is reported present stays loadable for the daemon's promise window.
 *
 * keys, count: the keys, at most KVD_ITEMS_MAX. Any number goes; the library splits what one request does not take.
 * flags: 0 or KVD_PREFIX.
 * located: count places for the answers, in the order of the keys. All are written, whatever the status, unless the
 * status is KVD_STATUS_ARGUMENT because of this array.
 *
 * A daemon that is dead or slow is a miss: the answers are then KVD_MISS_SHED or KVD_MISS_DEADLINE, and the status says
 * why. The call ends by the client's deadline.
 */
kvd_status kvd_locate(kvd_client client,
                      const struct kvd_namespace *space,
                      const struct kvd_bytes *keys,
                      size_t count,
                      uint32_t flags,
                      struct kvd_located *located);

/**
 * Fetches blocks, to be read in place. As kvd_locate, except:
 *
 * deadline_ms: when the answer must be there. 0: the client's.
 * fetched: count places for the answers. Each one that is there holds a view, which the caller has to give back: with
 * kvd_release, or all together with kvd_release_fetched. While it is held, its bytes neither move nor change, whatever
 * becomes of the key, of the client and of the daemon.
 */
kvd_status kvd_fetch(kvd_client client,
                     const struct kvd_namespace *space,
                     const struct kvd_bytes *keys,
                     size_t count,
                     uint32_t flags,
                     uint32_t deadline_ms,
                     struct kvd_fetched *fetched);

/**
 * Tells the daemon that blocks will be fetched soon, in this order, so that it brings those that are not in memory there.
 * A hint: nothing is waited for but the sending, and a failure may be ignored.
 *
 * keys, count: the keys, at most KVD_ITEMS_MAX, those wanted first in front.
 * deadline_ms: for how long from now the copies in memory are of use. What was not begun by then is dropped. 0: the
 * client's deadline.
 */
kvd_status kvd_prefetch(kvd_client client,
                        const struct kvd_namespace *space,
                        const struct kvd_bytes *keys,
                        size_t count,
                        uint32_t deadline_ms);

/**
 * Copies a whole block out, past the processor's cache if it is large. Nothing is copied unless the status is
 * KVD_STATUS_OK.
 *
 * buffer, capacity: room for at least the block. KVD_STATUS_TOO_SMALL if it is less.
 */
kvd_status kvd_view_copy(kvd_view view, void *buffer, size_t capacity);

/**
 * Gives a view back. Its bytes must not be read any more. Does not wait for the daemon.
 */
kvd_status kvd_release(kvd_view view);

/**
 * Gives back every view of an array that kvd_fetch wrote, and makes the array one of KVD_MISS_NOT_ASKED. Views that are
 * 0 are passed over; KVD_STATUS_STALE_HANDLE says that some were not in use, the others are released nevertheless.
 */
kvd_status kvd_release_fetched(struct kvd_fetched *fetched,
                               size_t count);

/**
 * Reserves room in the arena. Each ticket that is granted has to be committed or cancelled. Room that is lacking only
 * for the moment is asked for again until the deadline.
 *
 * lens, count: the lengths of the blocks in bytes, at most KVD_ITEMS_MAX of them.
 * retention: one of enum kvd_retention.
 * deadline_ms: how long to wait for room. 0: the client's deadline.
 * reserved: count places for the answers, in the order of the lengths. All are written, whatever the status, unless
 * the status is KVD_STATUS_ARGUMENT because of this array. No ticket is granted unless the status is KVD_STATUS_OK.
 */
kvd_status kvd_reserve(kvd_client client,
                       const uint64_t *lens,
                       size_t count,
                       uint8_t retention,
                       uint32_t deadline_ms,
                       struct kvd_reserved *reserved);

/**
 * Copies bytes into the room of a ticket, past the processor's cache if they are many. The room may as well be
 * filled directly. Threads may fill different parts of it at the same time.
 *
 * at: where, in bytes from the beginning of the room. What would leave the room is KVD_STATUS_ARGUMENT.
 */
kvd_status kvd_ticket_write(kvd_ticket ticket,
                            uint64_t at,
                            struct kvd_bytes bytes);

/**
 * Stores filled tickets under their keys.
 *
 * items, count: at most KVD_ITEMS_MAX.
 * retention: one of enum kvd_retention, for all of them.
 * ttl_ms: how long they live, in milliseconds. 0: for ever.
 * refusals: count places, one of enum kvd_refusal each; KVD_REFUSAL_NONE means stored. All are written, whatever the
 * status, unless the status is KVD_STATUS_ARGUMENT because of this array.
 *
 * Statuses from 1 to 19 leave all tickets as they were, to be committed again or cancelled. In every other case they
 * are spent: what is not stored is given back. After KVD_STATUS_DEADLINE and KVD_STATUS_DISCONNECTED the blocks may or may not be stored.
 */
kvd_status kvd_commit(kvd_client client,
                      const struct kvd_namespace *space,
                      const struct kvd_commit_item *items,
                      size_t count,
                      uint8_t retention,
                      uint64_t ttl_ms,
                      uint8_t *refusals);

/**
 * Gives room back unused. It must not be written any more. Does not wait for the daemon.
 */
kvd_status kvd_cancel(kvd_ticket ticket);

/**
 * Stores one block: kvd_reserve, kvd_ticket_write and kvd_commit in one call.
 *
 * refusal: one of enum kvd_refusal, written whatever the status. May be null. KVD_STATUS_DECLINED says that the daemon
 * would not have the block.
 */
kvd_status kvd_put(kvd_client client,
                   const struct kvd_namespace *space,
                   struct kvd_bytes key,
                   struct kvd_bytes value,
                   uint8_t retention,
                   uint64_t ttl_ms,
                   uint8_t *refusal);

/**
 * Copies one block out: kvd_fetch, kvd_view_copy and kvd_release in one call.
 *
 * buffer, capacity: room for the block. KVD_STATUS_TOO_SMALL if it does not fit; then nothing is copied, and len says how
 * much it takes.
 * len: the length of the block in bytes. Never null, always written; 0 for a miss.
 * miss: one of enum kvd_miss, written whatever the status. May be null. KVD_STATUS_MISS says that the daemon does not
 * have the block.
 */
kvd_status kvd_get(kvd_client client,
                   const struct kvd_namespace *space,
                   struct kvd_bytes key,
                   void *buffer,
                   size_t capacity,
                   uint64_t *len,
                   uint8_t *miss);

/**
 * Forgets blocks in every tier. Views of them stay readable.
 *
 * model, compat_key: that namespace. compat_key null: all of the model. Both null, with the flag KVD_EVERYTHING: all
 * there is. Anything else is KVD_STATUS_ARGUMENT, so that a slip never clears more than was meant.
 * rows: how many blocks that were. May be null.
 */
kvd_status kvd_clear(kvd_client client,
                     const char *model,
                     const char *compat_key,
                     uint32_t flags,
                     uint64_t *rows);

/**
 * The daemon's counters and gauges.
 *
 * stats, capacity: places for them. stats may be null if capacity is 0.
 * count: how many figures there are. Never null, always written; if it is more than capacity, only so many were
 * written as there are places.
 */
kvd_status kvd_stats(kvd_client client,
                     struct kvd_stat *stats,
                     size_t capacity,
                     size_t *count);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* INFERA_KVD_H */
