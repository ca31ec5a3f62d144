/* Events of a consumer as columns.
 *
 * Ownership and lifetimes
 * -----------------------
 * A Taker has a queue of its own, to which the queues of partitions are forwarded, and the messages that were collected from it
 * and not yet copied. taker_new gives one, taker_free ends it, once, and before its consumer is closed: a consumer that closes
 * waits for queues that others hold. Nothing else outlives a call but the names of lanes.
 *
 * taker_collect takes messages from the queue; taker_copy writes them into arrays that the caller has made by the sizes that
 * taker_collect told, and lets the messages go. So no array ever points into librdkafka's memory.
 *
 * A lane is a topic and a partition. Lanes are numbered as they come and are kept: there are as many as partitions were seen.
 *
 * The end of a partition comes as a message without an event. It is not held: its offset, which is the next one to read, is kept
 * in its lane until taker_ends hands it over. It lies behind the markers of transactions and behind aborted records.
 *
 * One thread uses a Taker. Python's lock is not held meanwhile.
 */
#include "kafka.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { PARTITION_END = -191 }; /* RD_KAFKA_RESP_ERR__PARTITION_EOF */

/* `end` is the offset at the end of the partition where that was reached, else -1. */
typedef struct {
    char *topic;
    int32_t partition;
    int64_t end;
} Lane;

typedef struct {
    Client *client;
    Queue *queue;
    Message **held;
    int64_t count, room;
    Lane *lanes;
    int32_t known, lane_room;
} Taker;

/* What is held. `largest` is the most that one message has; errors count as messages. `ends` is the number of lanes that have an
 * end, and no message. */
typedef struct {
    int64_t messages, errors, bytes, largest, key_bytes, headers, name_bytes, header_bytes, ends;
} Sizes;

/* Arrays of the caller, an entry a message. `codes`: 0, or why there is no event. `nulls`, `key_nulls` and `header_nulls`: 1
 * where there is none. Ends are those in the bytes that they belong to. `header_counts` may be NULL where there are none. */
typedef struct {
    int64_t *offsets, *times;
    int32_t *lanes, *codes, *leader_epochs;
    char *values;
    int64_t *ends;
    uint8_t *nulls;
    char *keys;
    int64_t *key_ends;
    uint8_t *key_nulls;
    int64_t *header_counts;
    char *names;
    int64_t *name_ends;
    char *header_values;
    int64_t *header_ends;
    uint8_t *header_nulls;
} Columns;

/* A taker of a consumer's events; NULL where memory is short. */
Taker *taker_new(Client *client)
{
    Taker *taker = calloc(1, sizeof *taker);
    if (taker) {
        taker->client = client;
        taker->queue = kafka.queue_new(client);
    }
    return taker;
}

/* Let go of what is held. */
void taker_drop(Taker *taker)
{
    for (int64_t at = 0; at < taker->count; at++) {
        kafka.message_destroy(taker->held[at]);
    }
    taker->count = 0;
}

void taker_free(Taker *taker)
{
    taker_drop(taker);
    kafka.queue_destroy(taker->queue);
    for (int32_t at = 0; at < taker->known; at++) {
        free(taker->lanes[at].topic);
    }
    free(taker->lanes);
    free(taker->held);
    free(taker);
}

/* From now on a partition's messages come to this taker. It has to be said before the partition is assigned: what the library
 * has fetched until then stays in the consumer's own queue. */
void taker_forward(Taker *taker, const char *topic, int32_t partition)
{
    Queue *own = kafka.queue_of_partition(taker->client, topic, partition);
    kafka.queue_forward(own, taker->queue);
    kafka.queue_destroy(own); /* our hold on it; the partition keeps it */
}

static void add_headers(const Message *message, Sizes *sizes)
{
    Headers *headers;
    const char *name;
    const void *value;
    size_t length;
    if (message->error || kafka.message_headers(message, &headers) != 0) {
        return;
    }
    for (size_t which = 0; kafka.header_at(headers, which, &name, &value, &length) == 0; which++) {
        sizes->headers++;
        sizes->name_bytes += (int64_t)strlen(name);
        sizes->header_bytes += value ? (int64_t)length : 0;
    }
}

static void add_sizes(const Message *message, Sizes *sizes)
{
    int64_t length = (int64_t)message->length;
    sizes->messages++;
    sizes->errors += message->error != 0;
    sizes->bytes += length;
    sizes->key_bytes += (int64_t)message->key_length;
    sizes->largest = length > sizes->largest ? length : sizes->largest;
    add_headers(message, sizes);
}

static bool has_room(Taker *taker, int64_t more)
{
    if (taker->count + more > taker->room) {
        Message **larger = realloc(taker->held, (size_t)(taker->count + more) * sizeof *larger);
        if (!larger) {
            return false;
        }
        taker->held = larger;
        taker->room = taker->count + more;
    }
    return true;
}

static bool is_lane(const Lane *lane, const char *topic, int32_t partition)
{
    return lane->partition == partition && strcmp(lane->topic, topic) == 0;
}

/* The number of a lane, which is a new one if need be; -1 where memory is short. */
static int32_t lane_of(Taker *taker, const char *topic, int32_t partition)
{
    for (int32_t at = 0; at < taker->known; at++) {
        if (is_lane(&taker->lanes[at], topic, partition)) {
            return at;
        }
    }
    if (taker->known == taker->lane_room) {
        int32_t room = 2 * taker->lane_room + 8;
        Lane *larger = realloc(taker->lanes, (size_t)room * sizeof *larger);
        if (!larger) {
            return -1;
        }
        taker->lanes = larger;
        taker->lane_room = room;
    }
    size_t length = strlen(topic) + 1;
    char *copy = malloc(length);
    if (!copy) {
        return -1;
    }
    memcpy(copy, topic, length);
    taker->lanes[taker->known] = (Lane){copy, partition, -1};
    return taker->known++;
}

