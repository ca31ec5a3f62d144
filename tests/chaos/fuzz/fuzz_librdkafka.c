/* Messages of any content at fetch.c, their keys at hash.c, and records of any pieces at produce.c, for so many seconds: fuzz_librdkafka
 * SEED SECONDS. Built with the address sanitizer and the undefined behaviour sanitizer; it prints how many messages and records
 * there were.
 *
 * A library of this file's own stands in for librdkafka. Every buffer has the size that the caller makes, and not a byte more.
 * What is checked besides: each column holds what the messages held, every message is released once, and a producer is given the
 * bytes that records_values writes.
 */
#include "hash.c"
#include "fetch.c"
#include "produce.c"

#include <stdio.h>
#include <time.h>

enum { MOST = 40, LONGEST = 50, MAX_HEADERS = 4, TOPICS = 3, ROUNDS_A_LOOK = 500 };

typedef struct {
    const char *name;
    char value[LONGEST];
    size_t length;
    bool null;
} Header;

typedef struct {
    Message message;
    Header headers[MAX_HEADERS + 1];
    size_t header_count;
    char payload[LONGEST], key[LONGEST];
} Made;

static const char *const TOPIC_NAMES[TOPICS] = {"a", "another.topic", ""};
static const char *const HEADER_NAMES[] = {"", "ce_id", "deadline", "\xff\xfe", "traceparent"};
static uint64_t state;
static int64_t alive, messages, written;
static ptrdiff_t refuses_at;
static char produced[1 << 20];
static size_t produced_length;
static int64_t produced_ends[MOST], produced_count;

static uint32_t drawn(uint32_t below)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33) % below;
}

static void check(bool holds, const char *what)
{
    if (!holds) {
        fprintf(stderr, "%s does not hold\n", what);
        abort();
    }
}

/* ---- a library ---- */

static void *bytes_or_null(char *room, size_t *length)
{
    *length = 0;
    if (drawn(5) == 0) {
        return NULL;
    }
    *length = drawn(LONGEST);
    for (size_t at = 0; at < *length; at++) {
        room[at] = (char)drawn(256);
    }
    return room;
}

static Message *made(void)
{
    Made *one = calloc(1, sizeof *one);
    Message *message = &one->message;
    message->error = drawn(10) ? 0 : drawn(3) ? -(int)drawn(200) : PARTITION_END;
    message->topic = drawn(30) ? (Topic *)(uintptr_t)TOPIC_NAMES[drawn(TOPICS)] : NULL;
    message->partition = (int32_t)drawn(12) - 1;
    message->offset = drawn(1000);
    message->payload = bytes_or_null(one->payload, &message->length);
    message->key = bytes_or_null(one->key, &message->key_length);
    one->header_count = drawn(2) ? 0 : drawn(MAX_HEADERS + 1);
    for (size_t which = 0; which < one->header_count; which++) {
        Header *header = &one->headers[which];
        header->name = HEADER_NAMES[drawn(sizeof HEADER_NAMES / sizeof *HEADER_NAMES)];
        header->null = bytes_or_null(header->value, &header->length) == NULL;
    }
    alive++;
    messages++;
    return message;
}

static ptrdiff_t consume(Queue *queue, int timeout_ms, Message **room, size_t most)
{
    (void)queue, (void)timeout_ms;
    if (drawn(50) == 0) {
        return -1;
    }
    ptrdiff_t count = (ptrdiff_t)drawn((uint32_t)most + 1);
    for (ptrdiff_t at = 0; at < count; at++) {
        room[at] = made();
    }
    return count;
}

static void message_destroy(Message *message)
{
    alive--;
    free(message);
}

static int64_t message_time(const Message *message, int *kind)
{
    *kind = 1;
    return message->offset * 7 - 1;
}

static int32_t message_leader_epoch(const Message *message)
{
    return message->partition;
}

static int message_headers(const Message *message, Headers **headers)
{
    *headers = (Headers *)(uintptr_t)message;
    return ((const Made *)message)->header_count == 0;
}

static int header_at(const Headers *headers, size_t which, const char **name, const void **value, size_t *length)
{
    const Made *one = (const Made *)headers;
    const Header *header = &one->headers[which];
    if (which >= one->header_count) {
        return 1;
    }
    *name = header->name;
    *value = header->null ? NULL : header->value;
    *length = header->length;
    return 0;
}

static const char *topic_name(const Topic *topic)
{
    return (const char *)topic;
}

static Queue *queue_new(Client *client)
{
    return (Queue *)client;
}

static void queue_destroy(Queue *queue)
{
    (void)queue;
}

static Topic *topic_new(Client *client, const char *name, void *settings)
{
    (void)client, (void)settings;
    return (Topic *)(uintptr_t)name;
}

