/* What is used of librdkafka's public interface, with the layout that its header rdkafka.h promises since version 1.6.
 *
 * Functions are not linked: Python hands in those of the librdkafka that confluent-kafka has loaded, so that there is one. */
#ifndef SCORESTREAM_KAFKA_H
#define SCORESTREAM_KAFKA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct rd_kafka_s Client;
typedef struct rd_kafka_topic_s Topic;
typedef struct rd_kafka_queue_s Queue;
typedef struct rd_kafka_error_s Error;
typedef struct rd_kafka_headers_s Headers;

typedef struct {
    int error;          /* 0: a record; else `payload` is what is said of it */
    Topic *topic;
    int32_t partition;
    void *payload;      /* NULL: there is none */
    size_t length;
    void *key;          /* NULL: there is none */
    size_t key_length;
    int64_t offset;
    void *private_;
} Message;

enum { END = 0, TOPIC = 2, PARTITION = 3, VALUE = 4, KEY = 5, FLAGS = 7, TIMESTAMP = 8 };
enum { COPY = 0x2 }; /* the library copies value and key */

typedef struct {
    int kind;
    union {
        Topic *topic;
        int flags;
        int32_t partition;
        int64_t timestamp;
        struct {
            const void *at;
            size_t length;
        } bytes;
        char room[64];
    } is;
} Argument;

typedef int OnNew(Client *client, const void *settings, void *ours, char *said, size_t room);
typedef void OnError(Client *client, int error, const char *why, void *ours);

/* In the order of FUNCTIONS in librdkafka.py. */
typedef struct {
    int (*add_on_new)(void *settings, const char *name, OnNew *on_new, void *ours);
    int (*settings_get)(const void *settings, const char *name, char *value, size_t *room);
    void (*settings_on_error)(void *settings, OnError *on_error);
    Queue *(*queue_new)(Client *client);
    void (*queue_destroy)(Queue *queue);
    Queue *(*queue_of_partition)(Client *client, const char *topic, int32_t partition);
    void (*queue_forward)(Queue *from, Queue *to);
    ptrdiff_t (*consume)(Queue *queue, int timeout_ms, Message **messages, size_t room);
    void (*message_destroy)(Message *message);
    int64_t (*message_time)(const Message *message, int *kind);
    int32_t (*message_leader_epoch)(const Message *message);
    int (*message_headers)(const Message *message, Headers **headers);
    int (*header_at)(const Headers *headers, size_t which, const char **name, const void **value, size_t *length);
    const char *(*topic_name)(const Topic *topic);
    Topic *(*topic_new)(Client *client, const char *name, void *settings);
    void (*topic_destroy)(Topic *topic);
    Error *(*produce)(Client *client, const Argument *arguments, size_t count);
    void (*error_destroy)(Error *error);
} Library;

extern Library kafka;

/* Whether this thread takes messages from a queue, see clients.c. */
extern _Thread_local bool kafka_taking;

#endif
