/* Assemble records from columns and produce them.
 *
 * The value of a record is the concatenation of its pieces. All arguments are borrowed for the time of a call and only read,
 * except `value`: a buffer of the caller that is large enough for each record of the call. librdkafka copies the records that
 * it accepts.
 */
#include "kafka.h"

#include <string.h>

/* The piece of record i is text[starts[i], ends[i]); with `which` it is text[starts[which[i]], ends[which[i]]). Without `text`
 * it is the decimal digits of numbers[i]. */
typedef struct {
    const char *text;
    const int64_t *starts, *ends;
    const int32_t *which;
    const int64_t *numbers;
} Piece;

typedef struct {
    int64_t count, pieces;
    const Piece *piece;
    const int32_t *partitions;
    const int64_t *times;       /* Unix ms */
    const char *keys;
    const int64_t *key_ends;
    const uint8_t *key_nulls;
} Records;

static char *append_number(char *at, int64_t number)
{
    char digits[20];
    int count = 0;
    uint64_t rest = number < 0 ? (uint64_t)0 - (uint64_t)number : (uint64_t)number;
    if (number < 0) {
        *at++ = '-';
    }
    do {
        digits[count++] = (char)('0' + rest % 10);
        rest /= 10;
    } while (rest);
    while (count) {
        *at++ = digits[--count];
    }
    return at;
}

static char *append_value(char *at, const Records *records, int64_t record)
{
    for (int64_t which = 0; which < records->pieces; which++) {
        const Piece *piece = &records->piece[which];
        if (!piece->text) {
            at = append_number(at, piece->numbers[record]);
            continue;
        }
        int64_t entry = piece->which ? piece->which[record] : record;
        size_t length = (size_t)(piece->ends[entry] - piece->starts[entry]);
        memcpy(at, piece->text + piece->starts[entry], length);
        at += length;
    }
    return at;
}

/* Write the concatenated values of all records, and the offset of the end of each. */
void records_values(const Records *records, char *values, int64_t *ends)
{
    char *at = values;
    for (int64_t record = 0; record < records->count; record++) {
        at = append_value(at, records, record);
        ends[record] = at - values;
    }
}

/* Produce the records from `first` on. Return the index of the first record that the producer rejects; `count` if it accepts
 * all. */
int64_t records_write(const Records *records, Client *client, const char *name, int64_t first, char *value)
{
    Topic *topic = kafka.topic_new(client, name, NULL);
    if (!topic) {
        return first;
    }
    int64_t record = first;
    for (; record < records->count; record++) {
        int64_t key = record ? records->key_ends[record - 1] : 0;
        const char *key_at = records->key_nulls[record] ? NULL : records->keys + key;
        size_t key_length = (size_t)(records->key_ends[record] - key);
        size_t length = (size_t)(append_value(value, records, record) - value);
        Argument arguments[] = {
            {TOPIC, {.topic = topic}},
            {PARTITION, {.partition = records->partitions[record]}},
            {VALUE, {.bytes = {value, length}}},
            {KEY, {.bytes = {key_at, key_length}}},
            {TIMESTAMP, {.timestamp = records->times[record]}},
            {FLAGS, {.flags = COPY}},
        };
        Error *error = kafka.produce(client, arguments, sizeof arguments / sizeof *arguments);
        if (error) {
            kafka.error_destroy(error);
            break;
        }
    }
    kafka.topic_destroy(topic);
    return record;
}