static void topic_destroy(Topic *topic)
{
    (void)topic;
}

static Error *produce(Client *client, const Argument *arguments, size_t count)
{
    (void)client;
    check(count == 6 && arguments[2].kind == VALUE && arguments[3].kind == KEY, "the order of arguments");
    if (refuses_at-- == 0) {
        return (Error *)produced;
    }
    size_t length = arguments[2].is.bytes.length;
    memcpy(produced + produced_length, arguments[2].is.bytes.at, length);
    produced_length += length;
    produced_ends[produced_count++] = (int64_t)produced_length;
    return NULL;
}

static void error_destroy(Error *error)
{
    (void)error;
}

/* ---- what is taken ---- */

/* An array of exactly so many entries. */
static void *exactly(int64_t count, size_t size)
{
    return malloc(count ? (size_t)count * size : 1);
}

static Columns columns_for(const Sizes *sizes)
{
    int64_t count = sizes->messages, headers = sizes->headers;
    return (Columns){
        .offsets = exactly(count, 8), .times = exactly(count, 8), .lanes = exactly(count, 4), .codes = exactly(count, 4),
        .leader_epochs = exactly(count, 4), .values = exactly(sizes->bytes, 1), .ends = exactly(count, 8),
        .nulls = exactly(count, 1), .keys = exactly(sizes->key_bytes, 1), .key_ends = exactly(count, 8),
        .key_nulls = exactly(count, 1), .header_counts = headers ? exactly(count, 8) : NULL,
        .names = exactly(sizes->name_bytes, 1), .name_ends = exactly(headers, 8),
        .header_values = exactly(sizes->header_bytes, 1), .header_ends = exactly(headers, 8),
        .header_nulls = exactly(headers, 1),
    };
}

static void free_columns(Columns *columns)
{
    void *all[] = {columns->offsets, columns->times, columns->lanes, columns->codes, columns->leader_epochs, columns->values,
                   columns->ends, columns->nulls, columns->keys, columns->key_ends, columns->key_nulls, columns->header_counts,
                   columns->names, columns->name_ends, columns->header_values, columns->header_ends, columns->header_nulls};
    for (size_t at = 0; at < sizeof all / sizeof *all; at++) {
        free(all[at]);
    }
}

static void check_row(const Fetcher *fetcher, const Columns *columns, const Message *message, int64_t at)
{
    int64_t start = at ? columns->ends[at - 1] : 0, key = at ? columns->key_ends[at - 1] : 0;
    int32_t partition = -9;
    const char *topic = fetcher_lane(fetcher, columns->lanes[at], &partition);
    check(columns->offsets[at] == message->offset && columns->codes[at] == message->error, "offset and code");
    check(partition == message->partition, "partition");
    check(strcmp(topic, message->topic ? topic_name(message->topic) : "") == 0, "topic");
    check((size_t)(columns->ends[at] - start) == message->length, "length");
    check((size_t)(columns->key_ends[at] - key) == message->key_length, "length of a key");
    check(columns->nulls[at] == !message->payload && columns->key_nulls[at] == !message->key, "null");
    check(!message->length || !memcmp(columns->values + start, message->payload, message->length), "value");
    check(!message->key_length || !memcmp(columns->keys + key, message->key, message->key_length), "key");
    if (message->key_length) {
        int64_t zero = 0, length = (int64_t)message->key_length;
        uint64_t hash, again;
        texts_hash(columns->keys, &key, &columns->key_ends[at], 1, 7, &hash);
        texts_hash(message->key, &zero, &length, 1, 7, &again);
        check(hash == again, "hash of a key");
    }
    if (columns->header_counts) {
        size_t wanted = message->error ? 0 : ((const Made *)message)->header_count;
        check((size_t)columns->header_counts[at] == wanted, "headers");
    }
}

/* Check the messages and ends that fetcher_collect returns; `made` generates their offsets. */
static void check_ends(Fetcher *fetcher, const Sizes *sizes)
{
    int32_t *lanes = exactly(sizes->ends, 4);
    int64_t *offsets = exactly(sizes->ends, 8);
    int32_t known = fetcher_ends(fetcher, lanes, offsets);
    for (int64_t at = 0; at < sizes->ends; at++) {
        check(lanes[at] >= 0 && lanes[at] < known && (at == 0 || lanes[at - 1] < lanes[at]), "lanes of ends");
        check(offsets[at] >= 0 && offsets[at] < 1000, "offsets of ends");
    }
    for (int32_t lane = 0; lane < fetcher->lane_count; lane++) {
        check(fetcher->lanes[lane].end < 0, "ends are handed over once");
    }
    free(lanes);
    free(offsets);
}

