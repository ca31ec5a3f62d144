/* The bound functions of librdkafka, and the handles of Kafka clients.
 *
 * This shared object is a librdkafka plugin (`plugin.library.paths`): librdkafka calls it for each client that is created with
 * the plugin. The thread that created a client reads the client's handle right afterwards. A handle is valid until its client
 * is closed or destroyed; Python keeps both together.
 *
 * Errors of a partition, such as a deleted topic, arrive in the partition's queue. librdkafka reports them by the error
 * callback in the thread that reads the queue. confluent-kafka's error callback ends the process if it is called outside of
 * confluent-kafka's own calls. So this plugin replaces the error callback of each client by one that drops errors while this
 * thread fetches messages. The consumer learns of those errors from the group and from metadata. */
#include "kafka.h"

#include <stdlib.h>
#include <string.h>

#ifndef NATIVE_SOURCE
#define NATIVE_SOURCE ""
#endif

Library kafka;

static _Thread_local Client *newest;

/* Return the digest of the sources that this object was compiled from. */
const char *native_source(void)
{
    return NATIVE_SOURCE;
}

/* Return the major version of librdkafka that this object was written for. */
int kafka_major(void)
{
    return LIBRDKAFKA_MAJOR;
}

/* Bind the functions of librdkafka, once, before any client is created with this plugin.
 *
 * Return 0, or the version of the library (0xMMmmrrxx) if its major version is another one; then nothing is bound. */
int kafka_bind(const void *functions)
{
    Library library;
    memcpy(&library, functions, sizeof library);
    int version = library.version();
    if (version >> 24 != LIBRDKAFKA_MAJOR) {
        return version;
    }
    kafka = library;
    return 0;
}

_Thread_local bool kafka_fetching;

static OnError *original_on_error; /* confluent-kafka's, which is the same for all its clients */

static void on_error(Client *client, int error, const char *reason, void *opaque)
{
    if (!kafka_fetching) {
        original_on_error(client, error, reason, opaque);
    }
}

/* Replace the error callback of a client. librdkafka returns the current one as the text of its address. */
static void replace_on_error(void *settings)
{
    char text[32];
    size_t size = sizeof text;
    if (kafka.settings_get(settings, "error_cb", text, &size) != 0) {
        return;
    }
    OnError *current = (OnError *)(uintptr_t)strtoull(text, NULL, 16);
    if (current && current != on_error) {
        original_on_error = current;
        kafka.settings_on_error(settings, on_error);
    }
}

/* Called for each new client. `settings` are the client's own copy, and no other thread uses them yet. */
static int on_new(Client *client, const void *settings, void *opaque, char *error_text, size_t error_size)
{
    (void)opaque, (void)error_text, (void)error_size;
    replace_on_error((void *)settings);
    newest = client;
    return 0;
}

/* Initialize the plugin for one client's settings. librdkafka requires this name. */
int conf_init(void *settings, void **opaque, char *error_text, size_t error_size)
{
    (void)opaque, (void)error_text, (void)error_size;
    return kafka.add_on_new(settings, "scorestream", on_new, NULL);
}

/* Return the client that this thread created last, once; NULL if it was returned already. */
Client *kafka_newest(void)
{
    Client *client = newest;
    newest = NULL;
    return client;
}
