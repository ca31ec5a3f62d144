/* Fetch the events of a consumer as columns.
 *
 * Ownership and lifetimes
 * -----------------------
 * A Fetcher owns a queue, to which the queues of partitions are forwarded, and the messages that it collected and did not copy
 * yet. fetcher_new creates it and fetcher_free frees it, once, before its consumer is closed: closing a consumer waits for
 * queues that are still in use. Nothing else outlives a call except the topic names of lanes.
 *
 * fetcher_collect moves messages from the queue to the fetcher. fetcher_copy writes them into arrays of the caller, which have
 * the sizes that fetcher_collect returned, and destroys the messages. So no array points into librdkafka's memory.
 *
 * A lane is a topic and a partition. Lanes are numbered in the order of their first message and are never removed: there are as
 * many lanes as partitions were fetched.
 *
 * librdkafka reports the end of a partition as a message without an event. The fetcher does not hold this message: it stores
 * the offset, which is the next one to read, in the lane until fetcher_ends returns it. That offset is after the markers of
 * transactions and after aborted records.
 *
 * One thread uses a Fetcher. It does not hold Python's lock.
 */
#include "kafka.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { PARTITION_END = -191 }; /* RD_KAFKA_RESP_ERR__PARTITION_EOF */

/* `end` is the offset of the end of the partition if it was reached and not yet returned; otherwise -1. */
typedef struct {
    char *topic;
    int32_t partition;
    int64_t end;
} Lane;

typedef struct {
    Client *client;
    Queue *queue;
    Message **held;
    int64_t count, capacity;            /* of `held` */
    Lane *lanes;
    int32_t lane_count, lane_capacity;
} Fetcher;

/* Sizes of the held messages, including errors. `largest` is the size of the largest value. `ends` is the number of lanes that
 * have an end; ends are not counted as messages. */
typedef struct {
    int64_t messages, errors, bytes, largest, key_bytes, headers, name_bytes, header_bytes, ends;
} Sizes;

/* Arrays of the caller with one entry per message; `name_ends`, `header_ends` and `header_nulls` have one per header.
 *
 * `codes` is 0, or the error code of a message that is no event. `nulls`, `key_nulls` and `header_nulls` are 1 if the value is
 * missing. `ends`, `key_ends`, `name_ends` and `header_ends` are offsets in `values`, `keys`, `names` and `header_values`.
 * `header_counts` is NULL if no message has headers. */
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

/* Create a fetcher for a consumer; NULL if memory is exhausted. */
Fetcher *fetcher_new(Client *client)
{
    Fetcher *fetcher = calloc(1, sizeof *fetcher);
    if (fetcher) {
        fetcher->client = client;
        fetcher->queue = kafka.queue_new(client);
    }
    return fetcher;
}

/* Destroy the held messages. */
void fetcher_discard(Fetcher *fetcher)
{
    for (int64_t at = 0; at < fetcher->count; at++) {
        kafka.message_destroy(fetcher->held[at]);
    }
    fetcher->count = 0;
}

void fetcher_free(Fetcher *fetcher)
{
    fetcher_discard(fetcher);
    kafka.queue_destroy(fetcher->queue);
    for (int32_t at = 0; at < fetcher->lane_count; at++) {
        free(fetcher->lanes[at].topic);
    }
    free(fetcher->lanes);
    free(fetcher->held);
    free(fetcher);
}

/* Forward a partition's messages to this fetcher. Call it before the partition is assigned: messages that librdkafka fetched
 * before remain in the consumer's own queue. */