static void take_once(Fetcher *fetcher)
{
    Sizes sizes = {0};
    for (uint32_t more = drawn(4); more; more--) {
        int64_t before = fetcher->count, came = fetcher_collect(fetcher, 1 + drawn(MOST / 4), 0, &sizes);
        check(fetcher->count == before + came, "what came is held");
    }
    check(sizes.messages == fetcher->count, "count");
    check_ends(fetcher, &sizes);
    for (int64_t at = 0; at < fetcher->count; at++) {
        check(fetcher->held[at]->error != PARTITION_END, "ends are not held");
    }
    if (drawn(20) == 0) {
        fetcher_discard(fetcher);
        return;
    }
    Columns columns = columns_for(&sizes);
    Made *copies = exactly(fetcher->count, sizeof *copies);
    int64_t count = fetcher->count;
    for (int64_t at = 0; at < count; at++) {
        copies[at] = *(Made *)fetcher->held[at];
        copies[at].message.payload = copies[at].message.payload ? copies[at].payload : NULL;
        copies[at].message.key = copies[at].message.key ? copies[at].key : NULL;
    }
    check(fetcher_copy(fetcher, &columns) >= 0 && alive == 0, "every message is released");
    for (int64_t at = 0; at < count; at++) {
        check_row(fetcher, &columns, &copies[at].message, at);
    }
    free(copies);
    free_columns(&columns);
}

/* ---- what is written ---- */

static void write_once(void)
{
    enum { PIECES = 3 };
    int64_t count = 1 + drawn(MOST), starts[MOST], ends[MOST], numbers[MOST], times[MOST] = {0}, value_ends[MOST];
    int32_t which[MOST], partitions[MOST] = {0};
    uint8_t nulls[MOST];
    char *text = exactly(LONGEST, 1), *scratch, *values;
    size_t most = 0, all = 0;
    for (int64_t at = 0; at < count; at++) {
        ends[at] = 1 + drawn(LONGEST);
        starts[at] = drawn((uint32_t)ends[at] + 1);
        numbers[at] = drawn(3) ? (int64_t)drawn(100000) - 50000 : drawn(2) ? INT64_MIN : INT64_MAX;
        which[at] = (int32_t)drawn((uint32_t)count);
        nulls[at] = drawn(2) == 0;
    }
    for (int64_t at = 0; at < LONGEST; at++) {
        text[at] = (char)drawn(256);
    }
    int64_t key_ends[MOST];
    for (int64_t at = 0; at < count; at++) {
        key_ends[at] = at ? key_ends[at - 1] + drawn(2) : 0;
    }
    Piece pieces[PIECES] = {{text, starts, ends, NULL, NULL}, {text, starts, ends, which, NULL}, {.numbers = numbers}};
    for (int64_t at = 0; at < count; at++) {
        char digits[24];
        size_t length = (size_t)(ends[at] - starts[at] + ends[which[at]] - starts[which[at]]);
        length += (size_t)snprintf(digits, sizeof digits, "%lld", (long long)numbers[at]);
        most = length > most ? length : most;
        all += length;
    }
    Records records = {count, PIECES, pieces, partitions, times, text, key_ends, nulls};
    values = malloc(all);
    scratch = malloc(most);
    records_values(&records, values, value_ends);
    check((size_t)value_ends[count - 1] == all, "the sum of lengths");
    produced_length = 0;
    produced_count = 0;
    int64_t first = 0;
    while (first < count) { /* a record that is refused is handed over again */
        refuses_at = drawn((uint32_t)count + 5);
        first = records_write(&records, NULL, "t", first, scratch);
    }
    check(produced_length == all && !memcmp(produced, values, all), "what is produced");
    check(!memcmp(produced_ends, value_ends, (size_t)count * sizeof *value_ends), "ends");
    written += count;
    free(text);
    free(values);
    free(scratch);
}

int main(int count, char **words)
{
    check(count == 3, "fuzz_librdkafka SEED SECONDS");
    kafka = (Library){.queue_new = queue_new, .queue_destroy = queue_destroy, .consume = consume,
                      .message_destroy = message_destroy, .message_time = message_time,
                      .message_leader_epoch = message_leader_epoch, .message_headers = message_headers, .header_at = header_at,
                      .topic_name = topic_name, .topic_new = topic_new, .topic_destroy = topic_destroy, .produce = produce,
                      .error_destroy = error_destroy};
    state = strtoull(words[1], NULL, 10);
    time_t until = time(NULL) + atol(words[2]);
    Fetcher *fetcher = fetcher_new(NULL);
    do {
        for (int round = 0; round < ROUNDS_A_LOOK; round++) {
            take_once(fetcher);
            write_once();
        }
    } while (time(NULL) < until);
    fetcher_free(fetcher);
    check(alive == 0, "every message is released at the end");
    printf("{\"messages\": %lld, \"records\": %lld}\n", (long long)messages, (long long)written);
    return 0;
}