/* Keep the end of a partition in its lane; false where memory is short. */
static bool note_end(Taker *taker, const Message *message, Sizes *sizes)
{
    int32_t lane = lane_of(taker, message->topic ? kafka.topic_name(message->topic) : "", message->partition);
    if (lane < 0) {
        return false;
    }
    sizes->ends += taker->lanes[lane].end < 0;
    taker->lanes[lane].end = message->offset;
    return true;
}

/* Collect up to `most` messages, the first within a time; how many are held more, which is 0 where only ends of partitions came,
 * and -1 where memory is short. `sizes` grow by them. */
int64_t taker_collect(Taker *taker, int64_t most, int timeout_ms, Sizes *sizes)
{
    if (!has_room(taker, most)) {
        return -1;
    }
    Message **came = taker->held + taker->count;
    kafka_taking = true;
    ptrdiff_t count = kafka.consume(taker->queue, timeout_ms, came, (size_t)most);
    kafka_taking = false;
    int64_t before = taker->count;
    bool noted = true;
    for (ptrdiff_t at = 0; at < count; at++) {
        Message *message = came[at];
        if (message->error == PARTITION_END) {
            noted = note_end(taker, message, sizes) && noted;
            kafka.message_destroy(message);
        } else {
            add_sizes(message, sizes);
            taker->held[taker->count++] = message;
        }
    }
    return noted ? taker->count - before : -1;
}

/* Write the lanes that have an end, and the offsets of those ends, which are forgotten; how many lanes are known. */
int32_t taker_ends(Taker *taker, int32_t *lanes, int64_t *offsets)
{
    int64_t count = 0;
    for (int32_t at = 0; at < taker->known; at++) {
        if (taker->lanes[at].end >= 0) {
            lanes[count] = at;
            offsets[count++] = taker->lanes[at].end;
            taker->lanes[at].end = -1;
        }
    }
    return taker->known;
}

/* The time of the first message that is held, in Unix ms; below 0 where the broker has none. */
int64_t taker_first_time(const Taker *taker)
{
    int kind;
    return kafka.message_time(taker->held[0], &kind);
}

/* The topic of a lane; its partition is written. NULL where there is no such lane. */
const char *taker_lane(const Taker *taker, int32_t lane, int32_t *partition)
{
    if (lane >= taker->known) {
        return NULL;
    }
    *partition = taker->lanes[lane].partition;
    return taker->lanes[lane].topic;
}

typedef struct {
    int64_t values, keys, headers, names, header_values;
} Ends;

static void append(char *bytes, int64_t *end, const void *more, size_t length)
{
    if (length) {
        memcpy(bytes + *end, more, length);
        *end += (int64_t)length;
    }
}

static int64_t copy_headers(const Message *message, const Columns *columns, Ends *ends)
{
    Headers *headers;
    const char *name;
    const void *value;
    size_t length, count = 0;
    if (message->error || kafka.message_headers(message, &headers) != 0) {
        return 0;
    }
    for (; kafka.header_at(headers, count, &name, &value, &length) == 0; count++) {
        append(columns->names, &ends->names, name, strlen(name));
        append(columns->header_values, &ends->header_values, value, value ? length : 0);
        columns->name_ends[ends->headers] = ends->names;
        columns->header_ends[ends->headers] = ends->header_values;
        columns->header_nulls[ends->headers] = value == NULL;
        ends->headers++;
    }
    return (int64_t)count;
}

static void copy_message(const Message *message, const Columns *columns, int64_t at, Ends *ends)
{
    int kind;
    columns->offsets[at] = message->offset;
    columns->times[at] = kafka.message_time(message, &kind);
    columns->codes[at] = message->error;
    columns->leader_epochs[at] = message->error ? -1 : kafka.message_leader_epoch(message);
    append(columns->values, &ends->values, message->payload, message->length);
    append(columns->keys, &ends->keys, message->key, message->key_length);
    columns->ends[at] = ends->values;
    columns->nulls[at] = message->payload == NULL;
    columns->key_ends[at] = ends->keys;
    columns->key_nulls[at] = message->key == NULL;
    if (columns->header_counts) {
        columns->header_counts[at] = copy_headers(message, columns, ends);
    }
}

/* Write what is held into columns and let it go; how many lanes are known by now, -1 where memory is short. */
int32_t taker_copy(Taker *taker, const Columns *columns)
{
    Ends ends = {0};
    Topic *topic = NULL; /* of the message before, with its partition and lane: they come in runs */
    int32_t partition = -1, lane = -1;
    for (int64_t at = 0; at < taker->count; at++) {
        const Message *message = taker->held[at];
        if (message->topic != topic || message->partition != partition || lane < 0) {
            topic = message->topic;
            partition = message->partition;
            lane = lane_of(taker, topic ? kafka.topic_name(topic) : "", partition);
        }
        if (lane < 0) {
            taker_drop(taker);
            return -1;
        }
        columns->lanes[at] = lane;
        copy_message(message, columns, at, &ends);
    }
    taker_drop(taker);
    return taker->known;
}