void fetcher_forward(Fetcher *fetcher, const char *topic, int32_t partition)
{
    Queue *source = kafka.queue_of_partition(fetcher->client, topic, partition);
    kafka.queue_forward(source, fetcher->queue);
    kafka.queue_destroy(source); /* only this reference: the partition keeps its queue */
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

static bool reserve(Fetcher *fetcher, int64_t more)
{
    if (fetcher->count + more > fetcher->capacity) {
        Message **larger = realloc(fetcher->held, (size_t)(fetcher->count + more) * sizeof *larger);
        if (!larger) {
            return false;
        }
        fetcher->held = larger;
        fetcher->capacity = fetcher->count + more;
    }
    return true;
}

static bool lane_matches(const Lane *lane, const char *topic, int32_t partition)
{
    return lane->partition == partition && strcmp(lane->topic, topic) == 0;
}

/* Return the number of a lane, which is added if it is new; -1 if memory is exhausted. */
static int32_t lane_of(Fetcher *fetcher, const char *topic, int32_t partition)
{
    for (int32_t at = 0; at < fetcher->lane_count; at++) {
        if (lane_matches(&fetcher->lanes[at], topic, partition)) {
            return at;
        }
    }
    if (fetcher->lane_count == fetcher->lane_capacity) {
        int32_t capacity = 2 * fetcher->lane_capacity + 8;
        Lane *larger = realloc(fetcher->lanes, (size_t)capacity * sizeof *larger);
        if (!larger) {
            return -1;
        }
        fetcher->lanes = larger;
        fetcher->lane_capacity = capacity;
    }
    size_t length = strlen(topic) + 1;
    char *copy = malloc(length);
    if (!copy) {
        return -1;
    }
    memcpy(copy, topic, length);
    fetcher->lanes[fetcher->lane_count] = (Lane){copy, partition, -1};
    return fetcher->lane_count++;
}

/* Store the end of a partition in its lane; false if memory is exhausted. */
static bool store_end(Fetcher *fetcher, const Message *message, Sizes *sizes)
{
    int32_t lane = lane_of(fetcher, message->topic ? kafka.topic_name(message->topic) : "", message->partition);
    if (lane < 0) {
        return false;
    }
    sizes->ends += fetcher->lanes[lane].end < 0;
    fetcher->lanes[lane].end = message->offset;
    return true;
}

/* Collect up to `most` messages, waiting at most `timeout_ms` for the first, and add their sizes to `sizes`.
 *
 * Return the number of messages collected, which is 0 if only ends of partitions arrived; -1 if memory is exhausted. */
int64_t fetcher_collect(Fetcher *fetcher, int64_t most, int timeout_ms, Sizes *sizes)
{
    if (!reserve(fetcher, most)) {
        return -1;
    }
    Message **received = fetcher->held + fetcher->count;
    kafka_fetching = true;
    ptrdiff_t count = kafka.consume(fetcher->queue, timeout_ms, received, (size_t)most);
    kafka_fetching = false;
    int64_t before = fetcher->count;
    bool stored = true;
    for (ptrdiff_t at = 0; at < count; at++) {
        Message *message = received[at];
        if (message->error == PARTITION_END) {
            stored = store_end(fetcher, message, sizes) && stored;
            kafka.message_destroy(message);
        } else {
            add_sizes(message, sizes);
            fetcher->held[fetcher->count++] = message;
        }
    }
    return stored ? fetcher->count - before : -1;
}

/* Write the lanes that have an end, and the offsets of those ends, and clear the ends. Both arrays have `sizes.ends` entries.
 * Return the number of lanes. */
int32_t fetcher_ends(Fetcher *fetcher, int32_t *lanes, int64_t *offsets)
{
    int64_t count = 0;
    for (int32_t at = 0; at < fetcher->lane_count; at++) {
        if (fetcher->lanes[at].end >= 0) {
            lanes[count] = at;
            offsets[count++] = fetcher->lanes[at].end;
            fetcher->lanes[at].end = -1;
        }
    }
    return fetcher->lane_count;
}

/* Return the timestamp of the first held message in Unix ms; negative if it has none. */
int64_t fetcher_first_time(const Fetcher *fetcher)
{
    int kind;
    return kafka.message_time(fetcher->held[0], &kind);
}

/* Return the topic of a lane and write its partition; NULL if the lane does not exist. */
const char *fetcher_lane(const Fetcher *fetcher, int32_t lane, int32_t *partition)
{
    if (lane >= fetcher->lane_count) {
        return NULL;
    }
    *partition = fetcher->lanes[lane].partition;
    return fetcher->lanes[lane].topic;
}

/* The bytes written so far, and in `headers` the number of headers written. */
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

/* Write the held messages into columns and destroy them. Return the number of lanes; -1 if memory is exhausted. */
int32_t fetcher_copy(Fetcher *fetcher, const Columns *columns)
{
    Ends ends = {0};
    Topic *topic = NULL; /* of the previous message, with its partition and lane: consecutive messages often share them */
    int32_t partition = -1, lane = -1;
    for (int64_t at = 0; at < fetcher->count; at++) {
        const Message *message = fetcher->held[at];
        if (message->topic != topic || message->partition != partition || lane < 0) {
            topic = message->topic;
            partition = message->partition;
            lane = lane_of(fetcher, topic ? kafka.topic_name(topic) : "", partition);
        }
        if (lane < 0) {
            fetcher_discard(fetcher);
            return -1;
        }
        columns->lanes[at] = lane;
        copy_message(message, columns, at, &ends);
    }
    fetcher_discard(fetcher);
    return fetcher->lane_count;
}
