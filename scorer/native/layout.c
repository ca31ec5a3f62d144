/* Check that the loaded librdkafka has the structures that kafka.h declares.
 *
 * A producer without a broker queues one record and purges it. Its delivery report is compared with the record. This covers the
 * arguments of rd_kafka_produceva and each field of a message that this object reads. Nothing is sent. It takes about a
 * millisecond.
 */
#include "kafka.h"

#include <string.h>

enum { PRODUCER = 0, PURGED = -152, PURGE_QUEUE = 1, NO_OFFSET = -1001 }; /* constants of rdkafka.h */
enum { RECORD_PARTITION = 7, POLLS = 100, POLL_MS = 100 };

static const char RECORD_TOPIC[] = "scorestream-layout", RECORD_VALUE[] = "a value", RECORD_KEY[] = "a key";

static _Thread_local bool reported;
static _Thread_local const char *mismatch;

/* Return the name of the first field that differs from the record, or NULL. Pointers are followed only if the numbers are
 * right. */
static const char *compare(const Message *message)
{
    size_t length = sizeof RECORD_VALUE - 1, key_length = sizeof RECORD_KEY - 1;
    if (message->error != PURGED) {
        return "err";
    }
    if (message->partition != RECORD_PARTITION) {
        return "partition";
    }
    if (message->length != length) {
        return "len";
    }
    if (message->key_length != key_length) {
        return "key_len";
    }
    if (message->offset != NO_OFFSET) {
        return "offset";
    }
    if (!message->payload || memcmp(message->payload, RECORD_VALUE, length) != 0) {
        return "payload";
    }
    if (!message->key || memcmp(message->key, RECORD_KEY, key_length) != 0) {
        return "key";
    }
    if (!message->topic || strcmp(kafka.topic_name(message->topic), RECORD_TOPIC) != 0) {
        return "rkt";
    }
    return NULL;
}

static void on_delivery(Client *client, const Message *message, void *opaque)
{
    (void)client, (void)opaque;
    reported = true;
    mismatch = compare(message);
}

/* Produce and purge the record, and wait for its delivery report. Return what failed, or NULL. */
static const char *run_record(Client *client)
{
    Topic *topic = kafka.topic_new(client, RECORD_TOPIC, NULL);
    if (!topic) {
        return "rd_kafka_topic_new";
    }
    Argument arguments[] = {
        {TOPIC, {.topic = topic}},
        {PARTITION, {.partition = RECORD_PARTITION}},
        {VALUE, {.bytes = {RECORD_VALUE, sizeof RECORD_VALUE - 1}}},
        {KEY, {.bytes = {RECORD_KEY, sizeof RECORD_KEY - 1}}},
        {TIMESTAMP, {.timestamp = 1}}, /* is not compared: a failed message has no timestamp */
        {FLAGS, {.flags = COPY}},
    };
    Error *error = kafka.produce(client, arguments, sizeof arguments / sizeof *arguments);
    kafka.topic_destroy(topic);
    if (error) {
        kafka.error_destroy(error);
        return "rd_kafka_produceva";
    }
    if (kafka.purge(client, PURGE_QUEUE) != 0) {
        return "rd_kafka_purge";
    }
    for (int polls = 0; polls < POLLS && !reported; polls++) {
        kafka.poll(client, POLL_MS);
    }
    return reported ? mismatch : "delivery report";
}

/* Return the first field of rd_kafka_message_t, or the function, that differs from kafka.h; NULL if none does. */
const char *kafka_layout_mismatch(void)
{
    char error_text[256];
    void *settings = kafka.settings_new();
    kafka.settings_set(settings, "log_level", "0", error_text, sizeof error_text); /* it would log that it has no broker */
    kafka.settings_on_delivery(settings, on_delivery);
    Client *client = kafka.client_new(PRODUCER, settings, error_text, sizeof error_text);
    if (!client) {
        kafka.settings_destroy(settings);
        return "rd_kafka_new";
    }
    reported = false;
    mismatch = NULL;
    const char *result = run_record(client);
    kafka.client_destroy(client);
    return result;
}
