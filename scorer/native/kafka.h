/* The part of librdkafka's public interface that this object uses, with the layout of its header rdkafka.h.
 *
 * The functions are not linked: Python passes those of the librdkafka that confluent-kafka has loaded, so that the process has
 * one librdkafka. Another major version is refused (clients.c), and the layout is checked before use (layout.c). */
#ifndef SCORESTREAM_KAFKA_H
#define SCORESTREAM_KAFKA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { LIBRDKAFKA_MAJOR = 2 }; /* the layout below is that of 2.0 and of each later 2.x so far */

typedef struct rd_kafka_s Client;
typedef struct rd_kafka_topic_s Topic;
typedef struct rd_kafka_queue_s Queue;
typedef struct rd_kafka_error_s Error;
typedef struct rd_kafka_headers_s Headers;

/* rd_kafka_message_t */
typedef struct {
    int error;          /* 0 for a record; otherwise `payload` is the error text */
    Topic *topic;
    int32_t partition;
    void *payload;      /* NULL if the record has no value */
    size_t length;
    void *key;          /* NULL if the record has no key */
    size_t key_length;
    int64_t offset;
    void *private_;
} Message;

/* rd_kafka_vtype_t */
enum { END = 0, TOPIC = 2, PARTITION = 3, VALUE = 4, KEY = 5, FLAGS = 7, TIMESTAMP = 8 };
enum { COPY = 0x2 }; /* the library copies value and key */

/* rd_kafka_vu_t */
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
        char padding[64];
    } is;
} Argument;

typedef int OnNew(Client *client, const void *settings, void *opaque, char *error_text, size_t error_size);
typedef void OnError(Client *client, int error, const char *reason, void *opaque);
typedef void OnDelivery(Client *client, const Message *message, void *opaque);

/* In the order of FUNCTIONS in librdkafka.py. */
typedef struct {
    int (*version)(void);
    int (*add_on_new)(void *settings, const char *name, OnNew *on_new, void *opaque);
    int (*settings_get)(const void *settings, const char *name, char *value, size_t *size);
    void (*settings_on_error)(void *settings, OnError *on_error);
    Queue *(*queue_new)(Client *client);
    void (*queue_destroy)(Queue *queue);
    Queue *(*queue_of_partition)(Client *client, const char *topic, int32_t partition);
    void (*queue_forward)(Queue *from, Queue *to);
    ptrdiff_t (*consume)(Queue *queue, int timeout_ms, Message **messages, size_t capacity);
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
    void *(*settings_new)(void);
    int (*settings_set)(void *settings, const char *name, const char *value, char *error_text, size_t error_size);
    void (*settings_on_delivery)(void *settings, OnDelivery *on_delivery);
    void (*settings_destroy)(void *settings);
    Client *(*client_new)(int kind, void *settings, char *error_text, size_t error_size);
    void (*client_destroy)(Client *client);
    int (*purge)(Client *client, int flags);
    int (*poll)(Client *client, int timeout_ms);
} Library;

extern Library kafka;

/* Whether this thread is fetching messages from a queue, see clients.c. */
extern _Thread_local bool kafka_fetching;

#endif
